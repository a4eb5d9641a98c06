"""The simulator's command line.

python -m tests.sim seed N [--trace]     one seed, with everything that happened
python -m tests.sim storm [--seconds N] [--from N] [--keep-going]
"""

from tests.sim.check import run_seed
from tests.sim.commands import simulator

main = simulator(
    "tests.sim", "Whole systems from one seed: node, disk, network, clients, workers.", {"one node": run_seed}
)

if __name__ == "__main__":
    main(prog_name="python -m tests.sim")
