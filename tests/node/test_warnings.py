"""What `status` warns of: what an operator must know although the node goes on."""

import dataclasses

import msgspec

from rollmq.core.events import Settings
from rollmq.node.query_status import NodeFacts, status
from rollmq.wire.query import Status
from tests.node.stage import Host


def status_with(host: Host, **facts: object) -> Status:
    """What a node with these facts says."""
    return status(dataclasses.replace(host.facts(), **facts), host.leader)  # type: ignore[arg-type]


def test_a_node_that_is_well_warns_of_nothing() -> None:
    assert status_with(Host()).warnings == []


def test_a_helper_that_fails_is_counted_and_shown_with_its_reason() -> None:
    """Rule 6: it is tried again, and the node goes on; somebody must see it all the same."""
    told = status_with(Host(), fold_failures_count=3, fold_failure="history/events-1.jsonl:7: another crc")
    assert (told.fold_failures, told.fold_failure) == (3, "history/events-1.jsonl:7: another crc")
    (warning,) = told.warnings
    assert "3 times in a row" in warning
    assert "history/events-1.jsonl:7: another crc" in warning


def test_a_disk_that_is_nearly_full_is_shown() -> None:
    told = status_with(Host(), is_disk_low=True, disk_free_bytes=4711)
    assert (told.is_disk_low, told.disk_free_bytes) == (True, 4711)
    assert "submits are refused" in told.warnings[0]


def test_stale_events_in_the_log_are_shown_as_a_bug() -> None:
    host = Host()
    host.replica.machine.no_ops = 2
    assert "2 stale events" in status_with(host).warnings[0]


def test_a_dlq_that_is_nearly_full_is_shown() -> None:
    host = Host()
    assert host.leader is not None
    settings = msgspec.structs.replace(Settings(0, 0, 0), dlq_max=0)
    host.leader.operate.set_settings(settings, by="test", to=None)
    assert any("DLQ is nearly full" in warning for warning in status_with(host).warnings)


def test_what_the_host_knows_of_its_group_comes_first() -> None:
    host = Host()
    told = status_with(host, problems=("nobody leads",), is_disk_low=True)
    assert told.warnings[0] == "nobody leads"
    assert len(told.warnings) == 2
    assert isinstance(host.facts(), NodeFacts)
