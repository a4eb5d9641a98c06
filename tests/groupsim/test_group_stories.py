"""What seeds of groups have found, each as the shortest story."""

from rollmq.library.call import CANCEL, Question
from tests.groupsim.stories import Story


def test_a_client_finds_the_new_leader_when_the_node_it_was_sent_to_and_the_next_one_are_gone() -> None:
    """Seed 100022: a hint that led nowhere was followed again and again, between two nodes that were gone."""
    story = Story("stale hint", size=5)
    leader = story.leader()
    nodes = story.group.nodes
    beside = nodes[(nodes.index(leader) + 1) % 5]
    story.run(500)
    away = {leader.node_id, beside.node_id}
    for node in (leader, beside):
        story.group.cut_clients(node)
    for client in story.clients:
        client.dialog.redirect = leader.address
    story.group.peers.cut_between(away, set(story.group.by_id))
    for party in (*story.clients, *story.workers):
        party.hang_up()
    story.run(60_000)
    assert story._what_is_open() == []
    story.end()


def test_an_eager_assign_that_comes_before_the_workers_hello_is_answered_is_not_lost() -> None:
    """Seed 325: it was given back and counted as sent, so the credit of its worker shrank to nothing."""
    story = Story("eager", is_eager=True, jobs_max=60)
    story.swarm.node.sync_us = (20_000, 60_000)
    story.leader()
    (worker,) = story.workers
    for _ in range(20):
        story.run(100)
        worker.hang_up()
    story.end()
    assert story.oracle.counts["told early"]


def test_a_leader_that_was_replaced_behind_its_back_tells_nobody_anything() -> None:
    """Its clients reach it and nobody else; the oracle knows that another one has committed entries since."""
    story = Story("asked in vain", jobs_max=5)
    old = story.leader()
    story.run(10_000)
    log = old.replica.raft.log
    assert log.last_index == log.commit_index, "what it remembers is committed: nothing else holds it back"
    for node in story.followers():
        story.group.cut_clients(node)
    story.group.peers.cut_between({old.node_id}, set(story.group.by_id))
    for _ in range(1_000):
        story.run(2)
        for client in story.clients:
            client.core.ask(Question(CANCEL, job_id=bytes(16), why="is it there?"), story.world.now_us)
            client.turn()
        if old.leader is None:
            break
    assert story.oracle.counts["asked in vain"], "it was asked while it believed to lead, and did not"
    story.group.client_cut.clear()
    story.group.peers.heal()
    story.end()
