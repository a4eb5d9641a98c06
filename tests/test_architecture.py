"""The house rules hold in the whole tree, and each rule is seen to fail on a planted snippet."""

import ast
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import house_rules as rules
from tests.house_rules import Violation

SOURCES = rules.python_files("src/rollmq")
TESTS = rules.python_files("tests", "bench")

# `except Exception` belongs at the two edges: the task supervisor and the runner of handlers.
# A line here is a decision; each names the file and why everything is caught there.
BROAD_EXCEPT_ALLOWED: dict[str, str] = {
    "src/rollmq/node/store_thread.py": "a thread's death must not pass unseen: the loop stops the node",
    "src/rollmq/library/handling.py": "what a handler raises is its job's outcome",
}


def _report(path: Path, violations: Iterator[Violation]) -> list[str]:
    return [f"{path.relative_to(rules.ROOT)}:{line}: {what}" for line, what in violations]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _all_of(paths: list[Path], rule: Callable[[ast.Module], Iterator[Violation]]) -> list[str]:
    return [line for path in paths for line in _report(path, rule(_parsed(path)))]


def test_imports_point_the_way_the_house_says() -> None:
    found = [
        line
        for path in SOURCES
        for line in _report(path, rules.import_violations(_parsed(path), rules.room_of(path)))
    ]
    assert found == []


def test_core_and_wire_reach_nothing_outside() -> None:
    pure = [path for path in SOURCES if rules.room_of(path) in {"core", "wire", "errors", "limits"}]
    assert _all_of(pure, rules.impure_call_violations) == []


def test_no_function_and_no_file_outgrows_a_reader() -> None:
    found = [
        line for path in SOURCES + TESTS for line in _report(path, rules.size_violations(path.read_text()))
    ]
    assert found == []


def test_the_median_function_is_short() -> None:
    lengths = [rules.function_lines(node) for path in SOURCES for node in rules.functions(_parsed(path))]
    assert statistics.median(lengths) <= rules.FUNCTION_LINES_MEDIAN_MAX


def test_every_module_says_its_duty() -> None:
    assert _all_of(SOURCES + TESTS, rules.docstring_violations) == []


def test_no_module_of_ours_has_state_or_an_effect_on_import() -> None:
    assert _all_of(SOURCES, rules.module_state_violations) == []


def test_no_error_may_vanish() -> None:
    found = [
        line
        for path in SOURCES + TESTS
        for line in _report(path, rules.except_violations(_parsed(path)))
        if "everything" not in line or str(path.relative_to(rules.ROOT)) not in BROAD_EXCEPT_ALLOWED
    ]
    assert found == []


def test_no_test_sleeps_or_is_left_out_or_has_a_name_that_says_nothing() -> None:
    assert (
        _all_of([path for path in TESTS if path.name != "house_rules.py"], rules.test_habit_violations) == []
    )


def test_no_tracked_file_holds_a_note_for_later_a_registry_or_a_machine_path() -> None:
    found = []
    for path in rules.tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            assert "data" in path.parts, f"{path} is no text and lies outside tests/data"
            continue
        found += _report(path, rules.text_violations(text))
    assert found == []


def test_the_rules_see_the_files_they_are_for() -> None:
    rooms = {rules.room_of(path) for path in SOURCES}
    assert {"core", "wire", "store", "errors", "limits"} <= rooms
    assert rooms <= set(rules.MAY_IMPORT)


# --- each rule fails once ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "snippet"),
    [
        ("core", "import asyncio"),
        ("core", "import os.path"),
        ("core", "from time import monotonic"),
        ("core", "def f():\n    import random"),
        ("core", "from rollmq.store.wal import Wal"),
        ("core", "from rollmq import store"),
        ("core", "import click"),
        ("wire", "import socket"),
        ("wire", "import rollmq.store.wal"),
        ("wire", "from uuid import uuid4"),
        ("store", "import asyncio"),
        ("store", "from rollmq.wire.codec import encode"),
        ("store", "from rollmq.node.leader import Leader"),
        ("client", "from rollmq.store.wal import Wal"),
        ("client", "from rollmq.node.leader import Leader"),
        ("pipeline", "from rollmq.store.wal import Wal"),
        ("node", "import pyspark"),
        ("errors", "from rollmq.core.events import Event"),
        ("limits", "from rollmq.errors import RollmqError"),
        ("core", "from .line import seal"),
    ],
)
def test_a_wrong_import_is_found(room: str, snippet: str) -> None:
    assert len(list(rules.import_violations(ast.parse(snippet), room))) == 1


@pytest.mark.parametrize(
    ("room", "snippet"),
    [
        ("core", "import zlib, heapq\nimport msgspec\nfrom rollmq.core.line import seal"),
        ("core", "from rollmq.errors import RollmqError\nfrom rollmq import limits"),
        ("wire", "from rollmq.core.subject import Pattern"),
        ("store", "import os\nfrom rollmq.core.machine import Machine"),
        ("cli", "import click\nfrom rollmq.store.wal import Wal\nfrom rollmq import __version__"),
        ("errors", "from pathlib import Path"),
    ],
)
def test_a_right_import_is_let_through(room: str, snippet: str) -> None:
    assert list(rules.import_violations(ast.parse(snippet), room)) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "CACHE = {}",
        "CACHE: dict[str, int] = {}",
        "names = []",
        "SEEN = set()",
        "SEEN = collections.deque()",
        "SQUARES = [n * n for n in range(9)]",
        "counter = itertools.count()",
        "machine = Machine()",
        "print('imported')",
        "for name in NAMES:\n    register(name)",
        "def f():\n    global total",
        "names: Sequence[str] = ['a']",
    ],
)
def test_state_of_a_module_is_found(snippet: str) -> None:
    assert len(list(rules.module_state_violations(ast.parse(snippet)))) == 1


@pytest.mark.parametrize(
    "snippet",
    [
        "BOUND_US = 5 * 1_000_000",
        "NAMES = ('a', 'b')",
        "NAMES = frozenset({'a', 'b'})",
        "TABLE: Final[Mapping[str, int]] = {'a': 1}",
        "TABLE: Mapping[str, int] = {'a': 1}",
        "_encode = msgspec.json.Encoder().encode",
        "_decoder = msgspec.json.Decoder(Event)",
        "EMPTY = Counts()",
        "__all__ = ['Client']",
        "'''the name above'''",
        "if TYPE_CHECKING:\n    import x",
        "if __name__ == '__main__':\n    main()",
    ],
)
def test_values_of_a_module_are_let_through(snippet: str) -> None:
    assert list(rules.module_state_violations(ast.parse(snippet))) == []


@pytest.mark.parametrize(
    "body",
    [
        "except:\n    recover()",
        "except ValueError:\n    pass",
        "except ValueError:\n    ...",
        "except Exception as error:\n    log(error)",
    ],
)
def test_a_vanishing_error_is_found(body: str) -> None:
    assert len(list(rules.except_violations(ast.parse(f"try:\n    work()\n{body}")))) == 1


def test_suppressing_everything_is_found() -> None:
    assert list(rules.except_violations(ast.parse("with contextlib.suppress(Exception):\n    work()")))


@pytest.mark.parametrize(
    "body",
    [
        "except ValueError as error:\n    raise LineDamaged('x') from error",
        "except Exception:\n    close()\n    raise",
        "except OSError:\n    return None",
    ],
)
def test_a_handled_error_is_let_through(body: str) -> None:
    assert list(rules.except_violations(ast.parse(f"def f():\n try:\n    work()\n {body}"))) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "import time\ntime.sleep(1)",
        "from time import sleep\nsleep(1)",
        "from time import sleep as nap\nnap(1)",
        "pytest.skip('later')",
        "@pytest.mark.xfail\ndef test_a_job_is_not_lost(): ...",
        "def test_requeue(): ...",
        "class TestQueue:\n    def test_it_works(self): ...",
        "pytest.importorskip('pyspark')",
    ],
)
def test_a_lazy_test_is_found(snippet: str) -> None:
    assert len(list(rules.test_habit_violations(ast.parse(snippet)))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "FIX" + "ME",
        "SP" + "EC section 3",
        "see https://py" + "pi.org/project/rollmq",
        "cd /ro" + "ot/project",
        'path = "/ho' + 'me/me"',
        "in /wo" + "rk, say",
    ],
)
def test_text_that_no_file_may_hold_is_found(line: str) -> None:
    assert len(list(rules.text_violations(line))) == 1


@pytest.mark.parametrize(
    "line", ["submit/wo" + "rk/ack", "the client/wo" + "rker pair", "a method", "DOTODO"]
)
def test_innocent_text_is_let_through(line: str) -> None:
    assert list(rules.text_violations(line)) == []


def test_a_long_function_and_a_long_file_are_found() -> None:
    long_function = "def f():\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX
    assert "f has 71 lines" in next(rules.size_violations(long_function)).what
    assert "501 lines" in next(rules.size_violations("x = 1\n" * (rules.FILE_LINES_MAX + 1))).what
    assert list(rules.size_violations("def f():\n" + "    x = 1\n" * (rules.FUNCTION_LINES_MAX - 1))) == []


def test_a_module_without_a_docstring_is_found() -> None:
    assert list(rules.docstring_violations(ast.parse("x = 1")))
    assert list(rules.docstring_violations(ast.parse('"""Duty."""\nx = 1'))) == []
    assert list(rules.docstring_violations(ast.parse(""))) == []


def test_an_impure_call_is_found() -> None:
    assert len(list(rules.impure_call_violations(ast.parse("f = open('x')\nprint(f)")))) == 2
