"""Every bound that a user can meet, its unit in its name, its reason beside it.

What a group may change while it runs is in the log instead: `events.Settings`. Sizes of batches and of
housekeeping that nobody outside a module can notice stand in that module, with their reasons.
"""

from typing import Final

# Execs, subjects
SUBJECT_BYTES_MAX: Final = 255
"""Of a subject or pattern: long enough for any naming scheme, short enough to be a key."""

# Scheduling
AGEING_BUDGET_PER_EVENT: Final = 8
"""Delays and ageings that one applied event carries out: more than one job can bring, and bounded."""
AGEING_BUDGET_PER_TICK: Final = 2_000
"""The same for a tick of the leader: some milliseconds of work."""
EXPLAIN_WALK_MAX: Final = 10_000
"""Jobs of a lane that `explain` counts; behind that it says "at least"."""
EXPLAIN_DETAIL_BYTES_MAX: Final = 256 * 1024
"""Of the errors that `explain` tells, the newest first: in JSON it grows, and must fit one answer."""

# Wire: frames. Names end in their unit; docs/protocol.md says which Error each violation brings.
PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a job's payload or result: in base64, with its header, it must still fit one frame as a log line."""
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""What `length` may announce: the largest log line, and what one connection can make a node hold."""
HELLO_FRAME_BYTES_MAX: Final = 1024 * 1024
"""Before the hello is answered: a stranger may make us hold this much; a worker's held jobs must fit."""
FRAME_SUBJECT_BYTES_MAX: Final = 512
"""A job's longest subject, a dot, and the longest worker id."""
HEADER_BYTES_MAX: Final = 32 * 1024
"""Of a frame's header: room for a caller's own headers, cheap enough to parse for each message."""
ID_CHARS_MAX: Final = 128
"""Of the ids that people choose (client, worker, instance, release, key id): they are in every log line."""
KEY_CHARS_MAX: Final = 256
"""Of a caller's key: a digest or a compound key fits, and a million of them fit into memory."""
TOKEN_CHARS_MAX: Final = 4096
"""Of a secret in a hello: long signed tokens fit."""
USER_HEADERS_MAX: Final = 64
"""A job's own headers: trace context and labels, not data."""
ERROR_TEXT_CHARS_MAX: Final = 4096
"""Of an error's message: enough for a person to act on; details go into the payload."""
ERROR_DETAIL_BYTES_MAX: Final = 64 * 1024
"""Of a failed job's traceback, kept in the log for each failed try."""
WORKER_PATTERNS_MAX: Final = 1024
"""Subject patterns of one worker: each is matched when an exec is new."""
WORKER_HANDS_MAX: Final = 4096
"""Jobs that a worker runs at once."""
WORKER_HELD_MAX: Final = 4096
"""Jobs and unconfirmed outcomes that a worker may list in its hello, so also its credit."""
JOBS_PER_MESSAGE_MAX: Final = 256
"""Jobs that one Started, or acks that one AckDone, may name; jobs that one message of many carries: they fit
HEADER_BYTES_MAX."""
MANY_BYTES_MAX: Final = 64 * 1024
"""Of the payloads of one message that carries many jobs: a larger one gains nothing by company."""
MANY_OPTIONS_BYTES_MAX: Final = 8 * 1024
"""Of the options that the jobs of one SubmitJobs share: with their sizes they fit HEADER_BYTES_MAX."""
READ_LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a LogChunk's lines, unless a single line is longer: one turn of the loop."""
READ_LOG_WAIT_US_MAX: Final = 30_000_000
"""How long a ReadLog may wait for the next entry: long enough to be cheap."""
SNAPSHOT_CHUNK_BYTES_MAX: Final = 1024 * 1024
"""Of an InstallSnapshot's chunk: heartbeats pass between two of them in time."""

REPAIR_BYTES_MAX: Final = 1024 * 1024
"""Of the lines in one RepairPiece, unless a single one is longer: one turn of the loop."""
REPAIR_RUNS_MAX: Final = 300
"""Terms, and ranges of sound lines, that a node tells one that repairs itself: both fit HEADER_BYTES_MAX."""

# Wire: connections
CONNECTIONS_MAX: Final = 10_000
"""Open at once on one node: a slot each, and FRAME_BYTES_MAX at the very worst."""
HANDSHAKES_MAX: Final = 256
"""Connections that have not said who they are: strangers hold at most this many HELLO_FRAME_BYTES_MAX."""
HANDSHAKE_US_MAX: Final = 10_000_000
"""From connecting to a complete hello. A slow link needs two round trips."""
PING_EVERY_US: Final = 5_000_000
"""A ping after so much silence of the other side: three chances to answer within IDLE_US_MAX."""
IDLE_US_MAX: Final = 15_000_000
"""Silent for so long is lost: three pings, so that one lost packet and its resend are no loss."""

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one connection's outgoing bytes that the other side has not taken: it is closed, and asks again."""
UNSENT_BYTES_ALL_MAX: Final = 1024 * 1024 * 1024
"""Of all connections' together: the slowest are closed until it fits: many cannot do what one may not."""
UNSEEN_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of payloads on their way to one worker: no further job until it has seen them, unless it has none."""
READS_PER_CONNECTION_MAX: Final = 4
"""ReadLogs of one connection that wait for their answer: enough to keep a reader busy."""
ASKS_WAITING_MAX: Final = 1024
"""Queries and cancels of one client that wait for their answer, as they do while the disk stalls: each holds
its answer in memory."""
OPERATOR_ASKS_WAITING_MAX: Final = 16
"""The same of one operator, whose answers are long lists: people and their tools ask one by one."""
FLUSH_AT_BYTES: Final = 64 * 1024
"""A message that is larger is written at once and not at the turn's end: a few bytes that ask for many large
results must not make the node hold them all."""

# Client: what one session keeps in memory
UNANSWERED_MAX: Final = 16_384
"""Submits of one client that are neither accepted nor refused: each is kept, to be repeated."""
UNANSWERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of their payloads; one more is let in while it is not reached."""
RESULTS_AWAITED_MAX: Final = 100_000
"""Jobs of one session that the node tells the end of by itself; further ones are asked for one by one."""

# --- store: the state directory -------------------------------------------------------------------

WAL_BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX
"""What one fdatasync covers, and so the most that a power cut can tear; a bad line further from the end
is damage. The largest line, which a frame must hold; more than that is synced in parts."""

DISK_BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Files are read in blocks: large enough that Python's work per block vanishes, small enough to keep."""

SPARSE_EVERY_BYTES: Final = 64 * 1024
"""One remembered offset per so many bytes of a segment: 4,096 for the largest, and at most this to skip."""

SEALED_READERS_MAX: Final = 8
"""Sealed segments whose offsets are kept at hand; followers and pipelines read a few places at a time."""

TORN_COPIES_MAX: Final = 8
"""Copies of torn tails that are kept: enough to look into the last crashes, never a disk full of them."""

DAMAGES_LISTED_MAX: Final = 100
"""Damaged places that one error lists; a zeroed file would otherwise list millions."""

SNAPSHOTS_KEPT: Final = 2
"""The newest may be damaged unseen; the one before it and the segments since make the same state."""

SNAPSHOT_EVERY_ENTRIES: Final = 1_048_576
"""At most so many entries lie after the newest snapshot before it is folded again: with 150,000 applied
per second, a restart replays for less than ten seconds."""

FOLD_SHARE_MIN: Final = 0.5
"""Fold when the log since is half as large as the snapshot: rewriting it costs at most twice the log."""

FOLD_BYTES_MIN: Final = 16 * 1024 * 1024
"""Starting a process for less log than this costs more than replaying it."""

FOLD_RETRY_FIRST_US: Final = 5_000_000
FOLD_RETRY_MAX_US: Final = 600_000_000
"""Pauses between attempts of a failing fold helper: soon at first, then rare enough not to load the disk."""

DISK_FREE_BYTES_MIN: Final = 268_435_456
"""Below this free space submits are refused; acks, markers and one snapshot still fit: a largest segment."""

BALLAST_BYTES: Final = 67_108_864
"""Given back when a full node starts: room for the copy of a torn batch and for acks, not for long."""

HISTORY_KEEP_SHARE: Final = 0.2
"""Of the disk, for sealed segments: months for most, and never the reason for a full disk."""

HISTORY_KEEP_US: Final = 30 * 86_400_000_000
"""Age after which history may go although there is room: a month, so that monthly reports can be redone."""

# Archive
ARCHIVE_TURN_US: Final = 30_000_000
"""How long one node waits for another to ship a segment before it does so itself: an upload and then some."""
ARCHIVE_RETRY_FIRST_US: Final = 5_000_000
ARCHIVE_RETRY_MAX_US: Final = 600_000_000
"""Pauses between attempts to reach an archive: soon at first, then rare enough to be no load on anybody."""
ARCHIVE_SILENT_US: Final = 300_000_000
"""A helper that says nothing for so long hangs, and is ended: the slowest link moves a block meanwhile."""
ARCHIVE_CHECK_US: Final = 10_000_000
"""How long a start may look whether its archive can work at all: importing a large library takes seconds."""
ARCHIVE_COMPARED_MAX: Final = 256
"""Segments found in an archive whose markers are compared when a node starts, the newest; older ones by their
size. More would delay what is new: over a network each takes a round trip or two."""

# Raft core: times (both settable) and bounds of replication
HEARTBEAT_US: Final = 150_000
"""Between two heartbeats of a leader: two of them may be lost within the longest election timeout."""
ELECTION_US_MIN: Final = 250_000
"""The shortest election timeout, and how long a follower is loyal: longer than heartbeat plus slow fsync."""
ELECTION_US_MAX: Final = 500_000
"""The longest; the spread keeps two candidates from splitting the votes again and again."""
RESET_ELECTION_US_MAX: Final = 60_000
"""How long a node waits at most when the leader's connection was reset: before any timeout."""
UNAPPLIED_SOON_MAX: Final = 16_384
"""A node with more entries to apply, as it has after a start, leaves it to others to stand soon: a new leader
applies its whole log first, and 100 ms of that is as much as a takeover takes."""
WRITE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of one Write's lines, unless a single line is longer: what one fsync covers and a power cut may tear."""
APPEND_BYTES_MAX: Final = 1024 * 1024
"""Of one AppendEntries' lines, unless one line is longer: heartbeats pass between two of them in time."""
APPEND_LINES_MAX: Final = 8192
"""Of one AppendEntries: the work of one message stays bounded also when lines are tiny."""
APPENDS_INFLIGHT_MAX: Final = 64
"""AppendEntries that one follower may leave unanswered: enough for a round trip, little to repeat."""
APPENDS_INFLIGHT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of these, in all: what a hung follower may hold in buffers."""
UNCOMMITTED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of lines decided and not committed: beyond it submits are refused. A second or two of the fastest disk."""
PEER_UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of one node's messages that another has not taken: beyond it they are dropped, and sent again when it asks.
Twice what may be unanswered, so that nothing is dropped on a connection that works."""
TAIL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of written and committed lines kept in memory, so that a follower's short absence costs no disk reads."""

# Submits
PRIORITY_MAX: Final = 9
"""Ten levels, 0 to 9: more than people can tell apart, few enough that ageing reaches the top in minutes."""
WEIGHT_MAX: Final = 100
"""Turns in a row of one client: enough to prefer one, not so many that the others notice a pause."""
HEADER_VALUE_CHARS_MAX: Final = 4_096
"""Of one of a job's own headers, name or value: labels and trace context, not data."""
TIMEOUT_MAX_US: Final = 366 * 86_400_000_000
"""A year: longer is a mistake of units."""
TRIES_MAX_MAX: Final = 1_000
"""More tries than that is a loop and not a retry."""
ID_AHEAD_MAX_US: Final = 60_000_000
"""How far a job id's time may be ahead of log time; the library stamps ids in log time."""

# Workers
WORKER_SILENT_MAX_US: Final = 15_000_000
"""Three pings missed: a worker's connection has a thread of its own, so silence is not load."""
WORKER_GRACE_US: Final = 5_000_000
"""After a broken connection: time for the same instance to come back with what it holds."""
RECLAIM_GRACE_US: Final = 5_000_000
"""The least that a reclaimed attempt has left: its outcome may be on the way already."""
LEADER_GRACE_US: Final = 20_000_000
"""After a failover: time for the workers to find the new leader."""
UNSTARTED_MAX_US: Final = 60_000_000
"""How long a job may wait in a worker's prefetch while another worker has a free hand."""

# Operators
REDRIVE_JOBS_MAX: Final = 10_000
"""Jobs that one redrive or drop event names: some 350 kB in a line; a larger one is sent in parts."""
QUERY_ROWS_MAX: Final = 1_000
"""Rows of one page of a list: some milliseconds of a node's loop, and far below the frame's limit."""
QUERY_PLACE_MAX: Final = 1_000_000
"""How deep a list goes: to find a page's place again costs some 20 ns for each row before it, in one turn of
the loop. What lies behind is in the history."""
QUERY_LOOKS_MAX: Final = 20_000
"""Jobs that one page looks at when it filters; it may come back empty and say where to go on."""

# Clocks
CLOCK_GAP_SLEWED_MAX_US: Final = 10_000_000
"""A wall clock ahead of log time by up to this is approached smoothly; beyond it somebody must agree."""
CLOCK_OFF_MAX_US: Final = 30_000_000
"""A leader whose wall clock is further from those of a majority hands over: delays and expiries are by it."""

# Markers
MARKER_EVERY_US: Final = 60_000_000
"""So that history reaches archives and pipelines within a minute or two."""
MARKER_EVERY_ENTRIES: Final = 262_144
"""So that a segment is folded in about two seconds."""
MARKER_EVERY_BYTES: Final = 268_435_456
"""So that large payloads do not make huge segments."""
CENSUS_EXECS_MAX: Final = 1_000
"""Execs that a marker's census names, those with the most jobs first: a marker stays a small line."""
CENSUS_WORKERS_MAX: Final = 1_000
"""Workers that a marker's census names."""

# A node's turns
APPLIES_PER_TURN: Final = 1_024
"""Entries that a node which does not lead applies before it looks at its messages again: some 5 ms. A new
leader may need its vote and its confirmations: four turns in a row."""
TURN_GAP_MAX_US: Final = 2_000_000
"""Turns further apart than this mean that the process stood still: a host ticks several times a second."""
ASSIGNS_PER_TURN: Final = 2_000
"""So that a burst of credit does not hold up everybody else."""
EXPIRIES_PER_TICK: Final = 1_000
"""Expired jobs buried by one tick."""
TIMEOUTS_PER_TICK: Final = 1_000
"""Attempts over their time that one tick ends, and those of one worker more: when an exec hangs, all of its
attempts are over it at once."""
