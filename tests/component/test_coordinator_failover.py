"""Three etcd members, three coordinator processes: leaders are killed, frozen and woken, and a client keeps writing.

Figures are the benchmark's; here it counts that nothing acknowledged is lost and that no term has two leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bigfleet.model.names import REDIRECT
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators, Writer
from tools.etcd import EtcdCluster


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinators]:
    etcd = EtcdCluster(tmp_path_factory.mktemp("etcd"), members=3)
    coordinators = Coordinators(tmp_path_factory.mktemp("coordinators"), etcd.endpoints, flags=("--lease", "3s"))
    try:
        etcd.start()
        coordinators.start()
        yield coordinators
    finally:
        coordinators.stop()
        etcd.stop()


async def test_a_follower_refuses_everything_and_names_the_leader(fleet: Coordinators) -> None:
    writer = Writer(fleet.addresses)
    writing = asyncio.create_task(writer.run())
    await writer.wait_for_progress()
    leader = fleet.addresses[fleet.programs.index(fleet.leader())]
    for address in fleet.addresses:
        if address == leader:
            continue
        async with channel(address) as opened:
            stub = coordinator_pb2_grpc.CoordinatorStub(opened)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ListShards(pb.ListShardsRequest())
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused.value.details() == "coordinator: not leader"
        assert dict(refused.value.trailing_metadata())[REDIRECT] == leader
    writer.stop()
    await writing
    await writer.close()


async def test_nothing_acknowledged_is_lost_when_leaders_are_killed_frozen_and_resign(fleet: Coordinators) -> None:
    writer = Writer(fleet.addresses)
    writing = asyncio.create_task(writer.run())
    await writer.wait_for_progress()
    for round_number in range(3):
        leader = fleet.leader()
        if round_number == 0:
            leader.kill()
            await writer.wait_for_progress()
            leader.start()
        elif round_number == 1:
            leader.hang()
            await writer.wait_for_progress()
            assert fleet.leader() is not leader
            leader.go_on()
        else:
            assert await asyncio.to_thread(leader.stop) == 0
            await writer.wait_for_progress()
            leader.start()
        await writer.wait_for_progress(10)
    writer.stop()
    await writing
    assert set(writer.acknowledged) <= await writer.listed()
    terms = fleet.terms()
    assert len(set(terms)) == len(terms) >= 4, "no term has two leaders"
    assert writer.terms == sorted(writer.terms), "a term never goes back"
    await writer.close()


def test_a_single_replica_is_refused_a_file_that_is_in_use(tmp_path: Path) -> None:
    first = Coordinators(tmp_path, (), replicas=1)
    second = Coordinators(tmp_path, (), replicas=1)
    second.programs[0].log = tmp_path / "second.log"
    try:
        first.start()
        second.programs[0].start()
        assert second.programs[0].wait(60) == 1
        assert "cannot be used" in second.programs[0].tail()
    finally:
        first.stop()
        second.stop()
