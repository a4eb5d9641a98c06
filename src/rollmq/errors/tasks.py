"""Errors of typed tasks."""

from rollmq.errors.base import RollmqError


class TaskProblem(RollmqError):
    """A function cannot be a task as it is written, or there are two of that name. Nothing was sent."""


class ArgumentsWrong(RollmqError, TypeError):
    """The arguments do not fit the task. Nothing was sent: it is raised where a task is submitted."""

    def __init__(self, *, signature: str, reason: str) -> None:
        self.signature = signature
        super().__init__(f"{reason}. Nothing was sent. The task is {signature}")


class TaskFailed(RollmqError):
    """The task's job has ended without a result; `outcome` says how. Asking changed nothing."""

    def __init__(self, *, name: str, job_id: str, state: str, error: str, outcome: object) -> None:
        self.job_id = job_id
        self.state = state
        self.outcome = outcome
        super().__init__(f"{name}, job {job_id}, is {state}: {error or 'it does not say why'}")


class ResultWrong(RollmqError):
    """The result is not of the type that the task has here. The job is done; nothing was changed."""

    def __init__(self, *, signature: str, job_id: str, reason: str) -> None:
        super().__init__(
            f"the result of job {job_id} does not fit: {reason}. The job is done. The task is {signature} "
            f"here; perhaps its worker runs another version."
        )
