"""The rules that tests/test_architecture.py keeps, as functions from source to violations.

Each takes parsed or plain text and returns (line, what) pairs, so that each can be seen to fail on a
planted snippet. They may not import rollmq: a rule must hold even where the code does not import.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
FUNCTION_LINES_MEDIAN_MAX = 12
TEST_NAME_WORDS_MIN = 3
"""Behind `test_`: fewer cannot say what holds when."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


EVERYBODY = frozenset({"errors", "limits", "compiled"})
USER_SIDE = frozenset({"client", "sync", "worker", "tasks", "library"})
# Which rooms a room may import, besides itself and EVERYBODY. A room is the first name after `rollmq`.
MAY_IMPORT = {
    "errors": frozenset(),
    "limits": frozenset(),
    "compiled": frozenset(),
    "core": frozenset(),
    "wire": frozenset({"core"}),
    "store": frozenset({"core"}),
    "node": frozenset({"core", "wire", "store"}),
    "client": USER_SIDE | {"core", "wire"},
    "library": frozenset({"core", "wire"}),
    "sync": USER_SIDE | {"core", "wire"},
    "worker": USER_SIDE | {"core", "wire"},
    "tasks": USER_SIDE,
    "console": frozenset({"core", "wire", "node", "client"}),
    "testing": USER_SIDE | {"core", "wire", "store", "node"},
    "pytest_plugin": frozenset({"testing"}),
    "pipeline": USER_SIDE | {"core"},
    "cli": USER_SIDE | {"core", "wire", "store", "node", "console", "testing", "pipeline"},
    "__init__": USER_SIDE,
    "__main__": frozenset({"cli"}),
}

# What a room of ours may take from other people's packages. Nothing is taken that is not named here.
THIRD_PARTY = {
    "cli": frozenset({"msgspec", "click", "rich", "uvloop"}),
    "node": frozenset({"msgspec", "uvloop", "fsspec"}),
    "library": frozenset({"msgspec", "uvloop"}),
    "compiled": frozenset({"mypy_extensions"}),
    "pytest_plugin": frozenset({"pytest"}),
    "console": frozenset({"msgspec", "starlette", "uvicorn", "prometheus_client"}),
    "pipeline": frozenset({"msgspec", "pyspark", "pandas", "pyarrow", "py4j", "fsspec", "deltalake"}),
}
THIRD_PARTY_DEFAULT = frozenset({"msgspec"})

# Clocks, chance, the outside world and concurrency: handed in to pure code, or kept out of it.
IMPURE = _names(
    "asyncio concurrent contextvars datetime fcntl getpass glob http importlib io locale logging mmap"
    " multiprocessing os pathlib platform queue random resource sched secrets select selectors shutil"
    " signal socket socketserver sqlite3 ssl subprocess sys tempfile threading time urllib uuid"
)
FORBIDDEN_STDLIB = {
    "core": IMPURE,
    "wire": IMPURE,
    "store": frozenset({"asyncio", "random", "socket", "threading", "logging"}),
    "errors": IMPURE - {"pathlib"},
    "limits": IMPURE,
}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "breakpoint"})

MUTABLE_CALLS = _names(
    "list dict set bytearray defaultdict deque OrderedDict Counter ChainMap array count cycle iter"
    " SimpleNamespace WeakKeyDictionary WeakValueDictionary Lock RLock Event Queue ContextVar"
)
# Callees whose results may be module-level names in lower case: they hold nothing that changes.
VALUE_CALLS = _names(
    "tuple frozenset MappingProxyType TypeVar ParamSpec NewType namedtuple NamedTuple Literal compile"
    " Struct getLogger Encoder Decoder attrgetter itemgetter partial Path int str bytes float"
)
READ_ONLY_TYPES = frozenset({"Final", "Mapping", "Sequence", "tuple", "frozenset", "Set", "TypeAlias"})

# Spelt in pieces, so that this file passes its own rule.
WORDS_FOR_LATER = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
MACHINE_PATHS = re.compile(
    r"(?<![\w/.<-])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me")) + r")(?![\w-])"
)
REGISTRY_HOSTS = re.compile(
    "|".join(("py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.org", "anaconda" + r"\.org"))
)
# Papers that the project was planned with; they are not in the repository, so nobody could look them up.
FOREIGN_PAPERS = re.compile(r"\b(?:" + "|".join(("SP" + "EC", "HO" + "USE", "ANCH" + "ORS")) + r")\b")


class Violation(NamedTuple):
    """Where a rule is broken and how."""

    line: int
    what: str


def room_of(path: Path) -> str:
    """The room of a file under src/rollmq: its package, or its own name at the top."""
    parts = path.relative_to(ROOT / "src" / "rollmq").parts
    return parts[0].removesuffix(".py")


def python_files(*folders: str) -> list[Path]:
    """Every Python file under these folders of the project, in order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tracked_files() -> list[Path]:
    """Every file of the project that git tracks; without git (an unpacked sdist), every file but caches."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        found = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        hidden = {".venv", "__pycache__", ".git"}
        found = [path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file()]


def _imports(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """(line, module, is relative) of every import, at whatever depth it hides."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "rollmq":
                yield from ((node.lineno, f"rollmq.{alias.name}", False) for alias in node.names)
            else:
                yield node.lineno, node.module or "", node.level > 0


def import_violations(tree: ast.AST, room: str) -> Iterator[Violation]:
    """Wrong directions: between rooms, to other people's packages, to impure modules."""
    allowed_rooms = MAY_IMPORT[room] | EVERYBODY if room not in EVERYBODY else frozenset()
    allowed_packages = THIRD_PARTY.get(room, THIRD_PARTY_DEFAULT)
    for line, module, is_relative in _imports(tree):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if is_relative:
            yield Violation(line, "relative import: write it out from rollmq")
        elif top == "rollmq":
            if target != room and target not in allowed_rooms and target != "__version__":
                yield Violation(line, f"{room} may not import rollmq.{target}")
        elif top in FORBIDDEN_STDLIB.get(room, ()):
            yield Violation(line, f"{room} may not import {top}: hand in what it gives")
        elif top not in sys.stdlib_module_names and top not in allowed_packages:
            yield Violation(line, f"{room} may not import the package {top}")


def impure_call_violations(tree: ast.AST) -> Iterator[Violation]:
    """Built-ins that reach outside, in a room that may not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield Violation(node.lineno, f"{node.func.id}() in pure code")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the last one, docstring included, decorators not."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def size_violations(text: str) -> Iterator[Violation]:
    """Functions and files that a reader cannot hold in the head."""
    lines_count = len(text.splitlines())
    if lines_count > FILE_LINES_MAX:
        yield Violation(lines_count, f"{lines_count} lines, at most {FILE_LINES_MAX}")
    for node in functions(ast.parse(text)):
        if function_lines(node) > FUNCTION_LINES_MAX:
            yield Violation(
                node.lineno, f"{node.name} has {function_lines(node)} lines, at most {FUNCTION_LINES_MAX}"
            )


def docstring_violations(tree: ast.Module) -> Iterator[Violation]:
    """A module that does not say its duty. An empty __init__.py has none."""
    if tree.body and not ast.get_docstring(tree):
        yield Violation(1, "no module docstring: its duty in a sentence, then what it may not do")


def _callee(node: ast.expr) -> str:
    """The last name of what is called: `deque` of collections.deque(...)."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _callee(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _is_read_only(annotation: ast.expr | None) -> bool:
    """Whether the annotation keeps mypy from letting anybody change the value or the name."""
    if annotation is None:
        return False
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(annotation) if isinstance(node, ast.Attribute)}
    return bool(names & READ_ONLY_TYPES)


def _is_mutable(value: ast.expr, *, is_constant: bool) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    callee = _callee(value.func)
    return callee in MUTABLE_CALLS or (not is_constant and callee not in VALUE_CALLS)


def _assignment_violations(node: ast.Assign | ast.AnnAssign) -> Iterator[Violation]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    is_constant = bool(names) and all(name.isupper() for name in names)
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    is_excepted = "__all__" in names or (is_constant and _is_read_only(annotation))
    if node.value is not None and not is_excepted and _is_mutable(node.value, is_constant=is_constant):
        name = ", ".join(names) or ast.unparse(targets[0])
        yield Violation(
            node.lineno, f"{name} is mutable state of the module (or write NAME: Final[Mapping[…]])"
        )


def _is_main_or_typing_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = ast.unparse(node.test)
    return "__name__" in test or "TYPE_CHECKING" in test or "sys.platform" in test or "sys.version" in test


def _adds_command(node: ast.Expr) -> bool:
    """`main.add_command(log)`: how a command group of this very module gets its members."""
    return isinstance(node.value, ast.Call) and _callee(node.value.func) == "add_command"


def module_state_violations(tree: ast.Module) -> Iterator[Violation]:
    """Module-level state that can change, and statements that make an import have an effect."""
    harmless = (
        ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert
    )
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _assignment_violations(node)
        elif isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _adds_command(node)):
            continue  # a docstring, also of the name above it
        elif not isinstance(node, harmless) and not _is_main_or_typing_guard(node):
            yield Violation(node.lineno, "a statement that runs at import")
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Global):
            yield Violation(inner.lineno, "global: the module has state")


def _does_nothing(node: ast.stmt) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant or isinstance(node, ast.Pass | ast.Continue)


def except_violations(tree: ast.AST) -> Iterator[Violation]:
    """Errors that vanish: bare, silent, or everything at once without passing it on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _suppresses_everything(node):
            yield Violation(node.lineno, "suppress() of every exception")
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield Violation(node.lineno, "bare except")
        elif all(_does_nothing(statement) for statement in node.body):
            yield Violation(node.lineno, "silent except: use contextlib.suppress() and say why")
        elif _callee(node.type) in {"Exception", "BaseException"} and not _passes_on(node):
            yield Violation(node.lineno, "except of everything that does not raise again")


def _suppresses_everything(node: ast.Call) -> bool:
    caught = {_callee(argument) for argument in node.args}
    return _callee(node.func) == "suppress" and bool(caught & {"Exception", "BaseException"})


def _passes_on(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def test_habit_violations(tree: ast.AST) -> Iterator[Violation]:
    """Names that say nothing; sleeping, skipping, expecting to fail: a test waits for a fact, and runs."""
    sleepers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name == "sleep"
    }
    for function in functions(tree):
        if function.name.startswith("test_") and len(function.name.split("_")) <= TEST_NAME_WORDS_MIN:
            yield Violation(function.lineno, f"{function.name} is no sentence: say what holds")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", *sleepers}:
            yield Violation(node.lineno, "sleep in a test: wait for a fact, or hand in a clock")
        if isinstance(node, ast.Attribute) and node.attr in {"skip", "skipif", "xfail", "importorskip"}:
            yield Violation(node.lineno, f"{node.attr} in a test")


def text_violations(text: str) -> Iterator[Violation]:
    """What no tracked file may hold: notes for later, registry hosts, paths of somebody's machine."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := WORDS_FOR_LATER.search(line):
            yield Violation(number, f"{found.group()}: do it now, or open an issue")
        if found := FOREIGN_PAPERS.search(line):
            yield Violation(
                number, f"cites {found.group()}, which is not here: docs/rules.md has the numbers"
            )
        if found := REGISTRY_HOSTS.search(line):
            yield Violation(number, f"names the registry {found.group()}")
        if found := MACHINE_PATHS.search(line):
            yield Violation(number, f"{found.group()}: a path of one machine")
