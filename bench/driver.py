"""The real client and the real worker as processes: what a user of the library gets.

python -m bench.driver client PORTS JOBS OUTSTANDING     prints jobs per second, submit to outcome
python -m bench.driver paced PORTS JOBS_PER_S SECONDS    submits evenly, and prints jobs per second accepted
python -m bench.driver worker PORTS [HANDS]              until it is ended

PORTS are those of all nodes, with commas.
"""

import asyncio
import signal
import sys
import time
from typing import Final

import uvloop

from rollmq import Client, Worker
from rollmq.library.job import Job

EXEC: Final = "resize"
PAYLOAD: Final = b"p" * 100
HANDS: Final = 512
PACE_S: Final = 0.02


def servers(ports: str) -> str:
    """Addresses on this machine, as the library takes them."""
    return ",".join(f"127.0.0.1:{port}" for port in ports.split(","))


async def client(ports: str, jobs: int, outstanding: int) -> float:
    """Jobs per second."""
    async with Client(servers(ports)) as client:
        await client.status()  # connected: the clock starts with the first submit
        payloads = (PAYLOAD for _ in range(jobs))
        began = time.perf_counter()
        count = 0
        async for outcome in client.map(EXEC, payloads, outstanding=outstanding):
            assert outcome.ok, outcome
            count += 1
        assert count == jobs
        return jobs / (time.perf_counter() - began)


async def paced(ports: str, jobs_per_s: int, seconds: float) -> float:
    """Jobs per second that were accepted, when so many were wanted."""
    async with Client(servers(ports)) as client:
        await client.status()
        began = time.perf_counter()
        count = 0
        while (spent := time.perf_counter() - began) < seconds:
            due = int(spent * jobs_per_s) - count
            async for _job in client.submit_many((EXEC, PAYLOAD) for _ in range(due)):
                count += 1
            await asyncio.sleep(PACE_S)
        return count / spent


async def worker(ports: str, hands: int) -> None:
    """Until it is ended."""
    worker = Worker(servers(ports), worker_id="w1", hands=hands, credit=2 * hands)

    @worker.handler(EXEC)
    async def resize(job: Job) -> bytes:
        return job.payload[:16]

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    print("ready", flush=True)
    await worker.run()


def main(role: str, ports: str, *rest: str) -> None:
    """One of the three."""
    if role == "worker":
        uvloop.run(worker(ports, int(rest[0]) if rest else HANDS))
    elif role == "paced":
        print(f"{uvloop.run(paced(ports, int(rest[0]), float(rest[1]))):.1f}", flush=True)
    else:
        print(f"{uvloop.run(client(ports, int(rest[0]), int(rest[1]))):.1f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
