"""Subjects and patterns: dot-separated tokens, `*` for one token, `>` for one or more at the end.

Pure text; it knows neither execs nor workers.
"""

from rollmq.limits import SUBJECT_BYTES_MAX

ASSIGN_PREFIX = "job.assign."


class BadSubject(ValueError):
    """A subject or pattern is not of the form that docs/protocol.md describes."""


def check_subject(subject: str) -> None:
    """Raise BadSubject unless this is a plain subject: non-empty tokens, no wildcard, no white space."""
    if "*" in subject or ">" in subject:
        raise BadSubject(f"{subject!r}: a subject has no wildcards; those belong into patterns")
    _check_tokens(subject)


def check_pattern(pattern: str) -> None:
    """Raise BadSubject unless this is a pattern: `*` alone in its token, `>` alone in the last."""
    _check_tokens(pattern)
    tokens = pattern.split(".")
    for position, token in enumerate(tokens):
        if token == ">" and position < len(tokens) - 1:
            raise BadSubject(f"{pattern!r}: `>` may only be the last token")
        if len(token) > 1 and ("*" in token or ">" in token):
            raise BadSubject(f"{pattern!r}: a wildcard stands alone between the dots")


def _check_tokens(text: str) -> None:
    if len(text.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        raise BadSubject(f"longer than {SUBJECT_BYTES_MAX} bytes")
    for token in text.split("."):
        if not token:
            raise BadSubject(f"{text!r}: a token is empty")
        if not token.isprintable() or " " in token:
            raise BadSubject(f"{text!r}: a token holds white space or control characters")


def is_literal(pattern: str) -> bool:
    """Whether a pattern matches exactly one subject: itself."""
    return "*" not in pattern and ">" not in pattern


def matches(pattern: str, subject: str) -> bool:
    """Whether the pattern matches the subject. Both were checked before."""
    if is_literal(pattern):
        return pattern == subject
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    if len(wanted) != len(given):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, given, strict=True))
