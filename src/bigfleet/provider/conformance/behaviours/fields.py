"""Field shape and cost: what every published record must say about itself, state by state."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from bigfleet.provider.conformance.registry import Capability, Family
from bigfleet.provider.conformance.states import SPOT, STABLE, State, state_name
from bigfleet.provider.conformance.subject import expect_bound, expect_unbound, has_host
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach
from bigfleet.wire import provider_pb2 as pb

FIELDS = Family("Field Shape & Cost")

# The suite's own copy of what `model.names` holds: it judges a provider that may be built on our model.
_FORBIDDEN_LABELS = frozenset(
    {
        "instance-type",
        "instance_type",
        "instanceType",
        "zone",
        "availability-zone",
        "availability_zone",
        "capacity-type",
        "capacity_type",
        "capacityType",
    }
)
_QUANTITY = re.compile(r"^([+-]?[0-9]*\.?[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_SCALE = {
    None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


@FIELDS.behaviour("B801", "StateAndInstanceTypeTopLevel", slots=0)
async def state_and_instance_type_top_level(t: Trial) -> None:
    """Every record has an id, a real state and instance_type, as fields and not hidden in labels.

    Selectors on instance type, zone and capacity type are answered from the fields; labels under any of nine look-alike
    keys would shadow them.
    """
    for machine in await _inventory(t):
        t.require(bool(machine.id), "a listed machine has no id")
        t.require(machine.state != State.UNSPECIFIED, f"{machine.id} has state UNSPECIFIED")
        t.require(bool(machine.instance_type), f"{machine.id} has no instance_type")
        hidden = _FORBIDDEN_LABELS & set(machine.labels)
        t.require(not hidden, f"{machine.id} carries the labels {sorted(hidden)}; these belong in the fields")


@FIELDS.behaviour("B802", "CostFieldBounds", slots=0, profiles=("core", "spot"))
async def cost_field_bounds(t: Trial) -> None:
    """Price is finite and not negative, interruption probability within [0,1], and above 0 for SPOT.

    Spot with probability 0 would make interruptible machines look as safe as on-demand ones at a third of the price.
    """
    check_costs(await _inventory(t))


@FIELDS.behaviour("B803", "HostAndClusterByState")
async def host_and_cluster_by_state(t: Trial) -> None:
    """Speculative: no host, no cluster. Idle: host, no cluster. Configured: both. In List and on a walked machine."""
    for machine in await _inventory(t):
        _check_grid(machine)
    m = t.machine
    _check_grid(await m.get())
    await m.to_idle()
    _check_grid(await m.get())
    await m.to_configured()
    _check_grid(await m.get())
    expect_bound(await m.get(), t.cluster)
    await m.to_drained()
    _check_grid(await m.get())


@FIELDS.behaviour("B804", "DensityComputable", slots=0)
async def density_computable(t: Trial) -> None:
    """Where a record has resources and allocatable, shared dimensions parse as quantities and give a density.

    resources is what one replica takes and must be above 0; allocatable is what the hardware offers.
    """
    judged = 0
    for machine in await _inventory(t):
        resources, allocatable = machine.resources.resources, machine.allocatable.resources
        for name in set(resources) & set(allocatable):
            judged += 1
            t.require(_quantity(machine, name, resources[name]) > 0, f"{machine.id}: resources[{name}] is not above 0")
            t.require(
                _quantity(machine, name, allocatable[name]) >= 0, f"{machine.id}: allocatable[{name}] is negative"
            )
    if not judged:
        t.skip("no machine publishes both resources and allocatable; density 1 is implied")


@FIELDS.behaviour("B805", "StableHostProvider", start=State.IDLE)
async def stable_host_provider(t: Trial) -> None:
    """host.provider names the provider instance, is never empty on a real host, and never changes."""
    m = t.machine
    name = (await m.get()).host.provider
    t.require(bool(name), f"{m.id} is IDLE with an empty host.provider")
    for state in (State.IDLE, State.CONFIGURED, State.IDLE):
        if state is State.CONFIGURED:
            await m.to_configured()
        elif (await m.get()).state == State.CONFIGURED:
            await m.to_drained()
        for machine in (await m.get(), await m.listed(state)):
            t.require(
                machine.host.provider == name,
                f"{m.id}: host.provider changed from {name!r} to {machine.host.provider!r} at {state.name}",
            )


@FIELDS.behaviour("B806", "ZoneCapacityConsistency", start=State.IDLE)
async def zone_capacity_consistency(t: Trial) -> None:
    """Every machine with a host says where it is and how it is paid for: zone and capacity_type are set."""
    for machine in [*await _inventory(t), await t.machine.get()]:
        if machine.state in STABLE and has_host(machine):
            t.require(bool(machine.zone), f"{machine.id} has a host but no zone")
            t.require(machine.capacity_type != 0, f"{machine.id} has a host but capacity_type UNSPECIFIED")


@FIELDS.behaviour(
    "B807", "DeleteClearsHost", start=State.IDLE, capability=Capability.DELETE, profiles=("core", "cloud")
)
async def delete_clears_host(t: Trial) -> None:
    """After a full life the slot is empty again: Speculative, same id, no host, no cluster, no metadata."""
    m = t.machine
    await m.to_configured(metadata={"gone": "soon"})
    await m.to_drained()
    t.require(has_host(await m.get()), f"{m.id} is IDLE after a drain without a host")
    await m.to_deleted()
    machine = await m.get()
    t.require(not has_host(machine), f"{m.id} is SPECULATIVE and still names a host")
    expect_unbound(machine)
    expect_unbound(await m.listed(State.SPECULATIVE))


@FIELDS.behaviour("B808", "SpotProfileOffersSpot", slots=0, profiles=("spot",))
async def spot_profile_offers_spot(t: Trial) -> None:
    """The spot profile promises SPOT machines: at least one is listed, or there is nothing to certify."""
    if not any(machine.capacity_type == SPOT for machine in await _inventory(t)):
        raise t.lacking("the spot profile was claimed but no SPOT machine is listed")


def check_costs(machines: Iterable[pb.Machine]) -> None:
    """Price and probability bounds of every record."""
    for m in machines:
        price, risk = m.price_per_hour, m.interruption_probability
        if not math.isfinite(price) or price < 0:
            raise Breach(f"{m.id}: price_per_hour is {price}; finite and at least 0 was due")
        if math.isnan(risk) or not 0 <= risk <= 1:
            raise Breach(f"{m.id}: interruption_probability is {risk}; within [0, 1] was due")
        if m.capacity_type == SPOT and risk <= 0:
            raise Breach(
                f"{m.id}: a SPOT machine with interruption_probability {risk}",
                contract="SPOT must declare an interruption_probability above 0.",
            )


async def _inventory(t: Trial) -> list[pb.Machine]:
    machines = list((await t.listing()).machines)
    if not machines:
        raise t.lacking("the inventory is empty")
    return machines


def _check_grid(m: pb.Machine) -> None:
    if m.state not in STABLE:
        return
    if has_host(m) != (m.state != State.SPECULATIVE):
        raise Breach(f"{m.id} is {state_name(m.state)} {'with' if has_host(m) else 'without'} a host")
    if m.state == State.CONFIGURED and not m.cluster:
        raise Breach(f"{m.id} is CONFIGURED without a cluster")
    if m.state != State.CONFIGURED:
        expect_unbound(m)


def _quantity(machine: pb.Machine, name: str, text: str) -> float:
    match = _QUANTITY.match(text)
    if not match:
        raise Breach(f"{machine.id}: {name} {text!r} is no quantity", contract="Quantities are Kubernetes quantities.")
    return float(match.group(1)) * _SCALE[match.group(2)]
