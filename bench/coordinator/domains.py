"""A hundred thousand domains: assigned through the front door, listed, and removed with their shard in one step.

Before that the state is saved to a file, verified, corrupted (which must be found) and restored into the other kind of
store, whose coordinator lists the same and is listened to by shards that have seen the first. While the shard is
removed a reader lists all the time: it must see all of its domains or none.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
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
CORRUPTIONS = 5
BIGFLEETCTL = (sys.executable, "-c", "from bigfleet.cli.bigfleetctl import main; main()")


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
            stub = coordinator_pb2_grpc.CoordinatorStub(opened)
            figures = await _assigned(stub, options)
            other = None
            if options.store == "sqlite":
                other = EtcdCluster(folder / "other-etcd", synced=True)
                other.start()
                stack.callback(other.stop)
            figures |= await _snapshotted(stack, folder, coordinators.addresses[0], other, options.domains)
            figures |= await _removed(stub, options)
    limits = {"listed_s": LISTED_S, "halves_seen": 0, "corruptions_missed": 0, "restored_missing": 0}
    return {**figures, "limits": limits}


async def _snapshotted(
    stack: ExitStack, folder: Path, address: str, other: EtcdCluster | None, domains: int
) -> dict[str, Any]:
    """Saved, verified, corrupted, and restored into the other kind of store."""
    file, broken = folder / "saved.snap", folder / "broken.snap"
    took = {}
    for verb, arguments in (("save", ["--coordinator", address]), ("verify", [])):
        begin = time.perf_counter()
        done = await asyncio.to_thread(_typed, *arguments, "snapshot", verb, str(file))
        took[verb] = round(time.perf_counter() - begin, 2)
        assert done.returncode == 0, done.stderr
    content = bytearray(file.read_bytes())
    missed = 0
    for place in range(1, CORRUPTIONS + 1):
        at = len(content) * place // (CORRUPTIONS + 1)
        content[at] ^= 0xFF
        broken.write_bytes(content)
        content[at] ^= 0xFF
        missed += (await asyncio.to_thread(_typed, "snapshot", "verify", str(broken))).returncode == 0
    endpoints = () if other is None else other.endpoints
    restored = Coordinators(folder / "restored", endpoints, replicas=1)
    into = ["--etcd-endpoints", ",".join(endpoints)] if endpoints else ["--data-dir", str(folder / "restored/node-0")]
    begin = time.perf_counter()
    done = await asyncio.to_thread(_typed, "snapshot", "restore", str(file), *into)
    took["restore"] = round(time.perf_counter() - begin, 2)
    assert done.returncode == 0, done.stderr
    restored.start()
    stack.callback(restored.stop)
    restored.programs[0].told("leading")
    async with channel(restored.addresses[0]) as opened:
        stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
        listed = await stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())
        answer = await stub.ReportShard(pb.ShardReport(shard_id="keeps", cycle=2, highest_term=1))
    restored.stop()
    return {
        "snapshot_bytes": file.stat().st_size,
        "snapshot_s": took,
        "corruptions_missed": missed,
        "restored_into": "etcd" if endpoints else "sqlite",
        "restored_missing": domains - len(listed.assignments),
        "restored_term": answer.coordinator_term,
    }


def _typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BIGFLEETCTL, *arguments], capture_output=True, text=True, check=False)


async def _assigned(stub: Any, options: argparse.Namespace) -> dict[str, Any]:
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
    return {
        "domains": options.domains,
        "store": options.store,
        "assigned_per_s": round(options.domains / assigned, 1),
        "listed_s": round(sorted(listed)[len(listed) // 2], 3),
        "listed_worst_s": round(max(listed), 3),
    }


async def _removed(stub: Any, options: argparse.Namespace) -> dict[str, Any]:
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
        "removed_with_shard_s": round(removed, 3),
        "counts_seen_meanwhile": sorted(seen),
        "halves_seen": len(seen - {KEPT, options.domains}),
    }


async def _assign(stub: Any, number: int) -> None:
    shard = "keeps" if number < KEPT else "goes"
    request = pb.AssignDomainRequest(topology_key="example/rack", topology_value=f"r{number:06d}", shard_id=shard)
    await stub.AssignDomain(request, timeout=120.0)


async def _read_on(stub: Any, seen: set[int]) -> None:
    while True:
        seen.add(len((await stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments))
