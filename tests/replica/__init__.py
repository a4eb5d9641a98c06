"""Several whole replicas in one process: Raft core, machine and leader together."""
