"""Pretend clusters that report placement, in front of a real shard: every pod gets a machine it fits on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.provider.fake.control import send_command
from bigfleet.shard.rehearsal.placing import PlacingOperator
from bigfleet.shard.rehearsal.synthetic import Row
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc
from tests.component.test_shard_placement import SETTINGS
from tools.processes import LocalFleet
from tools.waiting import until

RACK = "example.com/rack"


def offered(name: str, cores: int, price: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": f"{name}.x",
        "capacity_type": "on-demand",
        "count": 16,
        "hosts": 0,
        "zones": ["zone-a"],
        "price_per_hour": price,
        "resources": {"cpu": str(cores), "memory": "64Gi"},
        **more,
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    offers = [
        offered("eight", 8, 0.8),
        offered("left", 4, 0.3, labels={RACK: "left"}, count=2),
        offered("right", 4, 0.4, labels={RACK: "right"}, count=4),
    ]
    # Who ends work here means it.
    settings = {**SETTINGS, "empty-rollup-guard": False}
    made = LocalFleet(tmp_path_factory.mktemp("rehearsal"), {"provider": "fake", "offerings": offers}, settings)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def only(name: str) -> tuple[Requirement, ...]:
    return (Requirement("node.kubernetes.io/instance-type", Operator.IN, (f"{name}.x",)),)


async def test_pods_that_do_not_divide_a_machine_all_run_and_their_machines_go_with_them(fleet: LocalFleet) -> None:
    """Ten pods of five cores on machines of eight: by sums seven machines would do, and three pods would wait."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        cluster = PlacingOperator("odd", channel)
        await cluster.connect()
        cluster.want([Row(10, {"cpu": "5", "memory": "1Gi"}, requirements=only("eight"))])
        await cluster.send_rollup()
        await until(lambda: cluster.pretended.running == 10)
        assert len(cluster.pretended.nodes) == 10
        stub = shardread_pb2_grpc.ShardReadStub(channel)
        request = shardread_pb2.InspectNeedsRequest(cluster_id="odd")

        async def units() -> shardread_pb2.NeedUnits:
            await cluster.send_rollup()
            frames = [frame async for frame in stub.InspectNeeds(request)]
            return frames[-1].need.units

        told = await until(units, lambda units: units.running == 10)
        assert (told.count, told.stranded, told.missing) == (10, 0, 0)
        cluster.want([Row(2, {"cpu": "5", "memory": "1Gi"}, requirements=only("eight"))])

        async def nodes() -> int:
            await cluster.send_rollup()
            return len(cluster.pretended.nodes)

        await until(nodes, lambda count: count == 2)
        assert (cluster.pretended.running, cluster.pretended.waiting) == (2, 0)
        await cluster.close()


async def test_a_gang_runs_where_all_of_it_has_room(fleet: LocalFleet) -> None:
    """The cheaper rack has two machines, the gang needs three."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        cluster = PlacingOperator("gang", channel)
        await cluster.connect()
        together = (Requirement(RACK, Operator.SAME, ()),)
        cluster.want([Row(3, {"cpu": "4", "memory": "1Gi"}, requirements=together, group="run")])
        await cluster.send_rollup()
        await until(lambda: cluster.pretended.running == 3)
        assert {node.labels[RACK] for node in cluster.pretended.nodes.values()} == {"right"}
        await cluster.close()


async def test_a_node_that_breaks_is_replaced_and_its_pods_run_again(fleet: LocalFleet) -> None:
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        cluster = PlacingOperator("broken", channel)
        await cluster.connect()
        cluster.want([Row(2, {"cpu": "6", "memory": "1Gi"}, requirements=only("eight"))])
        await cluster.send_rollup()
        await until(lambda: cluster.pretended.running == 2)
        lost = sorted(cluster.pretended.nodes)[0]
        answer = await send_command(fleet.control, {"do": "lose-hosts", "machine": lost})
        assert answer["ok"], answer

        async def running() -> bool:
            await cluster.send_rollup()
            return lost not in cluster.pretended.nodes and cluster.pretended.running == 2

        await until(running)
        await cluster.close()
