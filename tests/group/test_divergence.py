"""A replica whose log is not the group's, although each line looks whole, is found and stops (rule 5)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollmq.core.line import seal
from rollmq.library.operator import OperatorConnection
from tests.group.load import Runner, Submitter, running
from tests.group.real_group import RealGroup, RealNode, running_group, wait_for
from tests.group.test_failover import grows, settle

pytestmark = pytest.mark.slow
CRC_AT = len(b'{"crc":"01234567",')


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with running_group(tmp_path) as group:
        yield group


def end_the_segment(group: RealGroup) -> None:
    with OperatorConnection(group.servers, by="test") as connection:
        connection.ask("marker", {}, is_command=True)


def change_a_payload(node: RealNode) -> None:
    """One accepted job has other bytes, and its line a crc that fits them: nothing on this node can tell."""
    (path,) = (node.state / "wal").glob("events-*.log")
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"type":"enqueue"' in line)
    changed = lines[at].replace(b'"payload":"cHBw', b'"payload":"cHBx')
    assert changed != lines[at]
    lines[at] = seal(b"{" + changed[CRC_AT:].rstrip(b"\n"))
    assert len(lines[at]) == len(changed)
    path.write_bytes(b"".join(lines))


def test_a_follower_whose_log_was_changed_behind_its_back_stops_at_the_next_marker(group: RealGroup) -> None:
    client, worker = Submitter(group.servers), Runner(group.servers)
    with running(client, worker):
        grows(client, by=50)
        odd = group.others(group.leader())[0]
        assert odd.stop() == 0
        change_a_payload(odd)
        odd.start()
        wait_for(lambda: odd.status() is not None, "it starts: every line is whole")
        grows(client, by=50)
        end_the_segment(group)
        assert odd.process is not None
        assert odd.process.wait(timeout=60) == 1
        text = odd.log_text()
        assert "the segment that this marker ends (entry" in text
        assert "is not the same here as in the group" in text
        assert "`rollmq members replace`" in text
        group.nodes.remove(odd)
        grows(client, by=50)
        settle(group, client)
    assert all(node.stop() == 0 for node in group.nodes)
