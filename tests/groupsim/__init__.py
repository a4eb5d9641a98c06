"""Whole groups from one seed: nodes, disks, the network between them, clients and workers."""
