"""Known bugs of rules 2, 3 and 5 in a group: replicas that differ, answers of deposed leaders, wrong clocks."""

# ruff: noqa: E501 (names of tests are sentences, and an id is one word)

from typing import Final

from tests.plant.bug import CORE, REPLICA, Bug

AGREE: Final = REPLICA + "test_agreement.py::"
READS: Final = REPLICA + "test_reads.py::"
CLOCKS: Final = REPLICA + "test_clocks.py::"
NODE: Final = "src/rollmq/node/"

DIFFERING: Final = (
    Bug(
        "a marker over other bytes is confirmed",
        CORE + "replica.py",
        "            if is_other:\n                self.raft.refuse_marker(at)\n                return\n",
        "",
        (AGREE + "test_a_refuser_confirms_nothing_from_the_marker_on_and_says_which_it_refuses",),
    ),
    Bug(
        "a marker that nobody can judge yet is confirmed",
        CORE + "replica.py",
        "            if is_other is None:\n",
        "            if is_held:\n",
        (AGREE + "test_a_marker_behind_a_cut_is_held_until_the_log_before_it_is_read",),
    ),
    Bug(
        "a node that has just started confirms markers without a look",
        "src/rollmq/core/replica.py",
        "        known = (self._segment, *self._log_end)\n",
        "        known = (self._segment,)\n",
        (AGREE + "test_a_node_that_has_just_started_judges_markers_before_it_has_applied_its_log",),
    ),
    Bug(
        "a marker that cannot be judged yet is confirmed",
        "src/rollmq/core/raft_follower.py",
        "        if 0 < self.unjudged_index <= match_index:\n            match_index = self.unjudged_index - 1\n",
        "",
        (AGREE + "test_a_node_that_loads_its_state_anew_confirms_no_marker_that_it_cannot_judge",),
    ),
    Bug(
        "a marker that could not be judged is never confirmed",
        "src/rollmq/core/replica.py",
        "        self.raft.hold_marker(0)\n",
        "",
        (AGREE + "test_a_marker_that_waited_for_the_state_is_confirmed_when_it_is_right",),
    ),
    Bug(
        "a refused marker stays in the log",
        CORE + "raft_follower.py",
        "        if index <= self._log.last_index:\n            self._log.cut(index)\n        self._verified_index",
        "        self._verified_index",
        (AGREE + "test_a_follower_with_another_segment_refuses_the_marker_and_stops_when_it_is_committed",),
    ),
    Bug(
        "a refuser goes on when the group commits",
        CORE + "raft_follower.py",
        "        if 0 < self.refused_index <= request.commit_index:\n",
        "        if False:\n",
        (AGREE + "test_a_follower_with_another_segment_refuses_the_marker_and_stops_when_it_is_committed",),
    ),
    Bug(
        "a leader whose marker a majority refuses goes on",
        CORE + "agreement.py",
        "        if refused_index:\n",
        "        if False:\n",
        (AGREE + "test_a_leader_whose_marker_a_majority_refuses_stops_and_the_others_go_on_without_it",),
    ),
    Bug(
        "what was refused of one leader is held against the next",
        CORE + "raft_follower.py",
        "        following.counts, following.wall_us = self.counts, self.wall_us\n",
        "        following.counts, following.wall_us = self.counts, self.wall_us\n"
        "        following.refused_index = self.refused_index\n",
        (AGREE + "test_what_was_refused_of_one_leader_is_no_reproach_to_the_next",),
    ),
    Bug(
        "counts are compared by nobody",
        CORE + "agreement.py",
        "            if index in self._own and index <= raft.commit_index:\n",
        "            if False:\n",
        (AGREE + "test_a_leader_whose_state_differs_from_a_majoritys_stops",),
    ),
    Bug(
        "a follower that differs is not told",
        CORE + "agreement.py",
        "                progress.differs_index = index if is_majority else 0\n",
        "                progress.differs_index = 0\n",
        (AGREE + "test_a_follower_whose_state_differs_from_a_majoritys_is_told_so_and_stops",),
    ),
    Bug(
        "what a leader says of a process is heeded by the next one",
        CORE + "agreement.py",
        "        return self._own.get(index) == digest\n",
        "        return index in self._own\n",
        (AGREE + "test_one_that_counts_as_the_others_since_it_was_started_anew_is_not_stopped_again",),
    ),
    Bug(
        "a leader does not hear what a new process counted",
        CORE + "raft_leader.py",
        "            if answer.counts_index >= progress.counts_index and said != known:\n",
        "            if answer.counts_index > progress.counts_index:\n",
        (AGREE + "test_one_that_counts_as_the_others_since_it_was_started_anew_is_not_stopped_again",),
    ),
    Bug(
        "of two that differ one is told to stop",
        CORE + "agreement.py",
        "                progress.differs_index = index if is_majority else 0\n",
        "                progress.differs_index = index\n",
        (AGREE + "test_without_a_majority_that_agrees_nobody_stops_and_it_is_shown",),
    ),
    Bug(
        "counts are told before their marker is committed",
        CORE + "agreement.py",
        "        while self._untold and self._untold[0] <= raft.commit_index:\n",
        "        while self._untold:\n",
        (AGREE + "test_counts_of_a_marker_that_is_not_committed_are_not_compared",),
    ),
)

STALE: Final = (
    Bug(
        "answers wait for no read index",
        CORE + "effects.py",
        "READS: Final = frozenset({Refused, Answer})",
        "READS: Final = frozenset({Refused})",
        (READS + "test_a_leader_that_was_replaced_behind_its_back_answers_nothing",),
    ),
    Bug(
        "refusals wait for no read index",
        CORE + "effects.py",
        "READS: Final = frozenset({Refused, Answer})",
        "READS: Final = frozenset({Answer})",
        (READS + "test_a_refusal_waits_too_for_a_copy_may_have_been_accepted_elsewhere",),
    ),
    Bug(
        "deposed leaders answer, in the simulator of groups",
        CORE + "replica.py",
        "                if not self.raft.is_read_confirmed(first):\n                    break\n",
        "                pass\n",
        ("tests/groupsim/test_group_stories.py",),
    ),
)

TIMES: Final = (
    Bug(
        "one clock that is ahead steps log time",
        CORE + "clocks.py",
        "    return gaps[quorum - 1] if len(gaps) >= quorum else None\n",
        "    return gaps[0] if len(gaps) >= quorum else None\n",
        (CLOCKS + "test_what_a_majority_of_clocks_says",),
    ),
    Bug(
        "the first leader's clock alone begins the time of a group",
        CORE + "replica.py",
        "        begin_us = self._wall_us if is_alone else clocks.step_us(self.raft)\n",
        "        begin_us = self._wall_us\n",
        (CLOCKS + "test_the_time_of_a_new_group_begins_with_a_majoritys_clocks",),
    ),
    Bug(
        "a majority's clocks move nothing",
        CORE + "replica.py",
        "        if agreed_us is not None and log_time.is_far_behind(agreed_us):\n",
        "        if False:\n",
        (CLOCKS + "test_log_time_steps_forward_when_a_majoritys_clocks_are_there",),
    ),
    Bug(
        "log time steps as far as the leader's clock",
        CORE + "replica.py",
        "            self._step_to(agreed_us)\n",
        "            self._step_to(self._wall_us)\n",
        (CLOCKS + "test_log_time_steps_no_further_than_a_majoritys_clocks",),
    ),
    Bug(
        "a leader whose clock is wrong leads on",
        CORE + "clocks.py",
        "        if raft.transfer(heir) is not None:\n",
        "        if True:\n",
        (CLOCKS + "test_a_leader_whose_clock_all_others_find_off_hands_over",),
    ),
    Bug(
        "one look at the clocks deposes a leader",
        CORE + "clocks.py",
        "        if not is_lasting or mono_us < self._offer_us or raft.is_transferring:\n",
        "        if heir is None or mono_us < self._offer_us or raft.is_transferring:\n",
        (CLOCKS + "test_clocks_that_are_all_set_at_once_depose_nobody",),
    ),
    Bug(
        "what is known of the others' clocks moves with the leader's own",
        CORE + "clocks.py",
        "raft.now_us + each.wall_ahead_us - raft.wall_us",
        "0 * raft.wall_us",
        (CLOCKS + "test_a_jump_in_any_moment_is_held_against_what_the_others_clocks_say_now",),
    ),
    Bug(
        "the leadership goes to the clock that is furthest off",
        CORE + "clocks.py",
        "    return min(finders, key=lambda node_id: (abs(gap_by_follower[node_id] - middle), node_id))\n",
        "    return max(finders, key=lambda node_id: (abs(gap_by_follower[node_id] - middle), node_id))\n",
        (CLOCKS + "test_clocks_that_are_all_apart_end_with_the_middle_one_as_leader",),
    ),
)

JOINING: Final = (
    Bug(
        "a node founds a group before all have found the same",
        NODE + "forming.py",
        "        if not founders or any(tuple(sorted(said.founders)) != founders for said in self._said.values()):\n",
        "        if not founders:\n",
        ("tests/node/test_forming.py::test_nothing_is_founded_until_all_have_found_the_same_nodes",),
    ),
    Bug(
        "a group is believed whose founders do not make its uuid",
        NODE + "forming.py",
        "if self.node_id in hello.founders and group_uuid(hello.founders) == hello.group:",
        "if self.node_id in hello.founders:",
        ("tests/node/test_forming.py::test_founders_that_do_not_make_the_uuid_prove_nothing",),
    ),
    Bug(
        "what a process said that was replaced is taken",
        NODE + "peers.py",
        "        if life != self._lives.get(node_id, life):\n",
        "        if False:\n",
        (
            "tests/node/test_one_process_one_name.py::test_a_message_under_a_replaced_name_is_not_taken_and_its_connection_is_closed",
        ),
    ),
    Bug(
        "a member of several leads by itself when it is told to",
        NODE + "serve.py",
        "    if voters != {started.store.identity.node_id}:\n",
        "    if False:\n",
        ("tests/group/test_clear_errors.py::test_a_member_of_several_does_not_start_as_a_leader_by_itself",),
    ),
    Bug(
        "clients are not told why nobody leads",
        "src/rollmq/library/dialog.py",
        "            self.leaderless = f\"{self.server}: {header.why or 'no leader is known'}\"\n",
        "            pass\n",
        (
            "tests/group/test_clear_errors.py::test_without_a_majority_clients_and_operators_are_told_that_nobody_leads_and_why",
        ),
    ),
)

ADMITTED: Final = (
    Bug(
        "members that may still be cut count as committed",
        CORE + "members.py",
        "        return self._at[0][1]\n",
        "        return self._at[-1][1]\n",
        (
            "tests/raft_paper/test_members.py::test_which_members_are_committed_is_known_apart_from_which_are_in_force",
        ),
    ),
)

RECOVER: Final = (
    Bug(
        "a recovered directory is still of the old group",
        NODE + "recovering.py",
        "    group = group_uuid([node_id])\n",
        "    group = recovered.identity.group\n",
        ("tests/group/test_recover.py::test_a_node_of_the_old_group_is_refused_by_the_new_one",),
    ),
    Bug(
        "recovering leaves out what is not known to be committed",
        NODE + "recovering.py",
        "        machine.apply(entry.event)\n",
        "        if entry.event.index <= recovered.sealed_index:\n            machine.apply(entry.event)\n",
        ("tests/group/test_recover.py",),
    ),
)

MOVING: Final = (
    Bug(
        "a client sends nothing again to the next leader",
        "src/rollmq/library/submits.py",
        "        for call in self._sent.values():\n            self._put(call)\n",
        "",
        (
            "tests/group/test_library.py::test_submits_that_nobody_confirmed_are_sent_again_under_their_ids_and_answered_once",
        ),
    ),
    Bug(
        "a worker comes to the next leader without what it holds",
        "src/rollmq/library/worker_core.py",
        "        return tuple(self._list_one(held) for held in self.held.values() if held.state != VOID)\n",
        "        return ()\n",
        (
            "tests/group/test_library.py::test_a_worker_comes_back_with_what_it_runs_and_its_result_reaches_the_session_that_moved",
        ),
    ),
    Bug(
        "a client does not ask the next leader for what it waits",
        "src/rollmq/library/awaited.py",
        "        self._to_ask = deque(self._open)\n",
        "        self._to_ask = deque()\n",
        (
            "tests/group/test_library.py::test_a_worker_comes_back_with_what_it_runs_and_its_result_reaches_the_session_that_moved",
        ),
    ),
)

AGREEMENT: Final = (*DIFFERING, *STALE, *TIMES, *JOINING, *ADMITTED, *RECOVER, *MOVING)
