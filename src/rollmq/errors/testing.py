"""Errors of queues that live inside of tests."""

from rollmq.errors.base import RollmqError


class NothingWillHappen(RollmqError):
    """A test waits for a job that will never end: nothing is due, no handler works. Nothing was changed."""

    def __init__(self, *, job_id: str, why: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} will not end, however long the test waits: {why}. Register what is to run it with "
            f"`add` or `handler`, resume its exec, or give `result` a timeout."
        )


class HandlerHangs(RollmqError):
    """A test waits for a handler that does not end while the clock stands still. Nothing was changed."""

    def __init__(self, *, seconds: float, execs: list[str]) -> None:
        super().__init__(
            f"handlers of {', '.join(execs)} have not moved for {seconds:g} s of real time. Use `advance` to "
            f"let time pass while they run, for example beyond their timeout."
        )
