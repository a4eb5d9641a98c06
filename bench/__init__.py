"""What rollmq costs, each figure beside the machine's own limit in the same run: `make bench`."""
