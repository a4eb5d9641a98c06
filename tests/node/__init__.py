"""The door, and the host behind it, under peers of every kind."""
