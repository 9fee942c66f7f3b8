"""A shard and a cluster that reports placement, over real sockets and with a real journal.

The cluster is written from the protobuf contract; the shard decides as `docs/engine.md` says.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from bigfleet.cli.bigfleetctl import app
from bigfleet.shard.contract.events import Table
from bigfleet.wire import capacity_pb2, shard_pb2
from tests.strategies.placing_client import PlacingClient, placing
from tools.processes import LocalFleet
from tools.waiting import until

# Everything that takes minutes in life takes a moment here; what it waits for is the same.
SETTINGS: dict[str, Any] = {
    "cycle-interval": "200ms",
    "early-cycle-interval": "20ms",
    "reconcile-interval": "100ms",
    "reclaim-cap-fraction": 0,
    "reclaim-hold": "0",
    "mode-hold": "0",
    "boot-time": "100ms",
    "empty-hold": "300ms",
    "closed-empty-hold": "300ms",
    "consolidate-interval": "100ms",
    "consolidate-settle": "100ms",
    "consolidate-closing": "2s",
    "eviction-rate": 1,
    "refused-rest": "2s",
    "idle-hold-on-demand": "0",
    "shutdown-grace": "1s",
}


def offered(name: str, cores: int, price: float, count: int = 8) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": f"{name}.x",
        "capacity_type": "on-demand",
        "count": count,
        "hosts": 0,
        "zones": [f"zone-{name}"],
        "price_per_hour": price,
        "resources": {"cpu": str(cores), "memory": "8Gi"},
    }


OFFERS = [
    offered("plain", 2, 0.2),
    offered("refusing", 2, 0.2),
    offered("lossy", 2, 0.2),
    offered("closing", 4, 0.4),
    offered("smaller", 1, 0.15),
    offered("big", 8, 0.8, 2),
    offered("small", 2, 0.3, 2),
    offered("large", 8, 0.8, 2),
    offered("little", 2, 0.3, 2),
    offered("sums", 2, 0.2),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    folder = tmp_path_factory.mktemp("placement")
    made = LocalFleet(folder, {"provider": "fake", "offerings": OFFERS}, SETTINGS)
    made.start()
    try:
        yield made
    finally:
        made.stop()


async def settled(client: PlacingClient, nodes: int) -> None:
    await until(lambda: not client.waiting and len(client.nodes) == nodes, what=f"{client.cluster} has {nodes} nodes")


async def test_rows_with_counts_get_a_node_for_every_unit_and_empty_nodes_are_given_back(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "plain", "plain.x", pods=6) as client:
        await settled(client, 3)
        assert client.acks[-1].outcome == shard_pb2.Acknowledgement.OUTCOME_APPLIED
        client.pods = 2
        await settled(client, 1)
        assert all(each.voluntary for each in client.reclaims)


async def test_a_rollup_that_counts_in_some_rows_only_is_refused_as_a_whole(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "mixed", "sums.x") as client:
        client.tell = lambda: asyncio.sleep(0)  # type: ignore[method-assign,assignment]
        await until(lambda: bool(client.acks))
        counted, sums = client.need(1, stranded=1), client.need(1)
        sums.ClearField("count")
        sums.priority = 1
        rollup = capacity_pb2.ClusterCapacityNeeds(
            cluster_id="mixed", timestamp_unix_nanos=time.time_ns(), needs=[counted, sums], mirror_version=1
        )
        await client.say(rollup=rollup)
        await until(lambda: client.acks[-1].echo == "rollup")
        assert client.acks[-1].outcome == shard_pb2.Acknowledgement.OUTCOME_REJECTED
        assert "needs[1].count is 0" in client.acks[-1].reason


async def test_rows_that_cannot_be_true_are_rejected_one_by_one(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "untrue", "sums.x") as client:
        client.tell = lambda: asyncio.sleep(0)  # type: ignore[method-assign,assignment]
        await until(lambda: bool(client.acks))
        machines = fleet.metric("machines_rejected_total", "count")
        rollup = capacity_pb2.ClusterCapacityNeeds(
            cluster_id="untrue",
            timestamp_unix_nanos=time.time_ns(),
            needs=[client.need(8, running=24, stranded=40)],
            mirror_version=1,
        )
        await client.say(rollup=rollup)
        why = "needs[0]: running 24 and stranded 40 are more than its count 8"
        await until(lambda: client.acks[-1].echo == "rollup")
        assert client.acks[-1].outcome == shard_pb2.Acknowledgement.OUTCOME_APPLIED
        assert client.acks[-1].reason == f"1 of 1 rows left out: {why}"
        assert fleet.metric("rows_rejected_total", "untrue") == 1
        assert fleet.metric("machines_rejected_total", "count") == machines, "it is no machine"
        for command in (["needs", "--cluster", "untrue", "--unmet"], ["explain", "untrue"]):
            ended = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--shard", fleet.address])
            assert ended.exit_code == 0 and f"efused: {why}" in ended.output, ended.output
            assert "everything it wants" not in ended.output
        assert not client.nodes


async def test_rows_without_counts_are_served_by_sums(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "sums", "sums.x", pods=6) as client:
        need = client.need

        def uncounted(count: int, **units: int) -> capacity_pb2.CapacityNeed:
            made = need(count)
            made.ClearField("count")
            return made

        client.need = uncounted  # type: ignore[method-assign]
        await settled(client, 3)


async def test_a_refused_drain_leaves_the_node_and_is_asked_for_again_later(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "refusing", "refusing.x", pods=4) as client:
        await settled(client, 2)
        client.refuses = True
        client.pods = 2
        await until(lambda: bool(client.refused))
        refused = client.refused[0]
        await until(lambda: any(line["outcome"] == "refused" for line in fleet.audit()))
        assert refused in client.nodes
        assert client.refused == [refused], "it rests"
        client.refuses = False
        await until(lambda: refused not in client.nodes)


async def test_a_lost_machine_is_told_at_once_and_replaced(fleet: LocalFleet) -> None:
    async with placing(fleet.address, "lossy", "lossy.x", pods=4) as client:
        await settled(client, 2)
        before = set(client.nodes)
        [machine] = (await asyncio.to_thread(fleet.inject, "lose-hosts", zone="zone-lossy", count=1))["machines"]
        await until(lambda: client.lost == [machine])
        await settled(client, 2)
        assert machine in before


async def test_a_node_dearer_than_its_pod_is_closed_and_opened_again_before_anything_is_bought(
    fleet: LocalFleet,
) -> None:
    async with placing(fleet.address, "closing", "closing.x", "smaller.x", pods=8) as client:
        await settled(client, 2)
        before = set(client.nodes)
        client.pods = 5
        await until(lambda: bool(client.closings))
        [(machine, closing)] = client.closings
        assert closing and client.nodes[machine].pods == 1
        client.pods = 7
        await until(lambda: client.closings == [(machine, True), (machine, False)])
        await settled(client, 2)
        assert set(client.nodes) == before


def moves(fleet: LocalFleet) -> list[str]:
    with sqlite3.connect(f"file:{fleet.folder / 'data' / 'shard.db'}?mode=ro", uri=True) as journal:
        rows = journal.execute("SELECT key, value FROM rows WHERE kind = ?", (int(Table.MOVE),)).fetchall()
    return [key for key, value in rows if '"ended":false' in value]


async def happened(condition: Callable[[], object], what: str) -> None:
    await until(lambda: asyncio.to_thread(condition), what=what)


@pytest.mark.parametrize(("when", "dear", "cheap"), [("begun", "big", "small"), ("bought", "large", "little")])
async def test_a_move_cut_by_kill_9_is_finished_by_the_next_process(
    fleet: LocalFleet, when: str, dear: str, cheap: str
) -> None:
    async with placing(fleet.address, when, f"{dear}.x", f"{cheap}.x", pods=6) as client:
        await settled(client, 1)
        [old] = client.nodes
        assert old.startswith(dear)
        client.slow = True
        client.pods = 1
        await until(lambda: client.closings == [(old, True)])
        await happened(lambda: moves(fleet) == [old], "the move is in the journal")
        if when == "bought":
            await until(lambda: len(client.told) == 2, what="the new machine is Configured and has no node yet")
        fleet.shard.kill()
        assert list(client.nodes) == [old]
        fleet.shard.start()
        await asyncio.to_thread(fleet.wait_ready)
        assert moves(fleet) == [old]
        client.slow = False
        await until(lambda: len(client.nodes) == 1 and old not in client.nodes, what="the old machine has gone")
        await settled(client, 1)
        [new] = client.nodes
        assert new.startswith(cheap)
        bought = [line for line in fleet.audit() if line["kind"] == "Provision" and line["cluster"] == when]
        # The end of a purchase the first process began may have been nobody's to tell; a second one would be.
        assert {line["machine"] for line in bought} <= {old, new}
        drained = [line for line in fleet.audit() if line["kind"] == "Reclaim" and line["cluster"] == when]
        assert [(line["machine"], line["reason"]) for line in drained] == [(old, "phase3.move")]
        await happened(lambda: not moves(fleet), "the move is over")
