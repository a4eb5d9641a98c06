"""Render the pages of docs/ that follow from the source, so that they cannot disagree with it.

    python -m tests.docs_tables              say which pages are out of date, and exit 1 if any is
    python -m tests.docs_tables --rewrite    write them

docs/errors.md and docs/limits.md are made whole; in docs/log-format.md and docs/operations.md only what
stands between marks is (docs_outputs runs the commands). A limit without a reason, or an event without an
example, is refused here.
"""

import ast
import inspect
import sys
import tokenize
import typing
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rollmq import errors, limits
from rollmq.core import events
from rollmq.core.line import encode_line
from rollmq.pipeline import errors as history_errors
from tests.docs_examples import EXAMPLES
from tests.docs_outputs import with_outputs

DOCS = Path(__file__).resolve().parent.parent / "docs"
EVENTS_BEGIN = "<!-- begin: events, written by python -m tests.docs_tables --rewrite -->"
EVENTS_END = "<!-- end: events -->"
MADE = "<!-- written by python -m tests.docs_tables --rewrite; change the source instead -->"


def main() -> int:
    """Compare or write every page; say which differ."""
    is_rewriting = "--rewrite" in sys.argv[1:]
    stale = {path: text for path, text in pages().items() if _current(path) != text}
    for path, text in stale.items():
        if is_rewriting:
            path.write_text(text)
        print(f"{path.relative_to(DOCS.parent)} {'written' if is_rewriting else 'is out of date'}")
    return 1 if stale and not is_rewriting else 0


def pages() -> dict[Path, str]:
    """Every made page as it should be."""
    log_format, operations = DOCS / "log-format.md", DOCS / "operations.md"
    return {
        DOCS / "errors.md": errors_page(),
        DOCS / "limits.md": limits_page(),
        log_format: with_outputs(with_events(_current(log_format))),
        operations: with_outputs(_current(operations)),
    }


def _current(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# --- errors -----------------------------------------------------------------------------------------


def error_classes() -> list[type[BaseException]]:
    """The classes of rollmq.errors and those of the history, in the order of the source."""
    return [
        value
        for module in (errors, history_errors)
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__.startswith(module.__name__)
    ]


def errors_page() -> str:
    """docs/errors.md: each class with its docstring, which says whether anything changed."""
    lines = [
        "# Errors",
        MADE,
        "Every error that a user can meet, in the words of its class (`rollmq.errors`; those of the history:"
        " `rollmq.pipeline.errors`). All derive from `RollmqError`; the message of each says what happened,"
        " where, what changed and what to do.",
        "| error | what happened, and whether anything changed |\n| --- | --- |\n"
        + "\n".join(f"| `{kind.__name__}` | {_cell(_docstring(kind))} |" for kind in error_classes()),
    ]
    return "\n\n".join(lines) + "\n"


def _docstring(kind: type) -> str:
    text = inspect.cleandoc(kind.__doc__ or "")
    assert text, f"{kind.__name__} has no docstring: what happened, and whether anything changed"
    return text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- limits -----------------------------------------------------------------------------------------


class Limit(NamedTuple):
    """One bound: its name, its value as written and as it is, and why it is that."""

    name: str
    value: Any
    reason: str


def limits_page() -> str:
    """docs/limits.md: each bound with its reason, under the headings of the source."""
    lines = ["# Limits", MADE, _docstring_of(limits)]
    for heading, rows in limits_by_heading(inspect.getsource(limits)):
        table = "\n".join(f"| `{row.name}` | {shown(row.value)} | {_cell(row.reason)} |" for row in rows)
        title, _, remark = heading.partition(". ")
        lines += [f"## {title.rstrip('.')}", *filter(None, [remark])]
        lines += ["| limit | value | reason |\n| --- | --- | --- |\n" + table]
    return "\n\n".join(lines) + "\n"


def _docstring_of(module: Any) -> str:
    return inspect.cleandoc(module.__doc__ or "")


def shown(value: Any) -> str:
    """A value as people read it: thousands set apart."""
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"`{value}`"


def limits_by_heading(source: str) -> Iterator[tuple[str, list[Limit]]]:
    """(comment above, limits under it) in the order of limits.py.

    A bound's reason is the string below it or the comment at its end; comments above it are then a
    heading for it and what follows. Without either, the comment above is the reason.
    """
    comments = _comments(source)
    heading, rows = "General", list[Limit]()
    seen_line = 0
    for node, below in _assignments(source):
        last_line = node.end_lineno or node.lineno
        above = " ".join(comments[line] for line in range(seen_line + 1, node.lineno) if line in comments)
        beside = " ".join(comments[line] for line in range(node.lineno, last_line + 1) if line in comments)
        name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        assert below or beside or above, f"limits.py:{node.lineno}: {name} has no reason beside it"
        if above and (below or beside):
            if rows:
                yield heading, rows
            heading, rows = above, []
        rows.append(Limit(name, getattr(limits, name, None), below or beside or above))
        seen_line = last_line
    if rows:
        yield heading, rows


def _assignments(source: str) -> list[tuple[ast.Assign | ast.AnnAssign, str]]:
    """Every bound with the string below it; of bounds on adjacent lines, the string below the last one."""
    body = ast.parse(source).body
    found: list[tuple[ast.Assign | ast.AnnAssign, str]] = []
    below, below_line = "", -1
    for node in reversed(body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            below, below_line = str(node.value.value), node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            is_adjacent = node.end_lineno == below_line - 1
            below, below_line = (below if is_adjacent else ""), node.lineno
            found.insert(0, (node, below))
    return found


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    return {token.start[0]: token.string.strip("# -=") for token in tokens if token.type == tokenize.COMMENT}


# --- events -----------------------------------------------------------------------------------------


def event_types() -> list[type[events.Event]]:
    """Every struct of the log, in the order of the source."""
    return list(typing.get_args(events.AnyEvent))


def example_of(kind: type[events.Event]) -> events.AnyEvent:
    """The first example of a type."""
    found = next((event for event in EXAMPLES if type(event) is kind), None)
    assert found is not None, f"tests/docs_examples.py has no {kind.__name__}"
    return found


def with_events(page: str) -> str:
    """The page with its part between the marks renewed."""
    assert page.count(EVENTS_BEGIN) == page.count(EVENTS_END) == 1, "docs/log-format.md lost its marks"
    before, _, rest = page.partition(EVENTS_BEGIN)
    _, _, after = rest.partition(EVENTS_END)
    sections = [_event_section(kind) for kind in event_types()]
    sections += [_part_section(kind) for kind in events.Part.__subclasses__()]
    body = "\n\n".join(sections)
    return f"{before}{EVENTS_BEGIN}\n\n{body}\n\n{EVENTS_END}{after}"


def _event_section(kind: type[events.Event]) -> str:
    line = encode_line(example_of(kind)).decode().rstrip("\n")
    section = f"### {kind.__struct_config__.tag}\n\n{_cell(_docstring(kind))}\n\n```json\n{line}\n```"
    return section + _field_table(kind)


def _part_section(kind: type[events.Part]) -> str:
    return f"### The object {kind.__name__}\n\n{_cell(_docstring(kind))}{_field_table(kind)}"


def _field_table(kind: type[msgspec.Struct]) -> str:
    rows = list(_field_rows(kind))
    head = "\n\n| field | JSON | left out when | meaning |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(rows) if rows else ""


def _field_rows(kind: type[msgspec.Struct]) -> Iterator[str]:
    meanings = field_meanings()
    for field in msgspec.structs.fields(kind):
        owner = _owner(kind, field.name)
        if owner != "Event":  # index, term and at_us are in every line
            meaning = _cell(meanings.get((owner, field.name), ""))
            yield f"| `{field.encode_name}` | {_json_type(field.type)} | {_default(field)} | {meaning} |"


def _owner(kind: type, field: str) -> str:
    """The name of the class that declares a field."""
    owners = [base for base in kind.__mro__ if field in inspect.get_annotations(base)]
    return owners[-1].__name__


def field_meanings() -> dict[tuple[str, str], str]:
    """(class, field) -> the string that stands below the field in events.py."""
    meanings: dict[tuple[str, str], str] = {}
    for kind in ast.parse(inspect.getsource(events)).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for node, following in zip(kind.body, kind.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr):
                meanings[kind.name, ast.unparse(node.target)] = ast.literal_eval(following.value)
    return meanings


def _json_type(kind: Any) -> str:
    """A Python type as what a reader of the JSON sees."""
    simple = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "base64 string"}
    if kind in simple:
        return simple[kind]
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        return " or ".join([_json_type(part) for part in arguments if part is not type(None)] + ["null"])
    if kind == events.Fence:
        return "[term, index]"
    if typing.get_origin(kind) is list:
        return f"array of {_json_type(arguments[0])}"
    if typing.get_origin(kind) is dict:
        return "object of strings"
    return kind.__name__ if inspect.isclass(kind) and issubclass(kind, events.Part) else "object"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if field.default is msgspec.NODEFAULT:
        return "never"
    if isinstance(field.default, msgspec.Struct):
        return "all zero"
    return f"`{msgspec.json.encode(field.default).decode()}`"


if __name__ == "__main__":
    sys.exit(main())
