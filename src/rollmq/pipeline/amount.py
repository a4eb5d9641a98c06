"""How much a run will find to do: known from names and the pointer, before Spark is started."""

from typing import Final

from rollmq.pipeline.live import find_end
from rollmq.pipeline.places import find_segments
from rollmq.pipeline.runs import Sources
from rollmq.pipeline.warehouse import Reached, Warehouse

LITTLE_ENTRIES: Final = 400_000
"""Up to so many are taken before Java's optimizing compiler has paid for itself. Measured, on two cores that
other work kept busy: 200,000 entries in 17 s without that compiler and in 27 s with it."""


def is_little(warehouse: Warehouse, sources: Sources) -> bool:
    """Whether a run will be over before Java's optimizing compiler is worth its time. Raises
    SourceUnreadable, NotAWarehouse and WarehouseDamaged."""
    reached = warehouse.published().groups
    ends = {group: each.bronze_index for group, each in reached.items()}
    for segment in find_segments(sources.places, group=sources.group).segments:
        ends[segment.group] = max(ends.get(segment.group, 0), segment.last)
    if sources.server:
        live = find_end(sources.server, token=sources.token, group=sources.group)
        ends[live.group] = max(ends.get(live.group, 0), live.last)
    new = sum(last - reached.get(group, Reached()).silver_index for group, last in ends.items())
    return new <= LITTLE_ENTRIES
