"""A real node for the tests of commands, a bare client to put jobs into it, and the command itself.

Everything is a process or a socket on loopback; whoever starts a node ends it.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner, Result

from rollmq.cli.main import main
from rollmq.wire import headers as h
from rollmq.wire.codec import FrameDecoder, encode_header, header_of
from rollmq.wire.job_headers import SubmitJobHeader
from rollmq.wire.message import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame, MsgType
from rollmq.wire.session import Session, Side

PATIENCE_S = 60.0
"""For what takes a moment on an idle machine."""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RunningNode:
    """`rollmq serve` as a process of its own."""

    def __init__(self, state: Path, *options: str, port: int = 0) -> None:
        self.port = port or free_port()
        self.state = state
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rollmq", "serve", str(self.port), "--state", str(state), *options],
            stderr=subprocess.PIPE,
            env=clean_env(),
        )
        self.wait_for("event=ready")

    @property
    def server(self) -> str:
        """As --server takes it."""
        return f"127.0.0.1:{self.port}"

    def wait_for(self, text: str) -> None:
        """Until a line of its log has this text; an end of the process before that fails the test."""
        assert self.process.stderr is not None
        deadline = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while not any(text in line for line in self.lines):
                assert selector.select(deadline - time.monotonic()), f"no {text} in {self.lines}"
                data = os.read(self.process.stderr.fileno(), 65536).decode()
                assert data, f"it ended: {self.lines}"
                self.lines += data.splitlines()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Until it has ended."""
        assert self.process.stderr is not None
        rest = self.process.communicate(timeout=PATIENCE_S)[1].decode()
        self.lines += rest.splitlines()
        return self.process.returncode


@contextlib.contextmanager
def running_node(state: Path, *options: str) -> Iterator[RunningNode]:
    """A node that is ended, however the block ends."""
    node = RunningNode(state, *options)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.process.kill()
        node.process.communicate()


def clean_env(**more: str) -> dict[str, str]:
    """The environment without what would point commands elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROLLMQ_")}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", **more}


def run(*arguments: object, server: str = "", env: dict[str, str] | None = None, stdin: str = "") -> Result:
    """The command, in this process. No exception may come out of it but an exit."""
    variables: dict[str, str | None] = {
        "ROLLMQ_SERVER": server or None,
        "ROLLMQ_TOKEN": None,
        "NO_COLOR": "1",
    }
    result = CliRunner().invoke(
        main, [str(argument) for argument in arguments], env={**variables, **(env or {})}, input=stdin
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rollmq(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    words = [sys.executable, "-m", "rollmq", *map(str, arguments)]
    return subprocess.run(
        words, capture_output=True, text=True, env=clean_env(**env), timeout=PATIENCE_S, check=False
    )


@contextlib.contextmanager
def listening(talk: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """A server of one connection at a time that is not rollmq; `talk` has the other end."""
    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener was closed: the test is over
                while True:
                    connection, _ = server.accept()
                    with connection:
                        talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def answers_http(connection: socket.socket) -> None:
    """A web server, to somebody who does not speak its language."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class BareClient:
    """Submits jobs over one blocking socket, and nothing else."""

    def __init__(self, port: int, client_id: str = "shop") -> None:
        self._count = 0
        answer = self._greeted(port, client_id)
        while answer.type == MsgType.NOT_LEADER:  # a node that has just begun is about to elect itself
            self._socket.close()
            answer = self._greeted(port, client_id)
        self._log_ms = header_of(answer, h.HelloAnswerHeader).log_at_us // 1000

    def _greeted(self, port: int, client_id: str) -> Frame:
        self._session = Session(Side.LIBRARY)
        self._decoder = FrameDecoder(self._session.frame_bytes_max)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        hello = h.HelloClientHeader(
            version=PROTOCOL_VERSION, version_min=PROTOCOL_VERSION_MIN, client_id=client_id
        )
        self._send(Frame(MsgType.HELLO_CLIENT, bytes(16), header=encode_header(hello)))
        return self._read(1)[0]

    def __enter__(self) -> "BareClient":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def submit(self, exec_name: str, count: int = 1, payload: bytes = b"", **options: int | str) -> list[str]:
        """So many jobs; returns their ids once all are accepted."""
        header = encode_header(SubmitJobHeader(**options))  # type: ignore[arg-type]
        ids = [self._draw() for _ in range(count)]
        for job_id in ids:
            subject = f"job.submit.{exec_name}"
            self._send(Frame(MsgType.SUBMIT_JOB, job_id, subject=subject, header=header, payload=payload))
        answers = self._read(count)
        assert {answer.type for answer in answers} == {MsgType.ACCEPTED}, answers
        return [job_id.hex() for job_id in ids]

    def _draw(self) -> bytes:
        self._count += 1
        return bytes.fromhex(f"{self._log_ms:012x}7000{8:01x}{os.urandom(7).hex()}{self._count % 16:01x}")

    def _send(self, frame: Frame) -> None:
        self._socket.sendall(self._session.send(frame))

    def _read(self, count: int) -> list[Frame]:
        frames: list[Frame] = []
        while len(frames) < count:
            data = self._socket.recv(65536)
            assert data, "the node closed the connection"
            for item in self._decoder.feed(data):
                assert isinstance(item, Frame), item
                self._session.receive(item)
                if item.type not in (MsgType.PING, MsgType.RESULT):
                    frames.append(item)
        return frames
