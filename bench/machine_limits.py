"""What this machine can do at all, so that a figure elsewhere can be read as a ratio."""

import os
import platform
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

Row = tuple[str, float, str]


def rate(step: Callable[[], object], count: int, *, rounds: int = 3) -> float:
    """The best of a few rounds, in calls per second: what else runs on the machine only ever slows it."""
    best = 0.0
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            step()
        best = max(best, count / (time.perf_counter() - begin))
    return best


def describe() -> str:
    """One line about the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, load {load:.1f}"


def run() -> list[Row]:
    """The interpreter's and the libraries' own limits."""
    body = b'{"type":"enqueue","index":42,"term":3,"payload":"' + b"cHBw" * 34 + b'"}'
    names: dict[str, int] = {}

    def touch() -> None:
        names["a"] = 1

    return [
        ("empty Python call", rate(lambda: None, 300_000), "/s"),
        ("Python call with one dict store", rate(touch, 300_000), "/s"),
        ("msgspec decode of a 200-byte object", rate(lambda: msgspec.json.decode(body), 100_000), "/s"),
        ("crc32 of 200 bytes", rate(lambda: zlib.crc32(body), 100_000), "/s"),
    ]
