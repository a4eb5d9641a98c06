"""A leader's view of its followers: what each has, what is on its way to it, what a majority has.

It builds AppendEntries and takes their answers; it may not change term, role or log. Lines stream to a
follower through a window: while messages are unanswered more are sent (`replicating`); after a refusal
one message at a time seeks the last equal entry (`probing`). One slow follower holds up nobody else.
"""

from collections import deque
from collections.abc import Iterable, Set

from rollmq.core.raft_election import quorum_of
from rollmq.core.raft_log import RaftLog, bytes_of, prefix_within
from rollmq.core.raft_messages import AppendEntries, AppendResp, TermRun
from rollmq.core.raft_ready import RaftSettings, ReadLines


class Progress:
    """What the leader knows of one follower. Invariant: match_index < next_index."""

    __slots__ = (
        "heard_us",
        "inflight",
        "inflight_bytes",
        "is_heartbeat_due",
        "is_probe_sent",
        "is_probing",
        "match_index",
        "needs_snapshot",
        "next_index",
        "node_id",
        "reading",
    )

    def __init__(self, *, node_id: str, next_index: int, now_us: int) -> None:
        self.node_id = node_id
        self.match_index = 0
        """Known to be on its disk and equal to ours. Only grows."""
        self.next_index = next_index
        """The next line to send."""
        self.is_probing = True
        self.is_probe_sent = False
        self.inflight: deque[tuple[int, int]] = deque()
        """(last index, bytes) of messages with lines that are not answered yet."""
        self.inflight_bytes = 0
        self.reading: ReadLines | None = None
        """The host is reading lines for it."""
        self.needs_snapshot = False
        """Its next line is no longer in our log. InstallSnapshot would help."""
        self.is_heartbeat_due = True
        self.heard_us = now_us

    def has_room(self, settings: RaftSettings) -> bool:
        """Whether one more message with lines may be sent now."""
        if self.reading is not None or self.needs_snapshot:
            return False
        if self.is_probing:
            return not self.is_probe_sent
        is_few = len(self.inflight) < settings.appends_inflight_max
        return is_few and self.inflight_bytes < settings.appends_inflight_bytes_max

    def sent(self, *, last_index: int, size: int) -> None:
        """A message with lines up to last_index left."""
        self.is_heartbeat_due = False
        if self.is_probing:
            self.is_probe_sent = True
            return
        self.inflight.append((last_index, size))
        self.inflight_bytes += size
        self.next_index = last_index + 1

    def matched(self, index: int) -> None:
        """Everything up to `index` is known to be equal. Late answers change nothing (pitfall 20)."""
        if index > self.match_index:
            self.match_index = index
            self.needs_snapshot = False
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.inflight and self.inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def replicate(self) -> None:
        """The point where the logs agree is found: stream from next_index on."""
        self.is_probing = False
        self.is_probe_sent = False

    def probe_from(self, next_index: int) -> None:
        """The logs disagree before next_index: forget what is on its way, seek."""
        self.is_probing = True
        self.is_probe_sent = False
        self.inflight.clear()
        self.inflight_bytes = 0
        self.reading = None
        self.needs_snapshot = False
        self.next_index = max(next_index, self.match_index + 1)


class Leadership:
    """The followers of one leader in one term. It ends with the term."""

    __slots__ = (
        "_batch",
        "_followers",
        "_log",
        "_node_id",
        "_settings",
        "_voters",
        "reads",
        "round",
        "term",
        "term_start_index",
    )

    def __init__(
        self, *, node_id: str, voters: Set[str], term: int, log: RaftLog, settings: RaftSettings, now_us: int
    ) -> None:
        self._node_id = node_id
        self._voters = voters
        self._log = log
        self._settings = settings
        self.term = term
        self._followers = {
            follower: Progress(node_id=follower, next_index=log.last_index + 1, now_us=now_us)
            for follower in sorted(voters - {node_id})
        }
        self.term_start_index: int | None = None
        """The index of the first entry of this term (the noop); None until it is proposed."""
        self.round = 0
        self.reads: list[ReadLines] = []
        """For the host, collected by the next Ready."""
        self._batch: tuple[int, list[bytes], int, tuple[TermRun, ...]] | None = None
        """(first index, lines, bytes, terms) of the last message built: followers mostly share it."""

    def progress(self, follower: str) -> Progress | None:
        """What is known of a follower; None for a stranger."""
        return self._followers.get(follower)

    # What a majority has

    def committed_index(self) -> int:
        """The highest index that may be committed now: on a majority of disks, of this term (5.4.2).

        An older term's entry on a majority of disks can still be overwritten (figure 8); it is committed
        by the first entry of this term after it. The leader counts only if it is a voter (pitfall 27).
        """
        if self.term_start_index is None:
            return 0
        if len(self._voters) == 1 and self._node_id in self._voters:
            majority_index = self._log.persisted_index
        else:
            matches = [progress.match_index for progress in self._followers.values()]
            if self._node_id in self._voters:
                matches.append(self._log.persisted_index)
            matches.sort(reverse=True)
            majority_index = matches[quorum_of(len(self._voters)) - 1]
        return majority_index if majority_index >= self.term_start_index else 0

    def hears_majority(self, now_us: int) -> bool:
        """Check-quorum: a majority answered within the longest election timeout (6.2 of the thesis)."""
        since_us = now_us - self._settings.election_us_max
        heard_count = sum(progress.heard_us >= since_us for progress in self._followers.values())
        return heard_count + (self._node_id in self._voters) >= quorum_of(len(self._voters))

    # Sending

    def heartbeat(self) -> None:
        """Every follower hears from us with the next Ready, lines or not."""
        self.round += 1
        for progress in self._followers.values():
            progress.is_heartbeat_due = True

    def appends(self) -> Iterable[AppendEntries]:
        """The messages to send now: lines where there is room, heartbeats where due."""
        for progress in self._followers.values():
            if progress.next_index <= self._log.snapshot_index:
                progress.needs_snapshot = True
            while progress.next_index <= self._log.last_index and progress.has_room(self._settings):
                if progress.next_index < self._log.held_index:
                    self._ask_for_lines(progress)
                else:
                    yield self._append_from_memory(progress)
            if progress.is_heartbeat_due:
                progress.is_heartbeat_due = False
                yield self._heartbeat_to(progress)
        self._batch = None

    def _append_from_memory(self, progress: Progress) -> AppendEntries:
        first_index = progress.next_index
        if self._batch is None or self._batch[0] != first_index:
            lines = self._log.take(
                first_index,
                bytes_max=self._settings.append_bytes_max,
                lines_max=self._settings.append_lines_max,
            )
            terms = self._log.runs(first_index, first_index + len(lines) - 1)
            self._batch = first_index, lines, bytes_of(lines), terms
        return self._append(progress, *self._batch)

    def _append(
        self, progress: Progress, first_index: int, lines: list[bytes], size: int, terms: tuple[TermRun, ...]
    ) -> AppendEntries:
        prev_term = self._log.term_at(first_index - 1)
        assert prev_term is not None, "the entry before the first line is in the log or the snapshot"
        progress.sent(last_index=first_index + len(lines) - 1, size=size)
        return AppendEntries(
            self._node_id,
            progress.node_id,
            self.term,
            prev_index=first_index - 1,
            prev_term=prev_term,
            commit_index=self._log.commit_index,
            term_runs=terms,
            lines=lines,
            round=self.round,
        )

    def _heartbeat_to(self, progress: Progress) -> AppendEntries:
        """A heartbeat checks the entry before next_index: what was lost on the way shows as a refusal."""
        prev_term = self._log.term_at(progress.next_index - 1)
        # A follower before our snapshot: the empty prefix agrees with every log.
        prev_index = 0 if prev_term is None else progress.next_index - 1
        return AppendEntries(
            self._node_id,
            progress.node_id,
            self.term,
            prev_index=prev_index,
            prev_term=prev_term or 0,
            commit_index=self._log.commit_index,
            round=self.round,
        )

    def _ask_for_lines(self, progress: Progress) -> None:
        progress.reading = ReadLines(
            target=progress.node_id,
            term=self.term,
            first_index=progress.next_index,
            last_index=min(
                self._log.held_index - 1, progress.next_index + self._settings.append_lines_max - 1
            ),
            bytes_max=self._settings.append_bytes_max,
        )
        self.reads.append(progress.reading)

    def lines_read(self, request: ReadLines, lines: list[bytes]) -> AppendEntries | None:
        """The host's answer to a ReadLines. None when it is out of date, or the lines are gone."""
        progress = self._followers.get(request.target)
        if progress is None or progress.reading is not request:
            return None
        progress.reading = None
        if not lines or request.first_index <= self._log.snapshot_index:
            progress.needs_snapshot = True
            return None
        lines = prefix_within(lines, request.bytes_max)
        last_index = request.first_index + len(lines) - 1
        assert last_index <= request.last_index, "no more lines than asked for"
        terms = self._log.runs(request.first_index, last_index)
        return self._append(progress, request.first_index, lines, bytes_of(lines), terms)

    # Answers

    def answered(self, answer: AppendResp, now_us: int) -> bool:
        """Take an answer of this term. True when match_index grew, so more may be committed."""
        progress = self._followers.get(answer.source)
        if progress is None:
            return False
        progress.heard_us = now_us
        if not answer.ok:
            self._refused(progress, answer)
            return False
        if answer.match_index > self._log.last_index:
            return False  # Nobody can have more of this term than its leader: not an answer to us.
        before_index = progress.match_index
        is_probe_answered = max(answer.match_index, answer.prev_index) >= progress.next_index - 1
        progress.matched(answer.match_index)
        if progress.is_probing and is_probe_answered:
            progress.replicate()
        return progress.match_index > before_index

    def _refused(self, progress: Progress, answer: AppendResp) -> None:
        """5.3: step back, by whole terms, to the last entry that may be equal."""
        is_late = answer.prev_index <= progress.match_index or (
            progress.is_probing and answer.prev_index != progress.next_index - 1
        )
        if is_late:
            return
        hint_index = min(answer.hint_index, answer.prev_index - 1)
        equal_index, _ = self._log.last_at_most(index=hint_index, term=answer.hint_term)
        # Without a common entry after the snapshot, next_index ends up at or before it (pitfall 25).
        is_in_log = hint_index >= self._log.snapshot_index
        progress.probe_from((equal_index if is_in_log else hint_index) + 1)
