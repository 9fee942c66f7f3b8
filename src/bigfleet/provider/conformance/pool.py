"""The machines a run may use: leased to one behaviour at a time, walked to the state it wants, and given back.

Small pools suffice because machines are reused: a machine released at Idle serves the next behaviour that starts there,
and goes back to Speculative only when someone needs a slot or the run ends. A FAILED or lost machine leaves the pool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from bigfleet.provider.conformance.config import Config
from bigfleet.provider.conformance.states import SPOT, State
from bigfleet.provider.conformance.subject import Subject
from bigfleet.provider.conformance.trial import Capabilities, Trial
from bigfleet.provider.conformance.verdicts import Breach, Skip, SkipKind
from bigfleet.wire import provider_pb2 as pb

FAULT_LABEL_PREFIX = "conformance.fault/"
_CAPACITY_TYPES = {"BARE_METAL": 1, "RESERVED": 2, "ON_DEMAND": 3, "SPOT": 4}


class Pool:
    """Leases of machines. `new_trial` makes the setting in which the pool itself calls the provider."""

    def __init__(self, config: Config, new_trial: Callable[[str], Trial], most: int) -> None:
        self._config = config
        self._new_trial = new_trial
        self._most = config.pool.slots or most
        self._free: dict[State, deque[str]] = {State.SPECULATIVE: deque(), State.IDLE: deque()}
        self._busy: dict[str, State] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._ours: set[str] = set()
        self.capabilities = Capabilities()
        self.listed = 0

    async def discover(self) -> None:
        """Take stock: cheap, uninterruptible slots first; Idle hosts we found only where Delete cannot hurt them."""
        machines = (await self._new_trial("discover").listing()).machines
        self.listed = len(machines)
        usable = [m for m in machines if self._may_use(m)]
        usable.sort(key=lambda m: (m.capacity_type == SPOT, m.price_per_hour, m.id))
        slots = [m.id for m in usable if m.state == State.SPECULATIVE][: self._most]
        self._free[State.SPECULATIVE].extend(slots)
        self._ours.update(slots)
        if "bare-metal" in self._config.profiles:
            hosts = [m.id for m in usable if m.state == State.IDLE]
            self._free[State.IDLE].extend(hosts[: self._most - len(slots)])

    async def lease(self, trial: Trial, slots: tuple[int, int], start: State) -> list[Subject]:
        """Machines in state `start`: as many as wanted, or all there are if at least the minimum."""
        minimum, wanted = slots
        if wanted == 0:
            return []
        # One waiter at a time and in order: a behaviour that wants eight is not starved by many that want one.
        async with self._turn, self._changed:
            while (most := self._reachable(start)) >= minimum and self._usable(start) < min(wanted, most):
                await self._changed.wait()
            if most < minimum:
                raise Skip(f"needs {minimum} machines at {start.name}, {most} can be had", SkipKind.INVENTORY)
            taken = [self._take(start) for _ in range(min(wanted, most))]
            self._busy.update(dict.fromkeys(taken, start))
        subjects = [Subject(trial, machine_id) for machine_id in taken]
        try:
            await asyncio.gather(*(self._walk(subject, start) for subject in subjects))
        except BaseException:
            await self.release(taken)
            raise
        return subjects

    async def release(self, machine_ids: list[str]) -> None:
        """Bring machines back to rest and make them available again."""
        rests = await asyncio.gather(*(self._settle(machine_id) for machine_id in machine_ids))
        async with self._changed:
            for machine_id, rest in zip(machine_ids, rests, strict=True):
                self._busy.pop(machine_id, None)
                if rest is not None:
                    self._free[rest].append(machine_id)
            self._changed.notify_all()

    async def restore(self) -> None:
        """Leave the provider as it was found, also after an interrupt: our machines go back to Speculative."""
        await self.release(list(self._busy))
        if not self.capabilities.delete:
            return
        idle = [machine_id for machine_id in self._free[State.IDLE] if machine_id in self._ours]
        gate = asyncio.Semaphore(16)

        async def give_back(machine_id: str) -> None:
            async with gate:
                subject = Subject(self._new_trial("restore"), machine_id)
                try:
                    await subject.to_deleted()
                except Breach:
                    return
            self._free[State.IDLE].remove(machine_id)
            self._free[State.SPECULATIVE].append(machine_id)

        await asyncio.gather(*(give_back(machine_id) for machine_id in idle))

    def _may_use(self, machine: pb.Machine) -> bool:
        if any(key.startswith(FAULT_LABEL_PREFIX) for key in machine.labels):
            return False
        if self._is_fault_bait(machine):
            return False
        for key, value in self._config.pool.match.items():
            if key == "capacity_type":
                holds = machine.capacity_type == _CAPACITY_TYPES.get(value.upper().replace("-", "_"))
            elif key in ("instance_type", "zone", "id"):
                holds = getattr(machine, key) == value
            else:
                holds = machine.labels.get(key) == value
            if not holds:
                return False
        return True

    def _is_fault_bait(self, machine: pb.Machine) -> bool:
        fault_map = self._config.fault_map()
        for fault in (getattr(fault_map, name) for name in fault_map.__struct_fields__) if fault_map else ():
            if isinstance(fault, str | float) or fault is None:
                continue
            key, _, value = fault.label.partition("=")
            if (fault.label and machine.labels.get(key) == value) or (fault.machine and machine.id == fault.machine):
                return True
        return False

    def _usable(self, start: State) -> int:
        if start is State.SPECULATIVE and not self.capabilities.delete:
            return len(self._free[State.SPECULATIVE])
        return sum(len(free) for free in self._free.values())

    def _reachable(self, start: State) -> int:
        """How many could be had if everyone gave back what they hold."""
        if start is State.SPECULATIVE and not self.capabilities.delete:
            # What was created stays created; a lease that began as a slot may still come back as one.
            return len(self._free[start]) + sum(began is start for began in self._busy.values())
        return self._usable(start) + len(self._busy)

    def _take(self, start: State) -> str:
        other = State.IDLE if start is State.SPECULATIVE else State.SPECULATIVE
        return (self._free[start] or self._free[other]).popleft()

    async def _walk(self, subject: Subject, start: State) -> None:
        state = (await subject.get()).state
        if start is State.IDLE and state == State.SPECULATIVE:
            await subject.to_idle()
        elif start is State.SPECULATIVE and state == State.IDLE:
            await subject.to_deleted()

    async def _settle(self, machine_id: str) -> State | None:
        """Drain whatever a behaviour left bound; None when the machine is of no more use."""
        trial = self._new_trial("release")
        subject = Subject(trial, machine_id)
        try:
            resting = {State.SPECULATIVE, State.IDLE, State.CONFIGURED, State.FAILED}
            limit = max(trial.limits.create, trial.limits.configure, trial.limits.drain, trial.limits.delete)
            machine = await subject.until(resting, limit)
            if machine.state == State.CONFIGURED:
                await subject.to_drained(grace=0)
                machine = await subject.get()
        except Breach:
            return None
        return State(machine.state) if machine.state in (State.SPECULATIVE, State.IDLE) else None
