"""Damaged nodes of a group, repaired from their peers, without a network."""
