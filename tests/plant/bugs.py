"""The bugs: where, what to replace by what, and which test must fail then.

When a plant no longer fits, the source has moved on: find the line that now carries the rule.
"""

from typing import Final

from tests.plant.agreement_bugs import AGREEMENT
from tests.plant.bug import CORE, NODE, STORE, Bug, scenario
from tests.plant.consensus_bugs import CONSENSUS
from tests.plant.group_bugs import GROUP
from tests.plant.many_bugs import MANY
from tests.plant.queue_bugs import MARKERS, QUEUE
from tests.plant.repair_bugs import REPAIR

ROLLBACK: Final = "tests/replica/test_rollback.py"
STORIES: Final = "tests/properties/test_stories.py"


JOBS: Final = (
    Bug(
        "a late ack ends another attempt",
        CORE + "inflight.py",
        "return job.state == INFLIGHT and job.fence == fence",
        "return job.state == INFLIGHT",
        (scenario("a_late_ack_after_another_assign_changes_nothing"),),
    ),
    Bug(
        "a late ack counts after any ending",
        CORE + "inflight.py",
        " and job.ended_by in LATE_ACK_AFTER",
        "",
        (scenario("a_late_ack_after_a_failure_changes_nothing"),),
    ),
    Bug(
        "a requeue forgets the job",
        CORE + "machine.py",
        "self._queue(job, self.clients.by_id[job.client_id], event.at_us, is_given_back=keeps_place)",
        "pass",
        (f"{STORIES}::test_the_machine_never_contradicts_itself",),
    ),
    Bug(
        "a redrive restarts the attempts",
        CORE + "machine.py",
        "job.tries = job.starts = job.crashes = 0",
        "job.tries = job.starts = job.crashes = job.attempt = 0",
        (scenario("redrive_begins_a_new_life"),),
    ),
    Bug(
        "a crash of the worker condemns its neighbours",
        CORE + "liveness.py",
        "[(job, job.is_started or number < hands) for number, job in held]",
        "[(job, True) for number, job in held]",
        (scenario("presumed_started"),),
    ),
    Bug(
        "a worker's crash is never held against the job",
        CORE + "machine.py",
        "            job.crashes += 1\n",
        "",
        (scenario("poison"),),
    ),
    Bug(
        "a job that was handed back goes to the end",
        CORE + "machine.py",
        "        if not keeps_place:\n",
        "        if True:\n",
        (scenario("a_given_back_job_keeps_its_place"),),
    ),
    Bug(
        "a key is forgotten early",
        CORE + "dedup.py",
        "if record is None or record.at_us + settings.keys_keep_us <= at_us:",
        "if record is None or record.at_us + settings.keys_keep_us // 2 <= at_us:",
        (scenario("keys_are_forgotten_by_age_only"),),
    ),
    Bug(
        "a finished id is forgotten without a trace",
        CORE + "dedup.py",
        "self.forgotten_id = max(self.forgotten_id, finished.id[:ID_TIME_DIGITS])",
        "pass",
        (scenario("too_old_to_tell"),),
    ),
    Bug(
        "an id is accepted twice",
        CORE + "machine.py",
        "        if self.is_known(event.job_id):\n",
        "        if False:\n",
        (f"{STORIES}::test_a_stale_event_is_counted_and_changes_nothing_else",),
    ),
)

TURNS: Final = (
    Bug(
        "the cap is off by one",
        CORE + "queues.py",
        "if client.inflight_count < (client.cap or self._cap_default()):\n                higher",
        "if client.inflight_count <= (client.cap or self._cap_default()):\n                higher",
        (scenario("a_capped_client_is_skipped"),),
    ),
    Bug(
        "a client under its cap waits behind its own lanes",
        CORE + "queues.py",
        "            if client.parked:\n                self.owed[client] = None\n",
        "",
        (f"{STORIES}::test_no_worker_waits_while_there_is_a_job_for_it",),
    ),
    Bug(
        "weights are ignored",
        CORE + "queues.py",
        "lane.turns_left = lane.client.weight\n            if",
        "lane.turns_left = 1\n            if",
        ("tests/properties/test_fairness.py::test_shares_are_within_one_turn_of_the_weights",),
    ),
    Bug(
        "nothing ages",
        CORE + "queues.py",
        "            self._ageing.push(due_us, lane)\n",
        "",
        ("tests/properties/test_fairness.py::test_low_priority_is_late_but_never_starved",),
    ),
    Bug(
        "priorities are upside down",
        CORE + "queues.py",
        "queue.levels[queue.ring_mask.bit_length() - 1]",
        "queue.levels[(queue.ring_mask & -queue.ring_mask).bit_length() - 1]",
        (scenario("priorities_first"),),
    ),
    Bug(
        "credit under way is counted twice",
        CORE + "liveness.py",
        "under_way = presence.sent_count - seen_count",
        "under_way = 0",
        (scenario("credit_is_absolute"),),
    ),
    Bug(
        "a failed job goes back to the same worker",
        CORE + "job.py",
        "AVOID_WORKER_AFTER: Final = frozenset({BY_TIMEOUT, BY_FAILURE})",
        "AVOID_WORKER_AFTER: Final = frozenset({BY_TIMEOUT})",
        (scenario("another_worker_after_a_failure"),),
    ),
)

LOG: Final = (
    Bug(
        "a folded state is not held against the marker",
        STORE + "fold.py",
        "    return counts_doubt(machine, marker)\n",
        '    return ""\n',
        ("tests/store/test_fold.py::test_a_fold_that_comes_to_another_state_than_the_marker_says_tells_it",),
    ),
    Bug(
        "a loaded state is not held against the marker",
        "src/rollmq/node/assembling.py",
        "            if type(event) is SnapshotMarker:\n",
        "            if False:\n",
        ("tests/node/test_assembling.py::test_a_state_that_is_not_what_a_marker_says_is_told_and_loaded",),
    ),
    Bug(
        "an eager node assigns jobs that may yet be cut",
        CORE + "effects.py",
        "is_early = type(effect) is Assigned and effect.job.enqueued_index <= commit_index",
        "is_early = type(effect) is Assigned",
        ("tests/replica/test_eager.py",),
    ),
    Bug(
        "an eager node says everything early",
        CORE + "effects.py",
        "is_early = type(effect) is Assigned and effect.job.enqueued_index <= commit_index",
        "is_early = True",
        ("tests/replica/test_eager.py",),
    ),
    Bug(
        "an effect leaves before its commit",
        CORE + "replica.py",
        "            elif first.index > commit_index:\n",
        "            elif False:\n",
        (f"{ROLLBACK}::test_a_decision_is_applied_at_once_and_told_only_when_a_majority_has_it",),
    ),
    Bug(
        "a deposed leader still speaks",
        CORE + "replica.py",
        "            self._waiting.clear()\n",
        "",
        (ROLLBACK,),
    ),
    Bug(
        "a cut tail stays in the state",
        CORE + "replica.py",
        "        if self._is_rebuilding or cut_from > self.machine.last_index:\n",
        "        if True:\n",
        (f"{ROLLBACK}::test_a_cut_tail_is_rolled_back_and_its_effects_are_never_told",),
    ),
    Bug(
        "a snapshot loses the order",
        CORE + "state.py",
        "    jobs.sort(key=lambda job: (queues.risen(job, now_us)[1], job.place_index))\n",
        "    jobs.sort(key=lambda job: job.id[::-1])\n",
        (STORIES,),
    ),
    Bug(
        "a start forgets the errors of a job",
        CORE + "job.py",
        "return Job(*_record_fields(record))",
        "return Job(*_record_fields(msgspec.structs.replace(record, errors=None)))",
        (f"{STORIES}::test_a_snapshot_at_any_prefix_and_the_rest_give_the_same_bytes",),
    ),
    Bug(
        "the crc is ignored",
        CORE + "line.py",
        'if line[:BODY_AT] != b\'{"crc":"%08x",\' % zlib.crc32(rest):',
        "if False:",
        ("tests/properties/test_values.py::test_a_damaged_state_never_becomes_a_machine",),
    ),
    Bug(
        "the crc of a segment is ignored",
        STORE + "segment.py",
        'if piece[:BODY_AT] != b\'{"crc":"%08x",\' % crc32(rest):',
        "if False:",
        ("tests/store/test_damage.py",),
    ),
    Bug(
        "the fsync of a batch is skipped",
        STORE + "wal.py",
        "        segment.file.sync()\n        self._note",
        "        self._note",
        ("tests/store/test_crash.py",),
    ),
    Bug(
        "the mark is not lowered before a cut",
        STORE + "wal.py",
        "        self._mark_file.set_durably(lowered)\n",
        "",
        ("tests/store/test_steps.py",),
    ),
    Bug(
        "the vote is not fsynced",
        STORE + "sealed_file.py",
        "    file.sync()\n",
        "",
        ("tests/store/test_crash.py", "tests/store/test_steps.py"),
    ),
)

SHIPPING: Final = (
    Bug(
        "a segment is shipped unproved",
        NODE + "ship.py",
        "    if problem is not None:\n",
        "    if False:\n",
        ("tests/node/test_ship.py::test_a_segment_that_rots_on_the_nodes_disk_is_not_shipped",),
    ),
    Bug(
        "another history is shipped into the same archive",
        NODE + "ship.py",
        "            if other is not None:\n",
        "            if False:\n",
        ("tests/node/test_ship.py::test_another_history_of_the_same_group_is_not_mixed_with_this_one",),
    ),
    Bug(
        "what lies in the archive is replaced",
        NODE + "archive_place.py",
        "        os.link(temporary, target)\n",
        "        temporary.rename(target)\n",
        ("tests/node/test_ship.py::test_what_appears_while_a_segment_is_copied_is_not_replaced",),
    ),
    Bug(
        "history is dropped before the archive has it",
        NODE + "upkeep.py",
        "                taken.append(self.archive.confirmed_index)\n",
        "                pass\n",
        ("tests/node/test_archive.py::test_old_history_waits_for_pipelines_and_for_the_archive",),
    ),
)

BUGS: Final[tuple[Bug, ...]] = (
    *JOBS,
    *TURNS,
    *QUEUE,
    *MARKERS,
    *LOG,
    *CONSENSUS,
    *GROUP,
    *AGREEMENT,
    *SHIPPING,
    *REPAIR,
    *MANY,
)
