"""Asks everybody what they know of each machine and says what does not agree: chaos waits until all of it does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bigfleet.transport import channel
from bigfleet.wire import provider_pb2, provider_pb2_grpc, shardread_pb2, shardread_pb2_grpc
from tools.processes import LocalFleet

CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(2, 9)
SERVING = (CREATING, CONFIGURING, CONFIGURED)
UNDER_WAY = (CREATING, CONFIGURING, DRAINING, DELETING)

Machines = dict[str, provider_pb2.Machine]
# Cluster → kind of machine, how many, priority.
Demand = dict[str, tuple[str, int, int]]


class Witness:
    """Looks at a provider, a shard and what operators wrote down; touches nothing."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet
        self._epoch = 0

    async def at_provider(self) -> list[provider_pb2.Machine]:
        """Nothing when it is dead or hung at the moment."""
        try:
            async with channel(self._fleet.provider_address) as opened:
                stub = provider_pb2_grpc.CapacityProviderStub(opened)
                return list((await stub.List(provider_pb2.ListFilter(), timeout=10)).machines)
        except Exception:
            return []

    async def unsettled(self, demand: Demand, *, told_all: bool) -> str:
        """What is not as it should be; empty when all is well. `told_all` when clusters must know everything."""
        listed = {machine.id: machine for machine in await self.at_provider()}
        if not listed:
            return "the provider does not answer"
        return (
            _unserved(listed, demand)
            or await self._shard_differs(listed)
            or self._clusters_differ(listed, demand, told_all)
        )

    async def write_down(self, path: Path) -> None:
        """What both sides know, for whoever has to find out why."""
        try:
            here, _ = await self._at_shard()
        except Exception:
            here = {}
        there = {machine.id: machine for machine in await self.at_provider()}
        both = {name: [_text(here.get(name)), _text(there.get(name))] for name in sorted(here.keys() | there.keys())}
        path.write_text(json.dumps(both, indent=1))

    async def _at_shard(self) -> tuple[Machines, list[str]]:
        """Its machines, and the clusters of unmet needs."""
        async with channel(self._fleet.address) as opened:
            stub = shardread_pb2_grpc.ShardReadStub(opened)
            pages = stub.ListMachines(shardread_pb2.ListMachinesRequest(), timeout=10)
            machines = {view.machine.id: view.machine async for page in pages for view in page.machines}
            needs = stub.InspectNeeds(shardread_pb2.InspectNeedsRequest(), timeout=10)
            rows = [frame.need async for frame in needs if frame.HasField("need")]
        return machines, [row.cluster_id for row in rows if not row.satisfied]

    async def _shard_differs(self, listed: Machines) -> str:
        try:
            known, unmet = await self._at_shard()
        except Exception as error:
            return f"the shard does not answer: {str(error)[:100]}"
        if known.keys() != listed.keys():
            return f"shard and provider disagree about the existence of {sorted(known.keys() ^ listed.keys())}"
        for machine, here in known.items():
            there = listed[machine]
            if (here.state, here.cluster, here.host.ref) != (there.state, there.cluster, there.host.ref):
                return f"{machine} is {_text(here)} to the shard and {_text(there)} to the provider"
        return f"{unmet} are unmet" if unmet else ""

    def _clusters_differ(self, listed: Machines, demand: Demand, told_all: bool) -> str:
        owners: dict[str, str] = {}
        for cluster in demand:
            path = self._fleet.folder / f"{cluster}.heard.json"
            heard: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"connected": False}
            if not heard["connected"]:
                return f"{cluster} is not connected"
            if heard["epoch"] < self._epoch:
                return f"{cluster} has heard epoch {heard['epoch']}, {self._epoch} was there before"
            self._epoch = heard["epoch"]
            told = {machine for machine, state in heard["machines"].items() if state == "CONFIGURED"}
            truth = {machine.id for machine in listed.values() if _serves(machine, cluster)}
            if told_all and told != truth:
                return f"{cluster} was told of {sorted(told)} and has {sorted(truth)}"
            for machine in told if told_all else ():
                if owners.setdefault(machine, cluster) != cluster:
                    return f"{machine} is bound twice, to {owners[machine]} and {cluster}"
        return ""


def _unserved(listed: Machines, demand: Demand) -> str:
    """Whether every cluster has exactly what it wants, and nothing is paid for in vain."""
    if any(machine.state in UNDER_WAY for machine in listed.values()):
        return "transitions are under way"
    for cluster, (kind, pods, _) in demand.items():
        have = sum(1 for machine in listed.values() if _serves(machine, cluster) and machine.instance_type == kind)
        if have != pods:
            return f"{cluster} has {have} machines of {kind} and wants {pods}"
    bound = Counter(machine.cluster for machine in listed.values() if machine.state == CONFIGURED)
    if bound != Counter({cluster: pods for cluster, (_, pods, _) in demand.items() if pods}):
        return f"bound are {dict(bound)}"
    bought = [machine.id for machine in listed.values() if machine.state == IDLE and machine.capacity_type in (3, 4)]
    return f"{bought} idle and are paid for" if bought else ""


def _serves(machine: provider_pb2.Machine, cluster: str) -> bool:
    return machine.state == CONFIGURED and machine.cluster == cluster


def _text(machine: provider_pb2.Machine | None) -> str:
    if machine is None:
        return "unknown"
    name = provider_pb2.MachineState.Name(machine.state).removeprefix("MACHINE_STATE_")
    return f"{name} {machine.cluster} {machine.host.ref} {machine.last_error}".rstrip()
