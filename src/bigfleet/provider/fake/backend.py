"""The pretend cloud as a kit provider: what `bigfleet fake-provider` serves. Sleeps where a real backend would work.

Only this module knows both the kit's runtime and the cloud. It decides nothing: outcomes come from `cloud`, the rules
of the contract from the kit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from bigfleet.provider.fake.catalogue import Catalogue
from bigfleet.provider.fake.cloud import Cloud, Outcome
from bigfleet.provider.fake.commands import Command, Hold, Release
from bigfleet.provider.kit.author import Created
from bigfleet.provider.kit.core.events import (
    Event,
    HostLost,
    InterruptionNoticed,
    MachineBroken,
    Repaired,
    SlotsWithdrawn,
)
from bigfleet.provider.kit.core.records import Host, Instance, Kind, MachineRecord
from bigfleet.provider.kit.faults import sleep_through_cancellation
from bigfleet.provider.kit.runtime import Runtime

log = structlog.get_logger(__name__)

Clock = Callable[[], float]


class InjectedError(Exception):
    """A failure the catalogue, a rule or a command asked for."""


class FakeProvider:
    """A provider whose hosts do not exist and whose slots cannot be given back."""

    def __init__(self, catalogue: Catalogue, clock: Clock = time.monotonic) -> None:
        self.cloud = Cloud(catalogue, clock())
        self._clock = clock
        self._runtime: Runtime | None = None
        self._ready_after: dict[str, Outcome] = {}
        self._gates: dict[Kind, asyncio.Event] = {}
        self._agenda_changed = asyncio.Event()

    async def describe(self) -> list[Instance]:
        return self.cloud.instances()

    async def create_instance(self, machine: MachineRecord, operation_id: str) -> Created:
        outcome = await self._work(Kind.CREATE, machine)
        shape = machine.shape
        self.cloud.host_up(machine.id, shape.capacity_type, shape.interruption_probability, self._clock())
        self._agenda_changed.set()
        return Created(Host(self.cloud.catalogue.provider, f"host-{operation_id}"), allocatable=outcome.allocatable)

    async def configure_instance(
        self, machine: MachineRecord, cluster_id: str, bootstrap_blob: bytes, operation_id: str
    ) -> None:
        self._ready_after[machine.id] = await self._work(Kind.CONFIGURE, machine)

    async def confirm_node_ready(self, machine: MachineRecord, cluster_id: str, operation_id: str) -> None:
        outcome = self._ready_after.pop(machine.id)
        if outcome.never_ready:
            await asyncio.Event().wait()
        await asyncio.sleep(outcome.ready_seconds)

    async def drain_instance(self, machine: MachineRecord, grace_period_seconds: int, operation_id: str) -> None:
        await self._work(Kind.DRAIN, machine)

    async def live(self, runtime: Runtime) -> None:
        """Let things happen by themselves until cancelled; the runtime must have been started."""
        self._runtime = runtime
        for record in runtime.core.machines.values():
            if record.host is not None:
                shape = record.shape
                self.cloud.host_up(record.id, shape.capacity_type, shape.interruption_probability, self._clock())
        while True:
            self._agenda_changed.clear()
            due = self.cloud.next_due()
            wait = None if due is None else max(0.0, due - self._clock())
            try:
                await asyncio.wait_for(self._agenda_changed.wait(), wait)
            except TimeoutError:
                self._post(self.cloud.due(runtime.core.machines, self._clock()))
                while self.cloud.complaints:
                    log.warning(self.cloud.complaints.pop(0))

    def execute(self, command: Command) -> list[str]:
        """Carry out a command and return the ids of the machines it touched."""
        assert self._runtime is not None, "commands are taken once the provider is live"
        events = self.cloud.execute(command, self._runtime.core.machines, self._clock())
        if isinstance(command, Hold):
            self._gates.setdefault(command.transition, asyncio.Event())
        if isinstance(command, Release) and (gate := self._gates.pop(command.transition, None)):
            gate.set()
        self._post(events)
        self._agenda_changed.set()
        log.info("command carried out", command=type(command).__name__, machines=len(_touched(events)))
        return _touched(events)

    def counts(self) -> dict[str, Any]:
        """Machines by state, for `inject status`."""
        assert self._runtime is not None, "counts are known once the provider is live"
        core = self._runtime.core
        return {"machines": len(core.machines), **{state.name: count for state, count in sorted(core.counts().items())}}

    def _post(self, events: list[Event]) -> None:
        assert self._runtime is not None
        for event in events:
            if isinstance(event, InterruptionNoticed):
                # The cloud counts from some moment of its own, the wire in Unix time.
                event = InterruptionNoticed(event.machine_id, event.at - self._clock() + self._runtime.now())
            self._runtime.post(event)

    async def _work(self, kind: Kind, machine: MachineRecord) -> Outcome:
        outcome = self.cloud.begin(kind, machine, self._clock())
        if outcome.held:
            await self._gates[kind].wait()
        if outcome.hangs:
            await asyncio.Event().wait()
        if outcome.stubborn:
            await sleep_through_cancellation(outcome.seconds)
        else:
            await asyncio.sleep(outcome.seconds)
        if outcome.error:
            raise InjectedError(outcome.error)
        return outcome


class DeletingFakeProvider(FakeProvider):
    """The same, where hosts can be given back; the kit sees the ability by the method's presence."""

    async def delete_instance(self, machine: MachineRecord, operation_id: str) -> None:
        await self._work(Kind.DELETE, machine)
        self.cloud.host_down(machine.id)
        self._agenda_changed.set()


def fake_provider(catalogue: Catalogue) -> FakeProvider:
    """The provider for a catalogue, with Delete where the catalogue has it."""
    return DeletingFakeProvider(catalogue) if catalogue.can_delete else FakeProvider(catalogue)


def _touched(events: list[Event]) -> list[str]:
    touched: list[str] = []
    for event in events:
        match event:
            case HostLost() | MachineBroken() | Repaired():
                touched.append(event.machine_id)
            case SlotsWithdrawn(machine_ids):
                touched += machine_ids
            case _:
                touched += [instance.id for instance in getattr(event, "instances", ())]
    return touched
