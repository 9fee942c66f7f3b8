"""What a provider's author writes, and how the kit calls it.

Any object with the four required methods is a provider; `delete_instance`, `confirm_node_ready`,
`reattach_instance` and `started` are optional and their absence is meaningful. Methods may be `async def` or plain;
plain ones run on threads of their own, so they may block. This module decides nothing about machines.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bigfleet.provider.kit.core.records import Host, Instance, Kind, MachineRecord
from bigfleet.provider.kit.threads import DaemonThreads

# Calls wait for a thread on their transition's time, so there must be enough for a whole burst of purchases.
MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Created:
    """A new host, with what it really offers where that differs from the slot."""

    host: Host | str
    resources: Mapping[str, str] | None = None
    allocatable: Mapping[str, str] | None = None


class SoldOut(Exception):  # noqa: N818 - an answer of the backend, not a mistake
    """Raised by `create_instance`: there is nothing of this kind left, try again after so many seconds.

    The slot comes back by itself then; until that, purchases of the same instance type, zone and capacity type are
    refused in words every shard understands, which buys the next best meanwhile.
    """

    def __init__(self, message: str = "", retry_after: float = 60.0) -> None:
        super().__init__(message or "the backend has none left")
        if not retry_after > 0:
            raise ValueError(f"retry_after is {retry_after}; seconds above 0 are accepted")
        self.retry_after = retry_after


class Handle(Protocol):
    """What a provider may tell the kit on its own account; every method is safe from any thread."""

    def host_lost(self, machine_id: str, reason: str = "") -> None:
        """The host is gone (spot reclaim, hardware fault): the machine leaves the list, its slot returns later."""

    def interruption_notice(self, machine_id: str, at: float) -> None:
        """The host will be taken away at this Unix time: shards drain it before. 0 takes the notice back."""

    def repaired(self, machine_id: str, host: Host | None = None) -> None:
        """A FAILED machine was cleaned up: idle again if its host is left, a slot if not."""

    def machine(self, machine_id: str) -> MachineRecord | None:
        """The machine as the kit knows it now."""


class Provider(Protocol):
    """The four methods every provider has. An exception from any of them makes the machine FAILED.

    Optional, by name:
      delete_instance(machine, operation_id)                    absent: Delete is UNIMPLEMENTED
      confirm_node_ready(machine, cluster_id, operation_id)     returns once the node is Ready; False asks again soon
      reattach_instance(kind, machine, operation_id)            picks up work an earlier process began, or raises
      started(kit)                                              is given the Handle, for host_lost and repaired
      inject_fault(kind, machine)                               `--enable-faults`: the next call must fail, see faults
    """

    def describe(self) -> Any:
        """Every slot and host there is, as `Instance`s."""

    def create_instance(self, machine: MachineRecord, operation_id: str) -> Any:
        """Bring up a host; return its `Host`, its reference as text, or `Created`. Same operation id, same host."""

    def configure_instance(
        self, machine: MachineRecord, cluster_id: str, bootstrap_blob: bytes, operation_id: str
    ) -> Any:
        """Deliver the blob to the host. Never log it and never keep it."""

    def drain_instance(self, machine: MachineRecord, grace_period_seconds: int, operation_id: str) -> Any:
        """Take the host out of its cluster within the grace; leave it running and unbound."""


class Backend:
    """A provider object, callable from the event loop."""

    def __init__(self, provider: Provider, provider_name: str, max_threads: int = MAX_THREADS) -> None:
        self._provider = provider
        self._name = provider_name
        self._threads = DaemonThreads(max_threads)
        for method in ("describe", "create_instance", "configure_instance", "drain_instance"):
            if not callable(getattr(provider, method, None)):
                raise TypeError(f"{type(provider).__name__} lacks the method {method}; every provider needs it")

    @property
    def can_delete(self) -> bool:
        return self._has("delete_instance")

    @property
    def confirms_readiness(self) -> bool:
        return self._has("confirm_node_ready")

    @property
    def can_reattach(self) -> bool:
        return self._has("reattach_instance")

    async def started(self, handle: Handle) -> None:
        if self._has("started"):
            await self._call("started", handle)

    async def describe(self) -> list[Instance]:
        found: Iterable[Instance] = await self._call("describe")
        return list(found)

    async def create(self, machine: MachineRecord, operation_id: str) -> Created:
        return self._created(await self._call("create_instance", machine, operation_id))

    async def configure(self, machine: MachineRecord, cluster_id: str, blob: bytes, operation_id: str) -> None:
        await self._call("configure_instance", machine, cluster_id, blob, operation_id)

    async def drain(self, machine: MachineRecord, grace_seconds: int, operation_id: str) -> None:
        await self._call("drain_instance", machine, grace_seconds, operation_id)

    async def delete(self, machine: MachineRecord, operation_id: str) -> None:
        await self._call("delete_instance", machine, operation_id)

    async def reattach(self, kind: Kind, machine: MachineRecord, operation_id: str) -> Created | None:
        result = await self._call("reattach_instance", kind, machine, operation_id)
        return self._created(result) if kind is Kind.CREATE else None

    async def node_ready(self, machine: MachineRecord, operation_id: str) -> bool:
        return await self._call("confirm_node_ready", machine, machine.cluster, operation_id) is not False

    def _has(self, method: str) -> bool:
        return callable(getattr(self._provider, method, None))

    def _created(self, result: object) -> Created:
        created = result if isinstance(result, Created) else Created(result)  # type: ignore[arg-type]
        host = created.host
        if isinstance(host, str) and host:
            host = Host(self._name, host)
        if not isinstance(host, Host):
            raise TypeError("create_instance returned no host; return a Host, its reference as text, or Created")
        return Created(host, created.resources, created.allocatable)

    async def _call(self, method: str, *arguments: object) -> Any:
        function = getattr(self._provider, method)
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        return await self._threads.run(function, *arguments)
