"""A group of real processes on loopback: killed, stopped, cut off, and counted."""
