"""Where lines begin: noted sparsely, the same whether they come one by one or many at once."""

from hypothesis import given
from hypothesis import strategies as st

from rollmq.limits import SPARSE_EVERY_BYTES
from rollmq.store.segment import SparseOffsets

SIZES = st.sampled_from((1, SPARSE_EVERY_BYTES // 2, SPARSE_EVERY_BYTES, 2 * SPARSE_EVERY_BYTES + 1))


@given(st.lists(SIZES, min_size=1, max_size=60), st.integers(0, 59))
def test_offsets_of_many_lines_are_noted_as_those_of_single_ones(sizes: list[int], cut: int) -> None:
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    singly, together = SparseOffsets(), SparseOffsets()
    for at, start in enumerate(starts):
        singly.add(100 + at, start)
    for begin, end in ((0, cut), (cut, len(starts))):
        together.add_all(100 + begin, starts[begin:end])
    found = [[each.before(100 + at) for at in range(len(starts))] for each in (singly, together)]
    assert found[0] == found[1]
