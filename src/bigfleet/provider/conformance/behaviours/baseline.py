"""The 25 baseline tests: a passing run is what "BigFleet-compatible" means. The numbered behaviours are stricter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from bigfleet.provider.conformance.behaviours.fields import check_costs
from bigfleet.provider.conformance.registry import Body, Family, Lane
from bigfleet.provider.conformance.reply import Code
from bigfleet.provider.conformance.states import State, state_name
from bigfleet.provider.conformance.subject import expect_bound, expect_unbound, unimplemented
from bigfleet.provider.conformance.trial import Trial

BASELINE = Family("Baseline", Lane.BASELINE)


def _test(name: str, *, slots: int = 1, start: State = State.SPECULATIVE) -> Callable[[Body], Body]:
    return BASELINE.behaviour(f"TestConformance_{name}", name, slots=slots, start=start)


@_test("FullLifecycle")
async def full_lifecycle(t: Trial) -> None:
    """Speculative, Idle, Configured, Idle, Speculative: the whole life of a slot; Delete may be UNIMPLEMENTED."""
    m = t.machine
    await m.to_idle()
    await m.to_configured()
    await m.to_drained()
    deleted = await m.delete()
    if not unimplemented(deleted):
        deleted.accepted()
        await m.settle(State.SPECULATIVE)


@_test("CreateIdempotent")
async def create_idempotent(t: Trial) -> None:
    """Create twice on one Speculative slot returns the same operation id."""
    first = (await t.machine.create()).accepted()
    t.same_id(first, (await t.machine.create()).accepted(), "repeated Create")
    await t.machine.settle(State.IDLE, t.limits.create)


@_test("ConfigureIdempotent", start=State.IDLE)
async def configure_idempotent(t: Trial) -> None:
    """Configure twice with the same arguments returns the same operation id, in flight or settled."""
    first = (await t.machine.configure()).accepted()
    t.same_id(first, (await t.machine.configure()).accepted(), "repeated Configure")
    await t.machine.settle(State.CONFIGURED)


@_test("DrainIdempotent", start=State.IDLE)
async def drain_idempotent(t: Trial) -> None:
    """Drain twice returns the same operation id."""
    await t.machine.to_configured()
    first = (await t.machine.drain(grace=30)).accepted()
    t.same_id(first, (await t.machine.drain(grace=30)).accepted(), "repeated Drain")
    await t.machine.settle(State.IDLE, t.limits.drain)


@_test("DeleteIdempotent", start=State.IDLE)
async def delete_idempotent(t: Trial) -> None:
    """Delete twice on an Idle machine returns the same operation id; not applicable where UNIMPLEMENTED."""
    first = await t.machine.delete()
    if unimplemented(first):
        t.skip("Delete is UNIMPLEMENTED")
    t.same_id(first.accepted(), (await t.machine.delete()).accepted(), "repeated Delete")
    await t.machine.settle(State.SPECULATIVE)


@_test("GetUnknownMachine", slots=0)
async def get_unknown_machine(t: Trial) -> None:
    """Get on an unknown machine id answers NOT_FOUND."""
    (await t.get(t.ghost())).coded(Code.NOT_FOUND)


@_test("DeleteUnknownMachine", slots=0)
async def delete_unknown_machine(t: Trial) -> None:
    """Delete on an unknown machine id answers NOT_FOUND, or UNIMPLEMENTED where Delete does not exist."""
    (await t.delete(t.ghost())).coded(Code.NOT_FOUND, Code.UNIMPLEMENTED)


@_test("ListFiltersByState", slots=1, start=State.IDLE)
async def list_filters_by_state(t: Trial) -> None:
    """List with the IDLE filter returns Idle machines only, and does return one that is Idle."""
    for machine in (await t.listing((State.IDLE,))).machines:
        t.require(machine.state == State.IDLE, f"List(IDLE) returned {machine.id} in {state_name(machine.state)}")
    await t.machine.listed(State.IDLE)


@_test("ListMaxResults", slots=0)
async def list_max_results(t: Trial) -> None:
    """List with max_results 1 returns at most one machine."""
    count = len((await t.listing(max_results=1)).machines)
    t.require(count <= 1, f"List(max_results=1) returned {count} machines")


@_test("LabelShape", slots=0)
async def label_shape(t: Trial) -> None:
    """Every listed machine has an instance_type and a state."""
    machines = (await t.listing()).machines
    if not machines:
        raise t.lacking("the inventory is empty")
    for m in machines:
        t.require(bool(m.instance_type) and m.state != State.UNSPECIFIED, f"{m.id} lacks instance_type or state")


@_test("CostFieldBounds", slots=0)
async def cost_field_bounds(t: Trial) -> None:
    """Every listed price is at least 0 and every interruption probability within [0,1]; none is NaN."""
    machines = (await t.listing()).machines
    if not machines:
        raise t.lacking("the inventory is empty")
    check_costs(machines)


@_test("ListRevisionAdvances")
async def list_revision_advances(t: Trial) -> None:
    """A provider that hands out revisions hands out another one after a machine was created."""
    before = (await t.listing()).revision
    await t.machine.to_idle()
    after = (await t.listing()).revision
    t.require(not before or before != after, "the revision did not change although a machine was created")


@_test("DrainOnSpeculative")
async def drain_on_speculative(t: Trial) -> None:
    """Drain on a Speculative slot is refused, not with FAILED_PRECONDITION."""
    (await t.machine.drain()).rejected("the machine is SPECULATIVE")


@_test("DeleteOnConfigured", start=State.IDLE)
async def delete_on_configured(t: Trial) -> None:
    """Delete on a Configured machine is refused, not with FAILED_PRECONDITION."""
    await t.machine.to_configured()
    (await t.machine.delete()).rejected("the machine is CONFIGURED")


@_test("TransitionalStateObservability")
async def transitional_state_observability(t: Trial) -> None:
    """After Create only SPECULATIVE, CREATING and IDLE are seen, and the machine settles at Idle."""
    (await t.machine.create()).accepted()
    for machine in await t.machine.trace(State.IDLE, t.limits.create):
        t.require(
            machine.state in (State.SPECULATIVE, State.CREATING, State.IDLE),
            f"{machine.id} showed {state_name(machine.state)} during Create",
        )


@_test("DrainGraceTimeout", start=State.IDLE)
async def drain_grace_timeout(t: Trial) -> None:
    """Drain without grace ends at Idle, or FAILED with last_error; back at Configured or stuck in DRAINING fails."""
    m = t.machine
    await m.to_configured()
    (await m.drain(grace=0)).accepted()
    deadline = time.monotonic() + t.limits.drain
    while (machine := await m.get()).state not in (State.IDLE, State.FAILED):
        t.require(machine.state != State.CONFIGURED, f"{m.id} went back to CONFIGURED after an accepted Drain")
        t.require(time.monotonic() < deadline, f"{m.id} is stuck in {state_name(machine.state)}")
        await asyncio.sleep(t.limits.poll)
    t.require(machine.state == State.IDLE or bool(machine.last_error), f"{m.id} is FAILED without last_error")


@_test("FencingUnknownShardAccepted", start=State.IDLE)
async def fencing_unknown_shard_accepted(t: Trial) -> None:
    """A shard never seen before is accepted at (1,1); the same token again is fenced."""
    shard = t.shard("new")
    (await t.machine.create(shard.at(1, 1))).not_fenced().answered()
    (await t.machine.create(shard.at(1, 1))).fenced()


@_test("FencingStaleEpochRejected", start=State.IDLE)
async def fencing_stale_epoch_rejected(t: Trial) -> None:
    """With the mark at (2,1), epoch 1 is fenced whatever its sequence."""
    shard = t.shard("epoch")
    (await t.machine.create(shard.at(2, 1))).not_fenced().answered()
    (await t.machine.create(shard.at(1, 99))).fenced()


@_test("FencingStaleSequenceRejected", start=State.IDLE)
async def fencing_stale_sequence_rejected(t: Trial) -> None:
    """With the mark at (1,5), sequences 5 and 4 of the same epoch are fenced."""
    shard = t.shard("seq")
    (await t.machine.create(shard.at(1, 5))).not_fenced().answered()
    (await t.machine.create(shard.at(1, 5))).fenced()
    (await t.machine.create(shard.at(1, 4))).fenced()


@_test("FencingPerMachineIsolation", slots=2, start=State.IDLE)
async def fencing_per_machine_isolation(t: Trial) -> None:
    """One shard's mark on one machine says nothing about another machine."""
    shard = t.shard("iso")
    a, b = t.machines[:2]
    (await a.create(shard.at(1, 30))).not_fenced().answered()
    (await b.create(shard.at(1, 7))).not_fenced().answered()
    (await b.create(shard.at(1, 7))).fenced()
    (await a.create(shard.at(1, 30))).fenced()
    (await b.create(shard.at(0, 999))).fenced()


@_test("FencingNewEpochResetsSequence", start=State.IDLE)
async def fencing_new_epoch_resets_sequence(t: Trial) -> None:
    """A higher epoch starts its own sequence space: after (1,1000) comes (2,1)."""
    shard = t.shard("reset")
    (await t.machine.create(shard.at(1, 1000))).not_fenced().answered()
    (await t.machine.create(shard.at(2, 1))).not_fenced().answered()


@_test("FencingReadsUnaffected", start=State.IDLE)
async def fencing_reads_unaffected(t: Trial) -> None:
    """Get and List work for everyone, also right after a fenced call."""
    shard = t.shard("reads")
    (await t.machine.create(shard.at(9, 9))).not_fenced().answered()
    (await t.machine.create(shard.at(1, 1))).fenced()
    await t.machine.get()
    await t.listing()


@_test("MetadataEchoedOnGetAndList", start=State.IDLE)
async def metadata_echoed_on_get_and_list(t: Trial) -> None:
    """Cluster and three metadata keys, one value holding NUL, come back verbatim on Get and List."""
    metadata = {"priority": "100", "group": "rack\x00gang", "fingerprint": "abc"}
    await t.machine.to_configured(metadata=metadata)
    expect_bound(await t.machine.get(), t.cluster, metadata)
    expect_bound(await t.machine.listed(State.CONFIGURED), t.cluster, metadata)


@_test("MetadataAndBindingClearOnDrain", start=State.IDLE)
async def metadata_and_binding_clear_on_drain(t: Trial) -> None:
    """After a Drain cluster and metadata are empty."""
    await t.machine.to_configured(metadata={"a": "1"})
    await t.machine.to_drained()
    expect_unbound(await t.machine.get())


@_test("MetadataUnknownKeysPreservedVerbatim", start=State.IDLE)
async def metadata_unknown_keys_preserved_verbatim(t: Trial) -> None:
    """Keys the provider has never heard of, Unicode, tabs and empty values are preserved."""
    metadata = {"example.org/unknown": "zażółć\tgęślą", "example.org/empty": ""}
    await t.machine.to_configured(metadata=metadata)
    expect_bound(await t.machine.get(), t.cluster, metadata)
