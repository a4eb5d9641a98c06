"""Known bugs of the consensus core: each breaks a rule of the paper, or a pitfall of docs/rules.md."""

# ruff: noqa: E501 (names of tests are sentences, and an id is one word)

from typing import Final

from tests.plant.bug import CORE, RAFT, Bug

CONSENSUS: Final = (
    Bug(
        "the vote is not persisted",
        CORE + "raft_outbox.py",
        "        hard_state = None if self.is_durable else self.hard_state\n",
        "        hard_state = None if self.is_durable else HardState(self.hard_state.term, None)\n",
        (RAFT + "test_persistence.py",),
    ),
    Bug(
        "a vote is told before it is on disk",
        CORE + "raft_outbox.py",
        "(self._free if self.hard_state is self.durable or self.is_durable else self._after).append(message)",
        "self._free.append(message)",
        (RAFT + "test_persistence.py::test_a_vote_is_on_disk_before_the_answer_that_gives_it",),
    ),
    Bug(
        "a leader counts itself before its fsync",
        CORE + "raft_leader.py",
        "matches.append(self._log.persisted_index)",
        "matches.append(self._log.last_index)",
        (
            RAFT
            + "test_persistence.py::test_a_leader_sends_lines_beside_its_own_write_but_counts_itself_only_after_it",
        ),
    ),
    Bug(
        "a single voter commits before its fsync",
        CORE + "raft_leader.py",
        "majority_index = self._log.persisted_index",
        "majority_index = self._log.last_index",
        (RAFT + "test_persistence.py::test_a_single_voter_commits_only_after_its_fsync",),
    ),
    Bug(
        "a heartbeat confirms what is not on disk",
        CORE + "raft_follower.py",
        "return self._confirmation(request, min(last_index, log.persisted_index))",
        "return self._confirmation(request, last_index)",
        (
            RAFT
            + "test_persistence.py::test_a_heartbeat_during_a_slow_fsync_is_answered_but_confirms_only_what_is_on_disk",
        ),
    ),
    Bug(
        "a same-term step-down forgets its vote",
        CORE + "raft_candidacy.py",
        "        was_leader = self._leadership is not None\n",
        "        self._outbox.hard_state = HardState(self.term, voted_for)\n"
        "        was_leader = self._leadership is not None\n",
        (RAFT + "test_elections.py::test_a_candidate_that_becomes_follower_in_its_term_keeps_its_vote",),
    ),
    Bug(
        "the longer log wins although its term is older",
        CORE + "raft_log.py",
        "return (last_term, last_index) >= (self.last_term, self.last_index)",
        "return last_index >= self.last_index",
        (RAFT + "test_elections.py::test_a_voter_denies_its_vote_if_its_own_log_is_more_up_to_date",),
    ),
    Bug(
        "votes are counted across terms",
        CORE + "raft_candidacy.py",
        "if ballot is None or answer.asked_term != ballot.asked_term or answer.pre != ballot.is_pre:",
        "if ballot is None:",
        (RAFT + "test_elections.py::test_a_vote_for_an_earlier_term_does_not_count_in_this_one",),
    ),
    Bug(
        "two votes in one term",
        CORE + "raft_candidacy.py",
        "is_free = self.voted_for in (None, request.source)",
        "is_free = True",
        (
            RAFT
            + "test_elections.py::test_a_server_votes_for_at_most_one_candidate_in_a_term_first_come_first_served",
        ),
    ),
    Bug(
        "a leader that nobody answers stays leader",
        CORE + "raft.py",
        "if leadership is not None and not leadership.hears_majority(now_us):",
        "if False:",
        (
            RAFT
            + "test_elections.py::test_a_leader_steps_down_if_no_majority_answers_for_an_election_timeout",
        ),
    ),
    Bug(
        "a shorter append truncates",
        CORE + "raft_follower.py",
        "        different_index = log.first_difference(first_index, request.term_runs, last_index)\n",
        "        different_index = log.first_difference(first_index, request.term_runs, last_index)\n"
        "        if last_index < log.last_index and last_index >= log.commit_index:\n"
        "            log.cut(last_index + 1)\n",
        (
            RAFT
            + "test_replication.py::test_entries_that_are_there_already_are_not_deleted_by_a_shorter_or_older_message",
        ),
    ),
    Bug(
        "the match index is the follower's log length",
        CORE + "raft_follower.py",
        "self._verified_index = max(self._verified_index, last_index)",
        "self._verified_index = log.last_index",
        (
            RAFT
            + "test_replication.py::test_an_answer_that_waited_for_the_disk_confirms_no_more_than_its_request_either",
        ),
    ),
    Bug(
        "a follower commits what was not verified",
        CORE + "raft_follower.py",
        "log.commit_to(min(request.commit_index, self._verified_index))",
        "log.commit_to(min(request.commit_index, log.last_index))",
        (RAFT + "test_replication.py::test_a_followers_commit_index_goes_no_further_than_what_was_verified",),
    ),
    Bug(
        "an older term's entry is committed by counting",
        CORE + "raft_leader.py",
        "return majority_index if majority_index >= self.term_start_index else 0",
        "return majority_index",
        (RAFT + "test_commit.py::test_an_entry_of_an_older_term_is_not_committed_by_counting_replicas",),
    ),
    Bug(
        "a line cut while it was written counts as written",
        CORE + "raft_log.py",
        "self.persisted_index = max(self.persisted_index, min(index, self.handed_index))",
        "self.persisted_index = max(self.persisted_index, min(index, self.last_index))",
        (
            RAFT
            + "test_persistence.py::test_a_line_that_was_cut_while_it_was_being_written_does_not_count_as_written",
        ),
    ),
    Bug(
        "a cut tail stays on disk",
        CORE + "raft_log.py",
        "        self.truncate_from = min(index, self.truncate_from or index)\n",
        "",
        (RAFT + "test_replication.py::test_an_entry_that_conflicts_is_deleted_with_all_that_follow_it",),
    ),
    Bug(
        "the host is not told of a cut",
        CORE + "raft_log.py",
        "        self.cut_from = min(index, self.cut_from or index)\n",
        "",
        (
            RAFT
            + "test_commit.py::test_a_deposed_leaders_uncommitted_lines_are_cut_and_its_host_is_told_from_where",
        ),
    ),
    Bug(
        "a new leader proposes without a noop",
        CORE + "raft.py",
        '        assert leadership.term_start_index is not None, "the noop comes first in a term"\n',
        "        leadership.term_start_index = leadership.term_start_index or self.next_index\n",
        (
            RAFT
            + "test_commit.py::test_a_new_leader_is_told_to_propose_a_noop_and_proposes_nothing_before_it",
        ),
    ),
)
