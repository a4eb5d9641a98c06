"""rollmq for a harness that measures queues side by side; `bench.peers` puts it among the harness's systems.

One node, or three of which the client knows all. A submit is confirmed when it is committed, an ack is
counted when the leader holds no open job any more. Unlike its peers rollmq also sends each job's result to
the client.
"""

import asyncio
import contextlib
import os
import sys

from procs import free_ports, wait_port
from systems.base import Adapter

from rollmq import Client, Worker
from rollmq.errors import OperatorError
from rollmq.library.operator import OperatorConnection

EXEC = "bench"
READY_S = 30
LOOK_S = 0.05
HANDS = 256


class Rollmq1(Adapter):
    """A node alone."""

    name = "rollmq 1 node"
    nodes = 1
    worker_acks = False
    note = (
        "submit_many in batches of W/2 on two tasks; one Worker, 256 hands; "
        "acks counted when the leader has no open job; results are sent to the client too"
    )

    def start(self, procs):
        """Start the nodes; their pids."""
        self.data = os.path.join(self.dir, "data")
        ports = free_ports(self.nodes)
        self.conf["servers"] = ",".join(f"127.0.0.1:{port}" for port in ports)
        peers = ["--peers", self.conf["servers"]] if self.nodes > 1 else []
        started = []
        for port in ports:
            state = os.path.join(self.data, str(port))
            command = [sys.executable, "-m", "rollmq", "serve", str(port), "--state", state, *peers]
            started.append(procs.start(command, f"rollmq{port}", env={"PYTHONPATH": os.getcwd()}))
        for port in ports:
            wait_port(port)
        self.leader()
        return [each.pid for each in started]

    def leader(self):
        """What the leader says of itself, as soon as there is one."""
        for _ in range(int(READY_S / LOOK_S)):
            for address in self.conf["servers"].split(","):
                # One that does not answer is asked again.
                with (
                    contextlib.suppress(OperatorError, OSError),
                    OperatorConnection(address, by="bench", timeout_s=2.0) as connection,
                ):
                    found = connection.ask("status")
                    if found["role"] == "leader":
                        return found
            asyncio.run(asyncio.sleep(LOOK_S))
        raise TimeoutError("nobody leads")

    async def connect(self):
        """The client's process."""
        self.client = Client(self.conf["servers"])
        await self.client.__aenter__()
        await self.client.status()

    async def submit(self, p):
        """One, until it is committed."""
        await self.client.submit(EXEC, p.encode())

    async def submit_many(self, ps):
        """A batch, until all are committed."""
        items = ((EXEC, p.encode()) for p in ps)
        async for _ in self.client.submit_many(items, outstanding=len(ps)):
            pass

    def pending(self):
        """Open jobs."""
        found = self.leader()
        return found["queued"] + found["inflight"]

    async def work(self, sink):
        """The worker's process."""
        worker = Worker(self.conf["servers"], worker_id="w1", hands=HANDS, credit=2 * HANDS)

        @worker.handler(EXEC)
        async def handle(job):
            sink.handle(job.payload)

        await worker.run()


class Rollmq3(Rollmq1):
    """A group of three."""

    name = "rollmq 3 nodes"
    nodes = 3
