"""The README keeps its word: its task and caller run as they stand, the demo tells what is shown there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from rollmq.cli.demo.command import rows
from rollmq.cli.demo.proof import Figures
from tests.cli.running import PATIENCE_S, clean_env, running_node
from tests.house_rules import ROOT

PAGE = (ROOT / "README.md").read_text()
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
CALLER_OUTPUT = re.compile(r"\$ python caller\.py\n(.*?)\n```", re.DOTALL)
LINES_MAX = 15


def _start(folder: Path, server: str, *words: str) -> "subprocess.Popen[str]":
    env = clean_env(ROLLMQ_SERVER=server, PYTHONPATH=os.fspath(ROOT / "src"))
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def test_the_typed_task_and_its_caller_print_what_the_readme_says(tmp_path: Path) -> None:
    files = dict(FILE.findall(PAGE))
    assert set(files) == {"tasks.py", "caller.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (shown,) = CALLER_OUTPUT.findall(PAGE)
    with running_node(tmp_path / "state") as node:
        worker = _start(tmp_path, node.server, "-m", "rollmq", "worker", "--app", "tasks:app")
        try:
            caller = _start(tmp_path, node.server, "caller.py")
            output, _ = caller.communicate(timeout=PATIENCE_S)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=PATIENCE_S)
    assert output.strip() == shown
    assert worker.returncode == 0


def test_task_and_caller_fit_into_fifteen_lines() -> None:
    lines = [line for _, text in FILE.findall(PAGE) for line in text.splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX


def test_the_demos_table_is_the_one_that_the_readme_shows() -> None:
    figures = Figures(1, 1, 0, 0, {"poison": 1}, 0, 0, 0, 0, 1, 1)
    for name, _, meaning in rows(figures):
        shown = re.search(rf"^{name} +[\d,]+(?: ms)? +(.*?) *$", PAGE, re.MULTILINE)
        assert shown is not None, name
        assert shown[1].partition(":")[0] == meaning.partition(":")[0]


def test_the_figures_beside_other_queues_are_those_of_the_page_about_performance() -> None:
    lines = (ROOT / "docs" / "performance.md").read_text().splitlines()
    shown = re.findall(r"^\| (.+?) \| ([\d,]+ /s) \|$", PAGE, re.MULTILINE)
    assert len(shown) == 7
    for name, rate in shown:
        assert any(line.startswith(f"| {name} |") and f"| {rate} |" in line for line in lines), name
