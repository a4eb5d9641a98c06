"""The group simulator's command line.

python -m tests.groupsim seed N [--trace]     one seed, with everything that happened
python -m tests.groupsim storm [--seconds N] [--from N] [--keep-going] [--both]
"""

from tests.groupsim.check import run_seed
from tests.sim.check import run_seed as run_one_node
from tests.sim.commands import simulator

main = simulator(
    "tests.groupsim",
    "Whole groups from one seed: nodes, disks, networks, clients, workers.",
    {"a group": run_seed, "one node": run_one_node},
)

if __name__ == "__main__":
    main(prog_name="python -m tests.groupsim")
