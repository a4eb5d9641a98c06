"""Every kind of byte that a node keeps is damaged once, in a group: found, repaired from peers, as it was."""

import pytest

from rollmq.store import layout
from rollmq.store.verify import verify_directory
from tests.repair.clinic import IDS, Clinic, usual_disks, usual_log

FILES = sorted(name for name, content in usual_disks()[0].files().items() if content)
KEPT_ALIKE = ("wal/", "history/events", layout.NODE_FILE)
MENDED = [name for name in FILES if name.startswith("wal/") or name in (layout.VOTE_FILE, layout.SYNCED_FILE)]
"""What a start needs: damage there keeps it from starting."""
ME = IDS[0]


def is_mended(clinic: Clinic, before: dict[str, bytes]) -> None:
    """It counts again, with the bytes it had."""
    assert clinic.lines(ME) == usual_log().lines
    clinic.store(ME).close()
    after = clinic.disks[ME].files()
    for name, content in before.items():
        if name.startswith(KEPT_ALIKE):
            assert after[name] == content, f"{name} is another file"
    assert verify_directory(clinic.disks[ME]).is_clean


@pytest.mark.parametrize("name", MENDED)
def test_every_flipped_byte_is_found_and_repaired_from_peers(name: str) -> None:
    before = usual_disks()[0].files()
    for offset in range(0, len(before[name]), 7):
        disks = usual_disks()
        disks[0].rot(name, offset, mask=1 << (offset % 8))
        clinic = Clinic(disks)
        assert ME in clinic.refused, f"{name} byte {offset} was not found"
        clinic.run()
        assert not clinic.ill, f"{name} byte {offset}: {clinic.ill[0].plan.wait}"
        is_mended(clinic, before)


@pytest.mark.parametrize("name", [name for name in FILES if name != layout.NODE_FILE])
def test_every_missing_file_is_found_and_repaired_from_peers(name: str) -> None:
    disks = usual_disks()
    before = disks[0].files()
    disks[0].remove(name)
    clinic = Clinic(disks)
    assert (ME in clinic.refused) == (not name.startswith("snapshots/")), (
        "a snapshot has an older one beside it"
    )
    clinic.run()
    assert not clinic.ill, clinic.ill[0].plan.wait
    is_mended(clinic, before)
