"""Where Spark looks for data sources by itself: with this, `format("rollmq")` works in every session."""

from rollmq.pipeline.source import RollmqSource as DefaultSource

__all__ = ["DefaultSource"]
