"""The client for threads and prefork servers, against a real node."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollmq import ResultTimeout, SubmitRefused
from rollmq.errors import BadServerList, ClientClosed, ClientForked, RequestRefused
from rollmq.sync import Client
from tests.cli.running import RunningNode, clean_env, running_node
from tests.client.shop import SOON_S, make_worker


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def server(node: RunningNode) -> Iterator[str]:
    """A node with a worker, which runs in a thread of its own."""

    worker = make_worker(node.server)
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()))
    thread.start()
    yield node.server
    worker.stop()
    thread.join(SOON_S)


def test_a_job_is_submitted_and_its_result_awaited(server: str) -> None:
    with Client(server) as client:
        job = client.submit("echo", b"hello", priority=3)
        assert job.result(timeout=SOON_S).result == b"hello"
        assert client.result(job.id).result == b"hello"
        assert client.status().role == "leader"
        with pytest.raises(RequestRefused):
            job.cancel()


def test_many_threads_share_one_client(server: str) -> None:
    with Client(server) as client, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> bytes:
            return client.submit("echo", str(number).encode()).result(SOON_S).result

        assert list(pool.map(work, range(200))) == [str(number).encode() for number in range(200)]


def test_the_source_of_a_stream_is_read_in_the_thread_that_iterates(server: str) -> None:
    threads: set[int] = set()

    def payloads() -> Iterator[bytes]:
        for number in range(1000):
            threads.add(threading.get_ident())
            yield str(number).encode()

    with Client(server) as client:
        outcomes = {outcome.position: outcome for outcome in client.map("echo", payloads(), outstanding=50)}
        assert [outcomes[position].result for position in range(1000)] == list(payloads())
        jobs = list(client.submit_many((("echo", payload) for payload in payloads()), outstanding=50))
        assert sorted(job.position for job in jobs) == list(range(1000))
        assert all(job.result(SOON_S).ok for job in jobs)
    assert threads == {threading.get_ident()}


def test_a_stream_says_of_each_item_what_became_of_it(server: str) -> None:
    with Client(server) as client:
        states = {outcome.position: outcome.state for outcome in client.map("fail", [b"a", bytes(9_000_000)])}
        assert states == {0: "dead", 1: "refused"}
        assert [outcome.state for outcome in client.map("fail", [bytes(9_000_000)])] == ["refused"]
        with pytest.raises(SubmitRefused) as refusal:
            list(client.submit_many([("echo", b""), ("not a name", b"")]))
        assert refusal.value.position == 1  # type: ignore[attr-defined]


def test_submits_beyond_the_bound_wait_for_room(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollmq.limits.UNANSWERED_MAX", 4)
    with Client(server) as client:
        assert len(list(client.submit_many([("echo", b"x")] * 200))) == 200


def test_progress_is_told_until_the_job_has_ended(server: str) -> None:
    with Client(server) as client:
        job = client.submit("count", b"3", delay=0.05)
        assert list(job.progress()) == [b"0", b"1", b"2"]
        assert job.result().ok


def test_waiting_ends_after_its_timeout(server: str) -> None:
    with Client(server) as client:
        job = client.submit("nobody.does.this")
        with pytest.raises(ResultTimeout):
            job.result(timeout=0.01)
        assert job.explain().reason == "no_worker"
        job.cancel()


def test_what_is_closed_sends_nothing(server: str) -> None:
    client = Client(server)
    client.submit("echo")
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.submit("echo")


def test_wrong_options_are_told_when_it_is_made() -> None:
    with pytest.raises(BadServerList):
        Client("nonsense")


def _in_a_child(what: object) -> str:
    """What a forked process says of it."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(SOON_S))
        answer = what() if callable(what) else ""
        os.write(write_end, str(answer).encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as told:
        answer = told.read().decode()
    os.waitpid(pid, 0)
    return answer


def _error_of(call: object) -> str:
    try:
        assert callable(call)
        call()
    except ClientForked as error:
        return str(error)
    return "no error"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_used_before_a_fork_refuses_after_it_and_goes_on_in_the_parent(server: str) -> None:
    with Client(server) as client:
        job = client.submit("echo", b"1")
        for call in (lambda: client.submit("echo"), job.result, client.close, client.status):
            assert "another process" in _in_a_child(lambda call=call: _error_of(call))
        assert client.submit("echo", b"2").result(SOON_S).result == b"2"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_made_and_not_used_before_a_fork_works_in_each_child(server: str) -> None:
    client = Client(server)
    ids = {_in_a_child(lambda: client.submit("echo").id) for _ in range(3)}
    assert len(ids) == 3
    assert {len(each) for each in ids} == {32}


def test_a_program_that_forgets_to_close_ends_all_the_same(server: str) -> None:
    program = (
        "import os, rollmq.sync\n"
        f"client = rollmq.sync.Client({server!r})\n"
        "print(client.submit('echo', b'1').result().result)\n"
        "pid = os.fork()\n"
        "if pid: os.waitpid(pid, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON_S, env=clean_env()
    )
    assert (done.stdout, done.stderr, done.returncode) == ("b'1'\n", "", 0)
