"""`bigfleet all-in-one`: one process that a cluster can be attached to, on this machine only."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bigfleet.cli.serve.all_in_one import MACHINES, dev_catalogue
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc, shardread_pb2, shardread_pb2_grpc
from tests.strategies.operator_client import Row, operator

BIGFLEET = (sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()", "all-in-one")
START_SECONDS = 300.0


def test_the_fleet_is_eight_machines_with_gpus_and_eight_without() -> None:
    machines = [each for offering in dev_catalogue().offerings for each in offering.instances("dev")]
    assert [each.id for each in machines] == [f"dev-{kind}-{n}" for kind in ("gpu", "cpu") for n in range(MACHINES)]
    assert {each.zone for each in machines} == {"dev-zone-a"}
    assert all(each.host is not None for each in machines)
    assert machines[0].resources["nvidia.com/gpu"] == "8" and machines[-1].price_per_hour == 0.10


async def test_a_cluster_gets_a_machine_and_a_stop_is_orderly(tmp_path: Path) -> None:
    arguments = ("--shard-listen", "127.0.0.1:0", "--shard-metrics-addr", "0", "--data-dir", str(tmp_path))
    arguments = (*arguments, "--coordinator-listen", "127.0.0.1:0", "--coordinator-metrics-addr", "0")
    running = await asyncio.create_subprocess_exec(
        *BIGFLEET, *arguments, "--log-format", "json", stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            address = coordinator = ""
            async for line in running.stderr:
                said = json.loads(line)
                address = address or (said["addr"] if said["msg"] == "listening" and "shard_id" in said else "")
                coordinator = coordinator or (said["addr"] if said["msg"] == "coordinator listening" else "")
                if said["msg"] == "engine warm":
                    break
        assert address.startswith("127.0.0.1:")
        reading = asyncio.create_task(running.stderr.read())
        async with operator(address, "c-1") as cluster:
            cluster.want([Row(pods=1, unit={"cpu": "64", "nvidia.com/gpu": "8"}, priority=100)])
            await cluster.send_rollup()
            await cluster.until(lambda heard: heard.configured == ["dev-gpu-0"], 60)
        link = channel(address)
        stub = shardread_pb2_grpc.ShardReadStub(link)
        pages = [page async for page in stub.ListMachines(shardread_pb2.ListMachinesRequest())]
        await link.close()
        assert sum(len(page.machines) for page in pages) == 2 * MACHINES
        link = channel(coordinator)
        shards = await coordinator_pb2_grpc.CoordinatorStub(link).ListShards(coordinator_pb2.ListShardsRequest())
        await link.close()
        assert [(each.shard_id, each.address) for each in shards.shards] == [("shard-0", address)]
        running.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await reading
            assert await running.wait() == 0
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert (tmp_path / "shard" / "shard.db").exists() and (tmp_path / "coordinator" / "coordinator.db").exists()


@pytest.mark.parametrize(
    "flag", ["--shard-listen", "--shard-metrics-addr", "--provider-listen", "--coordinator-listen"]
)
def test_an_address_others_can_reach_is_refused(flag: str) -> None:
    done = subprocess.run([*BIGFLEET, flag, "0.0.0.0:7780"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "can be reached from elsewhere" in done.stderr and "Traceback" not in done.stderr
