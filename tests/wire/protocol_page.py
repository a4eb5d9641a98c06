"""Render the parts of docs/protocol.md that follow from the source: fields, tables, hexdumps.

    python -m tests.wire.protocol_page --rewrite     (or: pytest tests/wire --rewrite)

A part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`. The prose around them is written by
hand; a header without a part, or a field without a word about it, is refused by the test.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from msgspec import inspect as shapes

from rollmq import limits
from rollmq.wire import headers, job_headers, many_headers, peer_headers, repair_headers
from rollmq.wire.catalog import MESSAGES
from rollmq.wire.codec import encode
from rollmq.wire.error_codes import CODE_ROWS, LIMIT_CODES
from rollmq.wire.headers import NUMBER_MAX, Header
from rollmq.wire.message import Frame, MsgType, type_name
from rollmq.wire.session_table import LEGAL, Direction, Role, State
from tests.wire.conversations import CLIENT, CONVERSATIONS, Conversation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
PART = re.compile(r"(<!-- begin: (?P<name>[^>]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)
NESTED = (headers.Held, headers.HeldOutcome, job_headers.StartedJob, job_headers.BackoffOptions)


def rendered(page: str) -> str:
    """The page with every part renewed. A part that nobody makes is a KeyError."""
    made = parts()
    return PART.sub(lambda found: f"{found[1]}\n{made[found['name']]}\n\n{found[3]}", page)


def parts() -> dict[str, str]:
    """Every part by its name."""
    made = {f"fields {kind.__name__}": fields_table(kind) for kind in header_types()}
    made |= {f"conversation {name}": conversation(each) for name, each in CONVERSATIONS.items()}
    return made | {
        "frame": annotated(CLIENT.lines[2].frame),
        "messages": messages_table(),
        "sessions": session_table(),
        "codes": codes_table(),
        "limits": limits_table(),
    }


def header_types() -> list[type[Header]]:
    """Every struct that travels as JSON."""
    kinds = [kind for row in MESSAGES.values() for kind in (row.header, row.answer_header, row.payload)]
    return list(dict.fromkeys([*(kind for kind in kinds if kind is not None), *NESTED]))


# --- fields -----------------------------------------------------------------------------------------


def fields_table(kind: type[Header]) -> str:
    """One row per field: name, JSON type with its bounds, default, meaning."""
    rows = [
        f"| `{field.name}` | {json_type(shapes.type_info(field.type))} | {default(field)} | "
        f"{meaning(kind, field.name)} |"
        for field in msgspec.structs.fields(kind)
    ]
    if not rows:
        return "No fields."
    return "| field | type | default | meaning |\n| --- | --- | --- | --- |\n" + "\n".join(rows)


def json_type(info: Any) -> str:
    """A type as a reader of the JSON sees it."""
    match info:
        case shapes.IntType(ge=low, le=high):
            return f"integer {low or 0:,} to {high:,}" if high not in (None, NUMBER_MAX) else _integer(low)
        case shapes.FloatType(ge=low, le=high):
            return f"number {low:g} to {high:g}"
        case shapes.StrType(min_length=low, max_length=high, pattern=headers.ONE_LINE):
            return f"string, {low or 0} to {high} characters, one line"
        case shapes.StrType(min_length=low, max_length=high):
            if low is None and high is None:
                return "string"
            return f"string, {low or 0} to {high} characters" if low != high else f"string, {low} hex digits"
        case shapes.BoolType():
            return "boolean"
        case shapes.BytesType():
            return "base64 string"
        case shapes.LiteralType(values=values):
            return "one of " + ", ".join(f"`{value!r}`".replace("'", '"') for value in values)
        case shapes.UnionType(types=types):
            inner = [json_type(each) for each in types if not isinstance(each, shapes.NoneType)]
            return " or ".join([*inner, "null"])
        case shapes.TupleType(item_types=types):
            inner = ["integer or null" if _may_be_null(each) else "integer" for each in types]
            return f"[{', '.join(inner)}]"
        case shapes.VarTupleType(item_type=item, max_length=high):
            return f"array{f' of at most {high:,}' if high else ''}: {json_type(item)}"
        case shapes.DictType(max_length=high):
            return f"object of at most {high} strings"
        case shapes.StructType(cls=cls):
            return f"object [{cls.__name__}](#{cls.__name__.lower()})"
    return "string"


def _may_be_null(info: Any) -> bool:
    return isinstance(info, shapes.UnionType)


def _integer(low: int | None) -> str:
    return "integer ≥ 1" if low == 1 else "integer"


def default(field: Any) -> str:
    """What a missing field means."""
    if field.required:
        return "**required**"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"


def meaning(kind: type[Header], field: str) -> str:
    """The string below the field in the source, looked for in the class and its bases."""
    for base in kind.__mro__:
        text = _meanings(sys.modules[base.__module__]).get((base.__name__, field))
        if text is not None:
            return " ".join(text.split()).replace("|", "\\|")
    return ""


def _meanings(module: ModuleType) -> dict[tuple[str, str], str]:
    if module not in (headers, job_headers, many_headers, peer_headers, repair_headers):
        return {}
    return {
        (kind.name, ast.unparse(node.target)): str(below.value.value)
        for kind in ast.parse(inspect.getsource(module)).body
        if isinstance(kind, ast.ClassDef)
        for node, below in zip(kind.body, kind.body[1:], strict=False)
        if isinstance(node, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


# --- tables -----------------------------------------------------------------------------------------


def messages_table() -> str:
    """All types with who may send them, as the session table has it."""
    rows = [
        f"| {kind.value} | [{type_name(kind)}](#{kind.value}-{type_name(kind).lower()}) | {_senders(kind)} | "
        f"{f'`{row.subject}`' if row.subject else ''} |"
        for kind, row in MESSAGES.items()
    ]
    return "| code | type | from → to | subject |\n| --- | --- | --- | --- |\n" + "\n".join(rows)


def _senders(kind: MsgType) -> str:
    to_node, from_node = _roles(kind, Direction.TO_NODE), _roles(kind, Direction.FROM_NODE)
    if to_node == from_node:
        return f"{to_node} ↔ node"
    return "; ".join([f"{to_node} → node"] * bool(to_node) + [f"node → {from_node}"] * bool(from_node))


def _roles(kind: MsgType, way: Direction) -> str:
    """Those whose table has the type in this direction."""
    roles = [role for (role, direction, _), legal in LEGAL.items() if direction is way and kind in legal]
    if Role.STRANGER in roles or set(Role) - {Role.STRANGER} <= set(roles):
        return "anyone"
    return ", ".join(dict.fromkeys(roles))


def session_table() -> str:
    """Role, direction, state and what is legal there."""
    rows = [
        f"| {role} | {'to the node' if way is Direction.TO_NODE else 'from the node'} | {state} | "
        f"{', '.join(type_name(kind) for kind in sorted(legal)) or '(nothing)'} |"
        for role in Role
        for way in Direction
        for state in State
        if state is not State.CLOSED and (legal := LEGAL.get((role, way, state))) is not None
    ]
    return "| role | direction | state | legal |\n| --- | --- | --- | --- |\n" + "\n".join(rows)


def codes_table() -> str:
    """Every code with what its receiver is told."""
    rows = [
        f"| `{code}` | {row.means} | {_yes(row.retryable)} | {_yes(row.unknown)} | {_yes(row.closes)} |"
        for code, row in CODE_ROWS.items()
    ]
    head = "| code | meaning | retryable | unknown | closes |\n| --- | --- | --- | --- | --- |\n"
    return head + "\n".join(rows)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""


def limits_table() -> str:
    """Every bound that the wire enforces and the code that answers its violation."""
    rows = [f"| `{name}` | {getattr(limits, name):,} | `{code}` |" for name, code in LIMIT_CODES.items()]
    return "| limit | value | answered with |\n| --- | --- | --- |\n" + "\n".join(rows)


# --- frames -----------------------------------------------------------------------------------------


def conversation(talk: Conversation) -> str:
    """Its frames one by one: what it says, then every byte."""
    blocks = []
    for line in talk.lines:
        way = f"{talk.dialer} → node" if line.is_to_node else f"node → {talk.dialer}"
        blocks.append(f"{way}: {type_name(line.frame.type)}, “{line.says}”\n{hexdump(encode(line.frame))}")
    return "```text\n" + "\n\n".join(blocks) + "\n```"


def hexdump(data: bytes) -> str:
    """Sixteen bytes a line with their offset and what of them is ASCII, as `hexdump -C` prints it."""
    return "\n".join(
        f"{at:08x}  {_hex(row[:8]):<23}  {_hex(row[8:]):<23}  |{_ascii(row)}|"
        for at in range(0, len(data), 16)
        for row in [data[at : at + 16]]
    )


def _hex(data: bytes) -> str:
    return data.hex(" ")


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def annotated(frame: Frame) -> str:
    """One frame, once whole and once field by field."""
    data = encode(frame)
    return f"```text\n{hexdump(data)}\n```\n\n```text\n" + "\n".join(_fields(frame, data)) + "\n```"


def _fields(frame: Frame, data: bytes) -> Iterator[str]:
    name, header = frame.subject.encode(), frame.header
    yield f"{_hex(data[0:4]):<50}length: {len(data) - 4} bytes follow"
    yield f"{_hex(data[4:5]):<50}type: {frame.type} = {type_name(frame.type)}"
    yield f"{_hex(data[5:21]):<50}msg_id: the job's id"
    yield f"{_hex(data[21:37]):<50}corr_id: none"
    yield f"{_hex(data[37:39]):<50}subject_len: {len(name)}"
    yield f"{_hex(data[39:41]):<50}header_len: {len(header)}"
    for part, text in ((name, "subject"), (header, "header"), (frame.payload, "payload")):
        shown = _hex(part) if len(part) <= 16 else _hex(part[:12]) + " …"
        yield f"{shown:<50}{text}: {part.decode()}"


def main() -> int:
    """Compare the page, or write it."""
    page = PAGE.read_text()
    fresh = rendered(page)
    if fresh != page and "--rewrite" in sys.argv[1:]:
        PAGE.write_text(fresh)
        return 0
    return int(fresh != page)


if __name__ == "__main__":
    sys.exit(main())
