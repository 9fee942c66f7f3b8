"""Lifecycle and state machine: which states a machine may show, in which order, and what it carries in each."""

from __future__ import annotations

import itertools

from bigfleet.provider.conformance.registry import Capability, Family
from bigfleet.provider.conformance.states import LEGAL_STEPS, STABLE, State, state_name
from bigfleet.provider.conformance.subject import Subject, expect_bound, expect_unbound, has_host
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach
from bigfleet.wire import provider_pb2 as pb

LIFECYCLE = Family("Lifecycle & State Machine")

_MAP = {"bigfleet.lucy.sh/assigned-priority": "7", "bigfleet.lucy.sh/assigned-group": "rack\x00gang"}


@LIFECYCLE.behaviour("B101", "RoundTripNoResidue", start=State.IDLE)
async def round_trip_no_residue(t: Trial) -> None:
    """Four Configure/Drain cycles leave nothing behind.

    At the first and at every later Idle the machine is exactly IDLE with cluster, shard_metadata and last_error empty;
    at Configured its cluster is set.
    """
    m = t.machine
    await m.clean_at(State.IDLE)
    for _ in range(4):
        await m.to_configured(metadata=_MAP)
        expect_bound(await m.get(), t.cluster)
        await m.to_drained()
        await m.clean_at(State.IDLE)


@LIFECYCLE.behaviour("B103", "ConfigureTransitionalIsConfiguring", start=State.IDLE)
async def configure_transitional_is_configuring(t: Trial) -> None:
    """Between Idle and Configured the only transitional state a machine may show is CONFIGURING, and it must settle."""
    (await t.machine.configure()).accepted()
    t.machine.expect_only(await t.machine.trace(State.CONFIGURED), State.CONFIGURING)


@LIFECYCLE.behaviour("B104", "DrainTransitionalIsDraining", start=State.IDLE)
async def drain_transitional_is_draining(t: Trial) -> None:
    """Between Configured and Idle the only transitional state a machine may show is DRAINING, and it must settle."""
    await t.machine.to_configured()
    (await t.machine.drain()).accepted()
    t.machine.expect_only(await t.machine.trace(State.IDLE), State.DRAINING)


@LIFECYCLE.behaviour("B105", "LegalAdjacencyTrace")
async def legal_adjacency_trace(t: Trial) -> None:
    """Every observed step of Create, Configure and Drain follows an edge of the contract.

    A transitional state may be skipped by a fast backend; a stable state never.
    """
    m = t.machine
    seen = [State((await m.get()).state)]
    for call, goal in ((m.create, State.IDLE), (m.configure, State.CONFIGURED), (m.drain, State.IDLE)):
        (await call()).accepted()
        seen += [State(machine.state) for machine in await m.trace(goal)]
    t.require(seen[0] is State.SPECULATIVE, f"the walk began at {seen[0].name}, not at SPECULATIVE")
    for before, after in itertools.pairwise(seen):
        if before is not after:
            t.require(
                (before, after) in LEGAL_STEPS,
                f"{m.id} went from {before.name} to {after.name}, which is no edge of the contract",
            )


@LIFECYCLE.behaviour("B106", "ClusterBindingInvariant", start=State.IDLE)
async def cluster_binding_invariant(t: Trial) -> None:
    """cluster is empty at Idle, set from the moment Configure is accepted, and empty again after Drain.

    A CONFIGURING record without a cluster is structurally invalid and a shard refuses it.
    """
    m = t.machine
    expect_unbound(await m.get())
    (await m.configure()).accepted()
    for machine in await m.trace(State.CONFIGURED):
        if machine.state in (State.CONFIGURING, State.CONFIGURED):
            expect_bound(machine, t.cluster)
    await m.to_drained()
    expect_unbound(await m.get())


@LIFECYCLE.behaviour("B107", "HostByStateAtEveryRest")
async def host_by_state_at_every_rest(t: Trial) -> None:
    """A Speculative slot has no host; Idle and Configured machines have one, also after a drain."""
    m = t.machine
    await _rests(m, State.SPECULATIVE, host=False)
    await m.to_idle()
    await _rests(m, State.IDLE, host=True)
    await m.to_configured()
    await _rests(m, State.CONFIGURED, host=True)
    await m.to_drained()
    await _rests(m, State.IDLE, host=True)


@LIFECYCLE.behaviour("B108", "NoSpontaneousReTransition", start=State.IDLE)
async def no_spontaneous_re_transition(t: Trial) -> None:
    """A machine at rest stays put: nothing but an accepted call starts a transition."""
    await t.machine.to_configured()
    await t.machine.stays(State.CONFIGURED)
    await t.machine.to_drained()
    await t.machine.stays(State.IDLE)


@LIFECYCLE.behaviour(
    "B109",
    "DeleteTransitionalIsDeleting",
    start=State.IDLE,
    capability=Capability.DELETE,
    profiles=("core", "cloud"),
)
async def delete_transitional_is_deleting(t: Trial) -> None:
    """Between Idle and Speculative the only transitional state is DELETING; the slot comes back under the same id."""
    (await t.machine.delete()).accepted()
    t.machine.expect_only(await t.machine.trace(State.SPECULATIVE), State.DELETING)


@LIFECYCLE.behaviour("B110", "DrainingKeepsBinding", start=State.IDLE)
async def draining_keeps_binding(t: Trial) -> None:
    """While DRAINING a machine still carries its cluster and its whole shard_metadata.

    Both are cleared only on reaching Idle: a shard restarted during the drain must still see whose pods are leaving.
    Checked on the ack snapshot and on every DRAINING record seen.
    """
    m = t.machine
    await m.to_configured(metadata=_MAP)
    ack = (await m.drain()).accepted()
    records = [ack.snapshot] if ack.snapshot else []
    for machine in [*records, *await m.trace(State.IDLE)]:
        if machine.state == State.DRAINING:
            expect_bound(machine, t.cluster, _MAP)
    expect_unbound(await m.get())


@LIFECYCLE.behaviour(
    "B111", "DeletingKeepsHost", start=State.IDLE, capability=Capability.DELETE, profiles=("core", "cloud")
)
async def deleting_keeps_host(t: Trial) -> None:
    """While DELETING the host is still named; it is cleared on reaching Speculative.

    A host that loses its name before it is gone is a host nobody can find any more, and somebody pays for it.
    """
    ack = (await t.machine.delete()).accepted()
    records = [ack.snapshot] if ack.snapshot else []
    for machine in [*records, *await t.machine.trace(State.SPECULATIVE)]:
        if machine.state == State.DELETING:
            t.require(has_host(machine), f"{machine.id} is DELETING without a host")
            expect_unbound(machine)
    t.require(not has_host(await t.machine.get()), f"{t.machine.id} is SPECULATIVE and still names a host")


@LIFECYCLE.behaviour("B112", "MatchingFieldsStableOverLifecycle")
async def matching_fields_stable_over_lifecycle(t: Trial) -> None:
    """What demand is matched by does not change while a machine moves: labels, instance_type, zone, capacity_type.

    The engine chose the machine for these values before it was created; a label that changes afterwards breaks
    co-location and selectors that were already answered. A provider may add labels once the host exists, never change
    or drop one it published.
    """
    m = t.machine
    before = await m.get()
    await m.to_idle()
    _same_matching(before, await m.get())
    await m.to_configured(metadata=_MAP)
    _same_matching(before, await m.get())
    await m.to_drained()
    _same_matching(before, await m.get())
    _same_matching(before, await m.listed(State.IDLE))


async def _rests(m: Subject, state: State, *, host: bool) -> None:
    machine = await m.get()
    m.expect_state(machine, state)
    if machine.state not in STABLE:
        raise Breach(f"{m.id} rests in {state_name(machine.state)}, which is no stable state")
    if has_host(machine) != host:
        raise Breach(f"{m.id} is {state.name} {'without' if host else 'with'} a host")


def _same_matching(before: pb.Machine, now: pb.Machine) -> None:
    for field in ("instance_type", "zone", "capacity_type"):
        if getattr(before, field) != getattr(now, field):
            raise Breach(
                f"{now.id}: {field} changed from {getattr(before, field)!r} to {getattr(now, field)!r} "
                f"by {state_name(now.state)}"
            )
    for key, value in before.labels.items():
        if now.labels.get(key) != value:
            raise Breach(
                f"{now.id}: label {key!r} changed from {value!r} to {now.labels.get(key)!r} by {state_name(now.state)}"
            )
