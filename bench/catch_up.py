"""How fast a node comes back that was away for a million entries, while the leader carries half its load.

    python -m bench.catch_up [--entries 1000000]

Jobs are only submitted, and stay queued: an entry each. The rate is that of the follower from its start on:
entries that it lacked, and those that came meanwhile, until it is as near to the end as a follower that never
went; the time of loading its own state is in it and is said apart.
"""

import argparse
import asyncio
import sys
import time
from typing import Final

import uvloop

from bench.groups import behind, group, leader_of, paced, wait_for_all
from bench.machine_limits import describe
from bench.processes import python, said_by
from rollmq import Client
from tests.group.real_group import RealGroup, RealNode

EXEC: Final = "catch_up"
NEAR: Final = 10_000
LOOK_S: Final = 0.1
CALM_S: Final = 5.0
PROBE_JOBS: Final = 100_000


class Watch:
    """What the leader says of the node that comes back."""

    def __init__(self, nodes: RealGroup, node: RealNode) -> None:
        self.is_over = False
        self._nodes, self._node = nodes, node
        self.heard_s = 0.0

    async def until_near(self) -> tuple[int, float]:
        """Entries that it took, and the seconds."""
        began = time.perf_counter()
        _, status = await asyncio.to_thread(leader_of, self._nodes)
        first_index = status["last_index"]
        while True:
            await asyncio.sleep(LOOK_S)
            _, status = await asyncio.to_thread(leader_of, self._nodes)
            left = behind(status, self._node)
            if left is not None and not self.heard_s:
                self.heard_s = time.perf_counter() - began
                print(f"  after {self.heard_s:.1f} s it is there, {left:,} entries behind", flush=True)
            if left is not None and left <= NEAR:
                break
        self.is_over = True
        return status["last_index"] - first_index, time.perf_counter() - began


async def measured(nodes: RealGroup, node: RealNode, missing: int, most_per_s: float) -> str:
    """Half the load, first in calm, then while the node comes back."""
    half = most_per_s / 2
    async with Client(nodes.servers) as client:
        until = time.perf_counter() + CALM_S
        calm = await paced(client, EXEC, jobs_per_s=half, until=lambda: time.perf_counter() > until)
        await asyncio.to_thread(node.start)
        watch = Watch(nodes, node)
        watching = asyncio.create_task(watch.until_near())
        meanwhile = await paced(client, EXEC, jobs_per_s=half, until=lambda: watch.is_over)
        came, seconds = await watching
    entries = missing + calm + came
    return (
        f"{entries:,} entries in {seconds:.1f} s: {entries / seconds:,.0f} entries/s, "
        f"{entries / (seconds - watch.heard_s):,.0f} from when it was heard; the leader took "
        f"{calm / CALM_S:,.0f} submits/s before and {meanwhile / seconds:,.0f} "
        f"meanwhile, of {most_per_s:,.0f} at most"
    )


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.catch_up")
    parser.add_argument("--entries", type=int, default=1_000_000)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    with group() as nodes:
        leader, _ = leader_of(nodes)
        wait_for_all(nodes)
        fill = python("-m", "bench.raw_driver", "fill", leader.port)
        most_per_s = float(said_by([*fill, str(PROBE_JOBS)]))
        away = nodes.others(leader)[0]
        away.kill()
        said_by([*fill, str(chosen.entries)])
        print(uvloop.run(measured(nodes, away, chosen.entries, most_per_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
