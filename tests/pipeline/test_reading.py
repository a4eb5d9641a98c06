"""A piece of a segment's file is proved before its rows are given."""

from pathlib import Path
from typing import Any

import pytest

from rollmq.core.line import encode_line, seal
from rollmq.pipeline import reading
from rollmq.pipeline.errors import BadOption, SourceUnreadable
from rollmq.pipeline.lines import LineParser
from rollmq.pipeline.places import find_segments
from rollmq.pipeline.planning import plan_parts
from rollmq.pipeline.reading import VERIFY_CHOICES, read_part
from tests.docs_examples import EXAMPLES, GROUP
from tests.pipeline.archives import story, write_segments


def read(
    *places: Path, start: int = 1, end: int | None = None, verify: str = "digest"
) -> list[dict[str, Any]]:
    parser = LineParser(group=GROUP, stops_at_damage=False)
    parts = plan_parts(find_segments([str(each) for each in places]), start=start, end=end)
    return [
        row for part in parts for batch in read_part(part, parser, verify=verify) for row in batch.to_pylist()
    ]


def outline(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(row["index"], (row["reject"] or {}).get("kind", "")) for row in rows]


@pytest.mark.parametrize("verify", VERIFY_CHOICES)
def test_a_sound_segment_gives_each_entry_once(tmp_path: Path, verify: str) -> None:
    story(tmp_path)
    assert outline(read(tmp_path, verify=verify)) == [(index, "") for index in range(1, 29)]
    assert outline(read(tmp_path, start=5, end=7, verify=verify)) == [(5, ""), (6, ""), (7, "")]


def test_a_file_may_be_read_in_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is taken block by block, and a block may end anywhere: before the marker's line, too."""
    whole = story(tmp_path).read_bytes()
    marker_at = whole.rindex(b"\n", 0, -1) + 1
    sizes = (1, 100, 1_000, marker_at - 1, marker_at, marker_at + 1, len(whole) - 1, len(whole))
    for size in sizes:
        monkeypatch.setattr(reading, "BLOCK_BYTES", size)
        assert outline(read(tmp_path)) == [(index, "") for index in range(1, 29)], size


@pytest.mark.parametrize("start", [1, 3])
def test_a_flipped_bit_anywhere_is_seen_and_only_its_line_is_rejected(tmp_path: Path, start: int) -> None:
    path = story(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole.splitlines(keepends=True)[0]), len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        rows = outline(read(tmp_path, start=start))
        assert {index for index, _ in rows} == set(range(start, 29))
        line = whole[:at].count(b"\n")
        if line >= start:
            assert [kind for index, kind in rows if index == line] != [""], at


def test_another_copy_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    path = story(tmp_path / "a")
    story(tmp_path / "b")
    path.write_bytes(path.read_bytes().replace(b"cat.png", b"dog.png"))
    assert outline(read(tmp_path / "a", tmp_path / "b")) == [(index, "") for index in range(1, 29)]


def test_a_segment_that_was_shortened_says_what_is_missing(tmp_path: Path) -> None:
    path = story(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:20]))
    rows = read(tmp_path)
    assert outline(rows)[:19] == [(index, "") for index in range(1, 20)]
    assert outline(rows)[19:] == [(20, "missing")]
    assert rows[-1]["reject"]["last_index"] == 28


def test_a_rewritten_segment_with_sound_crcs_is_seen_by_its_digest(tmp_path: Path) -> None:
    path = story(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = seal(b'{"type":"noop","index":1,"term":1,"at_us":1}')
    path.write_bytes(b"".join(lines))
    assert (28, "digest") in outline(read(tmp_path))


def test_a_segment_of_another_format_is_rejected_as_a_whole(tmp_path: Path) -> None:
    path = story(tmp_path / GROUP)
    lines = path.read_bytes().splitlines(keepends=True)
    header = seal(b'{"type":"segment","format_version":9,"group":"%b","first_index":1}' % GROUP.encode())
    path.write_bytes(b"".join([header, *lines[1:]]))
    (row,) = read(tmp_path)
    assert (row["reject"]["kind"], row["index"], row["reject"]["last_index"]) == ("version", 1, 28)


def test_a_hole_between_segments_is_a_row(tmp_path: Path) -> None:
    lines = [encode_line(event) for event in EXAMPLES]
    write_segments(tmp_path, lines)
    assert outline(read(tmp_path)) == [(index, "") for index in range(1, 29)]
    next(tmp_path.iterdir()).rename(tmp_path / "events-0000000000000003-0000000000000030.jsonl")
    assert outline(read(tmp_path)) == [(1, "missing"), (3, "index")]


def test_a_state_directory_an_archive_and_a_history_folder_are_all_found(tmp_path: Path) -> None:
    story(tmp_path / "state" / "history")
    (tmp_path / "state" / "wal").mkdir()
    story(tmp_path / "archive" / GROUP)
    for place in ("state", "state/history", "archive", f"archive/{GROUP}"):
        (segment,) = find_segments([str(tmp_path / place)]).segments
        assert (segment.group, segment.first, segment.last) == (GROUP, 1, 28)


def test_an_archive_at_a_url_is_read_like_a_directory(tmp_path: Path) -> None:
    import fsspec

    path = story(tmp_path)
    remote = fsspec.filesystem("memory")
    remote.pipe(f"/archive/{GROUP}/{path.name}", path.read_bytes())
    parser = LineParser(group=GROUP)
    (part,) = plan_parts(find_segments(["memory://archive"]))
    rows = [row for batch in read_part(part, parser) for row in batch.to_pylist()]
    assert [row["index"] for row in rows] == list(range(1, 29))


def test_a_group_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    story(tmp_path)
    assert find_segments([str(tmp_path)], group=GROUP).segments
    with pytest.raises(BadOption, match=f"expected one that is there: {GROUP}"):
        find_segments([str(tmp_path)], group="0" * 32)


def test_a_place_that_holds_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SourceUnreadable, match="no history"):
        find_segments([str(tmp_path)])
    with pytest.raises(SourceUnreadable):
        find_segments([str(tmp_path / "nowhere")])
