"""Which tests hold which pitfall of docs/rules.md: python -m tests.raft_paper.pitfalls prints the table.

A test holds a pitfall whose number stands in its own text (docstring or comments), or in a scenario's file.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
RULES = TESTS.parent / "docs" / "rules.md"
CITATION = re.compile(r"[Pp]itfalls? (\d+(?:(?:, | and )\d+)*)")


def pitfalls() -> dict[int, str]:
    """Every pitfall by its number, as the page says it."""
    page = RULES.read_text().partition("## Pitfalls of Raft")[2]
    found = re.findall(r"^(\d+)\. (.+(?:\n   +.+)*)", page, re.MULTILINE)
    return {int(number): " ".join(text.split()) for number, text in found}


def cited_in(text: str) -> set[int]:
    """The numbers that a text names."""
    return {int(number) for group in CITATION.findall(text) for number in re.findall(r"\d+", group)}


def _texts() -> Iterator[tuple[str, str]]:
    """Every test with its own text."""
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if not CITATION.search(text):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(TESTS)}::{node.name}", ast.get_source_segment(text, node) or ""
    for path in sorted(TESTS.glob("scenarios/*/*.txt")):
        yield str(path.relative_to(TESTS)), path.read_text()


def held_by() -> dict[int, list[str]]:
    """For each number the tests that name it."""
    found: dict[int, list[str]] = {number: [] for number in pitfalls()}
    for name, text in _texts():
        for number in cited_in(text):
            found[number].append(name)
    return found


def main() -> None:
    """Print the table."""
    texts = pitfalls()
    for number, names in held_by().items():
        print(f"{number}. {texts[number]}")
        for name in names:
            print(f"     {name}")


if __name__ == "__main__":
    main()
