"""A leader's view of its followers: what each has, what is on its way to it, what a majority has.

It builds AppendEntries and takes their answers; it may not change term, role or log. Lines stream to a
follower through a window: while messages are unanswered more are sent (`replicating`); after a refusal
one message at a time seeks the last equal entry (`probing`). One slow follower holds up nobody else.
"""

import zlib
from collections import deque
from collections.abc import Iterator

from rollmq.core.members import Configuration
from rollmq.core.raft_election import quorum_of
from rollmq.core.raft_install import Shipment
from rollmq.core.raft_log import RaftLog, bytes_of, prefix_within
from rollmq.core.raft_messages import AppendEntries, AppendResp, InstallSnapResp, InstallSnapshot, TermRun
from rollmq.core.raft_ready import RaftSettings, ReadChunk, ReadLines, SnapshotFacts


class Progress:
    """What the leader knows of one follower. Invariant: match_index < next_index."""

    __slots__ = (
        "counts",
        "counts_index",
        "differs_counts",
        "differs_index",
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
        "refused_index",
        "round",
        "shipment",
        "wall_ahead_us",
    )

    def __init__(self, *, node_id: str, next_index: int, now_us: int) -> None:
        self.node_id = node_id
        self.match_index = 0
        """Known to be on its disk and equal to ours. Only grows, unless it says that it is damaged."""
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
        """Its next line is no longer in our log: it gets a snapshot."""
        self.shipment: Shipment | None = None
        self.is_heartbeat_due = True
        self.heard_us = now_us
        self.round = 0
        """The newest heartbeat round that it answered in this term."""
        self.refused_index = 0
        """A marker over other bytes than its own, which it did not take; 0 = none."""
        self.differs_index = 0
        """A marker at which its counts are not those of a majority; 0 = none. It is told so."""
        self.differs_counts = b""
        """Those counts."""
        self.counts_index = 0
        """The newest marker whose counts it told."""
        self.counts = b""
        """And what it told: a new process of it may tell the same marker otherwise."""
        self.wall_ahead_us: int | None = None
        """How far its wall clock was ahead of our monotonic one, which never jumps, as last heard."""

    def has_room(self, settings: RaftSettings) -> bool:
        """Whether one more message with lines may be sent now."""
        if self.reading is not None or self.needs_snapshot or 0 < self.refused_index <= self.next_index:
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
            self.shipment = None
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.inflight and self.inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def was_damaged(self, next_index: int) -> None:
        """What it has confirmed may not be there any more: nothing of it counts."""
        self.match_index = 0
        self.shipment = None
        self.probe_from(next_index)

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


class Transfer:
    """Leadership on its way to another node (thesis 3.10)."""

    __slots__ = ("deadline_us", "is_asked", "target")

    def __init__(self, *, target: str, deadline_us: int) -> None:
        self.target = target
        self.deadline_us = deadline_us
        """Then it is given up, and this node leads on."""
        self.is_asked = False


class Leadership:
    """The followers of one leader in one term. It ends with the term."""

    __slots__ = (
        "_batch",
        "_followers",
        "_is_round_new",
        "_log",
        "_node_id",
        "_now_us",
        "_quorum",
        "_settings",
        "_voting",
        "chunk_reads",
        "counts_told",
        "is_voter",
        "reads",
        "round",
        "snapshot",
        "term",
        "term_start_index",
        "transfer",
    )

    def __init__(
        self,
        *,
        node_id: str,
        configuration: Configuration,
        term: int,
        log: RaftLog,
        settings: RaftSettings,
        now_us: int,
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._settings = settings
        self._now_us = now_us
        self.term = term
        self._followers: dict[str, Progress] = {}
        self._voting: list[Progress] = []
        """Those of the followers that vote."""
        self.reconfigured(configuration)
        self.term_start_index: int | None = None
        """The index of the first entry of this term (the noop); None until it is proposed."""
        self.round = 0
        self._is_round_new = False
        """Nothing of this round was sent yet."""
        self.reads: list[ReadLines] = []
        self.chunk_reads: list[ReadChunk] = []
        """For the host, collected by the next Ready."""
        self.snapshot: SnapshotFacts | None = None
        """The newest of this node."""
        self.transfer: Transfer | None = None
        self.counts_told: list[tuple[str, int, bytes]] = []
        """(follower, marker, digest of its counts) as they came, for the host to compare."""
        self._batch: tuple[int, list[bytes], int, tuple[TermRun, ...]] | None = None
        """(first index, lines, bytes, terms) of the last message built: followers mostly share it."""

    def reconfigured(self, configuration: Configuration) -> None:
        """These are the members now. A new one is asked first where its log ends."""
        for gone in set(self._followers) - configuration.all:
            del self._followers[gone]
        for new in sorted(configuration.all - {self._node_id} - set(self._followers)):
            self._followers[new] = Progress(
                node_id=new, next_index=self._log.last_index + 1, now_us=self._now_us
            )
        self._voting = [
            progress for follower, progress in self._followers.items() if follower in configuration.voters
        ]
        self.is_voter = self._node_id in configuration.voters
        self._quorum = quorum_of(len(configuration.voters))

    def progress(self, follower: str) -> Progress | None:
        """What is known of a follower; None for a stranger."""
        return self._followers.get(follower)

    @property
    def voting(self) -> list[Progress]:
        """The followers that vote."""
        return self._voting

    # What a majority has

    def committed_index(self) -> int:
        """The highest index that may be committed now: on a majority of disks, of this term (5.4.2).

        An older term's entry on a majority of disks can still be overwritten (figure 8); it is committed
        by the first entry of this term after it. The leader counts only if it is a voter (pitfall 27).
        """
        if self.term_start_index is None:
            return 0
        if not self._voting and self.is_voter:
            majority_index = self._log.persisted_index
        else:
            matches = [progress.match_index for progress in self._voting]
            if self.is_voter:
                matches.append(self._log.persisted_index)
            matches.sort(reverse=True)
            majority_index = matches[self._quorum - 1]
        return majority_index if majority_index >= self.term_start_index else 0

    def hears_majority(self, now_us: int) -> bool:
        """Check-quorum: a majority answered within the longest election timeout (6.2 of the thesis)."""
        since_us = now_us - self._settings.election_us_max
        heard_count = sum(progress.heard_us >= since_us for progress in self._voting)
        return heard_count + self.is_voter >= self._quorum

    def confirmed_round(self) -> int:
        """The newest heartbeat round that a majority answered: it had no other leader then (thesis 6.4)."""
        rounds = [progress.round for progress in self._voting]
        if self.is_voter:
            rounds.append(self.round)
        rounds.sort(reverse=True)
        return rounds[self._quorum - 1]

    def hears(self, follower: str, now_us: int) -> bool:
        """Whether it answered lately."""
        progress = self._followers.get(follower)
        return progress is not None and progress.heard_us >= now_us - self._settings.election_us_max

    def is_caught_up(self, follower: str, now_us: int) -> bool:
        """Thesis 4.2.1: it has all but what is on its way, so that as a voter it would hold up nobody."""
        progress = self._followers.get(follower)
        if progress is None or progress.is_probing or not self.hears(follower, now_us):
            return False
        return progress.match_index + self._settings.append_lines_max >= self._log.last_index

    def transfer_is_over(self, now_us: int) -> bool:
        """The heir had its time."""
        return self.transfer is not None and now_us >= self.transfer.deadline_us

    def refused_marker(self) -> int:
        """The marker that a majority of all members refuses; 0 = none."""
        refused = sorted((progress.refused_index for progress in self._voting), reverse=True)
        return refused[self._quorum - 1] if len(refused) >= self._quorum else 0

    # Sending

    def heartbeat(self, now_us: int) -> None:
        """Every follower hears from us with the next Ready, lines or not."""
        self._now_us = now_us
        self.new_round()
        for progress in self._followers.values():
            shipment = progress.shipment
            if shipment is not None and now_us - shipment.sent_us > self._settings.election_us_max:
                shipment.is_due = shipment.reading is None  # A chunk or its answer was lost.

    def new_round(self) -> int:
        """Begin a round of heartbeats, unless one begins with the next Ready anyhow. Returns its number."""
        if not self._is_round_new:
            self._is_round_new = True
            self.round += 1
            for progress in self._followers.values():
                progress.is_heartbeat_due = True
        return self.round

    def appends(self) -> Iterator[AppendEntries]:
        """The messages to send now: lines where there is room, heartbeats where due."""
        for progress in self._followers.values():
            if progress.next_index <= self._log.snapshot_index:
                progress.needs_snapshot = True
            while progress.next_index <= self._log.last_index and progress.has_room(self._settings):
                if progress.next_index < self._log.held_index:
                    self._ask_for_lines(progress)
                else:
                    yield self._append_from_memory(progress)
            if progress.needs_snapshot:
                self._ship(progress)
            if progress.is_heartbeat_due:
                progress.is_heartbeat_due = False
                yield self._heartbeat_to(progress)
        self._batch = None
        self._is_round_new = False

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
            differs_index=progress.differs_index,
            differs_counts=progress.differs_counts,
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

    # Snapshots

    def _ship(self, progress: Progress) -> None:
        """Ask the host for the next chunk. One is on its way at a time; lines for others go on."""
        shipment = progress.shipment
        if shipment is None:
            if self.snapshot is None or self.snapshot.last_index <= progress.match_index:
                return  # The host tells when there is one.
            shipment = progress.shipment = Shipment(self.snapshot, self._now_us)
        if not shipment.is_due:
            return
        shipment.is_due = False
        shipment.sent_us = self._now_us
        shipment.reading = ReadChunk(
            progress.node_id,
            self.term,
            shipment.snapshot,
            shipment.next_offset,
            self._settings.chunk_bytes_max,
        )
        self.chunk_reads.append(shipment.reading)

    def chunk_read(self, request: ReadChunk, data: bytes | None) -> InstallSnapshot | None:
        """The host's answer to a ReadChunk. None when it is out of date, or the file is gone."""
        progress = self._followers.get(request.target)
        shipment = progress.shipment if progress is not None else None
        if progress is None or shipment is None or shipment.reading is not request:
            return None
        shipment.reading = None
        if not data:
            progress.shipment = None  # A newer one was folded meanwhile, and this one went (pitfall 31).
            return None
        shipment.sent_us = self._now_us
        return InstallSnapshot(
            self._node_id,
            request.target,
            self.term,
            last_index=request.snapshot.last_index,
            last_term=request.snapshot.last_term,
            digest=request.snapshot.digest,
            total_bytes=request.snapshot.total_bytes,
            offset=request.offset,
            data=data,
            crc=zlib.crc32(data),
            round=self.round,
        )

    def snapshot_answered(self, answer: InstallSnapResp, now_us: int) -> bool:
        """Take an answer of this term. True when match_index grew."""
        progress = self._followers.get(answer.source)
        if progress is None:
            return False
        progress.heard_us = now_us
        if not answer.installed:
            if progress.shipment is not None:
                progress.shipment.answered(answer)
            return False
        if not progress.match_index < answer.last_index <= self._log.last_index:
            return False
        progress.matched(answer.last_index)
        progress.probe_from(answer.last_index + 1)
        return True

    # Answers

    def answered(self, answer: AppendResp, now_us: int) -> bool:
        """Take an answer of this term. True when match_index grew, so more may be committed."""
        progress = self._followers.get(answer.source)
        if progress is None:
            return False
        progress.heard_us = now_us
        if progress.round < answer.round <= self.round:
            progress.round = answer.round
        if answer.ok:
            progress.refused_index = answer.refused_index
            if answer.wall_us:
                progress.wall_ahead_us = answer.wall_us - now_us
            said, known = (answer.counts_index, answer.counts), (progress.counts_index, progress.counts)
            if answer.counts_index >= progress.counts_index and said != known:
                progress.counts_index, progress.counts = said
                self.counts_told.append((answer.source, answer.counts_index, answer.counts))
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
