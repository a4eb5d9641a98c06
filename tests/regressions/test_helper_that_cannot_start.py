"""A machine without memory or processes to spare: the fold waits, the node goes on."""

import subprocess
from pathlib import Path

import pytest

from rollmq.store.fold_helper import FoldHelper


def test_a_helper_that_cannot_be_started_has_failed_and_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    helper = FoldHelper(tmp_path)
    helper.start(now_us=0)
    assert not helper.is_running
    assert helper.poll(1) is None
    assert helper.failures_count == 1
    assert "Resource temporarily unavailable" in helper.last_error
    assert not helper.can_start(1_000_000)
    assert helper.can_start(600_000_000)
