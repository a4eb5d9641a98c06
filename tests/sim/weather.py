"""What befalls a node from outside: crashes, failing and full disks, clocks that step, and an operator."""

from collections.abc import Callable

import msgspec

from rollmq.core.leader import Leader
from tests.sim.node import SimNode
from tests.sim.swarm import Swarm
from tests.sim.world import SECOND_US, World

ROOM_BYTES = (2_000, 40_000)


class Weather:
    """Faults by chance, until the calm."""

    def __init__(self, world: World, node: SimNode, swarm: Swarm) -> None:
        self.world = world
        self.node = node
        self.swarm = swarm
        faults = swarm.node
        self._every(faults.crash_every_us, self._crash)
        self._every(faults.drain_every_us, node.drain)
        self._every(faults.sync_error_every_us, self._fail_a_sync)
        self._every(faults.full_every_us, self._fill_the_disk)
        self._every(faults.step_every_us, self._step_the_clock)
        self._every(swarm.traffic.operate_every_us, self._operate)

    def _every(self, mean_us: int, call: Callable[[], None]) -> None:
        """On average so often, while the storm lasts."""
        if not mean_us:
            return

        def again() -> None:
            if not self.world.is_calm:
                call()
                self.world.after(self.world.rarely(mean_us), again)

        self.world.after(self.world.rarely(mean_us), again)

    def calm_down(self) -> None:
        """Nothing more goes wrong; what was broken is mended."""
        self.node.disk.capacity_bytes = 1 << 40
        self.node.disk.sync_errors = 0
        self.node.disk.stop_at = None

    # -- the node

    def _crash(self) -> None:
        node, faults = self.node, self.swarm.node
        if not node.is_up:
            return
        if self.world.happens(faults.in_call):
            # In one of the next calls of the store, whichever that is.
            node.disk.stop_at = node.disk.calls + self.world.random.randrange(60)
        else:
            node.crash(is_power_cut=self.world.happens(faults.power_cut))

    def _fail_a_sync(self) -> None:
        self.node.disk.keeps_pages_after_sync_error = self.world.happens(0.5)
        self.node.disk.sync_errors = 1

    def _fill_the_disk(self) -> None:
        disk = self.node.disk
        used = disk.capacity_bytes - disk.free_bytes()
        disk.capacity_bytes = used + self.world.between(ROOM_BYTES)
        self.world.say("disk", f"{disk.free_bytes()} bytes are left")

        def make_room() -> None:
            disk.capacity_bytes = 1 << 40

        self.world.after(self.world.between((SECOND_US, 20 * SECOND_US)), make_room)

    def _step_the_clock(self) -> None:
        node, faults = self.node, self.swarm.node
        step_us = self.world.between((0, faults.step_us)) * self.world.random.choice((-1, 1))
        node.wall_offset_us = max(node.wall_offset_us + step_us, -10 * abs(faults.step_us))
        self.world.say("clock", f"steps by {step_us / 1e6:.1f} s")
        if self._leader() is not None and self.world.happens(faults.believe):
            node.replica.step_time()
            self.world.say("operator", "says that the clock is right")

    # -- an operator

    def _leader(self) -> Leader | None:
        """Who leads at this moment: reading the time may have deposed it."""
        if self.node.leader is not None:
            self.node.set_time()
        return self.node.leader

    def _operate(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        self.world.random.choice(
            (self._pause, self._resume, self._redrive, self._drop, self._cap, self._confirm, self._loosen)
        )(leader)
        self.node.wake()

    def _exec(self) -> str:
        return f"exec{self.world.random.randrange(self.swarm.traffic.execs)}"

    def _some_dead(self, leader: Leader) -> list[str]:
        dead = list(leader.desk.machine.dead)
        return [job_id for job_id in dead if self.world.random.random() < 0.5] + ["0" * 32]

    def _pause(self, leader: Leader) -> None:
        leader.operate.pause(self._exec(), submits=self.world.happens(0.3), by="sim", why="", to=None)

    def _resume(self, leader: Leader) -> None:
        leader.operate.resume(self._exec(), by="sim", why="", to=None)

    def _redrive(self, leader: Leader) -> None:
        leader.operate.redrive(self._some_dead(leader), by="sim", why="", to=None)

    def _drop(self, leader: Leader) -> None:
        leader.operate.drop(self._some_dead(leader), by="sim", why="", to=None)

    def _cap(self, leader: Leader) -> None:
        client_id = f"client{self.world.random.randrange(self.swarm.traffic.clients)}"
        cap = self.world.random.choice((0, 1, 2, 10))
        leader.operate.set_client(client_id, cap=cap, weight=1, by="sim", to=None)

    def _confirm(self, leader: Leader) -> None:
        index = self.world.random.randint(0, leader.desk.last_index)
        leader.operate.confirm_pipeline("bronze", index, to=None)

    def _loosen(self, leader: Leader) -> None:
        """Change one of the bounds, in either direction."""
        settings = leader.desk.machine.settings
        name, values = self.world.random.choice(
            (
                ("cap_default", (1, 2, 100_000)),
                ("dlq_max", (0, 5, 100_000)),
                ("finished_max", (1, 20, 1_000_000)),
                ("ageing_us", (SECOND_US, 60 * SECOND_US)),
                ("clients_max", (1, 100_000)),
            )
        )
        changed = msgspec.structs.replace(settings, **{name: self.world.random.choice(values)})
        leader.operate.set_settings(changed, by="sim", to=None)

    def resume_all(self) -> None:
        """At the end of a calm nothing may be paused for its own sake."""
        leader = self._leader()
        if leader is not None:
            for exec_name in list(leader.desk.machine.paused):
                leader.operate.resume(exec_name, by="sim", why="", to=None)
            self.node.wake()
