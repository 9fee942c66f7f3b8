"""A leader that is cut off from etcd, but not from its callers: it must stop serving before another begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from bigfleet.coordinator.server.settings import EtcdSettings
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import Asked, Peer, coordinator
from tools.cable import Cable
from tools.etcd import EtcdCluster

ZONE = "topology.kubernetes.io/zone"


async def led(asked: Asked) -> bool:
    try:
        await asked.stub.ListShards(pb.ListShardsRequest())
    except grpc.aio.AioRpcError as error:
        assert error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)
        return False
    return True


async def assigned(asked: Asked, value: str) -> bool:
    request = pb.AssignDomainRequest(topology_key=ZONE, topology_value=value, shard_id="s0")
    try:
        await asked.stub.AssignDomain(request, timeout=1.0)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_leader_cut_off_from_etcd_stops_serving_before_another_leads(tmp_path: Path) -> None:
    etcd = EtcdCluster(tmp_path / "etcd")
    etcd.start()
    cable = Cable(etcd.endpoints[0])
    cut_off = EtcdSettings((await cable.open(),), "/cut", lease_seconds=3)
    try:
        async with coordinator(tmp_path, id="old", etcd=cut_off) as old:
            await Peer(old.stub, "s0").report()
            assert await assigned(old, "before")
            straight = EtcdSettings(etcd.endpoints, "/cut", lease_seconds=3)
            joining = asyncio.create_task(_lead(tmp_path, straight, old, cable))
            await asyncio.wait_for(joining, 60)
    finally:
        await cable.close()
        etcd.stop()


async def _lead(folder: Path, settings: EtcdSettings, old: Asked, cable: Cable) -> None:
    acknowledged = ["before"]
    cable.cut()
    both = 0
    async with coordinator(folder, id="new", etcd=settings) as new:
        # It leads now, so the old one must have stopped already, although nobody told it.
        both += await led(old) and await led(new)
        assert not await assigned(old, "during"), "a leader without etcd acknowledges nothing"
        assert await assigned(new, "after")
        acknowledged.append("after")
        cable.mend()
        for _ in range(20):
            both += await led(old) and await led(new)
            await asyncio.sleep(0.05)
        assert both == 0, "two replicas served as leaders"
        listed = (await new.stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments
        assert [each.topology_value for each in listed] == sorted(acknowledged)
        with pytest.raises(grpc.aio.AioRpcError) as referred:
            await old.stub.ListShards(pb.ListShardsRequest())
        assert dict(referred.value.trailing_metadata()).get("bigfleet-redirect") == new.address
