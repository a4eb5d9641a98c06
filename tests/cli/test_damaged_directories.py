"""A state directory that is not as it was left: `serve` and `log` say what is wrong, and change nothing."""

import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import BareClient, free_port, rollmq, run, running_node


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a sealed segment, an open one, a vote: of a node that was killed."""
    state = tmp_path_factory.mktemp("sound") / "state"
    with running_node(state) as node:
        with BareClient(node.port) as client:
            client.submit("echo", 20)
            assert run("seal", server=node.server).exit_code == 0
            client.submit("echo", 20)
        node.stop(signal.SIGKILL)
    return state


def _cut(path: Path, keep_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:keep_bytes])


def _sealed(state: Path) -> Path:
    return next((state / "history").glob("events-*"))


def _open(state: Path) -> Path:
    return next((state / "wal").glob("events-*"))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: Final[Mapping[str, Callable[[Path], object]]] = {
    "an empty identity": lambda state: _cut(state / "node.json", 0),
    "half an identity": lambda state: _cut(state / "node.json", 30),
    "no vote": lambda state: (state / "vote.json").unlink(),
    "half a vote": lambda state: _cut(state / "vote.json", 20),
    "a folder for a vote": lambda state: ((state / "vote.json").unlink(), (state / "vote.json").mkdir()),
    "no log folder": lambda state: shutil.rmtree(state / "wal"),
    "no open segment": lambda state: _open(state).unlink(),
    "half an open segment": lambda state: _cut(_open(state), 500),
    "a bit of the open segment": lambda state: _flip(_open(state)),
    "no sealed segment": lambda state: _sealed(state).unlink(),
    "half a sealed segment": lambda state: _cut(_sealed(state), 500),
    "a bit of the sealed segment": lambda state: _flip(_sealed(state)),
}


def contents(state: Path) -> dict[str, bytes]:
    """Everything in it but the lock, which says who looked at it last."""
    files = [path for path in state.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(state)): path.read_bytes() for path in files}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_with_what_to_do_and_nothing_is_changed(
    damage: str, sound: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(sound, state)
    DAMAGES[damage](state)
    before = contents(state)
    served = rollmq("serve", free_port(), "--state", state)
    assert served.returncode == 1, served.stderr
    assert "Traceback" not in served.stderr
    assert "Nothing was changed" in served.stderr
    assert "backup" in served.stderr
    assert contents(state) == before
    verified = run("log", "verify", state)
    assert verified.exit_code == 1
    assert "damaged" in verified.output + verified.stderr
    assert run("log", "show", state).exit_code in (0, 1)
    assert contents(state) == before


def test_the_same_directory_undamaged_is_served(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "state")
    assert run("log", "verify", tmp_path / "state").exit_code == 0
    with running_node(tmp_path / "state") as node:
        assert node.stop() == 0
