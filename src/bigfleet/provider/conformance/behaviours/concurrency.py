"""Concurrency and idempotency: many callers at once still mean one transition, one operation id, one record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bigfleet.provider.conformance.registry import Capability, Family
from bigfleet.provider.conformance.reply import Code, Reply
from bigfleet.provider.conformance.states import State, state_name
from bigfleet.provider.conformance.subject import Subject, expect_bound, expect_unbound
from bigfleet.provider.conformance.trial import Trial

CONCURRENCY = Family("Concurrency & Idempotency")

_WIDTH = 16
_MAP = {"burst": "yes", "empty": ""}


@CONCURRENCY.behaviour("B401", "ParallelCreateRetries")
async def parallel_create_retries(t: Trial) -> None:
    """16 parallel Creates on one slot are one operation: one id, one host, one record."""
    await _burst(t, t.machine.create)
    await t.machine.settle(State.IDLE, t.limits.create)
    await _listed_once(t.machine)


@CONCURRENCY.behaviour("B402", "ParallelConfigureRetries", start=State.IDLE)
async def parallel_configure_retries(t: Trial) -> None:
    """16 identical Configures are one operation with one id; cluster and metadata are as asked."""
    await _burst(t, lambda: t.machine.configure(metadata=_MAP))
    expect_bound(await t.machine.settle(State.CONFIGURED), t.cluster, _MAP)
    await _listed_once(t.machine)


@CONCURRENCY.behaviour("B403", "ParallelDrainRetries", start=State.IDLE)
async def parallel_drain_retries(t: Trial) -> None:
    """16 Drains are one operation with one id; the binding is gone afterwards."""
    await t.machine.to_configured(metadata=_MAP)
    await _burst(t, t.machine.drain)
    expect_unbound(await t.machine.settle(State.IDLE, t.limits.drain))
    await _listed_once(t.machine)


@CONCURRENCY.behaviour("B404", "RacingConflictingMutations", start=State.IDLE)
async def racing_conflicting_mutations(t: Trial) -> None:
    """Configure against Drain on a Configured machine ends Idle and unbound or Configured and bound, whoever wins.

    The loser is refused with any code but FAILED_PRECONDITION, and the machine then rests.
    """
    m = t.machine
    await m.to_configured()
    for reply in await t.fan_out([m.configure, m.drain]):
        reply.not_fenced().answered()
    machine = await m.until({State.IDLE, State.CONFIGURED, State.FAILED}, t.limits.drain)
    if machine.state == State.CONFIGURED:
        # The Configure may have been answered before the Drain begins to show.
        await asyncio.sleep(t.limits.window)
        machine = await m.until({State.IDLE, State.CONFIGURED, State.FAILED}, t.limits.drain)
    t.require(machine.state in (State.IDLE, State.CONFIGURED), f"{m.id} ended the race in {state_name(machine.state)}")
    if machine.state == State.IDLE:
        expect_unbound(machine)
    else:
        expect_bound(machine, t.cluster)
    await m.stays(State(machine.state))


@CONCURRENCY.behaviour("B405", "ZombieVsLiveEpoch", start=State.IDLE)
async def zombie_vs_live_epoch(t: Trial) -> None:
    """12 calls of a dead epoch race 12 of the live one: every zombie is fenced, at least one live call passes."""
    m, shard = t.machine, t.shard("zombie")
    (await m.create(shard.at(1, 1000))).not_fenced().answered()
    zombies = [shard.at(1, i) for i in range(1, 13)]
    living = [shard.at(2, 100 + i) for i in range(12)]
    tokens = [token for pair in zip(zombies, living, strict=True) for token in pair]
    replies = await asyncio.gather(*(m.create(token) for token in tokens))
    alive = 0
    for token, reply in zip(tokens, replies, strict=True):
        reply.answered()
        if token.epoch == 1:
            reply.fenced("its epoch is dead")
        alive += token.epoch == 2 and reply.code is not Code.FAILED_PRECONDITION
    t.require(alive >= 1, "every call of the live epoch was fenced, even the newest")
    (await m.create(shard.at(1, 9))).fenced()
    (await m.create(shard.at(2, 9999))).not_fenced()


@CONCURRENCY.behaviour("B406", "IdempotencyAcrossConnections", start=State.IDLE)
async def idempotency_across_connections(t: Trial) -> None:
    """Idempotency belongs to the machine, not to the connection: callers on two connections share one operation."""
    m = t.machine
    calls = [lambda c=i % 2: m.configure(connection=c) for i in range(_WIDTH)]
    first = _one_id(t, await t.fan_out(calls))
    for connection in (0, 1):
        t.same_id(first, (await m.configure(connection=connection)).accepted(), f"replay on connection {connection}")
    await m.settle(State.CONFIGURED)


@CONCURRENCY.behaviour("B407", "KMachinesConcurrentToIdle", slots=(2, 8))
async def k_machines_concurrent_to_idle(t: Trial) -> None:
    """Creates on different machines run side by side: distinct operation ids, every machine reaches a clean Idle."""
    replies = await t.fan_out([m.create for m in t.machines])
    ids = [reply.accepted().operation_id for reply in replies]
    t.require(len(set(ids)) == len(ids), f"operation ids collide across machines: {ids}")
    for m in t.machines:
        expect_unbound(await m.settle(State.IDLE, 2 * t.limits.create))


@CONCURRENCY.behaviour("B408", "NoTornSnapshotInBurst", start=State.IDLE)
async def no_torn_snapshot_in_burst(t: Trial) -> None:
    """The snapshot in an ack is one consistent moment: CONFIGURING or CONFIGURED, and bound to the cluster."""
    m = t.machine
    for reply in await t.fan_out([m.configure] * _WIDTH):
        machine = reply.accepted().snapshot
        if machine is None:
            continue
        if machine.state not in (State.CONFIGURING, State.CONFIGURED):
            raise reply.breach(f"the ack of a Configure shows {state_name(machine.state)}")
        expect_bound(machine, t.cluster)
    await m.settle(State.CONFIGURED)
    await _listed_once(m)


@CONCURRENCY.behaviour(
    "B409", "ParallelDeleteRetries", start=State.IDLE, capability=Capability.DELETE, profiles=("core", "cloud")
)
async def parallel_delete_retries(t: Trial) -> None:
    """16 Deletes are one operation with one id; the slot is Speculative once, under its old id."""
    await _burst(t, t.machine.delete)
    await t.machine.settle(State.SPECULATIVE)
    await _listed_once(t.machine)


async def _burst(t: Trial, call: Callable[[], Awaitable[Reply]]) -> Reply:
    return _one_id(t, await t.fan_out([call] * _WIDTH))


def _one_id(t: Trial, replies: list[Reply]) -> Reply:
    accepted = [reply for reply in replies if reply.not_fenced().answered().ok]
    t.require(bool(accepted), "none of the parallel calls was accepted")
    for reply in accepted:
        t.same_id(accepted[0].accepted(), reply, "parallel retry")
    return accepted[0]


async def _listed_once(m: Subject) -> None:
    # Trial.listing refuses duplicates, so being listed at all means once.
    await m.listed()
