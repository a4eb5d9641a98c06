"""Fixtures for the tests of rollmq's users. pytest finds them by itself once rollmq is installed.

It imports nothing of rollmq before a test asks for a queue.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rollmq.testing import Queue, SyncQueue


@pytest.fixture(name="rollmq")
def rollmq_fixture() -> "Iterator[SyncQueue]":
    """A queue of this test alone, with a clock that the test moves. See docs/testing.md."""
    from rollmq.testing import SyncQueue

    with SyncQueue() as queue:
        yield queue


@pytest.fixture(name="rollmq_async")
def rollmq_async_fixture() -> "Iterator[Queue]":
    """The same for async tests: `await rollmq_async.submit(…)`."""
    from rollmq.testing import Queue

    queue = Queue()
    yield queue
    queue.close()
