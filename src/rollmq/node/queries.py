"""Questions and commands of operators, by name: read the arguments, ask or order the leader.

    refusal_or_value = answer(name, payload, by=..., to=..., leader=..., node=...)

Sans-IO. What depends on the replicated state is said through the leader's desk and so waits for its commit
(rule 3). Every query's work is bounded per turn; lists come in pages. It holds no state and decides nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rollmq.core.effects import Answer
from rollmq.core.leader import Leader
from rollmq.core.operate import Done, Refusal
from rollmq.node import query_lists, query_status
from rollmq.node.query_status import NodeFacts
from rollmq.wire import query as q
from rollmq.wire.error_codes import ErrorCode


class NeedsLeader(msgspec.Struct, frozen=True, gc=False):
    """The answer of a node that does not lead to what only the leader knows: send NotLeader."""


class Ask(NamedTuple):
    """One query on its way."""

    arguments: Any
    by: str
    to: object
    leader: Leader
    node: NodeFacts


class QueryRow(NamedTuple):
    """What a query takes, what it does, and who may ask it."""

    arguments: type[q.Arguments]
    run: Callable[[Ask], None]
    reply: type
    is_command: bool = False
    """It changes something, and is in the log with who and why."""
    is_for_clients: bool = False


def answer(
    name: str,
    payload: bytes,
    *,
    by: str,
    to: object,
    leader: Leader | None,
    node: NodeFacts,
    is_operator: bool = True,
) -> object | None:
    """Carry a query out. Null: the leader's desk will say the answer to `to`. Otherwise the value to send
    now: a struct for a Reply, a Refusal for an Error, or NeedsLeader for a NotLeader."""
    row = QUERIES.get(name)
    if row is None or not (is_operator or row.is_for_clients):
        return _unknown(name, is_operator=is_operator)
    try:
        arguments: Any = msgspec.json.decode(payload or b"{}", type=row.arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"{name}: {error}. Nothing was changed. See the list of queries in the protocol page."
        return Refusal(ErrorCode.BAD_COMMAND, text)
    if name == "drain" and not arguments.worker_id:
        node.stop(f"{by or 'an operator'}: {arguments.why or 'drain'}")
        return Done(1)
    if leader is None:
        return query_status.status(node, None) if name == "status" else NeedsLeader()
    row.run(Ask(arguments, by, to, leader, node))
    return None


def _unknown(name: str, *, is_operator: bool) -> Refusal:
    known = sorted(each for each, row in QUERIES.items() if is_operator or row.is_for_clients)
    who = "this release knows" if is_operator else "clients may ask result and"
    text = f"no query {name[:60]!r}; {who} {', '.join(known)}. Nothing was changed."
    return Refusal(ErrorCode.UNKNOWN_QUERY, text)


def _say(ask: Ask, value: object) -> None:
    """The answer, once all that it was computed from is committed."""
    desk = ask.leader.desk
    desk.say(Answer(desk.last_index, ask.to, value))


# --- questions --------------------------------------------------------------------------------------


def _status(ask: Ask) -> None:
    _say(ask, query_status.status(ask.node, ask.leader))


def _members(ask: Ask) -> None:
    _say(ask, query_status.members(ask.node, ask.leader))


def _explain(ask: Ask) -> None:
    _say(ask, ask.leader.explain(ask.arguments.job_id))


def _jobs(ask: Ask) -> None:
    _say(ask, query_lists.jobs(ask.leader, ask.arguments))


def _dlq_list(ask: Ask) -> None:
    _say(ask, query_lists.dead_letters(ask.leader, ask.arguments))


def _clients(ask: Ask) -> None:
    _say(ask, query_lists.clients(ask.leader, ask.arguments))


def _workers(ask: Ask) -> None:
    _say(ask, query_lists.workers(ask.leader, ask.arguments))


def _execs(ask: Ask) -> None:
    _say(ask, query_lists.execs(ask.leader, ask.arguments))


def _settings(ask: Ask) -> None:
    _say(ask, query_status.settings_of(ask.leader.desk.machine.settings))


# --- commands ---------------------------------------------------------------------------------------


def _dlq_redrive(ask: Ask) -> None:
    arguments: q.DeadArguments = ask.arguments
    ask.leader.operate.redrive(arguments.job_ids, by=ask.by, why=arguments.why, to=ask.to)


def _dlq_drop(ask: Ask) -> None:
    arguments: q.DeadArguments = ask.arguments
    ask.leader.operate.drop(arguments.job_ids, by=ask.by, why=arguments.why, to=ask.to)


def _cancel(ask: Ask) -> None:
    arguments: q.CancelArguments = ask.arguments
    ask.leader.operate.cancel(arguments.job_id, by=ask.by, why=arguments.why, to=ask.to)


def _pause(ask: Ask) -> None:
    arguments: q.PauseArguments = ask.arguments
    ask.leader.operate.pause(
        arguments.exec, submits=arguments.submits, by=ask.by, why=arguments.why, to=ask.to
    )


def _resume(ask: Ask) -> None:
    arguments: q.ResumeArguments = ask.arguments
    ask.leader.operate.resume(arguments.exec, by=ask.by, why=arguments.why, to=ask.to)


def _client_set(ask: Ask) -> None:
    """What is not said stays as it is."""
    arguments: q.ClientSetArguments = ask.arguments
    client = ask.leader.desk.machine.clients.by_id.get(arguments.client_id)
    cap, weight = (client.cap, client.weight) if client is not None else (0, 1)
    cap = cap if arguments.cap is None else arguments.cap
    weight = weight if arguments.weight is None else arguments.weight
    ask.leader.operate.set_client(arguments.client_id, cap=cap, weight=weight, by=ask.by, to=ask.to)


def _settings_set(ask: Ask) -> None:
    arguments: q.SettingsSetArguments = ask.arguments
    settings = ask.leader.desk.machine.settings
    known = query_status.settings_of(settings)
    unknown = sorted(set(arguments.changes) - set(known))
    if unknown:
        text = f"no setting {unknown[0][:60]!r}; there are {', '.join(known)}. Nothing was changed."
        return _say(ask, Refusal(ErrorCode.BAD_COMMAND, text))
    changed = msgspec.structs.replace(settings, **arguments.changes)
    return ask.leader.operate.set_settings(changed, by=ask.by, to=ask.to)


def _drain(ask: Ask) -> None:
    """Nothing of it is in the log: the worker is asked, and hands back what it has not started."""
    arguments: q.DrainArguments = ask.arguments
    if ask.node.drain_worker(arguments.worker_id):
        _say(ask, Done(1))
    else:
        text = f"no worker {arguments.worker_id!r} is connected; nothing was changed"
        _say(ask, Refusal(ErrorCode.BAD_COMMAND, text))


def _marker(ask: Ask) -> None:
    _say(ask, Done(int(ask.node.mark())))


def _members_change(name: str) -> Callable[[Ask], None]:
    def run(ask: Ask) -> None:
        arguments: q.MemberArguments = ask.arguments
        regroup = ask.node.regroup
        assert regroup is not None, "a leader is of a group"
        refusal = regroup(name, arguments.node, arguments.replaces)
        _say(ask, refusal if refusal is not None else Done(1))

    return run


def _step_time(ask: Ask) -> None:
    step_time = ask.node.step_time
    assert step_time is not None, "a leader has a log"
    stepped = step_time()
    _say(ask, stepped if isinstance(stepped, Refusal) else Done(int(stepped)))


def _pipeline_confirm(ask: Ask) -> None:
    arguments: q.PipelineConfirmArguments = ask.arguments
    ask.leader.operate.confirm_pipeline(arguments.name, arguments.index, to=ask.to)


QUERIES: Final[Mapping[str, QueryRow]] = {
    "status": QueryRow(q.NoArguments, _status, q.Status, is_for_clients=True),
    "explain": QueryRow(q.JobArguments, _explain, q.ExplainReply, is_for_clients=True),
    "jobs": QueryRow(q.JobsArguments, _jobs, q.JobsPage),
    "dlq_list": QueryRow(q.DlqArguments, _dlq_list, q.JobsPage),
    "dlq_redrive": QueryRow(q.DeadArguments, _dlq_redrive, q.DoneReply, is_command=True),
    "dlq_drop": QueryRow(q.DeadArguments, _dlq_drop, q.DoneReply, is_command=True),
    "cancel": QueryRow(q.CancelArguments, _cancel, q.DoneReply, is_command=True),
    "pause": QueryRow(q.PauseArguments, _pause, q.DoneReply, is_command=True),
    "resume": QueryRow(q.ResumeArguments, _resume, q.DoneReply, is_command=True),
    "clients": QueryRow(q.PageArguments, _clients, q.ClientsPage),
    "client_set": QueryRow(q.ClientSetArguments, _client_set, q.DoneReply, is_command=True),
    "workers": QueryRow(q.PageArguments, _workers, q.WorkersPage),
    "drain": QueryRow(q.DrainArguments, _drain, q.DoneReply, is_command=True),
    "execs": QueryRow(q.PageArguments, _execs, q.ExecsPage),
    "members": QueryRow(q.NoArguments, _members, q.MembersReply),
    "members_add": QueryRow(q.MemberArguments, _members_change("add"), q.DoneReply, is_command=True),
    "members_remove": QueryRow(q.MemberArguments, _members_change("remove"), q.DoneReply, is_command=True),
    "members_replace": QueryRow(q.MemberArguments, _members_change("replace"), q.DoneReply, is_command=True),
    "settings": QueryRow(q.NoArguments, _settings, dict),
    "settings_set": QueryRow(q.SettingsSetArguments, _settings_set, q.DoneReply, is_command=True),
    "marker": QueryRow(q.NoArguments, _marker, q.DoneReply, is_command=True),
    "step_time": QueryRow(q.NoArguments, _step_time, q.DoneReply, is_command=True),
    "pipeline_confirm": QueryRow(q.PipelineConfirmArguments, _pipeline_confirm, q.DoneReply, is_command=True),
}
"""Every query but `result`, which the door answers itself: what it asks about is told again when it ends."""
