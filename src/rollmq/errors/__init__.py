"""Every error a user can meet. The message says what happened, where, what changed, what to do."""

from collections.abc import Sequence
from pathlib import Path

from rollmq.errors.base import RollmqError as RollmqError
from rollmq.errors.group import GroupOfSeveral as GroupOfSeveral
from rollmq.errors.group import RecoverRefused as RecoverRefused
from rollmq.errors.tasks import ArgumentsWrong as ArgumentsWrong
from rollmq.errors.tasks import ResultWrong as ResultWrong
from rollmq.errors.tasks import TaskFailed as TaskFailed
from rollmq.errors.tasks import TaskProblem as TaskProblem
from rollmq.errors.testing import HandlerHangs as HandlerHangs
from rollmq.errors.testing import NothingWillHappen as NothingWillHappen

# --- wire -----------------------------------------------------------------------------------------


class ProtocolError(RollmqError):
    """The other side sent what the protocol does not allow. The message was dropped; nothing was changed.

    `code` is that of the Error frame which answers it; when `closes`, the bytes behind it cannot be
    trusted and the connection ends, otherwise it goes on with the next frame.
    """

    def __init__(
        self, *, code: str, text: str, closes: bool, request_id: bytes = bytes(16), request_type: int = 0
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.closes = closes
        self.request_id = request_id
        self.request_type = request_type


class MessageTooLarge(RollmqError):
    """A message of ours is over a limit of the protocol. It was not sent; nothing was changed."""

    def __init__(self, *, part: str, size: int, size_max: int) -> None:
        super().__init__(
            f"the message's {part} has {size:,} bytes, at most {size_max:,} are allowed. Nothing was sent. "
            f"Make it smaller, or store the data elsewhere and send a reference to it."
        )


# --- core: the group ------------------------------------------------------------------------------


class ReplicaDiverged(RollmqError):
    """This node's log or state is not that of its group. It stops; nothing was changed."""

    def __init__(self, *, index: int, what: str) -> None:
        self.index = index
        super().__init__(
            f"{what} (entry {index}) is not the same here as in the group. The node stops, so that "
            f"nothing untrue is served; nothing was changed. The others go on. Keep a copy of its directory "
            f"for a bug report, then bring the node in again with an empty one: `rollmq members replace`."
        )


# --- store: the state directory -------------------------------------------------------------------


class StateError(RollmqError):
    """The base of all errors about a state directory."""


class StoreFailed(StateError):
    """A write, sync or rename failed. What was being written is unknown, and the store takes nothing more."""

    def __init__(self, *, path: Path, operation: str, reason: str, is_full: bool = False) -> None:
        self.path = path
        self.is_full = is_full
        cure = (
            "Free some disk space and start the node again."
            if is_full
            else "Check the disk (kernel log, SMART), then start the node again: it reads what is there."
        )
        super().__init__(
            f"{path}: {operation} failed: {reason}. The node stops: after a failed write nobody "
            f"knows what is on disk, so it is not repeated. Nothing unconfirmed was reported as done. {cure}"
        )


class StateDamaged(StateError):
    """A file of the state directory is not what was written, or missing. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str, places: Sequence[str] = ()) -> None:
        self.path = path
        self.reason = reason
        self.places = tuple(places) or (f"{path}: {reason}",)
        more = f" All damaged places: {'; '.join(self.places)}." if len(self.places) > 1 else ""
        super().__init__(
            f"{path}: {reason}.{more} Nothing was changed. A node that is alone: restore the directory from "
            f"a backup; what came after it is lost. A member of a group: start it with --peers, and it "
            f"repairs itself from the others; never an old copy, which could vote twice. Only a damaged "
            f"node.json is beyond that: bring it in as a new member then, with an empty directory."
        )


class WalCorrupt(StateDamaged):
    """The log before its unfinished tail is damaged. The node did not start; nothing was changed."""

    def __init__(self, *, path: Path, line: int, reason: str, places: Sequence[str] = ()) -> None:
        self.line = line
        where = f"line {line}: {reason}" if line else reason
        super().__init__(
            path=path,
            reason=f"{where} (this had been synced, so it is damage and not a torn write)",
            places=places,
        )


class DamageFound(StateError):
    """A file was found damaged while the node ran. It was given to nobody, and the node stopped."""

    def __init__(self, *, place: str) -> None:
        super().__init__(
            f"{place}. It was found while the node ran, was given to nobody, and the node stops. Start it "
            f"again: it reads everything, repairs itself from the other nodes, and only then counts again. "
            f"Look at the disk (kernel log, SMART)."
        )


class SnapshotRefused(StateError):
    """A snapshot that another node sent is not what it says. It was thrown away; nothing was changed."""

    def __init__(self, *, index: int, reason: str) -> None:
        super().__init__(
            f"the snapshot as of entry {index} that was received is not its sender's: {reason}. It was "
            f"thrown away, nothing was changed, and it is sent again."
        )


class DirectoryInUse(StateError):
    """Another process holds the state directory. Nothing was changed."""

    def __init__(self, *, path: Path, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"{path} is in use by another node (process {holder or 'unknown'}). Nothing was changed. "
            f"Stop that process first, or give this node a directory of its own with --state."
        )


class NotAStateDirectory(StateError):
    """The folder holds something else, or nothing that rollmq wrote. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"{path} is not a state directory of rollmq: {reason}. Nothing was changed. "
            f"Name the directory in which a node keeps its state; a new node begins in an empty one."
        )


class WrongFormatVersion(StateError):
    """The files were written in a format that this release does not read. Nothing was changed."""

    def __init__(self, *, path: Path, found: int, expected: int) -> None:
        self.path = path
        self.found = found
        super().__init__(
            f"{path} has format version {found}, this release reads version {expected}. Nothing was changed. "
            f"Start it with the release that wrote it, or a newer one."
        )


class StateNotAccessible(StateError):
    """The system refused access to a file or folder of the state directory. Nothing was changed."""

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {reason}. Nothing was changed. "
            f"Give this user the right to read (and, to serve, to write) the directory and what is in it."
        )


class EntriesGone(StateError):
    """The entries asked for are no longer, or not yet, in this log. Nothing was changed."""

    def __init__(self, *, index: int, first_index: int, next_index: int) -> None:
        self.index = index
        self.first_index = first_index
        self.next_index = next_index
        super().__init__(
            f"entry {index} is not in this log, which holds {first_index} to {next_index - 1}. "
            f"Begin at a later index, or from the snapshot or base before it."
        )


# --- operators: questions and commands ------------------------------------------------------------


class OperatorError(RollmqError):
    """The base of all errors about questions and commands to a node."""


class ServerUnreachable(OperatorError):
    """No server answered. Nothing was sent, so nothing was changed."""

    def __init__(self, *, servers: Sequence[str], reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"cannot reach {', '.join(servers)}: {reason}. Nothing was changed. "
            f"Is the node running (rollmq serve)? Name another one with --server HOST:PORT or ROLLMQ_SERVER."
        )


class NotRollmqServer(OperatorError):
    """Something else than rollmq listens there. Nothing was changed."""

    def __init__(self, *, server: str, reason: str = "what it says is not the rollmq protocol") -> None:
        super().__init__(
            f"{server} is not a rollmq server: {reason}. Nothing was changed. "
            f"Check the host and port given with --server or ROLLMQ_SERVER."
        )


class WrongProtocolVersion(OperatorError):
    """The server speaks no version of the protocol that this release speaks. Nothing was changed."""

    def __init__(self, *, server: str, text: str) -> None:
        super().__init__(
            f"{server} speaks another version of the protocol: {text}. Nothing was changed. "
            f"Use the rollmq release that the node runs, or update the older of the two."
        )


class NotAuthorized(OperatorError):
    """The server does not let this caller do that. Nothing was changed."""

    def __init__(self, *, server: str, text: str) -> None:
        super().__init__(
            f"{server} refuses: {text}. Nothing was changed. Set ROLLMQ_TOKEN to a token that may do this."
        )


class NoLeader(OperatorError):
    """The servers answer, and none of them leads. Nothing was changed."""

    def __init__(self, *, servers: Sequence[str], term: int, why: str = "") -> None:
        self.servers = tuple(servers)
        self.term = term
        self.why = why
        """As the last of them said."""
        said = f" It says: {why}." if why else ""
        super().__init__(
            f"no leader: asked were {', '.join(servers)}, and nobody knows one (term {term}).{said} "
            f"Nothing was changed. A group needs a majority of its nodes; an election takes about a second, "
            f"so try again."
        )


class QueryRefused(OperatorError):
    """The node refused a question or command. Nothing was changed."""

    def __init__(self, *, name: str, code: str, text: str, is_retryable: bool = False) -> None:
        self.name = name
        self.code = code
        self.is_retryable = is_retryable
        super().__init__(text or f"the node refused {name}: {code}. Nothing was changed.")


class AnswerUnknown(OperatorError):
    """No answer came. A question changes nothing; whether a command was carried out is unknown."""

    def __init__(self, *, name: str, server: str, reason: str, is_command: bool) -> None:
        self.name = name
        self.server = server
        self.reason = reason
        self.is_command = is_command
        what = (
            "Whether it was carried out is unknown; repeating it is safe."
            if is_command
            else "Nothing was changed; ask again."
        )
        super().__init__(f"{name}: {server} did not answer: {reason}. {what}")


# --- client and worker: reaching a group ----------------------------------------------------------


class BadServerList(RollmqError, ValueError):
    """The list of servers cannot be read. Nothing was sent."""

    def __init__(self, *, text: str, reason: str) -> None:
        self.text = text
        super().__init__(
            f"{reason}. Nothing was sent. Servers are named in code, as in Client('127.0.0.1:5000'), or by "
            f"ROLLMQ_SERVER."
        )


class ConnectionRefused(RollmqError):
    """The group will not talk to this client or worker, whichever node is asked. Trying again is no use."""

    def __init__(self, *, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


class WrongGroup(ConnectionRefused):
    """A reconnect found another group than before. What was under way with the first one is unknown."""

    def __init__(self, *, before: str, now: str) -> None:
        self.before = before
        super().__init__(
            code="wrong_group",
            text=(
                f"the servers belong to group {now}, before it was {before}: another group, or a new one in "
                f"the place of the old. Nothing was sent to it; its jobs are not those of the old group. "
                f"Correct the list of servers, or make a new client or worker for the new group."
            ),
        )


class ClientClosed(RollmqError):
    """The client or worker was closed, or not yet entered. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "this client is closed, or was not entered. Nothing was sent for this call. Use it inside "
            "`async with Client(…) as client:`. Jobs that were accepted go on; ask for them by their ids."
        )


class ClientForked(RollmqError):
    """The client was made before a fork and used in the child. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "this client was made in another process: its connection and thread stayed there at the fork. "
            "Nothing was sent. Make a new Client in the child, e.g. in the server's post-fork hook, or on "
            "first use."
        )


# --- client: submits and results ------------------------------------------------------------------


class SubmitRefused(RollmqError):
    """The submit was refused: nothing was queued. `retryable`: the same submit may succeed later."""

    def __init__(self, *, code: str, text: str, retryable: bool, after_s: float = 0.0) -> None:
        self.code = code
        self.text = text
        self.retryable = retryable
        self.after_s = after_s
        """Retryable: the node asks not to come before so many seconds; 0 = by your own backoff."""
        cure = "It may be submitted again later" if retryable else "Submitted again it would be refused again"
        super().__init__(f"refused ({code}): {text}. Nothing was queued. {cure}.")


class KeyConflict(SubmitRefused):
    """The key was used for a job with other content. Nothing was queued."""

    def __init__(self, *, text: str) -> None:
        super().__init__(code="key_conflict", text=text, retryable=False)


class SubmitUnknown(RollmqError):
    """It is unknown whether the job was accepted. It may run; it was not refused.

    Submit it again with the same `key` and it is accepted once; without a key, ask for `job_id` by
    `client.result` before you submit it anew.
    """

    def __init__(self, *, job_id: str, why: str) -> None:
        self.job_id = job_id
        self.why = why
        super().__init__(
            f"it is unknown whether job {job_id} was accepted: {why}. It may run. Submitting it again with "
            f"the same key is safe; without a key, ask for it by its id first."
        )


class ResultTimeout(RollmqError, TimeoutError):
    """The job had not ended in time. Nothing was changed, it goes on: ask again, or cancel it."""

    def __init__(self, *, job_id: str, seconds: float) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} had not ended after {seconds:g} s. It goes on; ask for its result again, "
            f"`explain` says what it waits for, `cancel` ends it."
        )


class ResultExpired(RollmqError):
    """The job has ended, but how is no longer kept. Asking changed nothing."""

    def __init__(self, *, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} has ended and its result is no longer kept. Ask sooner, or let the handler store "
            f"what is needed for longer."
        )


class JobUnknown(RollmqError):
    """No such job is remembered: it never was, or it ended too long ago. Asking changed nothing."""

    def __init__(self, *, job_id: str, why: str = "it was never accepted, or ended too long ago") -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} is not known: {why}.")


class RequestRefused(RollmqError):
    """A cancel or question was refused. Nothing was changed. `code` says why."""

    def __init__(self, *, code: str, text: str, retryable: bool) -> None:
        self.code = code
        self.retryable = retryable
        super().__init__(f"refused ({code}): {text}. Nothing was changed.")


class RequestUnknown(RollmqError):
    """A cancel or question was not answered. A cancel may have been carried out; repeating it is safe."""

    def __init__(self, *, what: str, why: str) -> None:
        super().__init__(f"{what}: no answer: {why}. It may have been carried out; repeating it is safe.")


class CodecFailed(RollmqError):
    """The codec could not encode or decode. What could not be encoded was not sent."""

    def __init__(self, *, what: str, reason: str) -> None:
        super().__init__(
            f"{what}: {reason}. Give client and workers the same codec=, with every key that is still in use."
        )


# --- worker ---------------------------------------------------------------------------------------


class HandlerProblem(RollmqError):
    """A handler or an option of a worker cannot be used as it is. The worker did not start."""


# --- node -----------------------------------------------------------------------------------------


class PortNotUsable(RollmqError):
    """The node cannot listen at its address. Nothing was served."""

    def __init__(self, *, address: str, reason: str) -> None:
        self.address = address
        super().__init__(
            f"cannot listen at {address}: {reason}. Nothing was served, the log was not changed. "
            f"Choose another port or --host, or stop what is there (`ss -ltnp` shows it)."
        )
