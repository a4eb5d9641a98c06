"""How tables come out on terminals that are too narrow for them."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from rollmq.cli import looks
from rollmq.cli.serve import hint

JOB = "019a982c8e3b7a51b2c04d5e6f708192"
COLUMNS = ("!job", "exec", "client", "state", ">pri", ">tries", ">age", "…note")
ROW = (JOB, "mail.newsletter.send", "back-office", "inflight", "0", "0/5", "17 min", "runs on w1, 6 min left")


def _shown(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(looks, "console", lambda **_: out)
    out.print(looks.table(*COLUMNS, rows=[ROW]))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_everything_is_shown_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(cell in _shown(150, monkeypatch)[2] for cell in ROW)


@pytest.mark.parametrize("width", [80, 90, 100, 120])
def test_an_id_that_people_copy_and_numbers_are_never_cut(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = _shown(width, monkeypatch)
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    for whole in (JOB, "0/5", "17 min"):
        assert whole in lines[2]


def test_what_may_be_cut_goes_before_names_do(monkeypatch: pytest.MonkeyPatch) -> None:
    (*_, row) = _shown(112, monkeypatch)
    assert "mail.newsletter.send" in row
    assert "runs on" in row
    assert "6 min left" not in row


def test_numbers_have_the_right_noun() -> None:
    assert [looks.counted(count, "worker") for count in (0, 1, 2000)] == [
        "0 workers",
        "1 worker",
        "2,000 workers",
    ]


@pytest.mark.parametrize(
    ("host", "server"), [("127.0.0.1", "127.0.0.1:5"), ("0.0.0.0", "127.0.0.1:5"), ("::", "[::1]:5")]
)
def test_who_starts_a_node_by_hand_is_told_how_to_ask_it(host: str, server: str) -> None:
    assert f"export ROLLMQ_SERVER={server}\n" in hint(host, 5, Path("state"))
