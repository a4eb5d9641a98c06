"""Every error a user can meet. The message says what happened, where, what changed, what to do."""


class RollmqError(Exception):
    """The base of all errors of rollmq."""
