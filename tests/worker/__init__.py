"""Tests of the worker half of the library: runners alone, and workers against a node that a test plays."""
