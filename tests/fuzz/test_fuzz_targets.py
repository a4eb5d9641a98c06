"""The fuzz targets hold on their seeds and on mutations of them, and they do find what they are for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.line import LineDamaged
from rollmq.wire.codec import FrameDecoder, Received
from tests.fuzz import targets
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_on_each_of_its_seeds(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
@settings(max_examples=200)
def test_a_target_holds_on_seeds_with_bytes_changed_lost_and_added(name: str, data: st.DataObject) -> None:
    mutated = bytearray(data.draw(st.sampled_from(TARGETS[name].seeds)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated)))
        mutated[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    TARGETS[name].run(bytes(mutated))


@pytest.mark.parametrize("name", TARGETS)
@given(content=st.binary(max_size=300))
def test_a_target_holds_on_any_bytes(name: str, content: bytes) -> None:
    TARGETS[name].run(content)


def test_a_foreign_exception_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(line: bytes) -> None:
        raise KeyError(line)

    monkeypatch.setattr(targets, "decode_line", careless)
    with pytest.raises(KeyError):
        TARGETS["log_line"].run(b"{}")


def test_a_refusal_of_ours_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(line: bytes) -> None:
        raise LineDamaged(f"{len(line)} bytes")

    monkeypatch.setattr(targets, "decode_line", strict)
    TARGETS["log_line"].run(b"{}")


def test_a_decoder_that_depends_on_the_chunks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful:
        def __init__(self, frame_bytes_max: int) -> None:
            self.frame_bytes_max = frame_bytes_max
            self.held_bytes = 0
            self.broken = False

        def feed(self, data: bytes) -> list[Received]:
            return FrameDecoder(self.frame_bytes_max).feed(data)

    monkeypatch.setattr(targets, "FrameDecoder", Forgetful)
    with pytest.raises(AssertionError):
        TARGETS["frames"].run(TARGETS["frames"].seeds[0])
