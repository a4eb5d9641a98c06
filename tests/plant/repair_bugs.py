"""Known bugs of repair: a damaged node that counts too soon, or takes what it may not."""

from typing import Final

from tests.plant.bug import CORE, NODE, STORE, Bug

RULES: Final = "tests/repair/test_rules_of_repair.py::"

REPAIR: Final = (
    Bug(
        "a node whose end is lost counts at once",
        CORE + "survey.py",
        "            or not self.is_end_sure\n",
        "",
        (RULES + "test_a_lost_end_waits_for_all_other_voters",),
    ),
    Bug(
        "a lost end is copied from whoever has answered",
        CORE + "repair.py",
        "        return voters - {self._node_id}\n",
        "        return voters & self.heard.keys()\n",
        (RULES + "test_a_lost_end_waits_for_all_other_voters",),
    ),
    Bug(
        "a lost end is copied from a node that has lost its own",
        CORE + "repair.py",
        "            damaged = [each.source for each in heard if not each.is_end_sure]\n",
        "            damaged = list[str]()\n",
        (RULES + "test_a_lost_end_is_not_copied_from_a_node_that_has_lost_its_own",),
    ),
    Bug(
        "answers from before everybody had answered are compared",
        CORE + "repair.py",
        "            self._settled = (self._round, voters)\n",
        "            self._settled = (self._round - 1, voters)\n",
        (RULES + "test_answers_count_only_if_asked_for_after_everybody_had_answered",),
    ),
    Bug(
        "a leader goes on counting what a damaged node had confirmed",
        CORE + "raft_leader.py",
        "        self.match_index = 0\n        self.shipment = None\n",
        "        self.shipment = None\n",
        (RULES + "test_a_leader_no_longer_counts_what_a_damaged_node_had_confirmed",),
    ),
    Bug(
        "lines are given without a look at the entry behind them",
        NODE + "repair_source.py",
        "        return is_behind and log.term_at(fetch.check_index) == fetch.check_term\n",
        "        return is_behind\n",
        (RULES + "test_a_line_is_taken_only_from_a_log_that_is_the_same_behind_it",),
    ),
    Bug(
        "a segment is put in its place whatever its digest",
        STORE + "patch.py",
        "        if event.segment_digest and event.segment_digest != found:\n",
        "        if event.segment_digest and False:\n",
        (RULES + "test_a_segment_of_other_lines_than_its_marker_says_is_not_taken",),
    ),
    Bug(
        "lines are taken without a look at their index",
        CORE + "repair.py",
        "                if event.index != index or event.term < term:\n",
        "                if event.term < term:\n",
        (RULES + "test_lines_that_are_not_what_was_asked_for_are_not_taken",),
    ),
    Bug(
        "a lost vote is taken as never given",
        NODE + "repairing.py",
        "        self._surgeon.save_vote(HardState(term, self.node_id))\n",
        "        self._surgeon.save_vote(HardState(term, None))\n",
        (RULES + "test_a_lost_vote_takes_the_highest_term_among_all_others_as_spent",),
    ),
    Bug(
        "a lost vote takes its own log's term as spent",
        CORE + "repair.py",
        "        return SpendTerm(max(self.survey.last_term, *(each.term for each in heard)))\n",
        "        return SpendTerm(self.survey.last_term)\n",
        (RULES + "test_a_lost_vote_takes_the_highest_term_among_all_others_as_spent",),
    ),
    Bug(
        "a lost end is forgotten in a crash",
        STORE + "opening.py",
        "    if disk.exists(layout.REPAIRING_FILE):\n",
        "    if False:\n",
        (RULES + "test_a_lost_end_is_remembered_although_the_files_look_whole",),
    ),
    Bug(
        "lines that only a node has that is down are cut",
        CORE + "repair.py",
        "        heard = self._all_heard()\n        return heard is not None and all(\n",
        "        heard = list(self.heard.values())\n        return bool(heard) and all(\n",
        (RULES + "test_a_line_that_only_a_node_has_that_is_down_is_waited_for",),
    ),
)
