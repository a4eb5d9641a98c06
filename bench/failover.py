"""How long a group takes no submit when its leader dies or hangs, under load; and elections without cause.

    python -m bench.failover [--runs 20]              SIGKILL of the leader
    python -m bench.failover --signal STOP            it hangs
    python -m bench.failover --backlog 1000000        with so many jobs queued
    python -m bench.failover --calm 200               nothing is done to it, for so many seconds at full load

A time is from the signal to the first confirmation of a submit that began after it. Sixteen others are under
way all the time. The node comes back and has the log before the next run; whether it has applied it too makes
a difference with a large backlog: `--hasty` does not wait for that.
"""

import argparse
import asyncio
import contextlib
import signal
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop

from bench.driver import EXEC, PAYLOAD
from bench.groups import group, leader_of, wait_for_all, wait_until_applied
from bench.machine_limits import describe
from bench.processes import process, python, said_by
from rollmq import Client
from tests.group.real_group import RealGroup, RealNode

LANES: Final = 16
BEFORE_S: Final = 1.0
SLOW_S: Final = 0.3
"""What the nodes logged during longer runs is shown."""


async def lane(client: Client) -> None:
    """Submits, one after the other, until it is cancelled."""
    while True:
        await client.submit(EXEC, PAYLOAD)


async def one_run(nodes: RealGroup, number: signal.Signals) -> tuple[float, datetime]:
    """Seconds without a confirmation, and when they began."""
    leader, _ = await asyncio.to_thread(leader_of, nodes)
    servers = ",".join(node.address for node in nodes.nodes)
    async with Client(servers) as client:
        lanes = [asyncio.create_task(lane(client)) for _ in range(LANES)]
        await asyncio.sleep(BEFORE_S)
        began = time.perf_counter()
        signalled = datetime.now(UTC)
        leader.signal(number)
        await client.submit(EXEC, PAYLOAD)
        spent = time.perf_counter() - began
        for each in lanes:
            each.cancel()
        await asyncio.wait(lanes)
    if number is signal.SIGSTOP:
        leader.signal(signal.SIGCONT)
    else:
        leader.kill()
        leader.start()
    return spent, signalled


def runs(count: int, number: signal.Signals, backlog: int, *, is_hasty: bool) -> list[float]:
    """One after the other, in one group."""
    found = []
    with group() as nodes, contextlib.ExitStack() as stack:
        stack.enter_context(process(python("-m", "bench.driver", "worker", ports(nodes))))
        if backlog:
            leader, _ = leader_of(nodes)
            said_by(python("-m", "bench.raw_driver", "fill", leader.port, backlog))
        for _ in range(count):
            wait_for_all(nodes)
            if not is_hasty:
                wait_until_applied(nodes)
            held_bytes = memory_of(leader_of(nodes)[0])
            spent, began = uvloop.run(one_run(nodes, number))
            found.append(spent)
            print(f"  {spent:.3f} s; the leader had {held_bytes / 1e6:,.0f} MB", flush=True)
            if spent > SLOW_S:
                print(f"    {began:%H:%M:%S.%f} the signal\n{logged_since(nodes, began)}", flush=True)
    return found


def logged_since(nodes: RealGroup, began: datetime) -> str:
    """What all nodes said from then on, in order."""
    first = began.isoformat(timespec="milliseconds").removesuffix("+00:00")
    lines = [
        f"    {line.partition(' ')[0].partition('T')[2]} {node.port} {line.partition(' ')[2]}"
        for node in nodes.nodes
        for line in node.log_text().splitlines()
        if line >= first
    ]
    return "\n".join(sorted(lines))


def memory_of(node: RealNode) -> int:
    """Bytes that the system takes back from its process when it dies, before it closes its connections."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def ports(nodes: RealGroup) -> str:
    """Of all nodes."""
    return ",".join(str(node.port) for node in nodes.nodes)


def calm(seconds: float) -> str:
    """Full load for so long; whether anybody else led."""
    with group() as nodes:
        _, before = leader_of(nodes)
        jobs = 0
        with process(python("-m", "bench.driver", "worker", ports(nodes))):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                command = python("-m", "bench.driver", "client", ports(nodes), 40_000, 1024)
                subprocess.run(command, capture_output=True, check=True)
                jobs += 40_000
        _, after = leader_of(nodes)
    elections = after["term"] - before["term"]
    return f"{elections} elections in {seconds:.0f} s at full load, {jobs / seconds:,.0f} jobs/s"


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--signal", choices=["KILL", "STOP"], default="KILL")
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--hasty", action="store_true")
    parser.add_argument("--calm", type=float, default=0.0)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    if chosen.calm:
        print(calm(chosen.calm))
        return 0
    found = sorted(
        runs(chosen.runs, signal.Signals[f"SIG{chosen.signal}"], chosen.backlog, is_hasty=chosen.hasty)
    )
    print(
        f"SIG{chosen.signal} of the leader, {chosen.backlog:,} jobs queued, {len(found)} runs: "
        f"p50 {statistics.median(found):.3f} s, least {found[0]:.3f}, most {found[-1]:.3f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
