"""The log, the snapshots and the votes on disk. Synchronous: a host calls it off its event loop."""
