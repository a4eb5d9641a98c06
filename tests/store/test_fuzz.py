"""Whatever bytes the files hold, a reader answers in our words and serves only what was written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rollmq.core.line import seal
from rollmq.errors import StateError
from rollmq.store import layout
from rollmq.store.listing import LogListing
from rollmq.store.verify import verify_directory
from tests.sim.sim_disk import SimDisk
from tests.store.making import LogMaker, lines_of, open_store
from tests.store.test_damage import FURNISHED, furnished

_FURNISHED_DISK, _LOG = furnished()

NAMES = st.sampled_from(sorted(FURNISHED))
JUNK = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=100).map(lambda body: seal(b"{" + body)),
    st.sampled_from([b"\n", b"\r\n", b"{}\n", b"\0" * 4096, b"[" * 5000, seal(b"{" + b'"a":[' * 3000)]),
    st.sampled_from([line for content in FURNISHED.values() for line in content.splitlines(keepends=True)]),
)


@st.composite
def changed(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with something cut out, put in or put over, at lines or anywhere."""
    edges = [0]
    for line in content.splitlines(keepends=True):
        edges.append(edges[-1] + len(line))
    place = st.one_of(st.sampled_from(edges), st.integers(0, len(content)))
    start, end = sorted((draw(place), draw(place)))
    junk = draw(JUNK)
    return content[:start] + junk + content[draw(st.sampled_from((start, end))) :]


@settings(max_examples=400)
@given(st.data())
def test_any_change_of_any_file_is_survived_in_our_words(data: st.DataObject) -> None:
    disk = _FURNISHED_DISK.copy()
    name = data.draw(NAMES)
    disk.replace(name, data.draw(changed(disk.content(name))))
    _read_everything(disk, _LOG)


@settings(max_examples=100)
@given(st.dictionaries(NAMES, JUNK, min_size=1, max_size=4))
def test_junk_in_place_of_any_files_is_survived_in_our_words(junk: dict[str, bytes]) -> None:
    disk = _FURNISHED_DISK.copy()
    for name, content in junk.items():
        disk.replace(name, content)
    _read_everything(disk, _LOG)


def _read_everything(disk: SimDisk, log: LogMaker) -> None:
    """Verify, list and start: only a StateError may come out, and only lines that were written."""
    is_clean = False
    try:
        is_clean = verify_directory(disk).is_clean
        listing = LogListing(disk)
        listed = [line for _, line in listing.events()]
        assert set(listed) <= set(log.lines)
        _, recovered = open_store(disk)
    except StateError:
        assert not is_clean
        return
    found = lines_of(recovered)
    assert found == log.lines[recovered.state_index : recovered.state_index + len(found)]
    assert recovered.last_index >= 16, "entries that were known to be synced are gone"


def test_a_log_that_moves_into_the_history_while_it_is_verified_is_sound() -> None:
    """The node seals while `rollmq log verify` lists and reads: nothing may be missing or twice."""
    for when in (layout.WAL, layout.HISTORY):

        class Sealing(SimDisk):
            moment = when

            def names_in(self, folder: str) -> list[str]:
                names = super().names_in(folder)
                if folder == self.moment:
                    self.moment = ""
                    self.on_listed()
                return names

            def on_listed(self) -> None:
                raise AssertionError("set below")

        disk = Sealing()
        plain = _FURNISHED_DISK.copy()
        disk._names, disk._folders = plain._names, plain._folders
        disk._durable_names = plain._durable_names
        disk.moment = ""
        store, _ = open_store(disk)
        disk.on_listed = lambda store=store: store.seal(12)  # type: ignore[method-assign, misc]
        disk.moment = when
        verdict = verify_directory(disk)
        assert verdict.damages == []
        assert (verdict.segments_count, verdict.entries_count) == (4, 16)
        assert disk.exists(layout.sealed_name(9, 12)), "the seal did not happen"
