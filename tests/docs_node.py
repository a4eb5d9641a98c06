"""A node for the pages: real answers of the real leader, at a time and with ids that never change.

The queue of a small shop is played on a Stage (tests/core); operators' commands reach it through a stand-in
for their connection, which encodes questions and answers as the wire does. No socket, no clock, no chance.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec

from rollmq.cli import connecting
from rollmq.core.effects import Answer
from rollmq.core.events import Member, Members
from rollmq.core.operate import Refusal
from rollmq.errors import QueryRefused
from rollmq.node.queries import answer
from rollmq.node.query_status import NodeFacts
from rollmq.wire.codec import encode_payload
from tests.core.naming import T0_US
from tests.core.stage import Stage
from tests.docs_examples import GROUP, NODES

SERVER = "127.0.0.1:5000"
ENV = {"ROLLMQ_SERVER": SERVER, "ROLLMQ_TOKEN": ""}
STORY = (
    "worker w1 patterns=job.assign.image.* hands=2 credit=2 release=shop-1.4",
    "worker w2 patterns=job.assign.mail.send hands=8 credit=8 release=shop-1.4",
    "submit cat dog exec=image.resize client=webshop payload=48200",
    "submit bird fish exec=image.resize client=webshop payload=51900",
    "start w1 cat dog",
    "submit welcome exec=mail.send client=webshop payload=310 tries_max=1",
    "start w2 welcome",
    "fail w2 welcome error=SMTPServerDisconnected message=connection_lost run=2s",
    "submit order exec=mail.send client=shop.orders payload=420",
    "start w2 order",
    "reject w2 order error=Reject message=no_such_address run=1s",
    "submit weekly exec=report.weekly client=back-office payload=64 delay=2h",
    "advance 80s",
    "ack w1 cat run=41s",
    "start w1 bird",
    "submit nightly exec=report.daily client=back-office payload=64",
    "advance 12s",
)


class Scene(Stage):
    """A stage that keeps what operators are answered."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        super().__init__()
        desk = self.leader.desk
        members = [Member(node_id=node) for node in NODES[:1]]
        desk.decide(Members(desk.next_index, desk.term, desk.now_us, GROUP, members))
        self.run(list(STORY))

    def _commit(self, index: int) -> None:
        mine = [effect for effect in self.waiting if isinstance(effect, Answer) and effect.to == "operator"]
        self.answers += [effect.value for effect in mine]
        self.waiting = [effect for effect in self.waiting if effect not in mine]
        super()._commit(index)

    def ask(self, name: str, payload: bytes) -> object:
        """What a node on this stage answers."""
        value = answer(name, payload, by="olga@ops1", to="operator", leader=self.leader, node=self._facts())
        if value is not None:
            return value
        self._settle()
        return self.answers.pop()

    def _facts(self) -> NodeFacts:
        index = self.machine.last_index
        return NodeFacts(
            node_id=NODES[0],
            group=GROUP,
            role="leader",
            leader=SERVER,
            term=1,
            last_index=index,
            commit_index=index,
            applied_index=index,
            machine=self.machine,
            uptime_us=self.now_us - T0_US,
            connections_count=5,
            disk_free_bytes=181_400_000_000,
            drain_worker=lambda worker_id: worker_id in self.talking,
            stop=lambda _why: None,
            mark=lambda: True,
        )


class SceneConnection:
    """Stands in for OperatorConnection."""

    server = SERVER
    servers_count = 1

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __enter__(self) -> "SceneConnection":
        return self

    def __exit__(self, *_exc: object) -> None:
        """Nothing is open."""

    def ask(self, name: str, arguments: object | None = None, *, is_command: bool = False) -> Any:
        """As the real one, without a network that could fail."""
        del is_command
        value = self._scene.ask(name, encode_payload(arguments) if arguments is not None else b"")
        if isinstance(value, Refusal):
            raise QueryRefused(name=name, code=value.code, text=value.text)
        return msgspec.json.decode(encode_payload(value))


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Operators' commands reach a fresh scene while this is open."""
    played = Scene()
    with mock.patch.object(connecting, "OperatorConnection", return_value=SceneConnection(played)):
        yield played
