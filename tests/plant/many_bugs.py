"""Planted where many jobs go in one frame: each must be told apart from as many single ones."""

from typing import Final

from tests.plant.bug import NODE, Bug

LIBRARY: Final = "tests/library/test_many.py::"
AT_THE_NODE: Final = "tests/node/test_many.py::"
SLICES: Final = "tests/node/test_connection.py::"
SAME: Final = f"{AT_THE_NODE}test_both_are_told_the_same_in_the_same_order"
TAKEN: Final = f"{AT_THE_NODE}test_many_submits_and_many_acks_are_taken_as_single_ones_are"

MANY: Final = (
    Bug(
        "a message overtakes the jobs that were gathered before it",
        NODE + "conn.py",
        "        self.out.append(data)\n        if len(data) > limits.FLUSH_AT_BYTES:\n"
        "            self.door.flush_early(self)\n\n    def open_run",
        "        self.out[:0] = [data]\n        if len(data) > limits.FLUSH_AT_BYTES:\n"
        "            self.door.flush_early(self)\n\n    def open_run",
        (SAME,),
    ),
    Bug(
        "a run of assigns begins with the number after its first",
        NODE + "telling.py",
        "run = AssignRun(shared, conn.assigned_seq)",
        "run = AssignRun(shared, conn.assigned_seq + 1)",
        (SAME,),
    ),
    Bug(
        "assigns of jobs with other options share a frame",
        NODE + "telling.py",
        "if type(run) is not AssignRun or run.shared != shared or not run.has_room(len(payload)):",
        "if type(run) is not AssignRun or not run.has_room(len(payload)):",
        (SAME,),
    ),
    Bug(
        "a job with labels goes along without them",
        NODE + "telling.py",
        "if conn.takes_many and job.headers is None and len(job.payload) <= MANY_BYTES_MAX:",
        "if conn.takes_many and len(job.payload) <= MANY_BYTES_MAX:",
        (SAME,),
    ),
    Bug(
        "whoever knows only single frames gets many",
        NODE + "telling.py",
        "        return False\n    result, shared, run",
        "        pass\n    result, shared, run",
        (SAME,),
    ),
    Bug(
        "a node that knows only single frames is sent many submits",
        "src/rollmq/library/submits.py",
        "        if is_plain and self._dialog.may_say_many and",
        "        if is_plain and",
        (f"{LIBRARY}test_a_node_that_knows_only_single_frames_gets_them",),
    ),
    Bug(
        "acks in one frame have one number",
        NODE + "from_workers.py",
        "        seq += 1\n",
        "",
        (TAKEN,),
    ),
    Bug(
        "the credit of many acks is not heard",
        NODE + "from_workers.py",
        "        leader.liveness.credit(worker_id, *header.credit)",
        "        pass",
        (TAKEN,),
    ),
    Bug(
        "the options of many submits are not read",
        NODE + "from_clients.py",
        "            if options is None:\n",
        "            if True:\n",
        (TAKEN,),
    ),
    Bug(
        "a key is shared by many submits",
        "src/rollmq/wire/readers.py",
        "    if header.options is not None and (header.options.key or header.options.resend):",
        "    if header.options is not None and header.options.resend:",
        ("tests/wire/test_many.py::test_what_belongs_to_one_job_is_not_shared",),
    ),
    Bug(
        "a payload that does not add up is taken",
        "src/rollmq/wire/many.py",
        "    if ends[-1] != len(payload):",
        "    if ends[-1] > len(payload):",
        ("tests/wire/test_many.py::test_a_payload_that_does_not_add_up_is_refused_before_the_first_job",),
    ),
    Bug(
        "a goodbye overtakes what was submitted",
        "src/rollmq/library/dialog.py",
        "        self.gather()\n        self.out.append(data)\n",
        "        self.out.append(data)\n",
        (f"{LIBRARY}test_a_goodbye_does_not_overtake_what_was_submitted_before_it",),
    ),
    Bug(
        "what was held back for a lost connection is said twice on the next",
        "src/rollmq/library/submits.py",
        "        self._run = None\n        for call",
        "        for call",
        (f"{LIBRARY}test_what_was_held_back_for_a_connection_that_is_gone_is_sent_once_on_the_next",),
    ),
    Bug(
        "the credit is said with an ack that is not the last",
        "src/rollmq/library/together.py",
        "run.frame(None))\n                run = _Run(",
        "run.frame(credit))\n                run = _Run(",
        (f"{LIBRARY}test_outcomes_are_said_in_their_order_and_the_last_frame_says_the_credit",),
    ),
    Bug(
        "one that sends much keeps all others waiting",
        NODE + "connection.py",
        "        if not self._unread and (len(data) <= SLICE_BYTES or conn.peer_id):",
        "        if not self._unread:",
        (f"{SLICES}test_others_are_heard_between_the_slices_of_one_that_sends_much",),
    ),
    Bug(
        "what was sent before a connection ended is thrown away",
        NODE + "connection.py",
        "        while self._conn is not None and self._unread:\n"
        "            self._door.receive(self._conn, self._unread.popleft())\n",
        "",
        (f"{SLICES}test_what_was_sent_before_the_connection_ended_is_taken",),
    ),
    Bug(
        "a connection with unread slices is read on",
        NODE + "connection.py",
        "        if self._is_full or self._unread:",
        "        if self._is_full:",
        (f"{SLICES}test_others_are_heard_between_the_slices_of_one_that_sends_much",),
    ),
)
