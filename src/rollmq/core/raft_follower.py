"""A follower's side of replication in one term: check, cut, add, confirm (section 5.3 of the Raft paper).

It moves the log's end and its commit index as the leader says, as far as both logs are known to be
equal. It may not touch term, vote or role. What it confirms is on this node's disk.
"""

from rollmq.core.raft_log import RaftLog
from rollmq.core.raft_messages import AppendEntries, AppendResp


class Following:
    """What one term's leader has shown us of its log. It ends with the term."""

    __slots__ = (
        "_log",
        "_node_id",
        "_unconfirmed",
        "_verified_index",
        "contradictions_count",
        "counts",
        "overruled_index",
        "refused_index",
        "term",
        "unjudged_index",
        "wall_us",
    )

    def __init__(self, *, node_id: str, term: int, log: RaftLog) -> None:
        self._node_id = node_id
        self._log = log
        self.term = term
        self.counts: tuple[int, bytes] = (0, b"")
        """(marker's index, digest of the counts of the state there), told in answers."""
        self.wall_us = 0
        """This node's wall clock, told in answers."""
        self.refused_index = 0
        """A marker whose segment is another one here: it is not in our log, nor what follows it. 0 = none."""
        self.unjudged_index = 0
        """A marker in our log of which nobody can say yet whether it is ours: not confirmed. 0 = none."""
        self.overruled_index = 0
        """A marker that was refused here and that the group has committed: this log is not the group's."""
        self._verified_index = 0
        """Our log equals the leader's up to here, as its requests have shown. In its own term a leader never
        overwrites, so it grows, unless a marker is refused."""
        self._unconfirmed: AppendEntries | None = None
        """The latest request whose lines are here but not on disk: its answer waits for them."""
        self.contradictions_count = 0
        """Requests that would have overwritten what this term's leader itself had shown: ignored."""

    def in_term(self, term: int) -> "Following":
        """The next term's: nothing of its leader's log is known yet."""
        following = Following(node_id=self._node_id, term=term, log=self._log)
        following.counts, following.wall_us = self.counts, self.wall_us
        following.unjudged_index = self.unjudged_index
        return following

    def refuse(self, index: int) -> None:
        """Take this marker out again, and what follows: no line of it is confirmed or written yet (rule 5).

        Another leader may never have had it, so it is forgotten with the term. If it is committed already,
        the group has decided, and there is nothing to refuse.
        """
        if index <= self._log.commit_index:
            self.overruled_index = index
            return
        if index <= self._verified_index:
            self.refused_index = index
        if index <= self._log.last_index:
            self._log.cut(index)
        self._verified_index = min(self._verified_index, index - 1)

    def replaced_by_snapshot(self, index: int) -> None:
        """The log was replaced by this leader's snapshot: equal up to there."""
        self._verified_index = max(self._verified_index, index)
        self._unconfirmed = None
        self.refused_index = self.unjudged_index = 0

    def take(self, request: AppendEntries) -> AppendResp | None:
        """Bring the log in line with the request. Returns the answer, None when it must wait for the disk."""
        log = self._log
        if 0 < self.refused_index <= request.commit_index:
            self.overruled_index = self.refused_index
            return None
        first_index = request.prev_index + 1
        last_index = request.prev_index + len(request.lines)
        if request.prev_index < log.commit_index:
            # What is committed here is the leader's too (5.4.3); only what follows it is news.
            self._assert_same_at_commit(request, last_index)
            first_index = log.commit_index + 1
        elif not log.matches(request.prev_index, request.prev_term):
            return self._refusal(request)
        different_index = log.first_difference(first_index, request.term_runs, last_index)
        if different_index <= min(last_index, self._verified_index):
            # Leader append-only (5.3): no leader overwrites its own log, so this is none.
            self.contradictions_count += 1
            return None
        if different_index <= last_index:
            self._replace(different_index, request)
        self._verified_index = max(self._verified_index, last_index)
        # The leader's commit index counts only as far as the logs are known to be equal (pitfall 21).
        log.commit_to(min(request.commit_index, self._verified_index))
        if last_index <= log.persisted_index or not request.lines:
            # A heartbeat is answered in any case: it is a sign of life, and confirms what is on disk.
            return self._confirmation(request, min(last_index, log.persisted_index))
        self._unconfirmed = request
        return None

    def confirm(self, durable_index: int) -> AppendResp | None:
        """The answer that waited, as far as lines up to durable_index make it true."""
        request = self._unconfirmed
        if request is None:
            return None
        if durable_index >= self._verified_index:
            self._unconfirmed = None
        return self._confirmation(request, min(durable_index, self._verified_index))

    def confirm_durable(self) -> AppendResp | None:
        """The answer that waited, if all of it is on disk now."""
        is_durable = self._verified_index <= self._log.persisted_index
        return self.confirm(self._log.persisted_index) if is_durable else None

    def _replace(self, index: int, request: AppendEntries) -> None:
        """Delete from the first entry that conflicts, and only then; add what is not here (pitfall 18)."""
        if index <= self._log.last_index:
            self._log.cut(index)
            if index <= self.unjudged_index:
                self.unjudged_index = 0
        self._log.append_runs(request.lines[index - request.prev_index - 1 :], request.term_runs)

    def _assert_same_at_commit(self, request: AppendEntries, last_index: int) -> None:
        commit_index = self._log.commit_index
        if commit_index > last_index:
            return
        terms = [term for index, term in request.term_runs if index <= commit_index]
        assert self._log.matches(commit_index, terms[-1]), "the leader's log has what is committed here"

    def _refusal(self, request: AppendEntries) -> AppendResp:
        """The entry before the lines is not here. Say where the logs may still be equal (5.3, end)."""
        log = self._log
        assert request.prev_index > log.commit_index, "the leader's log has what is committed here"
        hint_index, hint_term = log.last_at_most(index=request.prev_index, term=request.prev_term)
        if hint_index < log.commit_index:
            # Up to there they are equal without asking.
            hint_index, hint_term = log.commit_index, log.term_at(log.commit_index) or 0
        return AppendResp(
            self._node_id,
            request.source,
            self.term,
            ok=False,
            prev_index=request.prev_index,
            hint_index=hint_index,
            hint_term=hint_term,
            round=request.round,
        )

    def _confirmation(self, request: AppendEntries, match_index: int) -> AppendResp:
        if 0 < self.unjudged_index <= match_index:
            match_index = self.unjudged_index - 1
        if request.lines:
            counts_index, counts, wall_us = 0, b"", 0  # Heartbeats are often enough for these.
        else:
            (counts_index, counts), wall_us = self.counts, self.wall_us
        return AppendResp(
            self._node_id,
            request.source,
            self.term,
            ok=True,
            prev_index=request.prev_index,
            match_index=match_index,
            round=request.round,
            counts_index=counts_index,
            counts=counts,
            refused_index=self.refused_index,
            wall_us=wall_us,
        )
