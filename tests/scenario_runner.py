"""Scenario files: commands and, under `----`, the transcript that they must give.

A file is prose (lines that begin with #) and sections; a section is some command lines, a line `----`, and
the transcript up to the next blank line. `pytest --rewrite` puts what happened into the file: review the
diff before you commit it, the transcript must be what the rule says. It knows no commands: whoever runs a
file hands in what a section's commands do.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

RULE = "----"


class Section(NamedTuple):
    """Some commands and what they should give; `line` is that of the first command."""

    line: int
    commands: list[str]
    expected: list[str]


class Prose(NamedTuple):
    """A comment or a blank line, kept as it is."""

    text: str


def parse(text: str) -> Iterator[Section | Prose]:
    """The parts of a scenario file, in order."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            yield Prose(lines[at])
            at += 1
            continue
        first = at
        while at < len(lines) and lines[at] != RULE:
            assert lines[at].strip(), (
                f"line {at + 1}: the section that begins at line {first + 1} has no {RULE}"
            )
            at += 1
        commands = lines[first:at]
        at += 1
        begin = at
        while at < len(lines) and lines[at].strip():
            at += 1
        yield Section(first + 1, commands, lines[begin:at])


def run_file(path: Path, run: Callable[[list[str]], list[str]], *, rewrite: bool) -> None:
    """Run every section in order; fail at the first that gives another transcript, or renew the file."""
    renewed: list[str] = []
    for part in parse(path.read_text()):
        if isinstance(part, Prose):
            renewed.append(part.text)
            continue
        given = run(part.commands)
        renewed += [*part.commands, RULE, *given]
        if not rewrite and given != part.expected:
            name = f"{path.parent.name}/{path.name}"
            difference = "\n".join(_difference(part.expected, given))
            pytest.fail(f"{name}:{part.line}: {'; '.join(part.commands)}\n{difference}", pytrace=False)
    if rewrite:
        path.write_text("\n".join(renewed) + "\n")


def _difference(expected: list[str], given: list[str]) -> Iterator[str]:
    for line in expected:
        yield ("  " if line in given else "- ") + line
    for line in given:
        if line not in expected:
            yield "+ " + line
