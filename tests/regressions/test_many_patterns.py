"""A worker with a thousand patterns, while ten thousand execs have jobs, stops nobody."""

from hypothesis import given
from hypothesis import strategies as st

from rollmq.core.liveness import Hello
from rollmq.core.pattern_tree import PatternTree
from rollmq.core.subject import matches
from tests.core.test_cost import lines_of
from tests.properties.hall import Hall

TOKENS = st.sampled_from(("a", "b", "*"))
PATTERNS = st.builds(
    lambda tokens, is_open: ".".join([*tokens, ">"] if is_open or not tokens else tokens),
    st.lists(TOKENS, max_size=4),
    st.booleans(),
)
SUBJECTS = st.lists(st.sampled_from(("a", "b", "c")), min_size=1, max_size=5).map(".".join)


@given(st.lists(PATTERNS, unique=True), st.data(), st.lists(SUBJECTS, max_size=10))
def test_a_tree_of_patterns_finds_what_trying_each_finds(
    patterns: list[str], data: st.DataObject, subjects: list[str]
) -> None:
    tree: PatternTree[str] = PatternTree()
    for pattern in patterns:
        tree.add(pattern, pattern)
    gone = set(data.draw(st.lists(st.sampled_from(patterns)))) if patterns else set()
    for pattern in sorted(gone):
        tree.remove(pattern)
    left = [pattern for pattern in patterns if pattern not in gone]
    for subject in subjects:
        assert sorted(tree.find(subject)) == sorted(each for each in left if matches(each, subject))
    for pattern in left:
        tree.remove(pattern)
    assert not tree._root.children


def cost_of_coming_and_going(pattern_count: int) -> int:
    hall = Hall()
    for number in range(300):
        hall.submit("c", f"team.kind{number}")
    patterns = [f"job.assign.*.kind{number}.>" for number in range(pattern_count)]

    def come_and_go() -> None:
        assert hall.leader.liveness.hello(Hello("w", "a", patterns, hands=1, credit=1)) is None
        hall.told()
        hall.leader.liveness.broken("w")

    return lines_of(come_and_go)


def test_more_patterns_cost_by_themselves_and_not_for_each_exec() -> None:
    few, many = cost_of_coming_and_going(20), cost_of_coming_and_going(220)
    assert many - few < 200 * 300
