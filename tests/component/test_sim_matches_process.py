"""A simulated run and real processes, given the same small fleet and demand, end in the same assignment."""

import asyncio
from pathlib import Path

from bigfleet.model.machine import MachineState
from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2, provider_pb2_grpc
from tests.strategies.operator_client import Row, operator
from tools.processes import INTERPRETED, LocalFleet
from tools.waiting import until

SCENARIO = """\
name: small
description: Batch holds everything it could get when a critical service arrives.
duration: 10m
policy: {preset: library}
shapes:
  batch: {resources: {cpu: 4, memory: 16Gi}, priority: 100, interruption_penalty: 1, reclamation_penalty: 1}
  critical: {resources: {cpu: 4, memory: 16Gi}, priority: 1000000, interruption_penalty: 8192}
fleets:
  - pace: quick
    offers:
      - {name: metal, instance_type: m6i.xlarge, capacity_type: bare-metal, idle: 4, zones: [zone-a, zone-b]}
      - {name: rented, instance_type: m6i.xlarge, capacity_type: on-demand, slots: 2, zones: [zone-a]}
      - {name: spot, instance_type: m6i.xlarge, capacity_type: spot, slots: 2, zones: [zone-a]}
clusters: [{name: batch}, {name: critical}]
workloads:
  - {kind: deployment, name: queue, shape: batch, replicas: 6, clusters: [batch]}
  - {kind: deployment, name: front, shape: critical, replicas: 5, clusters: [critical], start: 3m}
"""
CATALOGUE = {
    "provider": "sim",
    "durations": "quick",
    "offerings": [
        {"name": "metal", "instance_type": "m6i.xlarge", "capacity_type": "bare-metal", "count": 4, "hosts": 4,
         "zones": ["zone-a", "zone-b"]},
        {"name": "rented", "instance_type": "m6i.xlarge", "capacity_type": "on-demand", "count": 2,
         "zones": ["zone-a"]},
        {"name": "spot", "instance_type": "m6i.xlarge", "capacity_type": "spot", "count": 2, "zones": ["zone-a"]},
    ],
}  # fmt: skip
SETTINGS = {
    "cycle-interval": "500ms",
    "early-cycle-interval": "100ms",
    "reconcile-interval": "200ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0,
    "empty-rollup-guard": False,
}


def simulated() -> dict[str, str]:
    run = Simulation(parse_scenario(SCENARIO, "small"), check=True).run()
    return {
        record.id: record.cluster
        for site in run.sites
        for record in site.machines.values()
        if record.state is MachineState.CONFIGURED
    }


def rows(cluster: str) -> list[Row]:
    shape, pods = {"batch": ("batch", 6), "critical": ("critical", 5)}[cluster]
    wanted = parse_scenario(SCENARIO, "small").shapes[shape]
    profile = wanted.profile()
    return [
        Row(
            pods,
            dict(wanted.resources),
            profile.priority,
            interruption_bucket=profile.interruption_bucket,
            reclamation_bucket=profile.reclamation_bucket,
        )
    ]


async def at_provider(address: str) -> dict[str, str]:
    async with channel(address) as opened:
        listed = await provider_pb2_grpc.CapacityProviderStub(opened).List(provider_pb2.ListFilter())
    bound = provider_pb2.MACHINE_STATE_CONFIGURED
    return {machine.id: machine.cluster for machine in listed.machines if machine.state == bound}


async def bound(address: str, cluster: str, count: int) -> dict[str, str]:
    """Every assignment, once so many machines are the cluster's."""
    return await until(lambda: at_provider(address), lambda found: list(found.values()).count(cluster) == count)


async def test_processes_and_simulation_end_in_the_same_assignment(tmp_path: Path) -> None:
    expected = simulated()
    assert sorted(expected.values()) == ["batch"] * 3 + ["critical"] * 5
    fleet = LocalFleet(tmp_path, CATALOGUE, SETTINGS, environment={**INTERPRETED})
    await asyncio.to_thread(fleet.start)
    try:
        async with operator(fleet.address, "batch") as batch, operator(fleet.address, "critical") as critical:
            batch.want(rows("batch"))
            await batch.send_rollup()
            await bound(fleet.provider_address, "batch", 6)
            critical.want(rows("critical"))
            await critical.send_rollup()
            found = await bound(fleet.provider_address, "critical", 5)
    finally:
        await asyncio.to_thread(fleet.stop)
    assert found == expected
