"""The examples of docs/testing.md are tests, and pass as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_every_example_of_the_page_about_testing_runs(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 4
    for number, example in enumerate(examples):
        (tmp_path / f"test_{number}.py").write_text(example)
    tests_count = sum(example.count("\ndef test_") + example.startswith("def test_") for example in examples)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert f"{tests_count} passed" in done.stdout, done.stdout + done.stderr
