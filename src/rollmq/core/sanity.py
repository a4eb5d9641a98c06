"""Whether values that came from outside may go into the log: texts that encode, numbers that others read.

The leader applies an event before it encodes it, so what cannot be encoded must be found before that.
"""

from typing import Final

NUMBER_MAX: Final = (1 << 53) - 1
"""Every JSON reader holds integers up to here exactly; as microseconds it is the year 2255."""


def is_text(text: str, chars_max: int) -> bool:
    """Whether a text is short enough and has no lone surrogates."""
    return len(text) <= chars_max and (text.isascii() or _encodes(text))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(text: str, chars_max: int) -> str:
    """The text, cut and with lone surrogates replaced: for what is only ever read by people."""
    cut = text[:chars_max]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def is_number(number: int) -> bool:
    """Whether a count or time is one: not negative, and small enough for every reader."""
    return 0 <= number <= NUMBER_MAX


def as_number(number: int | None) -> int | None:
    """A measured number, brought into range; null stays null."""
    return None if number is None else min(max(number, 0), NUMBER_MAX)
