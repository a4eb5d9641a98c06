"""What `explain` tells of errors fits one answer, however much is kept."""

from rollmq.limits import ERROR_DETAIL_BYTES_MAX, EXPLAIN_DETAIL_BYTES_MAX
from tests.core.stage import Stage


def test_the_newest_details_are_told_as_far_as_they_fit() -> None:
    stage = Stage()
    stage.run(["settings errors_kept=9", "worker w1 hands=1 credit=99", "submit j1 tries_max=9"])
    detail = "x" * ERROR_DETAIL_BYTES_MAX
    for _ in range(9):
        stage.run(["start w1 j1", f"fail w1 j1 error=Boom detail={detail}", "advance 600s"])
    (job_id,) = stage.machine.dead
    errors = stage.leader.explain(job_id).errors
    assert [error.attempt for error in errors] == list(range(1, 10))
    fitting = EXPLAIN_DETAIL_BYTES_MAX // ERROR_DETAIL_BYTES_MAX
    assert [bool(error.detail) for error in errors] == [False] * (9 - fitting) + [True] * fitting
