"""Readable names for the tests of the queue: j1 instead of a UUID, 10s instead of microseconds.

Names and durations only; it knows neither the machine nor the leader.
"""

import re

import msgspec

from rollmq.core.events import AnyEvent

T0_US = 1_763_490_000_000_000
"""Where every test's log time begins; transcripts tell times relative to it."""

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"(-?)(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
ABSOLUTE = frozenset({"ready_us", "not_before_us", "expires_at_us", "until_us", "at_us"})


def duration_us(text: str) -> int:
    """`1.5s` in microseconds."""
    found = _DURATION.fullmatch(text)
    assert found, f"{text!r} is no duration like 10s, 500ms or 24h"
    return int(float(found[2]) * UNITS_US[found[3]]) * (-1 if found[1] else 1)


def duration_text(us: int) -> str:
    """Microseconds in the largest unit that divides them, from minutes down; hours from two on."""
    if us and us % UNITS_US["h"] == 0 and abs(us) > UNITS_US["h"]:
        return f"{us // UNITS_US['h']}h"
    if us and us % UNITS_US["m"] == 0 and abs(us) > UNITS_US["m"]:
        return f"{us // UNITS_US['m']}m"
    if us % UNITS_US["ms"]:
        return f"{us}us"
    return f"{us / UNITS_US['s']:g}s"


class Names:
    """Job ids by name and back. An id is drawn in log time, when its name is first used."""

    def __init__(self) -> None:
        self._id_by_name: dict[str, str] = {}
        self._name_by_id: dict[str, str] = {}

    def draw(self, name: str, at_us: int) -> str:
        """The id of a name, made at the first call: a UUIDv7 of that time."""
        if name not in self._id_by_name:
            number = len(self._id_by_name) + 1
            job_id = f"{at_us // 1000:012x}7{number:019x}"
            self._id_by_name[name], self._name_by_id[job_id] = job_id, name
        return self._id_by_name[name]

    def name(self, job_id: str) -> str:
        """The name of an id."""
        return self._name_by_id.get(job_id, job_id)

    def in_text(self, text: str) -> str:
        """A sentence with names where it has ids."""
        return re.sub(r"[0-9a-f]{32}", lambda found: self.name(found[0]), text)

    def fields(self, value: msgspec.Struct, *, without: tuple[str, ...] = ()) -> list[str]:
        """`name=value` for every field that is neither null nor at its default."""
        shown = []
        for field in msgspec.structs.fields(value):
            content = getattr(value, field.name)
            if field.name not in without and content is not None and content != field.default:
                shown.append(self._field(field.name, content))
        return shown

    def event(self, event: AnyEvent) -> str:
        """An event in one line, index and job first."""
        kind = event.__struct_config__.tag
        subject = f" {self.name(event.job_id)}" if hasattr(event, "job_id") else ""
        without = ("index", "term", "at_us", "job_id", "payload", "payload_bytes", "result_bytes")
        fields = self.fields(event, without=without)
        return " ".join([f"event {event.index}: {kind}{subject}", *fields])

    def _field(self, name: str, content: object) -> str:
        if name == "fence" and isinstance(content, tuple):
            return f"fence={content[0]}.{content[1]}"
        if name.endswith("_us") and isinstance(content, int):
            is_absolute = name in ABSOLUTE and content > T0_US // 2
            return f"{name[:-3]}={duration_text(content - T0_US if is_absolute else content)}"
        if isinstance(content, bytes):
            return f"{name}={content.decode()}"
        if isinstance(content, bool):
            return f"{name}={'yes' if content else 'no'}"
        if isinstance(content, list):
            return f"{name}=[{' '.join(self.in_text(str(item)) for item in content)}]"
        if isinstance(content, msgspec.Struct):
            return f"{name}({' '.join(self.fields(content))})"
        text = self.in_text(str(content))
        return f"{name}={text!r}" if " " in text else f"{name}={text}"
