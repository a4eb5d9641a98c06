"""Patterns with wildcards by their tokens: those that match a subject are found by walking its tokens.

A worker may bring a thousand patterns and there may be ten thousand execs, so nobody tries each with each.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    """What follows a prefix of tokens."""

    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.here: T | None = None
        """Of the pattern that ends here."""
        self.rest: T | None = None
        """Of the pattern that goes on with `>`."""


class PatternTree(Generic[T]):
    """Values by pattern. The patterns were checked before (`subject.check_pattern`)."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Remember the value; a pattern has one."""
        node, tokens = self._root, pattern.split(".")
        is_open = tokens[-1] == ">"
        for token in tokens[:-1] if is_open else tokens:
            node = node.children.setdefault(token, _Node())
        if is_open:
            node.rest = value
        else:
            node.here = value

    def remove(self, pattern: str) -> None:
        """Forget a pattern, and what only it needed."""
        tokens = pattern.split(".")
        is_open = tokens[-1] == ">"
        path = [self._root]
        for token in tokens[:-1] if is_open else tokens:
            path.append(path[-1].children[token])
        if is_open:
            path[-1].rest = None
        else:
            path[-1].here = None
        for number in range(len(path) - 1, 0, -1):
            node = path[number]
            if node.children or node.here is not None or node.rest is not None:
                return
            del path[number - 1].children[tokens[number - 1]]

    def find(self, subject: str) -> list[T]:
        """The values of all patterns that match the subject."""
        found: list[T] = []
        nodes = [self._root]
        for token in subject.split("."):
            found += [node.rest for node in nodes if node.rest is not None]
            nodes = [node.children[key] for node in nodes for key in (token, "*") if key in node.children]
        return found + [node.here for node in nodes if node.here is not None]
