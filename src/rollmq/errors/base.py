"""The base of all errors."""


class RollmqError(Exception):
    """The base of all errors of rollmq."""
