"""Known bugs of a group beyond elections and appends: snapshots, members, transfer, reads, taking over."""

# ruff: noqa: E501 (names of tests are sentences, and an id is one word)

from typing import Final

from tests.plant.bug import CORE, RAFT, REPLICA, Bug

TERMS: Final = (
    Bug(
        "a newer term is not adopted",
        CORE + "raft.py",
        "            if message.term > self.term:\n",
        "            if message.term > self.term + 1_000:\n",
        (RAFT + "test_elections.py::test_a_newer_term_in_any_message_is_adopted_and_persisted",),
    ),
    Bug(
        "an older term's append is taken",
        CORE + "raft.py",
        "        elif message.term < self.term:\n",
        "        elif message.term < self.term and not isinstance(message, AppendEntries):\n",
        (
            RAFT
            + "test_elections.py::test_a_candidate_ignores_an_append_of_a_smaller_term_and_remains_candidate",
        ),
    ),
    Bug(
        "a pre-vote raises the term of who is asked",
        CORE + "raft_candidacy.py",
        "if request.term > self.term and not request.pre:",
        "if request.term > self.term:",
        (
            RAFT
            + "test_elections.py::test_a_pre_vote_changes_neither_term_nor_vote_nor_timer_of_who_is_asked",
        ),
    ),
    Bug(
        "whoever hears a leader votes all the same",
        CORE + "raft_candidacy.py",
        "        if not request.transfer and self._is_loyal_against(request.source):\n",
        "        if False and self._is_loyal_against(request.source):\n",
        (
            RAFT
            + "test_elections.py::test_a_vote_request_is_ignored_within_the_minimum_election_timeout_of_hearing_a_leader",
        ),
    ),
    Bug(
        "a refused candidate delays its voter's own election",
        CORE + "raft_candidacy.py",
        "        self._answer_vote(request, granted=is_granted)\n",
        "        self._await_leader()\n        self._answer_vote(request, granted=is_granted)\n",
        (RAFT + "test_elections.py::test_a_refused_candidate_does_not_delay_the_voters_own_election",),
    ),
    Bug(
        "the same timeout for every election",
        CORE + "raft_candidacy.py",
        "self.now_us + low + int((high - low) * self._chance())",
        "self.now_us + low",
        (RAFT + "test_elections.py::test_election_timeouts_are_chosen_randomly_anew_for_each_election",),
    ),
    Bug(
        "a reset by anybody is taken for the leader's",
        CORE + "raft_candidacy.py",
        "if self.role is Role.FOLLOWER and self.leader_id == node_id:",
        "if self.role is Role.FOLLOWER:",
        (RAFT + "test_transfer.py::test_a_reset_by_somebody_else_means_nothing",),
    ),
    Bug(
        "a reset connection is ignored",
        CORE + "raft_candidacy.py",
        "                self._campaign_soon(without=node_id)\n",
        "",
        (RAFT + "test_transfer.py::test_a_reset_by_the_leader_brings_a_pre_vote_within_sixty_milliseconds",),
    ),
    Bug(
        "all that lost their leader stand at the same moment",
        CORE + "raft_candidacy.py",
        "(left.index(self.node_id) + self._chance() / 2)",
        "(self._chance() / 2)",
        (RAFT + "test_transfer.py::test_after_a_reset_all_that_are_left_stand_at_different_moments",),
    ),
    Bug(
        "what was read back before a cut is applied after it",
        CORE + "raft.py",
        "            self._own_lines.cut()\n",
        "            pass\n",
        (RAFT + "test_own_lines.py::test_what_was_read_before_a_cut_is_not_given_after_it",),
    ),
)

COMMIT: Final = (
    Bug(
        "a committed entry is cut without a word",
        CORE + "raft_log.py",
        '        assert index > self.commit_index, "a committed entry is never cut"\n',
        "",
        (RAFT + "test_replication.py::test_nothing_is_ever_cut_at_or_below_the_commit_index",),
    ),
    Bug(
        "the match index falls with a late answer",
        CORE + "raft_leader.py",
        "        if index > self.match_index:\n            self.match_index = index\n",
        "        if index:\n            self.match_index = index\n",
        (RAFT + "test_replication.py::test_match_index_only_grows_and_next_index_stays_beyond_it",),
    ),
    Bug(
        "the window to a follower has no bound",
        CORE + "raft_leader.py",
        "        is_few = len(self.inflight) < settings.appends_inflight_max\n",
        "        is_few = True\n",
        (RAFT + "test_replication.py::test_appends_are_pipelined_up_to_a_window_and_no_further",),
    ),
    Bug(
        "uncommitted bytes have no bound",
        CORE + "raft.py",
        "        return is_open and self.log.uncommitted_bytes < self._settings.uncommitted_bytes_max\n",
        "        return is_open\n",
        (RAFT + "test_commit.py::test_uncommitted_bytes_are_bounded_and_freed_by_commit",),
    ),
    Bug(
        "a leader that does not vote counts itself",
        CORE + "raft_leader.py",
        "            if self.is_voter:\n                matches.append(self._log.persisted_index)\n",
        "            matches.append(self._log.persisted_index)\n",
        (RAFT + "test_members.py::test_a_removed_leader_does_not_count_itself",),
    ),
    Bug(
        "a hint beyond the snapshot is believed",
        CORE + "raft_leader.py",
        "(equal_index if is_in_log else hint_index) + 1",
        "equal_index + 1",
        (
            RAFT
            + "test_install.py::test_a_follower_behind_the_snapshot_gets_it_in_chunks_and_then_the_lines_after_it",
        ),
    ),
    Bug(
        "the leader keeps no tail",
        CORE + "raft_log.py",
        "        if self.held_bytes <= 2 * self._tail_bytes_max:\n",
        "        self._tail_bytes_max = 0\n        if self.held_bytes <= 2 * self._tail_bytes_max:\n",
        (RAFT + "test_install.py::test_a_short_outage_is_made_good_from_memory",),
    ),
)

SNAPSHOTS: Final = (
    Bug(
        "a chunk's checksum is not looked at",
        CORE + "raft_install.py",
        "is_whole = bool(request.data) and zlib.crc32(request.data) == request.crc",
        "is_whole = bool(request.data)",
        (RAFT + "test_install.py::test_a_chunk_whose_checksum_is_wrong_is_not_taken",),
    ),
    Bug(
        "a chunk of another snapshot continues this one",
        CORE + "raft_install.py",
        "        if (facts, request.source, request.term) != (self._snapshot, self._source, self._term):\n",
        "        if self._snapshot is None:\n",
        (RAFT + "test_install.py::test_a_chunk_of_another_snapshot_never_continues_this_one",),
    ),
    Bug(
        "a snapshot behind the commit index is installed",
        CORE + "raft_install.py",
        "        if request.last_index <= log.commit_index:\n            return True\n",
        "",
        (RAFT + "test_install.py::test_a_snapshot_that_is_not_ahead_of_the_commit_index_is_ignored",),
    ),
    Bug(
        "a log that has the snapshot's last entry is thrown away",
        CORE + "raft_install.py",
        "        if log.matches(request.last_index, request.last_term):\n",
        "        if False:\n",
        (
            RAFT
            + "test_install.py::test_a_follower_that_has_the_snapshots_last_entry_keeps_its_log_and_what_follows",
        ),
    ),
    Bug(
        "a lost chunk is never sent again",
        CORE + "raft_leader.py",
        "                shipment.is_due = shipment.reading is None  # A chunk or its answer was lost.\n",
        "                pass\n",
        (RAFT + "test_install.py::test_a_lost_chunk_is_sent_again_and_what_came_is_not",),
    ),
    Bug(
        "lines are added while the log is being replaced",
        CORE + "raft.py",
        "        if self._receiving.is_installing and request.lines:\n",
        "        if False:\n",
        (
            RAFT
            + "test_install.py::test_nothing_is_added_to_the_log_while_it_is_being_replaced_and_nobody_stands_for_election",
        ),
    ),
    Bug(
        "after an installation applied stays behind",
        CORE + "raft_log.py",
        "        self.snapshot_index = self.applied_index = self.commit_index = index\n",
        "        self.snapshot_index = self.commit_index = index\n",
        (RAFT + "test_install.py::test_after_an_installation_commit_applied_and_log_move_up_together",),
    ),
    Bug(
        "a snapshot that is gone is waited for",
        CORE + "raft_leader.py",
        "            progress.shipment = None  # A newer one was folded meanwhile, and this one went (pitfall 31).\n",
        "",
        (
            RAFT
            + "test_install.py::test_a_snapshot_that_the_leader_no_longer_keeps_is_replaced_by_its_newer_one",
        ),
    ),
)

MEMBERS: Final = (
    Bug(
        "a change of members is not undone with its entry",
        CORE + "raft_log.py",
        "        self.membership.cut(index)  # Pitfall 33: reverted with the entry.\n",
        "",
        (
            RAFT
            + "test_members.py::test_a_change_holds_from_when_it_is_appended_and_is_undone_when_it_is_cut",
        ),
    ),
    Bug(
        "a follower does not see a change of members until a restart",
        CORE + "raft_log.py",
        "            if is_members_line(line):\n",
        "            if False:\n",
        (
            RAFT
            + "test_members.py::test_a_follower_uses_the_newest_configuration_in_its_log_committed_or_not",
        ),
    ),
    Bug(
        "two changes of members at a time",
        CORE + "raft.py",
        "        if self.log.membership.index > self.log.commit_index:\n",
        "        if False:\n",
        (RAFT + "test_members.py::test_one_change_at_a_time",),
    ),
    Bug(
        "a new leader changes members at once",
        CORE + "raft.py",
        "        if leadership.term_start_index is None or self.log.commit_index < leadership.term_start_index:\n",
        "        if leadership.term_start_index is None:\n",
        (
            RAFT
            + "test_members.py::test_a_new_leader_changes_no_members_before_an_entry_of_its_own_term_is_committed",
        ),
    ),
    Bug(
        "a learner's answers count",
        CORE + "raft_leader.py",
        "follower in configuration.voters\n        ]",
        "follower in configuration.all\n        ]",
        (RAFT + "test_members.py::test_a_learner_gets_the_log_and_counts_for_nothing_until_it_is_promoted",),
    ),
    Bug(
        "a learner stands for election",
        CORE + "raft_candidacy.py",
        "        return self.has_vote and not is_busy and self.node_id in self._voters\n",
        "        return self.has_vote and not is_busy\n",
        (RAFT + "test_members.py::test_a_learner_does_not_stand_for_election_but_a_promoted_one_may_win",),
    ),
    Bug(
        "a removed leader stays",
        CORE + "raft.py",
        "        if not leadership.is_voter and self.log.membership.index <= self.log.commit_index:\n",
        "        if False:\n",
        (RAFT + "test_members.py::test_a_removed_leader_leads_until_that_is_committed_and_names_an_heir",),
    ),
)

HANDOVER: Final = (
    Bug(
        "an heir is asked before it has the log",
        CORE + "raft.py",
        "        elif progress.match_index == self.log.last_index:\n",
        "        else:\n",
        (RAFT + "test_transfer.py::test_the_heir_gets_the_whole_log_before_it_is_asked",),
    ),
    Bug(
        "proposals go on during a transfer",
        CORE + "raft.py",
        "not self.needs_noop and self._leadership.transfer is None\n",
        "not self.needs_noop\n",
        (RAFT + "test_transfer.py::test_during_a_transfer_nothing_is_proposed",),
    ),
    Bug(
        "a transfer is never given up",
        CORE + "raft.py",
        "        elif leadership is not None and leadership.transfer_is_over(now_us):\n",
        "        elif False:\n",
        (
            RAFT
            + "test_transfer.py::test_a_transfer_is_given_up_after_one_election_timeout_and_the_leader_goes_on",
        ),
    ),
    Bug(
        "anybody may ask for an election",
        CORE + "raft_candidacy.py",
        "self.role is Role.FOLLOWER and self.leader_id == message.source\n",
        "self.role is Role.FOLLOWER\n",
        (RAFT + "test_transfer.py::test_only_the_leader_can_ask_for_an_election",),
    ),
    Bug(
        "a read is confirmed by an older round",
        CORE + "raft_leader.py",
        "            self._is_round_new = True\n            self.round += 1\n",
        "            self._is_round_new = True\n",
        (
            RAFT
            + "test_reads.py::test_a_read_is_confirmed_by_a_round_of_heartbeats_that_began_after_it_was_asked",
        ),
    ),
    Bug(
        "a new leader reads before its first entry",
        CORE + "raft.py",
        "        index = max(self.log.commit_index, leadership.term_start_index)\n",
        "        index = self.log.commit_index\n",
        (RAFT + "test_reads.py::test_a_read_of_a_new_leader_waits_for_its_first_entry",),
    ),
)

TAKING_OVER: Final = (
    Bug(
        "a new leader decides without the uncommitted tail",
        CORE + "replica.py",
        "        if not self._apply_to(self.raft.log.last_index):\n",
        "        if not self._apply_to(self.raft.commit_index):\n",
        (REPLICA + "test_rollback.py",),
    ),
    Bug(
        "a deposed leader's effects are told after all",
        CORE + "replica.py",
        "            self._waiting.clear()\n",
        "",
        (REPLICA + "test_rollback.py",),
    ),
    Bug(
        "a machine that holds cut entries is not rebuilt",
        CORE + "replica.py",
        "        if self._is_rebuilding or cut_from > self.machine.last_index:\n",
        "        if True:\n",
        (REPLICA + "test_rollback.py::test_a_cut_tail_is_rolled_back_and_its_effects_are_never_told",),
    ),
    Bug(
        "a node stands for election while its machine is rebuilt",
        CORE + "replica.py",
        "        self.raft.hold_campaign(True)\n",
        "",
        (REPLICA + "test_rollback.py::test_a_node_does_not_campaign_while_its_machine_is_rebuilt",),
    ),
    Bug(
        "what a leader decides in the turn in which it falls is in no log",
        CORE + "replica.py",
        "        if self.leader is not None and self.leader.desk.lines:\n",
        "        if False:\n",
        (
            REPLICA
            + "test_rollback.py::test_what_a_leader_decides_in_the_turn_in_which_it_falls_is_in_its_log_and_is_cut",
        ),
    ),
    Bug(
        "log time runs backwards between two terms",
        CORE + "replica.py",
        "        last_us = max(self.machine.last_at_us, self._led_until_us)\n",
        "        last_us = self.machine.last_at_us\n",
        (
            REPLICA
            + "test_rollback.py::test_a_delay_that_ended_in_a_term_without_entries_does_not_begin_again",
        ),
    ),
    Bug(
        "a marker is judged by a state that is about to be dropped",
        CORE + "agreement.py",
        "is_cut = log.cut_from is not None and log.cut_from < digest.next_index\n",
        "is_cut = False\n",
        (
            REPLICA
            + "test_rollback.py::test_a_marker_that_comes_in_the_turn_of_a_cut_is_not_refused_for_what_was_cut",
        ),
    ),
    Bug(
        "a new leader gives workers no time to find it",
        CORE + "liveness.py",
        "desk.now_us + LEADER_GRACE_US)",
        "desk.now_us)",
        (
            REPLICA
            + "test_failover.py::test_a_new_leader_gives_workers_time_to_find_it_and_then_requeues_by_an_event",
        ),
    ),
)

GROUP: Final = (*TERMS, *COMMIT, *SNAPSHOTS, *MEMBERS, *HANDOVER, *TAKING_OVER)
