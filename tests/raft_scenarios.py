"""Plays the commands of tests/scenarios/raft on a group of Raft cores and tells what happened.

`group 3` begins; `log n1 1 1 2` before it lays entries of these terms on a disk. Then: `campaign n1`,
`stand n1` (campaign while the others are loyal), `elect n1`, `hold n1` and `unhold n1` (its campaigns),
`tick 150` (all clocks, in ms) or `tick 150 n1`, `propose n1 a b`, `persist n1 n2` (syncs what is out),
`read n1` (the store answers), `deliver` (what is under way now) or `deliver n1 n2` (only from n1 to n2),
`lose n1 n2`, `repeat n1 n2`, `cut n1 n2` (one way), `isolate n1`, `heal`, `crash n1`, `restart n1`, `status`.
`transfer n1 n2`, `reset n2 n1` (n2 hears that its connection to n1 broke), `join n4` (it knows nobody),
`members n1 n1 n2 learner:n4` (n1 decides who is), `fold n1` (a snapshot replaces what it has committed),
`receive n3` (its disk takes a chunk, or installs), `ask n1` and `answer n1` (a read).
`settle` persists and delivers until all is quiet and tells only outcomes, as everything after `brief` in
a section does. In the transcript an entry is `index.term`.
"""

from collections.abc import Callable

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
from rollmq.core.raft_ready import ReadTicket, Ready, Role, Write
from tests.raft_paper.group import MS, Disk, Group, Node, disk_of


def _entries(first_index: int, count: int, term: int) -> str:
    return "" if count == 0 else f" {first_index}.{term}" + (f" and {count - 1} more" if count > 1 else "")


def tell_message(message: PeerMessage) -> str:
    """One message in one line."""
    head = f"{message.source} -> {message.target} "
    if isinstance(message, RequestVote):
        name = "pre-vote?" if message.pre else "vote?"
        return f"{head}{name} term={message.term} last={message.last_index}.{message.last_term}"
    if isinstance(message, VoteResp):
        name = "pre-vote" if message.pre else "vote"
        answer = "yes" if message.granted else "no"
        return f"{head}{name} {answer} term={message.term} asked={message.asked_term}"
    if isinstance(message, AppendEntries):
        terms = " ".join(f"from {index} term {term}" for index, term in message.term_runs)
        lines = f"{len(message.lines)} lines, {terms}" if message.lines else "heartbeat"
        prev = f"{message.prev_index}.{message.prev_term}"
        return f"{head}append term={message.term} after={prev} commit={message.commit_index}: {lines}"
    if isinstance(message, TimeoutNow):
        return f"{head}stand for election now term={message.term}"
    if isinstance(message, InstallSnapshot):
        return f"{head}snapshot up to {message.last_index}.{message.last_term} bytes from {message.offset}"
    if isinstance(message, InstallSnapResp):
        has = "installed" if message.installed else f"go on from {message.next_offset}"
        return f"{head}snapshot up to {message.last_index}: {has}"
    assert isinstance(message, AppendResp)
    if message.ok:
        return f"{head}has up to {message.match_index} term={message.term}"
    hint = f"{message.hint_index}.{message.hint_term}"
    return f"{head}refuses after={message.prev_index} try={hint} term={message.term}"


def tell_write(write: Write, terms: list[int]) -> str:
    """What is to be made durable."""
    parts = []
    if write.hard_state is not None:
        parts.append(f"term={write.hard_state.term} vote={write.hard_state.voted_for}")
    if write.truncate_from is not None:
        parts.append(f"cut from {write.truncate_from}")
    if write.lines:
        entries = [f"{index}.{term}" for index, term in enumerate(terms, start=write.first_index)]
        parts.append("lines " + " ".join(entries))
    return ", ".join(parts)


class Play:
    """One scenario file: a group, and the transcript of the section that runs."""

    def __init__(self) -> None:
        self.disks: dict[str, Disk] = {}
        self.told: list[str] = []
        self.tickets: dict[str, ReadTicket] = {}
        self.group = Group(1)
        self.is_brief = False

    def run(self, commands: list[str]) -> list[str]:
        """Run one section's commands; returns what happened."""
        self.told = []
        self.is_brief = False
        for command in commands:
            name, *arguments = command.split()
            action: Callable[..., None] = getattr(self, f"do_{name}")
            action(*arguments)
        return self.told or ["nothing happens"]

    def _detail(self, text: str) -> None:
        if not self.is_brief:
            self.told.append(text)

    def _on_ready(self, node: Node, ready: Ready) -> None:
        name = node.node_id
        if ready.role_changed and not (ready.term == 0 and ready.role is Role.FOLLOWER):
            leader = f", follows {ready.leader_id}" if ready.leader_id not in (None, name) else ""
            self.told.append(f"{name} is {ready.role.value} in term {ready.term}{leader}")
        if ready.cut_from is not None:
            self.told.append(f"{name} drops its entries from {ready.cut_from} on")
        if ready.commit_index > len(node.released):
            self.told.append(f"{name} commits up to {ready.commit_index}")
        if self.is_brief:
            return
        if ready.write is not None:
            write = ready.write
            log = node.raft.log
            terms = [log.term_at(write.first_index + n) or 0 for n in range(len(write.lines))]
            self.told.append(f"{name} writes {tell_write(write, terms)}")
        self.told += [f"{name} reads from its store for {r.target}: {r.first_index}.." for r in ready.reads]
        self.told += [
            f"{name} reads its snapshot for {r.target}: bytes from {r.offset}" for r in ready.chunk_reads
        ]
        if ready.install is not None:
            self.told.append(f"{name} is to install a snapshot up to {ready.install.last_index}")
        self.told += ["  sends " + tell_message(message) for message in ready.messages]

    # Commands

    def do_log(self, node_id: str, *terms: str) -> None:
        """Lay entries of these terms on a disk."""
        self.disks[node_id] = disk_of(*map(int, terms))

    def do_group(self, size: str) -> None:
        """So many nodes, with the disks laid out before."""
        newest = max((disk.hard_state.term for disk in self.disks.values()), default=0)
        for disk in self.disks.values():
            disk.hard_state = disk_of(term=newest).hard_state
        self.group = Group(int(size), seed=7, disks=self.disks)
        self.group.on_ready = self._on_ready
        self.told.append(f"{size} node{'s' if size != '1' else ''}")

    def do_campaign(self, node_id: str) -> None:
        """Stand for election; time has passed, so the others are no longer loyal."""
        self.group.campaign(node_id)

    def do_elect(self, node_id: str) -> None:
        """Campaign and settle."""
        was_brief, self.is_brief = self.is_brief, True
        self.group.campaign(node_id)
        self.group.settle()
        self.is_brief = was_brief

    def do_tick(self, passed_ms: str, *node_ids: str) -> None:
        """Time passes."""
        self.group.tick(int(passed_ms) * MS, *node_ids)

    def do_propose(self, node_id: str, *words: str) -> None:
        """A leader decides lines."""
        if not self.group[node_id].can_propose:
            self.told.append(
                f"{node_id} may not propose; it knows as leader: {self.group[node_id].leader_id}"
            )
            return
        self.group.propose(node_id, *[word.encode() + b"\n" for word in words])

    def do_persist(self, *node_ids: str) -> None:
        """What is out is synced."""
        for node_id in node_ids:
            node = self.group.nodes[node_id]
            if node.writing is not None:
                after = node.writing[0].messages_after
                self._detail(f"{node_id} has it on disk")
                for message in after:
                    self._detail("  sends " + tell_message(message))
            self.group.persist(node_id)

    def do_read(self, node_id: str) -> None:
        """The store answers."""
        self.group.read(node_id)

    def _between(self, source: str, target: str) -> list[PeerMessage]:
        found = [m for m in self.group.network if (m.source, m.target) == (source, target)]
        self.group.network = [m for m in self.group.network if (m.source, m.target) != (source, target)]
        return found

    def do_deliver(self, *link: str) -> None:
        """Hand over what is under way now, all of it or on one link."""
        messages, self.group.network = self.group.network, []
        if link:
            self.group.network = messages
            messages = self._between(*link)
        for message in messages:
            at = len(self.told)
            is_lost = not self.group.hand_over(message)
            if not self.is_brief:
                self.told.insert(at, ("lost: " if is_lost else "") + tell_message(message))

    def do_lose(self, source: str, target: str) -> None:
        """What is under way on this link never arrives."""
        for message in self._between(source, target):
            self._detail("lost: " + tell_message(message))

    def do_repeat(self, source: str, target: str) -> None:
        """What is under way on this link will arrive twice."""
        self.group.network += [m for m in self.group.network if (m.source, m.target) == (source, target)]

    def do_cut(self, source: str, target: str) -> None:
        """One way."""
        self.group.cut(source, target)

    def do_isolate(self, node_id: str) -> None:
        """Both ways, from everybody."""
        self.group.isolate(node_id)

    def do_heal(self) -> None:
        """Every link works."""
        self.group.heal()

    def do_crash(self, node_id: str) -> None:
        """What is not synced is lost."""
        self.group.crash(node_id)
        self.told.append(f"{node_id} is down")

    def do_restart(self, node_id: str) -> None:
        """Start from what is on disk."""
        self.group.start(node_id)

    def do_hold(self, node_id: str) -> None:
        """It may not stand for election."""
        self.group[node_id].hold_campaign(True)

    def do_unhold(self, node_id: str) -> None:
        """It may again."""
        self.group[node_id].hold_campaign(False)

    def do_stand(self, node_id: str) -> None:
        """Stand for election now; no time passes."""
        self.group[node_id].campaign()
        self.group.work(node_id)

    def do_transfer(self, node_id: str, target: str) -> None:
        """Hand the leadership over."""
        problem = self.group[node_id].transfer(target)
        if problem is not None:
            self.told.append(f"{node_id} does not: {problem}")
        self.group.work(node_id)

    def do_reset(self, node_id: str, other: str) -> None:
        """This node hears that its connection to the other broke."""
        self.group[node_id].peer_reset(other)
        self.group.work(node_id)

    def do_join(self, node_id: str) -> None:
        """A node that knows nobody starts."""
        self.group.join(node_id)
        self.told.append(f"{node_id} waits to be named")

    def do_members(self, leader: str, *names: str) -> None:
        """The leader decides who is a member."""
        problem = self.group[leader].members_problem
        if problem is not None:
            self.told.append(f"{leader} does not: {problem}")
            return
        learners = [name.removeprefix("learner:") for name in names if name.startswith("learner:")]
        voters = [name for name in names if not name.startswith("learner:")]
        self.group.change_members(leader, *voters, learners=learners)

    def do_fold(self, node_id: str) -> None:
        """A snapshot takes the place of what is committed."""
        self.group.fold(node_id)
        self.told.append(f"{node_id} keeps a snapshot up to {self.group.nodes[node_id].disk.snapshot_index}")

    def do_receive(self, node_id: str) -> None:
        """The disk takes what came of a snapshot, or installs it."""
        node = self.group.nodes[node_id]
        if node.installing is not None:
            self.told.append(f"{node_id} installs the snapshot up to {node.installing.last_index}")
        elif node.chunk is not None:
            self._detail(f"{node_id} writes {len(node.chunk.data)} bytes from {node.chunk.offset}")
        self.group.receive(node_id)

    def do_ask(self, node_id: str) -> None:
        """Something is asked that depends on whether this node leads."""
        ticket = self.group[node_id].request_read()
        if ticket is None:
            self.told.append(f"{node_id} does not lead, and says so")
            return
        self.tickets[node_id] = ticket
        self.group.work(node_id)

    def do_answer(self, node_id: str) -> None:
        """Whether it may be answered."""
        confirmed = self.group[node_id].is_read_confirmed(self.tickets[node_id])
        words = {True: "may answer", False: "may not answer yet", None: "will never answer"}
        self.told.append(f"{node_id} {words[confirmed]}")

    def do_brief(self) -> None:
        """The rest of the section tells only outcomes."""
        self.is_brief = True

    def do_settle(self) -> None:
        """Persist, read and deliver until all is quiet; only outcomes are told."""
        was_brief, self.is_brief = self.is_brief, True
        self.group.settle()
        self.is_brief = was_brief

    def do_status(self) -> None:
        """Every node in a line."""
        for name, node in self.group.nodes.items():
            if node.core is None:
                state = node.disk.hard_state
                terms = " ".join(str(term) for term, _ in node.disk.entries)
                self.told.append(f"{name} down: on disk term={state.term} vote={state.voted_for} [{terms}]")
                continue
            core, log = node.core, node.core.log
            terms = " ".join(str(term) for term, _ in node.entries())
            self.told.append(
                f"{name} {core.role.value} term={core.term} vote={core.voted_for} leader={core.leader_id}"
                f" terms=[{terms}] commit={log.commit_index} on disk={log.persisted_index}"
            )
