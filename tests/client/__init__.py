"""Tests of Client against a real node: a process of its own, with workers in the test's process."""
