"""One provider process, one lying provider process and one shard process, shared by the tests of a whole run.

Every test has an instance type and clusters of its own, so what one leaves behind is nothing to the next. `Asking`
reads the shard and the provider over the wire, as a person with a command line would.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bigfleet.model.machine import MachineState
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.transport import channel
from bigfleet.wire import (
    capacity_pb2,
    provider_pb2,
    provider_pb2_grpc,
    shard_pb2_grpc,
    shardread_pb2,
    shardread_pb2_grpc,
)
from tests.strategies.operator_client import Row
from tools.processes import INTERPRETED, LocalFleet, Program, free_address
from tools.waiting import until

UNIT = {"cpu": "2", "memory": "4Gi"}
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
SCRIPTED = Path(__file__).parent / "scripted_provider.py"

# Rails are on, but fast; everything a person waits for takes milliseconds.
SETTINGS: dict[str, Any] = {
    "cycle-interval": "200ms",
    "early-cycle-interval": "20ms",
    "reconcile-interval": "100ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0.25,
    "reclaim-cap-window": "300ms",
    "rollup-guard-hold": "100ms",
    "machine-backoff": "200ms",
    "retry-delay": "50ms",
    "bootstrap-backoff": "200ms",
    "available-capacity-interval": "50ms",
    "hello-timeout": "1s",
    "max-frame-bytes": "1Mi",
    "stuck-hold": "500ms",
    "shutdown-grace": "2s",
    "idle-hold-by-provider": {"lies": {"on-demand": "700ms", "spot": "700ms"}},
}


class Asking:
    """A running fleet and short words for what tests ask of it."""

    def __init__(self, folder: Path, offerings: dict[str, dict[str, Any]], **settings: Any) -> None:
        lies = free_address()
        self.script = folder / "script.json"
        self.liar = Program(
            "lies",
            [sys.executable, str(SCRIPTED), "--listen", lies, "--script", str(self.script), "--slots", "30"],
            folder,
        )
        catalogue = {"provider": "fake", "offerings": [_offering(name, facts) for name, facts in offerings.items()]}
        self.local = LocalFleet(
            folder,
            catalogue,
            {**SETTINGS, **settings},
            environment={**INTERPRETED},
            more_providers={"lies": lies},
        )
        self.address = self.local.address

    def start(self) -> None:
        self.liar.start()
        self.local.start()

    def stop(self) -> None:
        self.local.stop()
        self.liar.kill()

    def tell_lies(self, **script: Any) -> None:
        """What the lying provider says from now on; nothing given is the truth."""
        draft = self.script.with_suffix(".draft")
        draft.write_text(json.dumps(script))
        draft.replace(self.script)

    # Over the wire.

    async def machines(self, kind: str = "", **filters: Any) -> list[shardread_pb2.MachineView]:
        request = shardread_pb2.ListMachinesRequest(instance_type=f"{kind}.x" if kind else "", **filters)
        async with channel(self.address) as opened:
            stub = shardread_pb2_grpc.ShardReadStub(opened)
            return [view async for page in stub.ListMachines(request) for view in page.machines]

    async def machine(self, machine_id: str) -> shardread_pb2.MachineView:
        (found,) = await self.machines(machine_id=machine_id)
        return found

    async def states(self, kind: str) -> Counter[str]:
        return Counter(MachineState(view.machine.state).label for view in await self.machines(kind))

    async def needs(self, **fields: Any) -> list[shardread_pb2.InspectNeedsResponse]:
        async with channel(self.address) as opened:
            stub = shardread_pb2_grpc.ShardReadStub(opened)
            return [frame async for frame in stub.InspectNeeds(shardread_pb2.InspectNeedsRequest(**fields))]

    async def need(self, cluster: str) -> shardread_pb2.NeedView:
        _, frame = await self.needs(cluster_id=cluster)
        return frame.need

    async def explained(self, cluster: str) -> shardread_pb2.NeedExplanation:
        """Why the cluster's only need got what it got."""
        async with channel(self.address) as opened:
            stub = shardread_pb2_grpc.ShardReadStub(opened)
            (found,) = (await stub.Explain(shardread_pb2.ExplainRequest(cluster_id=cluster))).explanations
            return found

    async def at_provider(self, kind: str) -> list[provider_pb2.Machine]:
        async with channel(self.local.provider_address) as opened:
            listed = await provider_pb2_grpc.CapacityProviderStub(opened).List(provider_pb2.ListFilter())
        return [machine for machine in listed.machines if machine.instance_type == f"{kind}.x"]

    async def switch(self, *, paused: bool = False, dry_run: bool = False) -> None:
        rails = capacity_pb2.Rails(actuation_paused=paused, dry_run=dry_run)
        async with channel(self.address) as opened:
            await shard_pb2_grpc.ShardAdminStub(opened).SetRails(capacity_pb2.SetRailsRequest(rails=rails))

    @asynccontextmanager
    async def switched(self, *, paused: bool = False, dry_run: bool = False) -> AsyncIterator[None]:
        await self.switch(paused=paused, dry_run=dry_run)
        try:
            yield
        finally:
            await self.switch()

    async def inject(self, do: str, **fields: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self.local.inject, do, **fields)

    async def metric(self, *key: str) -> float:
        return await asyncio.to_thread(self.local.metric, *key)

    async def cycles(self, count: int) -> None:
        """Let so many cycles pass, for something that must not happen."""
        (header,) = (frame.header for frame in await self.needs(limit=1) if frame.HasField("header"))
        goal = header.cycle + count

        async def passed() -> bool:
            return (await self.needs(limit=1))[0].header.cycle >= goal

        await until(passed, what=f"{count} cycles")

    def logged(self, message: str, **attributes: Any) -> list[dict[str, Any]]:
        return [line for line in self.local.shard.lines(message) if attributes.items() <= line.items()]

    def audited(self, cluster: str) -> list[dict[str, Any]]:
        return [line for line in self.local.audit() if line["cluster"] == cluster]


def of_kind(kind: str) -> Requirement:
    return Requirement(INSTANCE_TYPE, Operator.IN, (f"{kind}.x",))


def rows(kind: str, pods: int, priority: int = 100, **facts: Any) -> list[Row]:
    """Demand for so many machines of one instance type."""
    more = facts.pop("requirements", ())
    return [
        Row(pods=pods, unit=facts.pop("unit", UNIT), priority=priority, requirements=(of_kind(kind), *more), **facts)
    ]


def _offering(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    count = facts.pop("count", 4)
    return {
        "name": name,
        "instance_type": f"{name}.x",
        "capacity_type": "reserved",
        "count": count,
        "hosts": facts.pop("hosts", count),
        "zones": ["zone-a"],
        "price_per_hour": 0.1,
        "resources": {"cpu": "2", "memory": "8Gi"},
        **facts,
    }
