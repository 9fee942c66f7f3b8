"""A need as protobuf: where a profile becomes fields of the wire, for operators that ask and shards that show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.wire import capacity_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.model.profile import Profile
    from bigfleet.model.requirement import Requirement
    from bigfleet.model.resources import Resources


def need_to_wire(profile: Profile, aggregate: Resources, unit: Resources, group: str) -> capacity_pb2.CapacityNeed:
    return capacity_pb2.CapacityNeed(
        requirements=requirements_to_wire(profile.requirements),
        aggregate_resources=aggregate.to_wire(),
        min_unit=unit.to_wire(),
        priority=profile.priority,
        spread=[
            capacity_pb2.TopologySpread(
                topology_key=each.topology_key,
                max_skew=each.max_skew,
                when_unsatisfiable=capacity_pb2.TopologySpread.WhenUnsatisfiable.ValueType(each.when),
            )
            for each in profile.spread
        ],
        interruption_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(profile.interruption_bucket),
        reclamation_penalty_bucket=capacity_pb2.PenaltyBucket.ValueType(profile.reclamation_bucket),
        group=group,
        tolerations=[
            capacity_pb2.Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
            for each in profile.tolerations
        ],
        interruption_microdollars=profile.interruption_microdollars,
    )


def requirements_to_wire(wanted: Iterable[Requirement]) -> list[capacity_pb2.NodeSelectorRequirement]:
    return [
        capacity_pb2.NodeSelectorRequirement(
            key=each.key,
            operator=capacity_pb2.NodeSelectorRequirement.Operator.ValueType(each.operator),
            values=each.values,
        )
        for each in wanted
    ]
