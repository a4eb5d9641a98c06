"""What a user meets is documented: events, messages, errors, limits, commands. The made pages are current."""

import re
import typing
from collections.abc import Iterator

import click
import pytest

from rollmq import limits
from rollmq.cli.main import main as rollmq_command
from rollmq.core.effects import AnyEffect
from rollmq.core.events import SnapshotMarker
from rollmq.core.line import LineDamaged, decode_line
from rollmq.core.machine import Machine
from rollmq.wire.message import MsgType
from tests import docs_tables
from tests.docs_examples import EXAMPLES
from tests.house_rules import python_files

DOCS = docs_tables.DOCS
LITERAL_LINE = re.compile(r'^```json\n(\{"crc":"[0-9a-f]{8}","type":.*\})\n```$', re.MULTILINE)
ALIASES = {"leader": "serve"}
"""Commands that are another by a second name."""
SHARED = {"--server", "--timeout", "--json"}
"""Options of every command that asks a node: documented once, in the section of that name."""
CITATION = re.compile(r"\b([Rr]ule|[Pp]itfall)s? (\d+)(?: and (\d+))?")
RENEW = "run: .venv/bin/python -m tests.docs_tables --rewrite"


def _literal_lines() -> list[str]:
    found = LITERAL_LINE.findall((DOCS / "log-format.md").read_text())
    return [line for line in found if "…" not in line]


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that can be run, with the words that run it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            if name not in ALIASES:
                yield from _commands(inner, f"{path} {name}")
    else:
        yield path, command


def _is_documented(word: str, page: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", page) is not None


@pytest.mark.parametrize("name", ["errors.md", "limits.md", "log-format.md", "operations.md"])
def test_the_made_pages_are_current(name: str) -> None:
    assert (DOCS / name).read_text() == docs_tables.pages()[DOCS / name], RENEW


def test_every_event_type_has_a_literal_line_that_decodes() -> None:
    shown = {type(decode_line(line.encode() + b"\n")) for line in _literal_lines()}
    assert shown == set(docs_tables.event_types())


def test_every_literal_line_would_be_refused_with_another_byte() -> None:
    for line in _literal_lines():
        damaged = line.replace('"index":', '"indeX":', 1).encode() + b"\n"
        with pytest.raises(LineDamaged):
            decode_line(damaged)


def test_the_story_of_the_examples_is_a_log_that_a_correct_leader_could_write() -> None:
    machine = Machine()
    for event in EXAMPLES:
        machine.apply(event)
    assert machine.no_ops == 0
    marker = EXAMPLES[-1]
    assert isinstance(marker, SnapshotMarker)
    assert marker.counts == machine.counts()


def test_every_message_type_stands_in_the_protocol_page() -> None:
    page = (DOCS / "protocol.md").read_text()
    missing = [kind.name for kind in MsgType if not _has_row(page, kind.value, kind.name)]
    assert missing == []


def _has_row(page: str, code: int, name: str) -> bool:
    """Whether one line of the page names the type together with its code."""
    wanted = name.replace("_", "").lower()
    lines = (line for line in page.splitlines() if re.search(rf"\b{code}\b", line))
    return any(wanted in re.sub(r"[^a-z0-9]", " ", line.lower()).split() for line in lines)


def test_every_error_and_every_limit_stands_in_its_page() -> None:
    errors_page, limits_page = docs_tables.errors_page(), docs_tables.limits_page()
    assert "`RollmqError`" in errors_page
    assert all(f"`{kind.__name__}`" in errors_page for kind in docs_tables.error_classes())
    names = [name for name in vars(limits) if name.isupper()]
    assert names
    assert all(f"`{name}`" in limits_page for name in names)


def test_every_error_says_whether_anything_changed() -> None:
    bases = {kind.__mro__[1] for kind in docs_tables.error_classes()}
    saying = re.compile(
        r"\b(chang|unknown|not sent|was sent|did not|not know|dropped|safe|stop|nothing|base)", re.I
    )
    silent = [
        kind.__name__
        for kind in docs_tables.error_classes()
        if kind not in bases and not saying.search(kind.__doc__ or "")
    ]
    assert silent == []


def test_every_command_and_each_of_its_options_is_documented() -> None:
    page = (DOCS / "operations.md").read_text()
    missing = []
    for path, command in _commands(rollmq_command, "rollmq"):
        section = _section_of(page, path)
        options = [max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)]
        shared = SHARED if "--server" in options else set()
        missing += [path] * (not section)
        missing += [
            f"{path} {option}"
            for option in options
            if option not in shared and not _is_documented(option, section)
        ]
    asking = _section_of(page, "Asking a node")
    assert missing == []
    assert [option for option in SHARED if not _is_documented(option, asking)] == []


def test_an_alias_is_the_very_command_that_it_stands_for() -> None:
    for alias, name in ALIASES.items():
        assert rollmq_command.commands[alias] is rollmq_command.commands[name]
        assert _is_documented(f"rollmq {alias}", (DOCS / "operations.md").read_text())


def _section_of(page: str, command: str) -> str:
    """The text from the heading that names a command to the next heading."""
    found = re.search(rf"^#+ `?{re.escape(command)}\b.*?(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    return found.group() if found else ""


def test_every_link_between_our_pages_leads_somewhere() -> None:
    broken = []
    for path in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text()):
            if not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_every_rule_and_pitfall_that_the_code_cites_can_be_looked_up() -> None:
    rules, pitfalls = (DOCS / "rules.md").read_text().split("## Pitfalls of Raft")
    known = {"rule": _numbers_of(rules), "pitfall": _numbers_of(pitfalls)}
    unknown = []
    for path in python_files("src", "tests"):
        for kind, first, second in CITATION.findall(path.read_text()):
            unknown += [
                f"{path.name}: {kind} {number}"
                for number in filter(None, (first, second))
                if int(number) not in known[kind.lower()]
            ]
    assert known["rule"] == set(range(1, 10))
    assert unknown == []


def test_every_page_that_the_code_cites_is_there() -> None:
    paths = [*python_files("src", "tests", "bench"), DOCS.parent / "hatch_build.py", DOCS.parent / "Makefile"]
    missing = [
        f"{path.name}: {page}"
        for path in paths
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
        if not (DOCS.parent / page).exists()
    ]
    assert missing == []


def test_every_effect_has_a_row_that_says_what_covers_its_loss() -> None:
    page = (DOCS / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]{20,} \|$", page, re.MULTILINE)
    assert set(rows) == {kind.__name__ for kind in typing.get_args(AnyEffect)}


def test_every_module_of_the_core_has_its_place_in_the_reading_order() -> None:
    page = (DOCS / "architecture.md").read_text()
    order = page[page.index("Reading order of `core/`") : page.index("Then, by what you want to know")]
    modules = {path.stem for path in python_files("src/rollmq/core")} - {"__init__"}
    assert modules == set(re.findall(r"`(\w+)`", order)), "each module of core/, and no other"


def _numbers_of(page: str) -> set[int]:
    return {int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)}


def test_every_make_target_stands_in_the_contributing_page() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (DOCS.parent / "Makefile").read_text(), re.MULTILINE)
    page = (DOCS.parent / "CONTRIBUTING.md").read_text()
    assert len(targets) >= 10
    assert [target for target in targets if f"make {target}" not in page] == []


# --- the checks themselves fail when something is missing ----------------------------------------------


def test_a_limit_without_a_reason_is_refused() -> None:
    with pytest.raises(AssertionError, match="FRAMES_MAX has no reason"):
        list(docs_tables.limits_by_heading('"""Bounds."""\n\nFRAMES_MAX: Final = 3\n'))


def test_the_reason_of_a_limit_is_found_below_beside_and_above() -> None:
    source = (
        '# Wire. In bytes.\nA_MAX = 1\n"""below"""\nB_MAX = 2  # beside\n\n# above\nC_MAX = 3\n\n'
        'D_MAX = 4\nE_MAX = 5\n"""shared"""\n'
    )
    [(heading, rows)] = docs_tables.limits_by_heading(source)
    assert heading == "Wire. In bytes."
    assert [row.reason for row in rows] == ["below", "beside", "above", "shared", "shared"]


def test_a_message_type_is_missed_when_only_part_of_its_name_or_code_is_there() -> None:
    assert _has_row("| 3 | `SubmitJob` | client |", 3, "SUBMIT_JOB")
    assert not _has_row("| 3 | `SubmitJobs` | client |", 3, "SUBMIT_JOB")
    assert not _has_row("| 13 | `SubmitJob` | client |", 3, "SUBMIT_JOB")


def test_an_option_is_missed_when_another_only_begins_like_it() -> None:
    assert not _is_documented("--json", "use `--json-lines`")
    assert _is_documented("--json", "use `--json`.")


def test_an_event_without_an_example_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_tables, "EXAMPLES", EXAMPLES[:1] + EXAMPLES[2:])
    with pytest.raises(AssertionError, match="has no Members"):
        docs_tables.with_events(f"{docs_tables.EVENTS_BEGIN}{docs_tables.EVENTS_END}")
