"""Tests of the library's side of the protocol, without a node or with one that a test plays."""
