"""Nothing that a peer sends raises: any message of any numbers, in any state, leaves a core that goes on."""

import random

from rollmq.core.raft import RaftCore
from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import (
    AppendEntries,
    AppendResp,
    InstallSnapResp,
    InstallSnapshot,
    PeerMessage,
    RequestVote,
    TimeoutNow,
    VoteResp,
)
from rollmq.core.raft_ready import HardState, Role, Write
from tests.raft_paper.storm import SMALL

CONTRADICTION = "the leader's log has what is committed here"


class Liar:
    """Draws messages that may mean anything, mostly near to what would make sense."""

    def __init__(self, chance: random.Random, core: RaftCore) -> None:
        self.chance = chance
        self.core = core

    def index(self) -> int:
        return self.chance.choice([-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2**62])

    def term(self) -> int:
        near = self.core.term + self.chance.choice([0] * 30 + [-1, 1])
        return self.chance.choice([-1, 0, 1, 2, 3]) if self.chance.random() < 0.1 else near

    def flag(self) -> bool:
        return self.chance.random() < 0.6

    def message(self) -> PeerMessage:
        source = self.chance.choice(["n2", "n3", "n2", "n3", "n1", "stranger", ""])
        target = self.chance.choice(["n1"] * 9 + ["n2"])
        head = source, target, self.term()
        kind = self.chance.randrange(8)
        if kind <= 2:
            return self._append(*head)
        if kind == 3:
            return RequestVote(*head, self.index(), self.term(), pre=self.flag(), transfer=self.flag())
        if kind == 4:
            return VoteResp(*head, asked_term=self.term(), granted=self.flag(), pre=self.flag())
        if kind <= 6:
            return AppendResp(
                *head,
                ok=self.flag(),
                prev_index=self.index(),
                match_index=self.index(),
                hint_index=self.index(),
                hint_term=self.term(),
            )
        return self.chance.choice(
            [
                TimeoutNow(*head),
                InstallSnapshot(*head, self.index(), self.term(), "", 10, self.index(), b"x", 0),
                InstallSnapResp(*head, self.index(), "", self.index(), installed=self.flag()),
            ]
        )

    def _append(self, source: str, target: str, term: int) -> AppendEntries:
        lines = [b"x" * self.chance.randrange(9) for _ in range(self.chance.choice([0, 0, 1, 2, 5]))]
        prev_index = self.index()
        runs = [(prev_index + 1, self.term())] if lines else []
        if self.chance.random() < 0.3:
            runs.append((self.index(), self.term()))
        return AppendEntries(
            source,
            target,
            term,
            prev_index=prev_index,
            prev_term=self.term(),
            commit_index=self.index() if self.chance.random() < 0.1 else 0,
            term_runs=tuple(runs),
            lines=lines,
        )


def start(chance: random.Random) -> RaftCore:
    """A core with some log on its disk."""
    runs = [(3, 1), (5, 2)] if chance.random() < 0.5 else []
    return RaftCore(
        node_id="n1",
        voters=frozenset({"n1", "n2", "n3"}),
        hard_state=HardState(2 if runs else 0, None),
        log=RaftLog(
            snapshot_index=2 if runs else 0, term_runs=runs, last_index=6 if runs else 0, tail_bytes_max=10
        ),
        settings=SMALL,
        chance=chance.random,
        now_us=0,
        has_vote=chance.random() < 0.9,
    )


def elect(core: RaftCore) -> None:
    """Honest peers make it leader, if it may stand."""
    core.campaign()
    core.step(VoteResp("n2", "n1", core.term, asked_term=core.term + 1, granted=True, pre=True))
    ready = core.ready()
    if ready is not None and ready.write is not None:
        core.persisted(ready.write)
    core.step(VoteResp("n2", "n1", core.term, asked_term=core.term, granted=True))


def live(core: RaftCore, chance: random.Random, roles: set[Role]) -> None:
    """Let liars talk to a core whose host does its duties now and then. Notes the roles it goes through."""
    liar = Liar(chance, core)
    out: Write | None = None
    if chance.random() < 0.5:
        elect(core)
    for _ in range(150):
        core.step(liar.message())
        roles.add(core.role)
        if chance.random() < 0.1:
            core.tick(core.now_us + chance.randrange(300_000))
        if out is not None and chance.random() < 0.5:
            core.persisted(out)
            out = None
        while (ready := core.ready()) is not None:
            out = ready.write or out
            if core.needs_noop:
                core.propose_noop(b"noop\n")
            if core.can_propose and chance.random() < 0.3:
                core.propose([b"line\n"])
            for request in ready.reads:
                core.lines_read(request, [b"x"] * chance.randrange(2))
            core.applied(core.commit_index)
        core.log.check()


def test_no_message_of_a_peer_raises_but_proof_of_lost_data() -> None:
    roles: set[Role] = set()
    halted_count = 0
    for seed in range(600):
        chance = random.Random(seed)
        try:
            live(start(chance), chance, roles)
        except AssertionError as error:
            if CONTRADICTION not in str(error):
                error.add_note(f"seed {seed}")
                raise
            halted_count += 1
    assert roles == set(Role), "liars bring a core into every role"
    assert 0 < halted_count < 550
