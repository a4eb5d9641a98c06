"""`rollmq members`: who is in the group, and who shall be."""

import click
from rich.text import Text

from rollmq.cli import looks
from rollmq.cli.connecting import as_name, asks_a_node, understood
from rollmq.cli.control import CODES
from rollmq.library.operator import OperatorConnection
from rollmq.wire.query import DoneReply, MembersReply, MemberStatus


@click.group()
def members() -> None:
    """Members of the group: which nodes replicate its log, and which of them vote."""


@members.command(
    name="list",
    epilog="""\b
Examples:
  rollmq members list
  rollmq members list --json | jq '.members[] | select(.voter).address'

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no leader.""",
)
@asks_a_node
def list_(node: OperatorConnection, as_json: bool) -> None:
    """Members, and new nodes that ask to be."""
    answer = node.ask("members")
    found = understood(answer, MembersReply, node.server)
    if as_json:
        looks.say_json(answer)
        return
    rows = [_row(each, "votes" if each.voter else "learns", found.leader) for each in found.members]
    rows += [_row(each, "asks to be a member", found.leader) for each in found.asking]
    looks.console().print(looks.table("!node", "where", "state", ">behind", "…note", rows=rows))


def _row(member: MemberStatus, state: str, leader: str | None) -> list[str | Text]:
    notes = ["leads"] if leader and member.address == leader else []
    if member.replaces:
        notes.append(f"replaces {member.replaces}")
    return [
        looks.text(member.node_id),
        looks.text(member.address or "not met"),
        Text(state, "" if state == "votes" else "yellow"),
        looks.number(member.behind) if member.behind is not None else Text("silent", "yellow"),
        looks.text(", ".join(notes)),
    ]


@members.command(
    epilog=f"""\b
Examples:
  rollmq serve 5000 --host 10.0.0.4 --peers 10.0.0.1:5000,10.0.0.4:5000     on the new machine, first
  rollmq members add 10.0.0.4:5000

{CODES}"""
)
@asks_a_node
@click.argument("node_name", metavar="NODE", type=as_name)
def add(node: OperatorConnection, node_name: str, as_json: bool) -> None:
    """Bring a new node in. It learns the log first, and votes by itself once it has caught up."""
    _command(node, "members_add", {"node": node_name}, as_json, f"{node_name} learns, and will vote then")


@members.command(
    epilog=f"""\b
Examples:
  rollmq members remove 10.0.0.2:5000

{CODES}"""
)
@asks_a_node
@click.argument("node_name", metavar="NODE", type=as_name)
def remove(node: OperatorConnection, node_name: str, as_json: bool) -> None:
    """Take a member out, by its id or HOST:PORT. Refused if the rest would have no live majority."""
    _command(node, "members_remove", {"node": node_name}, as_json, f"{node_name} is no longer a member")


@members.command(
    epilog=f"""\b
Examples:
  rollmq members replace 10.0.0.2:5000 10.0.0.4:5000
  rollmq members replace f1e2d3c4b5a697887766554433221100 10.0.0.2:5000    after its directory was emptied

{CODES}"""
)
@asks_a_node
@click.argument("old", type=as_name)
@click.argument("new", type=as_name)
def replace(node: OperatorConnection, old: str, new: str, as_json: bool) -> None:
    """Bring NEW in for OLD, which goes by itself once NEW votes. A node with an emptied directory is new."""
    arguments = {"node": new, "replaces": old}
    _command(node, "members_replace", arguments, as_json, f"{new} learns, and will take the place of {old}")


def _command(
    node: OperatorConnection, name: str, arguments: dict[str, str], as_json: bool, text: str
) -> None:
    answer = node.ask(name, arguments, is_command=True)
    understood(answer, DoneReply, node.server)
    looks.say_json(answer) if as_json else click.echo(text)
