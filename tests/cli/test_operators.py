"""Operators' commands against a real node: what they print, what they change, how they end."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import BareClient, RunningNode, rollmq, run, running_node

UNKNOWN = "0" * 32
STATUS_NAMES = (
    "node group role leader term last_index commit_index applied_index queued inflight dlq finished workers"
    " clients members"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """One node for the whole module; each test uses execs of its own."""
    with running_node(tmp_path_factory.mktemp("node") / "state") as started:
        yield started


def ask(node: RunningNode, *arguments: object) -> str:
    """A command that must succeed."""
    result = run(*arguments, server=node.server)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_status_has_the_names_that_scripts_rely_on(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        client.submit("names.one")
    told = json.loads(ask(node, "status", "--json"))
    assert set(STATUS_NAMES.split()) <= set(told)
    assert set(told["execs"]["names.one"]) >= {"queued", "inflight", "paused"}
    assert told["role"] == "leader"
    assert told["leader"] == node.server
    assert told["queued"] >= 1


def test_status_for_people_shows_queues_and_who_leads(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        client.submit("people.one", 3)
    output = ask(node, "status")
    assert f"{node.server}  leads in term 1" in output
    assert "people.one" in output
    assert "1 voting member" in output


def test_a_node_alone_says_that_it_is_ready_once_it_leads(node: RunningNode) -> None:
    events = [line.split("event=")[1].split()[0] for line in node.lines if "event=" in line]
    assert "role=leader" in node.lines[events.index("ready") - 1]


def test_status_of_several_servers_says_who_does_not_answer(node: RunningNode) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: it refuses, and nobody else can take it
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
        output = ask(node, "status", "--server", f"{dead},{node.server}")
        assert "does not answer" in output
        assert "connection refused" in output
        told = json.loads(ask(node, "status", "--json", "--server", f"{dead},{node.server}"))
        assert told["server"] == node.server
        assert "connection refused" in told["nodes"][dead]["error"]


def test_where_there_is_nothing_it_is_said_in_words(tmp_path: Path) -> None:
    with running_node(tmp_path / "state") as empty:
        assert run("jobs", server=empty.server).stderr == "no open jobs\n"
        assert run("jobs", "--exec", "a", server=empty.server).stderr == "no such open jobs\n"
        assert run("jobs", "--state", "dead", server=empty.server).stderr == "no such jobs\n"
        assert run("dlq", "list", server=empty.server).stderr == "no dead letters\n"
        shown = run("top", "--frames", 1, server=empty.server).stdout
        assert "no exec is known" in shown
        assert "no worker is connected" in shown
        assert "────" not in shown, "and no table of nothing"


def test_jobs_are_listed_and_filtered(node: RunningNode) -> None:
    with BareClient(node.port, "lister") as client:
        first, *_ = client.submit("list.a", 3, b"x" * 10, priority=4)
        (delayed,) = client.submit("list.b", 1, delay_us=3_600_000_000)
    listed = rows(ask(node, "jobs", "--client", "lister", "--json"))
    assert [row["state"] for row in listed] == ["queued"] * 3 + ["delayed"]
    assert listed[0]["job_id"] == first
    only = rows(ask(node, "jobs", "--exec", "list.b", "--json"))
    assert [row["job_id"] for row in only] == [delayed]
    assert rows(ask(node, "jobs", "--client", "lister", "--state", "delayed", "--json")) == only
    assert delayed in ask(node, "jobs", "--exec", "list.b")
    result = run("jobs", "--client", "lister", "--limit", 2, server=node.server)
    assert result.stdout.count("list.a") == 2
    assert "--limit 0 shows all" in result.stderr


def test_a_list_that_is_longer_than_a_page_is_complete(node: RunningNode) -> None:
    with BareClient(node.port, "many") as client:
        ids = client.submit("pages.a", 2_500)
    listed = rows(ask(node, "jobs", "--exec", "pages.a", "--limit", 0, "--json"))
    assert [row["job_id"] for row in listed] == ids


def test_explain_says_what_a_job_waits_for(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        (job_id,) = client.submit("explain.a")
    assert "no connected worker has a pattern that matches 'job.assign.explain.a'" in ask(
        node, "explain", job_id
    )
    assert json.loads(ask(node, "explain", job_id, "--json"))["reason"] == "no_worker"
    unknown = run("explain", UNKNOWN, server=node.server)
    assert (unknown.exit_code, "no job with this id" in unknown.stdout) == (1, True)


def test_pause_and_resume_are_said_and_repeated_without_harm(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        (job_id,) = client.submit("pause.a")
    assert ask(node, "pause", "pause.a", "--why", "a test") == "pause.a is paused\n"
    assert ask(node, "pause", "pause.a") == "pause.a was so already\n"
    assert "is paused by an operator" in ask(node, "explain", job_id)
    assert json.loads(ask(node, "status", "--json"))["execs"]["pause.a"]["paused"] is True
    assert "paused" in ask(node, "status")
    assert ask(node, "resume", "pause.a") == "pause.a goes on\n"
    assert ask(node, "resume", "pause.a") == "pause.a was not paused\n"


def test_who_did_it_and_why_stands_in_the_log(node: RunningNode) -> None:
    ask(node, "pause", "signed.a", "--why", "because of \u00fcber")
    lines = rollmq("log", "show", node.state, "--json").stdout.splitlines()
    (event,) = [json.loads(line) for line in lines if '"signed.a"' in line]
    assert "@" in event["by"]
    assert event["why"] == "because of \u00fcber"


def test_cancel_ends_a_job_and_names_what_it_could_not_end(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        (job_id,) = client.submit("cancel.a")
    assert ask(node, "cancel", job_id, "--why", "withdrawn") == "1 cancelled\n"
    again = run("cancel", job_id, UNKNOWN, server=node.server)
    assert again.exit_code == 1
    assert again.stdout == "0 cancelled\n"
    assert f"job {job_id} is finished (cancelled)" in again.stderr
    assert f"no job {UNKNOWN} is known" in again.stderr
    told = json.loads(run("cancel", UNKNOWN, "--json", server=node.server).stdout)
    assert (told["changed_count"], list(told["refused"])) == (0, [UNKNOWN])


def dead_letters(node: RunningNode, exec_name: str, count: int) -> list[str]:
    """Jobs that expired before anybody could take them."""
    with BareClient(node.port, "mortal") as client:
        ids = client.submit(exec_name, count, expires_in_us=1)
    deadline = threading.Event()
    while len(rows(ask(node, "dlq", "list", "--exec", exec_name, "--limit", 0, "--json"))) < count:
        deadline.wait(0.05)
    return ids


def test_dead_letters_are_listed_redriven_and_dropped(node: RunningNode) -> None:
    ids = dead_letters(node, "dlq.a", 5)
    assert "expired" in ask(node, "dlq", "list", "--exec", "dlq.a")
    partly = run("dlq", "drop", ids[0], UNKNOWN, server=node.server)
    assert (partly.exit_code, partly.stdout) == (1, "1 dropped; 1 was not in the DLQ\n")
    assert ask(node, "dlq", "redrive", ids[1], "--why", "try") == "1 queued again\n"
    assert ask(node, "dlq", "drop", "--all", "--exec", "dlq.none", "--yes") == "0 dropped\n"
    told = json.loads(ask(node, "dlq", "drop", "--all", "--exec", "dlq.a", "--yes", "--json"))
    assert told["changed_count"] in (3, 4)  # the redriven one may have expired again
    assert ask(node, "dlq", "list", "--exec", "dlq.a", "--reason", "poison") == ""


def test_thousands_of_dead_letters_go_in_parts(node: RunningNode) -> None:
    dead_letters(node, "dlq.many", 2_300)
    assert ask(node, "dlq", "drop", "--all", "--exec", "dlq.many", "--yes") == "2,300 dropped\n"


def test_many_dead_letters_are_not_touched_without_a_yes(node: RunningNode) -> None:
    dead_letters(node, "dlq.shy", 1)
    result = run("dlq", "drop", "--all", "--exec", "dlq.shy", server=node.server)
    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert len(rows(ask(node, "dlq", "list", "--exec", "dlq.shy", "--json"))) == 1


def test_a_clients_cap_and_weight_are_set_and_shown(node: RunningNode) -> None:
    assert ask(node, "clients", "set", "tenant", "--cap", 50) == "tenant is set\n"
    ask(node, "clients", "set", "tenant", "--weight", 3)
    (row,) = [row for row in rows(ask(node, "clients", "list", "--json")) if row["client_id"] == "tenant"]
    assert (row["cap"], row["weight"]) == (50, 3)
    assert "tenant" in ask(node, "clients", "list")


def test_settings_are_set_and_shown(node: RunningNode) -> None:
    assert ask(node, "settings", "set", "errors_kept=7") == "done\n"
    assert json.loads(ask(node, "settings", "list", "--json"))["errors_kept"] == 7
    refused = run("settings", "set", "no_such=7", server=node.server)
    assert (refused.exit_code, "no setting 'no_such'" in refused.stderr) == (1, True)


def test_nobody_is_there_to_be_drained(node: RunningNode) -> None:
    assert run("workers", server=node.server).stderr == "no worker is connected\n"
    result = run("drain", "--worker", "w9", server=node.server)
    assert (result.exit_code, "no worker 'w9' is connected" in result.stderr) == (1, True)


def test_a_segment_is_sealed_on_command(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        client.submit("seal.a")
    assert ask(node, "seal") == "the segment is sealed\n"
    assert ask(node, "seal") == "there was nothing new to seal\n"


def test_a_node_is_drained_and_that_is_waited_for(tmp_path: Path) -> None:
    with running_node(tmp_path / "state") as node:
        result = run("drain", "--node", "--wait", "--why", "a test", server=node.server)
        assert result.exit_code == 0, result.output
        assert node.wait() == 0
        assert any("event=stopped" in line and "a test" in line for line in node.lines)
    two = run("drain", "--node", "--server", "127.0.0.1:1,127.0.0.1:2")
    assert (two.exit_code, "name that one alone" in two.stderr) == (2, True)


def test_json_of_every_list_is_a_line_per_row(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        client.submit("json.a")
    for words in (["jobs"], ["dlq", "list"], ["clients", "list"], ["workers"]):
        assert all(isinstance(row, dict) for row in rows(ask(node, *words, "--json")))


def test_names_that_users_chose_cannot_move_the_cursor_or_make_markup(node: RunningNode) -> None:
    with BareClient(node.port, "[red]\u202ebad") as client:
        client.submit("evil.[bold]x")
    for words in (["jobs", "--limit", 0], ["clients", "list"], ["status"]):
        output = ask(node, *words)
        assert "\u202e" not in output
    assert "evil.[bold]x" in ask(node, "jobs", "--exec", "evil.[bold]x")


def test_top_prints_a_frame_with_queues_and_rates(node: RunningNode) -> None:
    with BareClient(node.port) as client:
        client.submit("top.a", 4)
    output = ask(node, "top", "--frames", 2, "--every", 0.1)
    assert "leads in term 1" in output
    assert "no worker takes it" in output
    assert "/s accepted" in output


def test_top_in_json_has_the_rates_of_its_later_frames(node: RunningNode) -> None:
    first, second = rows(ask(node, "top", "--json", "--frames", 2, "--every", 0.1))
    assert first["rates"] is None
    assert isinstance(second["rates"], dict)
    assert set(second["rates"]) == {"accepted", "assigned", "ended", "entries"}
