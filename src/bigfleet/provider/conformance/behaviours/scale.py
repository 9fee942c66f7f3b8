"""Scale and soak: the same rules with thousands of machines, under churn, within latency budgets."""

from __future__ import annotations

import asyncio
import math
import time

from bigfleet.provider.conformance.behaviours.fields import check_costs
from bigfleet.provider.conformance.behaviours.listing import thread_pages
from bigfleet.provider.conformance.config import seconds
from bigfleet.provider.conformance.registry import Family, Lane
from bigfleet.provider.conformance.reply import Reply
from bigfleet.provider.conformance.states import State, state_name
from bigfleet.provider.conformance.subject import Subject
from bigfleet.provider.conformance.trial import Trial
from bigfleet.wire import provider_pb2 as pb

SCALE = Family("Scale & Soak", Lane.SCALE, ("scale",))

_CURSOR_REQUIRED_ABOVE = 10_000


@SCALE.behaviour("B1101", "FullListFieldShapeAtScale", slots=0)
async def full_list_field_shape_at_scale(t: Trial) -> None:
    """A List of thousands is complete and every record in it is well formed."""
    machines = await _fleet(t)
    for m in machines:
        t.require(bool(m.id and m.instance_type and m.zone), f"{m.id!r} lacks id, instance_type or zone")
        t.require(m.state != State.UNSPECIFIED and m.capacity_type != 0, f"{m.id} lacks state or capacity_type")
    check_costs(machines)


@SCALE.behaviour("B1102", "SinceDeltaExactAtScale", slots=(4, 20), start=State.IDLE, exclusive=True)
async def since_delta_exact_at_scale(t: Trial) -> None:
    """Among thousands, the delta holds exactly the machines that changed."""
    _needs_cursor(t)
    cursor = (await t.listing()).revision
    await asyncio.gather(*(m.to_configured() for m in t.machines))
    changed = {m.id for m in (await t.listing(since=cursor)).machines}
    wanted = {m.id for m in t.machines}
    t.require(changed == wanted, f"the delta has {len(changed)} machines; exactly the {len(wanted)} changed were due")


@SCALE.behaviour("B1103", "PaginationSetCompletenessAtScale", slots=0, exclusive=True)
async def pagination_set_completeness_at_scale(t: Trial) -> None:
    """Pages of 500 threaded through their cursors cover the whole fleet once, or the provider echoes its head."""
    _needs_cursor(t)
    await thread_pages(t, b"", {m.id for m in await _fleet(t)}, page_size=500)


@SCALE.behaviour("B1104", "ChurnSoakNoLeak", slots=(2, 8), start=State.IDLE)
async def churn_soak_no_leak(t: Trial) -> None:
    """Configure and Drain in a loop for the whole soak: every Idle is clean, nothing accumulates."""
    deadline = time.monotonic() + seconds(t.config.scale.soak)

    async def churn(m: Subject) -> int:
        cycles = 0
        while cycles == 0 or time.monotonic() < deadline:
            await m.to_configured(metadata={"cycle": str(cycles)})
            await m.to_drained(grace=0)
            await m.clean_at(State.IDLE)
            cycles += 1
        return cycles

    cycles = await asyncio.gather(*(churn(m) for m in t.machines))
    t.note = f"{sum(cycles)} cycles"


@SCALE.behaviour("B1105", "CountConservationOverSoak", slots=(2, 4))
async def count_conservation_over_soak(t: Trial) -> None:
    """Machines are neither made nor lost by creating and deleting them: the fleet keeps its size and ids."""
    before = {m.id for m in await _fleet(t)}
    deadline = time.monotonic() + seconds(t.config.scale.soak)
    created = deleted = 0
    while created == 0 or (t.capabilities.delete and time.monotonic() < deadline):
        for m in t.machines:
            await m.to_idle()
            created += 1
        if t.capabilities.delete:
            for m in t.machines:
                await m.to_deleted()
                deleted += 1
    resident = sum([(await m.get()).state == State.IDLE for m in t.machines])
    t.require(resident == created - deleted, f"{created} created, {deleted} deleted, yet {resident} machines are Idle")
    after = {m.id for m in await _fleet(t)}
    t.require(after == before, f"the fleet changed from {len(before)} to {len(after)} machines")


@SCALE.behaviour("B1106", "PerRPCLatencyBudget", slots=(4, 60), exclusive=True)
async def per_rpc_latency_budget(t: Trial) -> None:
    """p99 by nearest rank: 120 Gets and 60 Creates within 250 ms, 120 full Lists within 2 s (limits configurable)."""
    scale, stretch = t.config.scale, t.config.timing.multiplier
    gets = [await t.get(t.machine.id) for _ in range(120)]
    lists = [await t.list_reply() for _ in range(120)]
    creates = [await t.machines[i % len(t.machines)].create() for i in range(60)]
    figures = [
        _budget("Get", gets, scale.get_p99 * stretch),
        _budget("List", lists, scale.list_p99 * stretch),
        _budget("Create", creates, scale.create_p99 * stretch),
    ]
    t.note = ", ".join(figures)


@SCALE.behaviour("B1107", "FullListLatencyBudget", slots=0, exclusive=True)
async def full_list_latency_budget(t: Trial) -> None:
    """After one warm-up the whole fleet is listed within three seconds (limit configurable)."""
    await t.listing()
    reply = (await t.list_reply()).accepted()
    limit = t.config.scale.full_list * t.config.timing.multiplier
    if reply.seconds > limit:
        raise reply.breach(f"a full List took {reply.seconds:.2f} s; {limit:g} s is the budget")
    await _fleet(t)
    t.note = f"{reply.seconds * 1000:.0f} ms"


@SCALE.behaviour("B1108", "ParallelWalkNoCollision", slots=(4, 16))
async def parallel_walk_no_collision(t: Trial) -> None:
    """16 Creates at once in a large fleet: no error, distinct operation ids, all Idle."""
    ids = [reply.accepted().operation_id for reply in await t.fan_out([m.create for m in t.machines])]
    t.require(len(set(ids)) == len(ids), "operation ids collide across machines")
    await asyncio.gather(*(m.settle(State.IDLE, 2 * t.limits.create) for m in t.machines))


@SCALE.behaviour("B1109", "SteadyStateNoDrift", slots=(2, 8), start=State.IDLE)
async def steady_state_no_drift(t: Trial) -> None:
    """Idle machines left alone stay Idle: no transition, no failure."""
    window = min(3.0, max(0.5, seconds(t.config.scale.soak) / 4))
    await asyncio.gather(*(m.stays(State.IDLE, window) for m in t.machines))


@SCALE.behaviour("B1110", "CursorRequiredForLargeFleets", slots=0)
async def cursor_required_for_large_fleets(t: Trial) -> None:
    """Above 10,000 machines incremental List is not optional: a full List every cycle is too big to reconcile by."""
    count = len((await t.listing()).machines)
    if count <= _CURSOR_REQUIRED_ABOVE:
        t.skip(f"{count} machines; a cursor is required above {_CURSOR_REQUIRED_ABOVE}")
    t.require(t.capabilities.since_revision, f"{count} machines are listed but List has no working revision cursor")


async def _fleet(t: Trial) -> list[pb.Machine]:
    machines = list((await t.listing()).machines)
    if len(machines) < t.config.scale.slots:
        raise t.lacking(f"{len(machines)} machines listed; the scale lane needs {t.config.scale.slots}")
    failed = [m for m in machines if m.state == State.FAILED]
    t.require(not failed, f"{len(failed)} machines are {state_name(State.FAILED)}")
    return machines


def _needs_cursor(t: Trial) -> None:
    if not t.capabilities.since_revision:
        t.skip("the provider keeps no revision cursor")


def _budget(rpc: str, replies: list[Reply], limit: float) -> str:
    times = sorted(reply.accepted().seconds for reply in replies)
    p99 = times[math.ceil(0.99 * len(times)) - 1]
    if p99 > limit:
        slowest = max(replies, key=lambda reply: reply.seconds)
        raise slowest.breach(f"{rpc} p99 is {p99 * 1000:.0f} ms; {limit * 1000:.0f} ms is the budget")
    return f"{rpc} p99 {p99 * 1000:.0f} ms"
