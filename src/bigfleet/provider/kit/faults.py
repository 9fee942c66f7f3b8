"""Faults on demand, so that an author can certify how a provider fails without breaking anything real.

With `--enable-faults` the kit refuses, stalls or delays work selected by cluster id or by a label, exactly as the
reference fault provider does (`faults: reference` in a conformance config). A provider with `inject_fault(kind,
machine)` is told to make its next call of that kind fail by itself, so that its own error path is what is certified;
one without is failed in its place. Everything else reaches the author's backend unchanged. Never on by default, and
only on a loopback address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bigfleet.provider.kit.author import Backend, Created, Handle
from bigfleet.provider.kit.core.records import Instance, MachineRecord

CREATE_ERROR_LABEL = "conformance.fault/create"
CONFIGURE_ERROR = "fault-error"
CONFIGURE_TIMEOUT = "fault-timeout"
CONFIGURE_SLOW_OK = "fault-slow-ok"
DRAIN_ERROR = "fault-drain-error"
READINESS_BLOCK = "fault-readiness-block"
HOST_LOSS = "fault-host-loss"
_CREATE_FAULT_SLOTS = 8


class InjectedError(Exception):
    """A fault that was asked for."""


class FaultyBackend(Backend):
    """A backend that fails where it is told to. `slow_seconds` is how long a late success takes."""

    slow_seconds = 3.0
    _handle: Handle | None = None

    @property
    def confirms_readiness(self) -> bool:
        return True

    async def started(self, handle: Handle) -> None:
        self._handle = handle
        await super().started(handle)

    async def describe(self) -> list[Instance]:
        """The author's inventory, and a few slots whose creation fails."""
        described = await super().describe()
        slots = [instance for instance in described if instance.host is None][:1]
        faulty = [
            replace(slot, id=f"faultcreate-{n}", labels={**slot.labels, CREATE_ERROR_LABEL: "error"})
            for slot in slots
            for n in range(_CREATE_FAULT_SLOTS)
        ]
        return described + faulty

    async def create(self, machine: MachineRecord, operation_id: str) -> Created:
        if machine.labels.get(CREATE_ERROR_LABEL) == "error":
            await self._through_the_author(
                "create", machine, lambda: super(FaultyBackend, self).create(machine, operation_id)
            )
            raise InjectedError("injected: the backend has no capacity")
        return await super().create(machine, operation_id)

    async def configure(self, machine: MachineRecord, cluster_id: str, blob: bytes, operation_id: str) -> None:
        if cluster_id == CONFIGURE_ERROR:
            await self._through_the_author(
                "configure",
                machine,
                lambda: super(FaultyBackend, self).configure(machine, cluster_id, blob, operation_id),
            )
            raise InjectedError("injected: the host refused its configuration")
        if cluster_id == CONFIGURE_TIMEOUT:
            await asyncio.Event().wait()
        if cluster_id == CONFIGURE_SLOW_OK:
            await sleep_through_cancellation(self.slow_seconds)
            return
        await super().configure(machine, cluster_id, blob, operation_id)
        if cluster_id == HOST_LOSS and self._handle is not None:
            self._handle.host_lost(machine.id, "injected")

    async def node_ready(self, machine: MachineRecord, operation_id: str) -> bool:
        if machine.cluster == READINESS_BLOCK:
            await asyncio.Event().wait()
        return await super().node_ready(machine, operation_id) if super().confirms_readiness else True

    async def drain(self, machine: MachineRecord, grace_seconds: int, operation_id: str) -> None:
        if machine.cluster == DRAIN_ERROR:
            await self._through_the_author(
                "drain", machine, lambda: super(FaultyBackend, self).drain(machine, grace_seconds, operation_id)
            )
            raise InjectedError("injected: the host did not drain")
        await super().drain(machine, grace_seconds, operation_id)

    async def _through_the_author(
        self, kind: str, machine: MachineRecord, call: Callable[[], Awaitable[object]]
    ) -> None:
        """Fail inside the author's own code where it can be made to, so that its error path is what is certified."""
        if self._has("inject_fault"):
            await self._call("inject_fault", kind, machine)
            await call()


async def sleep_through_cancellation(seconds: float) -> None:
    """Sleep on although nobody waits any more, as a careless backend would."""
    sleeping = asyncio.ensure_future(asyncio.sleep(seconds))
    while not sleeping.done():
        try:
            await asyncio.shield(sleeping)
        except asyncio.CancelledError:
            continue
