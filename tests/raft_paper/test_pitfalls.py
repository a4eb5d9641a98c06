"""Every known mistake of a Raft core (the numbered pitfalls) has a test that names it."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
FILES = (*TESTS.glob("raft_paper/test_*.py"), *TESTS.glob("core/test_raft*.py"))
# Durability 1-4 and 6, elections 9-16, replication and commit 18-27. The others are those of the store
# (5, 7, 8), of what is not built yet (transfer 17, snapshots 28-32, membership 33-36), and of wire and
# node (37-43).
OF_THE_CORE = {1, 2, 3, 4, 6, *range(9, 17), *range(18, 28)}


def test_every_pitfall_of_the_core_is_named_by_a_test() -> None:
    named: set[int] = set()
    for path in FILES:
        for numbers in re.findall(r"[Pp]itfalls? (\d+(?: and \d+)*)", path.read_text()):
            named |= {int(number) for number in numbers.split(" and ")}
    assert OF_THE_CORE - named == set()
