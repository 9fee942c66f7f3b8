"""A hundred thousand domains: assigned through the front door, listed, and removed with their shard in one step.

While the shard is removed a reader lists all the time: it must see all of its domains or none.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators
from tools.etcd import EtcdCluster

AT_ONCE = 200
LISTED_S = 1.0
KEPT = 100


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        endpoints: tuple[str, ...] = ()
        if options.store == "etcd":
            etcd = EtcdCluster(folder / "etcd", synced=True)
            etcd.start()
            stack.callback(etcd.stop)
            endpoints = etcd.endpoints
        coordinators = Coordinators(folder, endpoints, replicas=1)
        coordinators.start()
        stack.callback(coordinators.stop)
        coordinators.programs[0].told("leading")
        async with channel(coordinators.addresses[0]) as opened:
            return await _timed(coordinator_pb2_grpc.CoordinatorStub(opened), options)


async def _timed(stub: Any, options: argparse.Namespace) -> dict[str, Any]:
    for name in ("keeps", "goes"):
        await stub.ReportShard(pb.ShardReport(shard_id=name, cycle=1))
    begin = time.perf_counter()
    for first in range(0, options.domains, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, options.domains))
        await asyncio.gather(*(_assign(stub, number) for number in numbers))
    assigned = time.perf_counter() - begin
    listed = []
    for _ in range(5):
        begin = time.perf_counter()
        answer = await stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())
        listed.append(time.perf_counter() - begin)
        assert len(answer.assignments) == options.domains
    seen: set[int] = set()
    reading = asyncio.create_task(_read_on(stub, seen))
    while options.domains not in seen:
        await asyncio.sleep(0.01)
    begin = time.perf_counter()
    await stub.RemoveShard(pb.RemoveShardRequest(shard_id="goes"))
    removed = time.perf_counter() - begin
    while min(seen, default=options.domains) != KEPT:
        await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return {
        "domains": options.domains,
        "store": options.store,
        "assigned_per_s": round(options.domains / assigned, 1),
        "listed_s": round(sorted(listed)[len(listed) // 2], 3),
        "listed_worst_s": round(max(listed), 3),
        "removed_with_shard_s": round(removed, 3),
        "counts_seen_meanwhile": sorted(seen),
        "halves_seen": len(seen - {KEPT, options.domains}),
        "limits": {"listed_s": LISTED_S, "halves_seen": 0},
    }


async def _assign(stub: Any, number: int) -> None:
    shard = "keeps" if number < KEPT else "goes"
    request = pb.AssignDomainRequest(topology_key="example/rack", topology_value=f"r{number:06d}", shard_id=shard)
    await stub.AssignDomain(request, timeout=120.0)


async def _read_on(stub: Any, seen: set[int]) -> None:
    while True:
        seen.add(len((await stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments))
