"""How a new node comes into a group (rule 8): what it has heard decides, and it says what it lacks."""

from rollmq.node.assembling import group_uuid
from rollmq.node.forming import Forming
from rollmq.wire.peer_headers import LeaderHelloHeader

A, B, C = ("a" * 32, "h:1"), ("b" * 32, "h:2"), ("c" * 32, "h:3")


def forming(*peers: str, me: tuple[str, str] = A) -> Forming:
    return Forming(node_id=me[0], address=me[1], peers=peers)


def hello(
    node: tuple[str, str],
    *found: tuple[str, str],
    group: str = "",
    members: tuple[str, ...] = (),
) -> LeaderHelloHeader:
    return LeaderHelloHeader(
        version=1,
        node_id=node[0],
        address=node[1],
        group=group,
        is_empty=not group,
        founders=tuple(sorted(each[0] for each in found)),
        members=members,
    )


def test_a_list_of_peers_that_names_nobody_but_the_node_itself_makes_a_group_of_one() -> None:
    for alone in (forming("h:1"), forming()):
        assert alone.formed is not None
        assert (alone.formed.group, alone.formed.founders) == (group_uuid([A[0]]), (A[0],))


def test_a_node_that_finds_itself_under_another_name_waits_for_nobody_there() -> None:
    node = forming("localhost:1")
    assert node.formed is None
    assert node.waits_for() == "no answer yet from localhost:1"
    node.itself("localhost:1")
    assert node.formed is not None


def test_nothing_is_founded_until_all_have_found_the_same_nodes() -> None:
    node = forming("h:1", "h:2", "h:3")
    node.heard("h:2", hello(B))
    assert node.waits_for() == "no answer yet from h:3"
    node.heard("h:3", hello(C, A, B, C))
    assert node.formed is None
    assert node.waits_for() == "h:2 still wait for others"
    node.heard("h:2", hello(B, A, B, C))
    assert node.formed is not None
    assert node.formed.founders == tuple(sorted(each[0] for each in (A, B, C)))
    assert node.formed.group == group_uuid([A[0], B[0], C[0]])


def test_lists_that_differ_found_nothing_and_are_named() -> None:
    node = forming("h:1", "h:2", "h:3")
    node.heard("h:2", hello(B, A, B, C))
    node.heard("h:3", hello(C, A, C))
    assert node.formed is None
    assert node.waits_for() == "--peers differ: h:1 has found 3 nodes, h:3 has found 2"


def test_a_group_that_names_this_node_as_a_founder_or_a_member_takes_it_in() -> None:
    uuid = group_uuid([A[0], B[0]])
    founder = forming("h:1", "h:2")
    founder.heard("h:2", hello(B, A, B, group=uuid))
    assert founder.formed is not None
    assert founder.formed.founders == (A[0], B[0])
    member = forming("h:2", me=C)
    member.heard("h:2", hello(B, A, B, group=uuid, members=(A[0], B[0], C[0])))
    assert member.formed is not None
    assert (member.formed.group, member.formed.founders) == (uuid, ())


def test_a_group_that_does_not_know_this_node_is_named_with_what_to_do() -> None:
    stranger = forming("h:2", me=C)
    stranger.heard("h:2", hello(B, A, B, group=group_uuid([A[0], B[0]]), members=(A[0], B[0])))
    assert stranger.formed is None
    assert "exists and does not know this node" in stranger.waits_for()
    assert "`rollmq members add h:3`" in stranger.waits_for()


def test_founders_that_do_not_make_the_uuid_prove_nothing() -> None:
    node = forming("h:1", "h:2")
    node.heard("h:2", hello(B, A, B, group="f" * 32))
    assert node.formed is None
