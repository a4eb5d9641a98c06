"""`make storm`: what a stranger sees of it. The runs are played; real ones are in test_seeds."""

from collections import Counter
from collections.abc import Callable

from click.testing import CliRunner, Result

from tests.sim.check import Report, SeedFailed
from tests.sim.commands import simulator

BROKEN = 7


def played(seed: int, *, echo: Callable[[str], None] | None = None) -> Report:
    """A run that is sound but for one seed."""
    if seed == BROKEN:
        raise SeedFailed(
            f"seed {seed}: P1 is broken\n  replay: python -m tests.played seed {seed}\n  trace: …"
        )
    if echo is not None:
        echo("what happened")
    return Report(seed, "0123456789abcdef0123", Counter({"event Enqueue": 10, "kills": 1}), 60_000_000, 100)


def command(*words: str) -> Result:
    played_simulator = simulator("tests.played", "Nothing real.", {"one node": played, "a group": played})
    return CliRunner().invoke(played_simulator, words)


def test_a_storm_says_from_which_seed_on_and_what_it_did() -> None:
    result = command("storm", "--seconds", "0", "--from", "3", "--both")
    assert result.exit_code == 0
    first, last = result.output.splitlines()
    assert first == "storm: seeds from 3 on, each as one node and as a group; Ctrl-C stops"
    assert last.startswith("1 seeds, 0 s: 2 simulated minutes, 20 jobs, 0 leaders, 2 crashes, 0 failed")


def test_a_storm_stops_at_a_seed_that_fails_and_prints_how_to_replay_it() -> None:
    result = command("storm", "--from", "5")
    assert result.exit_code == 1
    assert f"replay: python -m tests.played seed {BROKEN}" in result.output
    assert result.output.splitlines()[-1].startswith("3 seeds")
    assert "1 failed" in result.output


def test_a_storm_that_keeps_going_names_the_seed_and_still_fails() -> None:
    result = command("storm", "--from", str(BROKEN), "--seconds", "0.01", "--keep-going")
    assert result.exit_code == 1
    assert f"seed {BROKEN}: P1 is broken" in result.output
    assert "trace" not in result.output
    assert not result.output.splitlines()[-1].startswith("1 seeds")


def test_a_seed_is_replayed_with_what_happened_if_asked() -> None:
    assert "what happened" not in command("seed", "3").output
    assert "what happened" in command("seed", "3", "--trace").output
    assert command("seed", str(BROKEN)).exit_code == 1
