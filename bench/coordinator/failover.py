"""How long nobody leads: leaders killed, frozen and cut off from etcd, etcd members killed, while a client writes.

A failover lasts from the kill to the first write another leader acknowledges. Nothing acknowledged may be missing at
the end, and no term may have had two leaders.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench._samples import spread
from tools.cable import Cable
from tools.coordinators import Coordinators, Writer
from tools.etcd import ETCD, KILLABLE, EtcdCluster

REPLICAS = 3
P99_S = 2.0
# What the old leader had answered has been read by then.
ANSWERED = 0.1


async def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        members = options.member_kills if KILLABLE.exists() else 0
        etcd = EtcdCluster(
            folder / "etcd", options.members, synced=True, program=KILLABLE if KILLABLE.exists() else ETCD
        )
        etcd.start()
        stack.callback(etcd.stop)
        cables = [[Cable(endpoint) for endpoint in etcd.endpoints] for _ in range(REPLICAS)]
        found = [[await cable.open() for cable in own] for own in cables]
        fleet = Coordinators(folder / "coordinators", etcd.endpoints, REPLICAS, own_endpoints=found)
        fleet.start()
        stack.callback(fleet.stop)
        writer = Writer(fleet.addresses)
        writing = asyncio.create_task(writer.run())
        await writer.wait_for_progress()
        killed = [await _killed(fleet, writer) for _ in range(options.kills)]
        frozen = [await _frozen(fleet, writer) for _ in range(options.freezes)]
        cut = [await _cut(fleet, cables, writer) for _ in range(options.cuts)]
        beheaded = [await _member_killed(etcd, number, writer) for number in range(members)]
        writer.stop()
        await writing
        missing = set(writer.acknowledged) - await writer.listed()
        await writer.close()
        terms = fleet.terms()
        for cable in (each for own in cables for each in own):
            await cable.close()
    times = spread(killed, 3)
    return {
        "kills": options.kills,
        "failover_s": times,
        "failover_p99_s": times["p99"],
        "freezes": options.freezes,
        "frozen_failover_s": spread(frozen, 3),
        "cuts": options.cuts,
        "cut_off_failover_s": spread(cut, 3),
        "member_kills": members,
        "member_killed_longest_gap_s": spread(beheaded, 3),
        "writes": len(writer.acknowledged),
        "acknowledged_and_lost": len(missing),
        "terms_with_two_leaders": len(terms) - len(set(terms)),
        "terms": len(terms),
        "limits": {"failover_p99_s": P99_S, "acknowledged_and_lost": 0, "terms_with_two_leaders": 0},
    }


async def _killed(fleet: Coordinators, writer: Writer) -> float:
    leader = fleet.leader()
    begin = time.monotonic()
    leader.kill()
    await asyncio.sleep(ANSWERED)
    took = await writer.wait_for_progress(1) - begin
    await asyncio.to_thread(leader.start)
    await asyncio.to_thread(leader.told, "coordinator listening")
    # A place is stolen at most once in five seconds, by each.
    await asyncio.sleep(5.0)
    print(f"killed: {took:.3f} s", file=sys.stderr)
    return took


async def _frozen(fleet: Coordinators, writer: Writer) -> float:
    leader = fleet.leader()
    begin = time.monotonic()
    leader.hang()
    await asyncio.sleep(ANSWERED)
    took = await writer.wait_for_progress(1) - begin
    leader.go_on()
    await asyncio.sleep(2.0)
    print(f"frozen: {took:.3f} s", file=sys.stderr)
    return took


async def _cut(fleet: Coordinators, cables: list[list[Cable]], writer: Writer) -> float:
    """The leader keeps its callers and loses etcd: it must stop by itself, and another begins."""
    own = cables[fleet.programs.index(fleet.leader())]
    begin = time.monotonic()
    for cable in own:
        cable.cut()
    await asyncio.sleep(ANSWERED)
    took = await writer.wait_for_progress(1) - begin
    for cable in own:
        cable.mend()
    await asyncio.sleep(2.0)
    print(f"cut off: {took:.3f} s", file=sys.stderr)
    return took


async def _member_killed(etcd: EtcdCluster, number: int, writer: Writer) -> float:
    """Kill a member of etcd, let it come back; the longest time without an acknowledged write."""
    member, begin = etcd.members[number % len(etcd.members)], len(writer.moments)
    member.kill()
    await asyncio.sleep(3.0)
    await asyncio.to_thread(member.start)
    await asyncio.to_thread(etcd.wait_healthy)
    await writer.wait_for_progress(3)
    moments = writer.moments[max(0, begin - 1) :]
    gap = max(after - before for before, after in pairwise(moments))
    print(f"etcd member killed: {gap:.3f} s", file=sys.stderr)
    return gap
