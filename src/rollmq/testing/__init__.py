"""The real queue inside of a test, with a clock that the test moves: no sockets, no threads, no sleeping."""

from rollmq.testing.queue import Job, Queue, SyncJob, SyncQueue

__all__ = ["Job", "Queue", "SyncJob", "SyncQueue"]
