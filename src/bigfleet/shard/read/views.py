"""What readers are shown, as wire messages: needs, machines, actions. Pure translation, no filter and no paging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import UnmetReason
from bigfleet.model.machine import CapacityType
from bigfleet.model.penalty import bucket_for
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.core.actions.emission import ActionTaken, beaten
from bigfleet.shard.core.machines.matching import attribute
from bigfleet.shard.streams.codec import taints
from bigfleet.wire import capacity_pb2, provider_pb2, shardread_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bigfleet.engine.batches import Shape
    from bigfleet.engine.results import UnitParts, Verdict
    from bigfleet.model.profile import Profile
    from bigfleet.model.resources import Resources
    from bigfleet.shard.core.clusters.refused_rows import RefusedNeed
    from bigfleet.shard.core.published import MachineView
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.operations import Operation

_INT32 = 2**31 - 1
_KINDS = {name.removeprefix("ACTION_KIND_").capitalize(): number for name, number in shardread_pb2.ActionKind.items()}
BOOTSTRAP_FAILED = shardread_pb2.UNMET_REASON_BOOTSTRAP_FAILED
# Reasons of a need that lacks nothing more than what was decided for it.
UNDER_WAY = frozenset({UnmetReason.NONE, UnmetReason.AWAITING_NODE, UnmetReason.AWAITING_DRAIN})


def need_view(
    verdict: Verdict,
    need: capacity_pb2.CapacityNeed,
    blocked: bool,
    sold_out: Iterable[str] = (),
    barred: Iterable[str] = (),
    detail: str = "",
    failed: int = 0,
    held: str = "",
    away_since: int = 0,
    not_as_offered: bool = False,
) -> shardread_pb2.NeedView:
    """One row of InspectNeeds. `blocked`: the cluster's operator cannot render user data for it at the moment.

    `sold_out`: kinds of machines that would serve it and cannot be bought at the moment.
    `barred`: providers its machines would be of and that nothing is asked of at the moment, each with why.
    `detail`: what more is known of the reason than its code says; `failed`: machines it tells of that have failed.
    `held`: why nothing of what was decided for it is done. `away_since`: its cluster said all this before then.
    `not_as_offered`: what did not help it came as something else than is offered.
    """
    view = shardread_pb2.NeedView(
        need=need,
        cluster_id=verdict.key.cluster,
        arrival_unix_nanos=verdict.arrival,
        profile_fingerprint=verdict.key.fingerprint,
        satisfied=verdict.satisfied,
        claimed_machine_count=_clipped(verdict.claimed),
        bootstrap_count=_clipped(verdict.bootstraps),
        provision_count=_clipped(verdict.provisions),
        same_domain=verdict.domain or "",
        same_satisfiable=verdict.satisfiable,
        acquisition_parked=verdict.parked,
        age_cycles_unmet=_clipped(verdict.unmet_age),
        unmet_reason=shardread_pb2.UnmetReason.ValueType(int(verdict.reason)),
        not_as_offered=not_as_offered,
        same_candidates=[
            shardread_pb2.DomainCoverage(
                domain=each.domain, coverage_per_mille=each.per_mille, satisfiable=each.satisfiable
            )
            for each in verdict.candidates
        ],
        sold_out=sold_out,
        barred=barred,
        detail=detail,
        failed_machines=_clipped(failed),
        held=held,
        away_since_unix_nanos=away_since,
    )
    if verdict.units is not None:
        view.units.CopyFrom(_units(verdict.units))
    if blocked and (not verdict.satisfied or verdict.bootstraps + verdict.provisions):
        # The engine counts on machines that nobody can turn into nodes at the moment.
        view.satisfied = False
        view.unmet_reason = BOOTSTRAP_FAILED
    elif held and verdict.reason in UNDER_WAY:
        # What would answer all of it was decided, and nobody does it.
        view.satisfied = False
        view.unmet_reason = shardread_pb2.UNMET_REASON_ACQUISITION_HELD
    if verdict.satisfied:
        return view
    if verdict.parked:
        view.parked_age_cycles = _clipped(verdict.parked_age)
    if not verdict.deficit.is_zero:
        view.residual_deficit.resources.update(verdict.deficit.to_wire())
    if verdict.supply is not None:
        view.matching_supply.idle = verdict.supply.idle
        view.matching_supply.configured = verdict.supply.configured
        view.matching_supply.speculative = verdict.supply.speculative
        view.matching_supply.capped = verdict.supply.capped
    if verdict.victims:
        view.preemption.victims_found = _clipped(verdict.victims)
        view.preemption.capacity_freed.resources.update(verdict.freed.to_wire())
    return view


def refused_view(refused: RefusedNeed, need: capacity_pb2.CapacityNeed, away_since: int = 0) -> shardread_pb2.NeedView:
    """A row that no step knows of, because what it says cannot be true."""
    view = shardread_pb2.NeedView(
        need=need,
        cluster_id=refused.cluster,
        profile_fingerprint=refused.profile.fingerprint,
        unmet_reason=shardread_pb2.UNMET_REASON_ROW_REFUSED,
        detail=f"refused: {refused.why}",
        away_since_unix_nanos=away_since,
    )
    view.residual_deficit.resources.update(need.aggregate_resources)
    return view


def sold_out_for(profile: Profile, unit: Resources, sold_out: Iterable[tuple[Shape, int]], now: int) -> Iterator[str]:
    """The kinds among these that would serve a need of this profile and unit, in words."""
    for shape, until in sold_out:
        if shape.allocatable.covers(unit) and profile.matches(lambda key, shape=shape: attribute("", shape, key)):  # type: ignore[misc]
            again = max(0, until - now) // SECOND
            yield f"{shape.instance_type} in {shape.zone or 'no zone'} of {shape.provider}, tried again in {again}s"


def _units(parts: UnitParts) -> shardread_pb2.NeedUnits:
    return shardread_pb2.NeedUnits(
        count=parts.count,
        running=parts.running,
        room=parts.room,
        stranded=parts.stranded,
        coming=parts.coming,
        coming_until_unix_nanos=parts.coming_until,
        acquired=parts.acquired,
        awaiting=parts.awaiting,
        missing=parts.missing,
    )


REASONS = {
    UnmetReason.NONE: "Satisfied.",
    UnmetReason.PRIORITY_STARVED: "Matching machines exist, but demand of equal or higher precedence holds them all.",
    UnmetReason.NO_MATCHING_SUPPLY: "No machine in any state has labels and taints that suit it and is large enough.",
    UnmetReason.TOPOLOGY_UNSATISFIABLE: "All its machines must share one domain, and none has room for them all now.",
    UnmetReason.PREEMPTION_EXHAUSTED: "Everything that could be preempted for it is not enough.",
    UnmetReason.RESOURCE_NOT_PUBLISHED: "It wants a resource that no machine offers.",
    UnmetReason.SPREAD_UNSATISFIABLE: "Free machines match, but taking them would break its spread.",
    UnmetReason.CLUSTER_DISCONNECTED: "Its cluster has no session, or is another shard's; it keeps what it has.",
    UnmetReason.ACQUISITION_HELD: "Nothing is acquired until every provider has listed and losses are confirmed.",
    UnmetReason.SUPPLY_BACKED_OFF: "Matching machines failed recently and are left alone for a while.",
    UnmetReason.AWAITING_DRAIN: "Machines are being drained for it.",
    UnmetReason.AWAITING_NODE: "Machines for it are under way; their nodes have not appeared yet.",
    UnmetReason.FRAGMENTATION: "Its cluster has as much free, but in pieces too small for a unit.",
    UnmetReason.RISK_TOO_HIGH: "What is free is interrupted too often for what an interruption costs it.",
    UnmetReason.DID_NOT_HELP: "Machines of the kinds that fit came and were no use to it: they are left alone.",
    UnmetReason.EXCLUSIVE: "One goes on a node: those with room have one already, and no further machine fits it.",
    UnmetReason.NOT_BELIEVED: "What its operator says of pods and nodes contradicts itself: it gets nothing more.",
}


def machine(record: Record) -> provider_pb2.Machine:
    """The record as a provider would describe it."""
    shape = record.shape
    made = provider_pb2.Machine(
        id=record.id,
        state=provider_pb2.MachineState.ValueType(record.state),
        instance_type=shape.instance_type,
        zone=shape.zone,
        capacity_type=provider_pb2.CapacityType.ValueType(shape.capacity_type),
        price_per_hour=shape.price,
        interruption_probability=shape.probability,
        labels=dict(shape.labels),
        last_error=record.error,
        cluster=record.cluster,
        taints=taints(shape),
    )
    made.allocatable.resources.update(shape.allocatable.to_wire())
    if record.host:
        made.host.provider = shape.provider
        made.host.ref = record.host
    return made


def machine_view(view: MachineView) -> shardread_pb2.MachineView:
    stamp = view.record.stamp
    made = shardread_pb2.MachineView(
        machine=machine(view.record),
        provider=view.provider,
        owned=view.owned,
        assigned_fingerprint=stamp.fingerprint,
        assigned_group=stamp.group,
        assigned_priority=stamp.priority,
        in_flight=action_kind(view.operation),
        not_before_unix_nanos=view.not_before,
        node_name=view.node.node_name if view.node is not None else "",
        machine_id=view.key,
        state_since_unix_nanos=view.story[-1].at if view.story else 0,
    )
    if stamp.fingerprint:
        bucket = capacity_pb2.PenaltyBucket.ValueType
        made.assigned_interruption_penalty_bucket = bucket(bucket_for(stamp.interruption_dollars))
        made.assigned_reclamation_penalty_bucket = bucket(bucket_for(stamp.reclamation_dollars))
    return made


def action_kind(word: str) -> shardread_pb2.ActionKind.ValueType:
    """The kind in a text such as `Bootstrap` or `Bootstrap: calling`; unspecified for anything else."""
    return shardread_pb2.ActionKind.ValueType(_KINDS.get(word.partition(":")[0].capitalize(), 0))


def action_view(taken: ActionTaken, record: Record | None) -> shardread_pb2.ActionView:
    made = shardread_pb2.ActionView(
        decided_at_unix_nanos=taken.decided or taken.at,
        cycle=taken.cycle,
        kind=action_kind(taken.kind),
        machine_id=taken.machine,
        cluster_id=taken.cluster,
        fingerprint=taken.fingerprint,
        group=taken.group,
        reason=taken.reason,
        beat=beaten(taken),
        grace_seconds=taken.grace_seconds,
        outcome=taken.outcome,
        error=taken.detail if taken.outcome != Outcome.SUCCESS else "",
        finished_at_unix_nanos=taken.at,
    )
    if record is not None:
        made.provider = record.provider
        made.instance_type = record.shape.instance_type
        made.zone = record.shape.zone
    return made


def operation_view(operation: Operation) -> shardread_pb2.ActionView:
    """An action that is still being carried out: it has no outcome yet."""
    record = operation.machine
    return shardread_pb2.ActionView(
        decided_at_unix_nanos=operation.decided or operation.began,
        cycle=operation.cycle,
        kind=action_kind(operation.kind.name),
        provider=record.provider,
        machine_id=record.key,
        instance_type=record.shape.instance_type,
        zone=record.shape.zone,
        cluster_id=operation.cluster,
        fingerprint=operation.fingerprint,
        group=operation.group,
        reason=operation.reason,
        grace_seconds=operation.grace_seconds,
        error=operation.error,
        attempts=operation.attempts,
    )


def capacity_type(number: int) -> provider_pb2.CapacityType.ValueType:
    known = {int(kind) for kind in CapacityType}
    return provider_pb2.CapacityType.ValueType(number if number in known else 0)


def _clipped(number: int) -> int:
    return min(number, _INT32)
