"""Repair of a damaged node from its peers, planned: what is to be taken from whom (rule 7). Pure.

    holes in the log   lines of a peer in whose log the entry behind them has the same index and term
    sealed files       committed lines; the digest in the marker proves the file that they make
    no state           a peer's snapshot, proven by its digest
    a lost end         the most up-to-date log among *all* other voters, none of whom may have lost its own
    a lost vote        the highest term among all other voters is taken as spent

While it runs this node has no vote and confirms nothing. It needs no leader: whoever is damaged elsewhere
answers with what is sound. Where nobody has the lines of a hole, the log is cut there: then its end is lost.

Why a lost end is safe: an entry that this node confirmed and that is committed was confirmed by another voter
too, so it is in the most up-to-date log (5.4.1 makes every later leader have it). A leader that still counts
what this node confirmed before might commit more on the strength of it: so it forgets that with the first
`RepairAsk`, and only answers of a round that began after *everybody* had answered are compared.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from rollmq.core.line import LineDamaged, decode_line
from rollmq.core.repair_messages import RepairAsk, RepairFetch, RepairHas, RepairPiece
from rollmq.core.survey import Hole, Survey, TermRange, common_index, joined, ranges_of

ASK_EVERY_US: Final = 200_000
"""How often everybody is asked anew what he has: his log goes on, and he may be repaired meanwhile."""
FORGET_ROUNDS: Final = 50
"""After so many a peer that said it does not have lines may have them."""
FETCH_US_MAX: Final = 3_000_000
"""How long an answer may take before another peer is asked."""
PATIENCE_US: Final = 5_000_000
"""How long lines are sought before a snapshot is taken in their place: it leaves a gap in the history."""
HISTORY_PATIENCE_US: Final = 60_000_000
"""The same for history that the state no longer needs, while not all peers have answered."""


@dataclass(frozen=True, slots=True)
class TakeLines:
    """Put these lines, entries first_index and on, into the log."""

    first_index: int
    lines: list[bytes]
    until_index: int
    """Where the piece of the log ends that is being filled."""


@dataclass(frozen=True, slots=True)
class TakeChunk:
    """Put this piece of a peer's snapshot beside."""

    source: RepairHas
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CutBehind:
    """The log ends with this entry: what is behind it is of no use. Its end counts as lost from now on."""

    index: int


@dataclass(frozen=True, slots=True)
class LeaveHistory:
    """Nobody has the lines that are missing below the state: they are a gap, and it is declared."""

    index: int


@dataclass(frozen=True, slots=True)
class SpendTerm:
    """In this term, and in all before, this node votes for nobody any more."""

    term: int


@dataclass(frozen=True, slots=True)
class EndIsSure:
    """The log holds whatever this node may have confirmed."""


Step: TypeAlias = CutBehind | LeaveHistory | SpendTerm | EndIsSure | RepairFetch | None


class Repair:
    """One damaged node's plan. The host asks `next_step` until it says None, and hands in what comes."""

    def __init__(self, survey: Survey, *, node_id: str, first_round: int, now_us: int) -> None:
        """`first_round` is greater than any of an earlier process of this node."""
        self.survey = survey
        """As it will be once all that was taken is on disk."""
        self.heard: dict[str, RepairHas] = {}
        """The newest answer of each peer."""
        self.wait = ""
        """For what or whom it waits; for people."""
        self._node_id = node_id
        self._first_round = self._round = first_round
        self._began_us = now_us
        self._ask_us = now_us
        self._acquainted: set[str] = set()
        self._settled: tuple[int, frozenset[str]] | None = None
        """(round, voters): answers from this round on were asked for after all these had answered once."""
        self._refused: set[tuple[str, int]] = set()
        """(peer, first index or minus the snapshot's) that was asked for in vain since the last round."""
        self._declined: set[tuple[str, int]] = set()
        """(peer, first index) of lines that it said it does not have."""
        self._distrusted: set[str] = set()
        self._fetch: RepairFetch | None = None
        self._fetched_us = 0
        self._target: RepairHas | None = None
        """Whose log is being copied, as it was told."""
        self._copied_index = 0
        """How far that is done."""

    # -- what comes

    def met(self, node_id: str) -> None:
        """A node of this group is there."""
        if node_id not in self._acquainted and node_id != self._node_id:
            self._acquainted.add(node_id)
            self._ask_us = 0

    def has(self, answer: RepairHas) -> None:
        """A peer said what it has. Answers to an earlier process of this node are of no use."""
        known = self.heard.get(answer.source)
        is_news = known is None or answer.round >= known.round
        if is_news and self._first_round < answer.round <= self._round:
            self.heard[answer.source] = answer

    def piece(self, answer: RepairPiece) -> TakeLines | TakeChunk | None:
        """A peer sent what was asked for. What is no use is dropped, and its sender not asked again soon."""
        fetch = self._fetch
        if fetch is None or _key(answer) != _key(fetch) or answer.source != fetch.target:
            return None
        self._fetch = None
        taken: TakeLines | TakeChunk | None = None
        if not answer.is_refused and fetch.snapshot_index:
            source = self.heard.get(answer.source)
            if source is not None and source.snapshot_index == fetch.snapshot_index and answer.data:
                taken = TakeChunk(source, fetch.offset, answer.data)
        elif not answer.is_refused:
            taken = self._lines_in(fetch, answer.data)
        if answer.is_refused:
            self._declined.add((answer.source, fetch.first_index))
        if taken is None:
            self.refuse(answer.source, fetch.first_index or -fetch.snapshot_index)
        return taken

    def refuse(self, node_id: str, what: int) -> None:
        """What this peer sent is of no use: ask somebody else before it is asked again."""
        self._refused.add((node_id, what))

    def distrust(self, node_id: str) -> None:
        """Lines of this peer made a file with another digest than its marker says: nothing more is taken."""
        self._distrusted.add(node_id)

    def _lines_in(self, fetch: RepairFetch, data: bytes) -> TakeLines | None:
        """The lines, if they are what was asked for: whole, in a row, of terms that fit those around them."""
        lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
        del lines[fetch.last_index + 1 - fetch.first_index :]
        term = self.survey.term_at(fetch.first_index - 1) or 0
        found: list[TermRange] = []
        try:
            for index, line in enumerate(lines, start=fetch.first_index):
                event = decode_line(line)
                if event.index != index or event.term < term:
                    return None
                term = event.term
                found.append(TermRange(index, index, term))
        except LineDamaged:
            return None
        is_checked = fetch.check_index > 0
        if not found or (is_checked and term > fetch.check_term):
            return None
        if is_checked and found[-1].last_index == fetch.check_index and term != fetch.check_term:
            return None
        self.survey = self.survey.with_lines(joined(found))
        if self._target is not None:
            self._copied_index = found[-1].last_index
        self.survey.last_index = max(self.survey.last_index, found[-1].last_index)
        return TakeLines(fetch.first_index, lines, fetch.last_index)

    # -- time, and what is asked

    def asks(self, now_us: int) -> list[RepairAsk]:
        """Whom to ask now what he has."""
        if self._fetch is not None and now_us - self._fetched_us > FETCH_US_MAX:
            self.refuse(self._fetch.target, self._fetch.first_index or -self._fetch.snapshot_index)
            self._fetch = None
        if now_us < self._ask_us:
            return []
        self._ask_us = now_us + ASK_EVERY_US
        self._round += 1
        self._refused.clear()
        if self._round % FORGET_ROUNDS == 0:
            self._declined.clear()
        voters = self.required
        if not voters or not voters <= self.heard.keys():
            self._settled = None
        elif self._settled is None or self._settled[1] != voters:
            self._settled = (self._round, voters)
        everybody = voters | self.heard.keys() | self._acquainted
        return [RepairAsk(self._node_id, each, 0, self._round) for each in sorted(everybody)]

    # -- who must have answered

    @property
    def required(self) -> frozenset[str]:
        """All other voters: by the newest members that are known to be committed, and by all newer ones."""
        known = [(each.members_index, frozenset(each.voters)) for each in self.heard.values() if each.voters]
        if self.survey.voters:
            known.append((self.survey.members_index, self.survey.voters))
        committed = max((each.commit_index for each in self.heard.values()), default=0)
        committed = max(committed, self.survey.sealed_index, self.survey.state_index)
        newest = max((index for index, _ in known if index <= committed), default=0)
        voters: frozenset[str] = frozenset()
        for index, some in known:
            if index >= newest:
                voters |= some
        return voters - {self._node_id}

    def _all_heard(self) -> list[RepairHas] | None:
        """The answers of all other voters, asked for after all had answered before; None until then."""
        voters = self.required
        if self._settled is None or self._settled[1] != voters:
            missing = sorted(voters - self.heard.keys())
            self.wait = f"for an answer of {', '.join(missing) or 'the other nodes'}"
            return None
        late = sorted(each for each in voters if self.heard[each].round < self._settled[0])
        if late:
            self.wait = f"for an answer of {', '.join(late)}"
            return None
        return [self.heard[each] for each in sorted(voters)]

    # -- the plan

    def next_step(self, now_us: int) -> Step:
        """What to do now; None: wait, or nothing is left to do (`survey.needs_repair` tells)."""
        survey = self.survey
        if self._fetch is not None:
            return None
        if survey.needs_state:
            return self._fetch_snapshot(now_us, beyond=survey.gone_index)
        for hole in survey.holes():
            return self._fill(hole, now_us)
        if survey.hard_state is None:
            return self._spend_term()
        if not survey.is_end_sure:
            return self._secure_end(now_us)
        self.wait = ""
        return None

    def _fill(self, hole: Hole, now_us: int) -> Step:
        is_lost, waited_us = self._nobody_has(hole), now_us - self._began_us
        step = self._fetch_lines(hole, now_us) if not is_lost else None
        if step is not None:
            return step
        if hole.last_index <= self.survey.state_index:
            if is_lost or waited_us > HISTORY_PATIENCE_US:
                return LeaveHistory(self.survey.state_index)
        elif is_lost or waited_us > PATIENCE_US:
            step = self._fetch_snapshot(now_us, beyond=max(hole.first_index, self.survey.state_index + 1))
            if step is not None:
                return step
            if is_lost and hole.check_index:
                return CutBehind(max(hole.first_index - 1, self.survey.state_index))
        self.wait = (
            f"for entries {hole.first_index} to {hole.last_index}: no node that answers has them "
            f"({', '.join(sorted(self.heard)) or 'none answers'})"
        )
        return None

    def _nobody_has(self, hole: Hole) -> bool:
        """All others are whole, and each has said that its log does not hold these lines."""
        heard = self._all_heard()
        return heard is not None and all(
            each.is_whole
            and (
                (each.source, hole.first_index) in self._declined
                or not any(first <= hole.first_index <= last for first, last in each.ranges)
            )
            for each in heard
        )

    def _fetch_lines(self, hole: Hole, now_us: int) -> RepairFetch | None:
        first_index, last_index = hole.first_index, hole.last_index
        for node_id, answer in sorted(self.heard.items()):
            has_them = any(first <= first_index <= last for first, last in answer.ranges)
            is_trusted = node_id not in self._distrusted
            if has_them and is_trusted and (node_id, first_index) not in self._refused:
                check = self._check_for(hole, answer)
                if check is not None:
                    fetch = RepairFetch(self._node_id, node_id, 0, first_index, last_index, *check)
                    return self._fetching(fetch, now_us)
        return None

    def _check_for(self, hole: Hole, answer: RepairHas) -> tuple[int, int] | None:
        """By which entry this peer may see that its log is the same: the one behind the hole, or, should that
        be damaged there, the next that both have (5.3: then all before it are equal). None: there is none.

        What is committed needs no such proof, but this peer may not have heard that it is.
        """
        is_committed = not hole.check_index
        is_known_there = is_committed and answer.commit_index >= hole.last_index
        is_tail = 0 < hole.check_index <= hole.last_index
        if is_known_there or is_tail or not answer.ranges:
            return hole.check_index, hole.check_term
        shared = [
            (max(ours.first_index, first), ours.term)
            for ours in self.survey.ranges
            if ours.first_index > hole.last_index
            for first, last in answer.ranges
            if max(ours.first_index, first) <= min(ours.last_index, last)
        ]
        return min(shared, default=(0, 0) if is_committed else None)

    def _fetch_snapshot(self, now_us: int, *, beyond: int) -> RepairFetch | None:
        """The newest that a peer has; `beyond`: what it must hold at least."""
        having = [
            each
            for each in self.heard.values()
            if each.snapshot_index >= max(beyond, 1)
            and (each.source, -each.snapshot_index) not in self._refused
        ]
        if not having:
            self.wait = f"for a snapshot as of entry {beyond} or later: no node that answers has one"
            return None
        best = max(having, key=lambda each: (each.snapshot_index, each.source))
        return self.fetch_chunk(best, 0, now_us)

    def fetch_chunk(self, source: RepairHas, offset: int, now_us: int) -> RepairFetch:
        """The next piece of a snapshot."""
        fetch = RepairFetch(
            self._node_id, source.source, 0, snapshot_index=source.snapshot_index, offset=offset
        )
        return self._fetching(fetch, now_us)

    def _fetching(self, fetch: RepairFetch, now_us: int) -> RepairFetch:
        self._fetch, self._fetched_us = fetch, now_us
        return fetch

    def _spend_term(self) -> Step:
        heard = self._all_heard()
        if heard is None:
            return None
        damaged = [each.source for each in heard if not each.has_vote]
        if damaged:
            self.wait = f"for {', '.join(damaged)}, whose vote is damaged too"
            return None
        return SpendTerm(max(self.survey.last_term, *(each.term for each in heard)))

    def _secure_end(self, now_us: int) -> Step:
        """Copy the most up-to-date log among all others, unless this one is."""
        if self._target is None:
            heard = self._all_heard()
            if heard is None:
                return None
            damaged = [each.source for each in heard if not each.is_end_sure]
            if damaged:
                self.wait = f"for {', '.join(damaged)}, the end of whose log is damaged too"
                return None
            newest = max(heard, key=lambda each: (each.last_term, each.last_index))
            if not newest.is_whole:
                self.wait = f"for {newest.source}, which has the newest log and repairs itself"
                return None
            self._target, self._copied_index = newest, 0
        survey, target = self.survey, self._target
        if (survey.last_term, survey.last_index) >= (target.last_term, target.last_index):
            return EndIsSure()
        theirs = ranges_of(target.runs, target.last_index) if target.runs else []
        known_index = max(self._copied_index, survey.sealed_index, survey.state_index)
        equal_index = max(common_index(survey.ranges, theirs), known_index)
        if equal_index < survey.last_index:
            return CutBehind(equal_index)
        tail = Hole(equal_index + 1, target.last_index, target.last_index, target.last_term)
        step = self._fetch_lines(tail, now_us)
        if step is None and target.snapshot_index > equal_index:
            step = self._fetch_snapshot(now_us, beyond=equal_index + 1)
        if step is None:
            # Its log is no longer what it was: whatever was committed meanwhile is told by a new round.
            self._target = self._settled = None
            self.wait = f"for entries {tail.first_index} to {tail.last_index} of {target.source}"
        return step

    # -- what was done

    def updated(self, survey: Survey) -> None:
        """What is on disk was looked at anew."""
        self.survey = survey
        self._copied_index = min(self._copied_index, survey.last_index)


def _key(message: RepairFetch | RepairPiece) -> tuple[int, int, int, int]:
    return message.first_index, message.check_index, message.snapshot_index, message.offset
