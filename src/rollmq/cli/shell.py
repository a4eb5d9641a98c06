"""Statements from a terminal or a pipe, each up to its semicolon. It runs none of them."""

import contextlib
import sys
from collections.abc import Iterator

import click


def statements(greeting: str) -> Iterator[str]:
    """One after the other, until the end of stdin. On a terminal it greets and asks, with editing keys."""
    is_asked = sys.stdin.isatty()
    if is_asked:
        click.echo(greeting)
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() uses it once it is there
    held = ""
    while True:
        line = _line(is_asked, "    -> " if held else "sql> ")
        held += line or ";"  # the end ends the last statement too
        while ";" in held:
            text, _, held = held.partition(";")
            if text.strip():
                yield text.strip()
        held = held.lstrip()
        if not line:
            return


def _line(is_asked: bool, prompt: str) -> str:
    """The next line; empty at the end."""
    if not is_asked:
        return sys.stdin.readline()
    try:
        return input(prompt) + "\n"
    except EOFError:
        click.echo()
        return ""
