"""The simulator: a node, its disk, clients and workers in one process, and one seed that decides all."""
