"""Every example of the client's half of docs/library.md runs as it stands, and prints what it says."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE_S, clean_env, running_node

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
WORKER = PAGE.read_text().partition("<!-- file: examples.py -->\n```python\n")[2].partition("```")[0]
HALF = PAGE.read_text().partition("\n## Clients\n")[2].partition("\n## ")[0]


def _examples() -> list[tuple[str, str]]:
    """Heading and source of each."""
    found = []
    for section in HALF.split("\n### ")[1:]:
        for block in section.split("```python\n")[1:]:
            found.append((section.splitlines()[0], block.partition("```")[0]))
    return found


EXAMPLES = _examples()
PRINTS = {
    "Submitting, from a program with an event loop": ["True b'hello' 1"],
    "The three ways a submit ends": ["True True"],
    "Many jobs": ["499500", "b'high'", "b'low'"],
    "Looking, cancelling, progress": ["no_worker", "cancelled", "b'counted'"],
    "Threads, Django, Flask, prefork servers": ["b'hello'"],
    "Secrets and size: `codec=`": ["True"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_node(tmp_path_factory.mktemp("node") / "state") as node:
        folder = tmp_path_factory.mktemp("examples")
        (folder / "examples.py").write_text(WORKER)
        words = [sys.executable, "-m", "rollmq", "worker", "--app", "examples:worker"]
        worker = subprocess.Popen(
            words, cwd=folder, env=clean_env(ROLLMQ_SERVER=node.server), stderr=subprocess.DEVNULL
        )
        yield node.server
        worker.terminate()
        worker.wait(PATIENCE_S)


@pytest.mark.parametrize(("heading", "source"), EXAMPLES, ids=[heading for heading, _ in EXAMPLES])
def test_an_example_runs_as_it_stands(
    heading: str, source: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLMQ_SERVER", server)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, f"{PAGE.name}: {heading}", "exec"), {"__name__": "example"})
    for line in PRINTS.get(heading, []):
        assert line in printed.getvalue()


def test_every_example_is_known_to_this_test() -> None:
    assert HALF.count("```python") == len(EXAMPLES) + 1 == 7, "and the worker"
    assert set(PRINTS) <= {heading for heading, _ in EXAMPLES}
