"""A machine that is rebuilt ends with what is committed; its digest must not run ahead to the log's end."""

import pytest

from rollmq.core.segment_digest import SegmentDigest
from tests.sim.sim_disk import SimDisk
from tests.store.making import GROUP, LogMaker, filled_store, open_store


def batches(maker: LogMaker) -> list[list[bytes]]:
    return [
        [maker.noop(), *maker.enqueues(3), maker.marker()],
        [*maker.enqueues(2, payload_bytes=100_000), maker.enqueue(), maker.marker(), *maker.enqueues(2)],
        maker.enqueues(3),
    ]


def expected(lines: list[bytes], next_index: int) -> tuple[str, int, int]:
    digest = SegmentDigest(group=GROUP, first_index=1)
    digest.add_all(lines[: next_index - 1])
    return digest.hexdigest(), digest.byte_count, digest.next_index


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("sealed_count", [0, 5, 9])
def test_the_digest_before_any_entry_is_that_of_the_lines_before_it(
    sealed_count: int, *, is_reopened: bool
) -> None:
    disk, maker = SimDisk(), LogMaker()
    store = filled_store(disk, batches(maker))
    store.seal(sealed_count)
    if is_reopened:
        store.close()
        store, _ = open_store(disk)
    for next_index in range(sealed_count + 1, store.next_index + 1):
        digest = store.segment_digest(next_index)
        found = digest.hexdigest(), digest.byte_count, digest.next_index
        assert found == expected(maker.lines, next_index)
    assert store.segment_digest().next_index == store.next_index
