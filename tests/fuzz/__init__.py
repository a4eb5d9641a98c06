"""Arbitrary bytes against whatever reads bytes: no exception but ours, no memory beyond the limit."""
