"""Why one need got what it got: what serves it and at which price, who holds what it could use, what would help.

Looks at every machine once, by shape, and gives the loop its turn while doing so. Explains a decision; makes none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bigfleet.engine.results import UnmetReason
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import bucket_dollars
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator
from bigfleet.shard import views
from bigfleet.shard.matching import parse_canonical, serves
from bigfleet.wire import provider_pb2, shardread_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bigfleet.engine.batches import Shape
    from bigfleet.engine.results import Verdict
    from bigfleet.model.resources import Resources
    from bigfleet.shard.published import Published
    from bigfleet.shard.records import Record

LOST_SHOWN = 10
_SERVING = {
    MachineState.CONFIGURED: "credited",
    MachineState.CONFIGURING: "idle",
    MachineState.CREATING: "speculative",
}
_HELD = frozenset({MachineState.CONFIGURED, MachineState.CONFIGURING, MachineState.DRAINING})
_FREE = frozenset({MachineState.IDLE, MachineState.SPECULATIVE})

Kind = tuple[str, str, int, int, float, float]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a machine the need could use; empty when nobody has."""

    cluster: str = ""
    fingerprint: str = ""
    group: str = ""
    priority: int = 0
    why: str = ""


async def explain(
    verdict: Verdict, profile: Profile | None, records: AsyncIterator[Record], published: Published
) -> shardread_pb2.NeedExplanation:
    """The explanation without its NeedView, which the caller has."""
    made = shardread_pb2.NeedExplanation(reason=_sentence(verdict, published))
    if profile is None:
        return made
    unit = parse_canonical(verdict.key.min_unit)
    penalty = bucket_dollars(profile.interruption_bucket)
    granted: Counter[tuple[Kind, str]] = Counter()
    lost: Counter[tuple[Kind, Holder]] = Counter()
    fits: dict[int, bool] = {}
    shapes: dict[int, Record] = {}
    async for record in records:
        source = _granted_as(record, verdict)
        if source:
            granted[_kind(record, penalty), source] += 1
            continue
        if verdict.satisfied:
            continue
        shape = id(record.shape)
        usable = fits.get(shape)
        if usable is None:
            usable = fits[shape] = serves(record, profile, unit)
            shapes[shape] = record
        if usable:
            lost[_kind(record, penalty), _holder(record, verdict)] += 1
    for (kind, source), count in sorted(granted.items()):
        made.granted.append(_granted(kind, source, count))
        made.price_per_hour += kind[4] * count
        made.effective_cost_per_hour += kind[5] * count
    for (kind, holder), count in sorted(lost.items(), key=lambda row: (row[0][0][5], row[0][0], row[0][1].cluster))[
        :LOST_SHOWN
    ]:
        made.lost.append(_lost(kind, holder, count))
    remedy = None if verdict.satisfied else _remedy(verdict, profile, unit, lost, list(shapes.values()))
    if remedy is not None:
        made.remedy.CopyFrom(remedy)
    return made


def _sentence(verdict: Verdict, published: Published) -> str:
    blocked = published.blocked.get((verdict.key.cluster, verdict.key.fingerprint))
    if blocked and not verdict.satisfied:
        return f"The cluster's operator cannot render user data for it: {blocked}"
    return views.REASONS[verdict.reason]


def _granted_as(record: Record, verdict: Verdict) -> str:
    key, stamp = verdict.key, record.stamp
    if record.cluster != key.cluster or stamp.fingerprint != key.fingerprint:
        return ""
    if key.group and stamp.group != key.group:
        return ""
    return _SERVING.get(record.state, "")


def _kind(record: Record, penalty: float) -> Kind:
    shape = record.shape
    return (
        shape.instance_type,
        shape.zone,
        shape.capacity_type,
        int(record.state),
        shape.price,
        _effective(shape, penalty),
    )


def _effective(shape: Shape, penalty: float) -> float:
    # Nothing times an infinite penalty is nothing: a pinned need on a machine that is never interrupted.
    return shape.price + (shape.probability * penalty if shape.probability else 0.0)


def _holder(record: Record, verdict: Verdict) -> Holder:
    if not record.owned:
        return Holder(why="another shard's machine")
    if record.state in _HELD:
        stamp = record.stamp
        if record.cluster == verdict.key.cluster:
            return Holder(record.cluster, stamp.fingerprint, stamp.group, stamp.priority, "serves other demand here")
        above = stamp.priority >= verdict.priority
        why = "held at equal or higher priority" if above else "held at lower priority, not enough or not preemptible"
        return Holder(record.cluster, stamp.fingerprint, stamp.group, stamp.priority, why)
    if record.state in _FREE:
        return Holder(why="free, yet resting after a failure or kept apart by topology")
    return Holder(why=f"{MachineState(record.state).label}: not usable now")


def _granted(kind: Kind, source: str, count: int) -> shardread_pb2.GrantedSupply:
    return shardread_pb2.GrantedSupply(
        instance_type=kind[0],
        zone=kind[1],
        capacity_type=views.capacity_type(kind[2]),
        state=provider_pb2.MachineState.ValueType(kind[3]),
        count=count,
        price_per_hour=kind[4],
        effective_cost_per_hour=kind[5],
        source=source,
    )


def _lost(kind: Kind, holder: Holder, count: int) -> shardread_pb2.LostCandidate:
    return shardread_pb2.LostCandidate(
        instance_type=kind[0],
        zone=kind[1],
        capacity_type=views.capacity_type(kind[2]),
        state=provider_pb2.MachineState.ValueType(kind[3]),
        count=count,
        effective_cost_per_hour=kind[5],
        reason=holder.why,
        winner_cluster_id=holder.cluster,
        winner_fingerprint=holder.fingerprint,
        winner_group=holder.group,
        winner_priority=holder.priority,
    )


def _remedy(
    verdict: Verdict, profile: Profile, unit: Resources, lost: Counter[tuple[Kind, Holder]], examples: list[Record]
) -> shardread_pb2.Remedy | None:
    """The first single change that would help, by the reason the need is unmet."""
    if verdict.reason in (UnmetReason.PRIORITY_STARVED, UnmetReason.PREEMPTION_EXHAUSTED):
        priorities = [holder.priority for _, holder in lost if holder.cluster not in ("", verdict.key.cluster)]
        if priorities:
            return shardread_pb2.Remedy(raise_priority=shardread_pb2.RaisePriority(above=min(priorities)))
        return _more(verdict, profile, examples)
    if verdict.reason == UnmetReason.NO_MATCHING_SUPPLY:
        for index, requirement in enumerate(profile.requirements):
            without = _without(profile, index)
            if any(serves(record, without, unit) for record in examples):
                values = ",".join(requirement.values)
                text = f"{requirement.key}:{int(requirement.operator)}:{values};"
                return shardread_pb2.Remedy(drop_constraint=shardread_pb2.DropConstraint(constraint=text))
        return _more(verdict, profile, examples)
    if verdict.reason == UnmetReason.SPREAD_UNSATISFIABLE and profile.strict_spread is not None:
        spread = profile.strict_spread
        text = f"{spread.topology_key}:{spread.max_skew}:{int(spread.when)};"
        return shardread_pb2.Remedy(drop_constraint=shardread_pb2.DropConstraint(constraint=text))
    if verdict.reason in (UnmetReason.TOPOLOGY_UNSATISFIABLE, UnmetReason.RESOURCE_NOT_PUBLISHED):
        return _more(verdict, profile, examples)
    return None


def _more(verdict: Verdict, profile: Profile, examples: list[Record]) -> shardread_pb2.Remedy:
    supply = shardread_pb2.AddSupply(count=1)
    unit = parse_canonical(verdict.key.min_unit)
    fitting = sorted(
        (record.shape for record in examples if serves(record, profile, unit)),
        key=lambda shape: (shape.price, shape.instance_type),
    )
    if fitting:
        supply.instance_type = fitting[0].instance_type
        offered = fitting[0].allocatable
        supply.count = max(
            (-(-amount // offered.get(name)) for name, amount in verdict.deficit.items() if offered.get(name)),
            default=1,
        )
    elif profile.pinned_instance_types:
        supply.instance_type = profile.pinned_instance_types[0]
    if profile.same is not None:
        supply.domain_key = profile.same.key
        if verdict.candidates:
            supply.domain_value = verdict.candidates[0].domain
    return shardread_pb2.Remedy(add_supply=supply)


def _without(profile: Profile, index: int) -> Profile:
    kept = [requirement for number, requirement in enumerate(profile.requirements) if number != index]
    return Profile(
        [requirement for requirement in kept if requirement.operator is not Operator.SAME],
        profile.spread,
        profile.priority,
        profile.interruption_bucket,
        profile.reclamation_bucket,
        profile.tolerations,
    )
