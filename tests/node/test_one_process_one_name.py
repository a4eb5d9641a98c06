"""A process has one name for its peers, whatever it does: messages under another one are a forerunner's."""

from rollmq.core.raft_messages import PeerMessage, TimeoutNow
from rollmq.core.repair_messages import RepairMessage
from rollmq.node.peer_hello import PeerFacts, PeerIdentity, hello_of
from rollmq.node.peer_link import PeerLink
from rollmq.node.peers import Peers
from rollmq.node.serve import ServeOptions, _identity
from rollmq.store.node_file import Identity
from rollmq.wire import headers as h
from rollmq.wire.codec import encode_frame, header_of
from rollmq.wire.message import MsgType
from rollmq.wire.peer import parts_of
from rollmq.wire.peer_headers import LeaderHelloHeader
from tests.node.stage import Host, Peer

GROUP = "b" * 32
ME = PeerIdentity(node_id="a" * 32, group=GROUP, group_name="g", address="10.0.0.1:5000", life="mine")
OTHER = "c" * 32
MESSAGE = TimeoutNow(source=OTHER, target=ME.node_id, term=1)


class Pipe:
    """The connection of a link, of which the test is the other end."""

    is_closed = False

    def write_parts(self, parts: list[bytes]) -> None:
        del parts

    def abort(self) -> None:
        self.is_closed = True

    def unsent_bytes(self) -> int:
        return 0


class Group:
    """A node of a group, as far as its peers see it."""

    def __init__(self) -> None:
        self.host = Host()
        self.heard: list[PeerMessage] = []
        self.links: list[PeerLink] = []
        self.peers = Peers(
            self,
            ME,
            addresses=["10.0.0.2:5000"],
            dial=self.links.append,
            chance=lambda: 0.5,
            new_id=lambda: b"n" * 16,
        )
        self.host.peers = self.peers

    def mono_us(self) -> int:
        return self.host.now_us

    def begin_turn(self) -> None:
        pass

    def step(self, message: PeerMessage) -> None:
        self.heard.append(message)

    def repair(self, message: RepairMessage) -> None:
        raise AssertionError(f"nobody repairs itself here: {message}")

    def peer_broken(self, node_id: str) -> None:
        pass

    def peer_facts(self) -> PeerFacts:
        return PeerFacts()

    def peer_said_hello(self, hello: LeaderHelloHeader, *, dialed: str) -> None:
        pass

    def peer_refused(self, address: str, code: str, text: str) -> None:
        raise AssertionError(f"{address} is of the group: {code} {text}")

    def dialed_by(self, life: str) -> Peer:
        """A connection that this process of the other node dialed."""
        peer = Peer(self.host)
        peer.say(said_hello(life))
        assert peer.take(MsgType.LEADER_HELLO)
        return peer


def said_hello(life: str) -> bytes:
    """The hello of one process of the other node."""
    other = PeerIdentity(node_id=OTHER, group=GROUP, group_name="g", address="10.0.0.2:5000", life=life)
    return encode_frame(MsgType.LEADER_HELLO, b"h" * 16, header=hello_of(other, PeerFacts()))


def said_message() -> bytes:
    """A message of it."""
    return b"".join(parts_of(MESSAGE, group="g"))


def test_a_process_that_waited_for_its_group_serves_under_the_same_name() -> None:
    """Who met it while it waited, a moment too late, dropped whatever it said as a member: when the
    leader's cable was pulled, the two that were left never elected another."""
    waiting = Identity(node_id="a" * 32, group="")
    member = Identity(node_id="a" * 32, group="b" * 32, founders=("a" * 32,))
    options = ServeOptions(port=5000)
    assert _identity(options, waiting).life == _identity(options, member).life != ""
    assert ServeOptions(port=5000).life != options.life


def test_a_message_under_a_replaced_name_is_not_taken_and_its_connection_is_closed() -> None:
    """Were it only dropped, the connection of a process that lives would be deaf for ever."""
    group = Group()
    before = group.dialed_by("one")
    before.say(said_message())
    assert group.heard == [MESSAGE]
    after = group.dialed_by("two")
    before.say(said_message())
    assert group.heard == [MESSAGE]
    assert before.is_closed
    error = header_of(before.take(MsgType.ERROR)[-1], h.ErrorHeader)
    assert (error.code, error.closes) == ("illegal_message", True)
    assert f"another process of the node {OTHER} has said hello since" in error.text
    after.say(said_message())
    assert group.heard == [MESSAGE, MESSAGE]
    assert not after.is_closed


def test_a_connection_that_was_dialed_here_is_closed_likewise_and_dialed_again() -> None:
    group = Group()
    group.peers.tick()
    (link,) = group.links
    pipe = Pipe()
    link.opened(pipe)
    link.received(said_hello("one"))
    link.received(said_message())
    assert group.heard == [MESSAGE]
    group.dialed_by("two")
    link.received(said_message())
    assert group.heard == [MESSAGE]
    assert pipe.is_closed
    group.host.now_us += 10_000_000
    group.peers.tick()
    assert group.links == [link, link]
