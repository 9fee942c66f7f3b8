"""What a CapacityRequest means: the profile it is counted under, its gang, and its exact unit."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from bigfleet.crd.capacity_request import CapacityRequestSpec, CoLocation
from bigfleet.crd.capacity_request import Requirement as Expression
from bigfleet.crd.capacity_request import Toleration as WrittenToleration
from bigfleet.crd.metadata import QuantityValue
from bigfleet.model.group import group_string
from bigfleet.model.machine import CapacityType
from bigfleet.model.names import CAPACITY_TYPE_LABEL
from bigfleet.model.penalty import PINNED, UNSPECIFIED, bucket_for, finer_bound
from bigfleet.model.profile import Profile
from bigfleet.model.quantity import parse_quantity
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Toleration
from bigfleet.operator.reading.amounts import parse

_REMEMBERED = 8192


class Meaning(Struct, frozen=True):
    """One request, ready to be counted."""

    profile: Profile
    group: str
    unit: Resources
    # What moving it costs at most, where that is less than the profile's bucket says.
    reclamation_microdollars: int = 0


class MeaningError(ValueError):
    """The request cannot be expressed; the sentence names the field and what would be accepted."""


def meaning_of(spec: CapacityRequestSpec, namespace: str, *, keep_off: int = PINNED) -> Meaning:
    """Raises MeaningError where a fleet could not be asked for this.

    Above the penalty bucket `keep_off` it asks for machines that are not interrupted, as `deploy/admission` makes pods
    ask for nodes.
    """
    try:
        profile = _profile(
            spec.requirements,
            spec.tolerations,
            tuple(
                (each.topology_key, each.max_skew)
                for each in spec.topology_spread
                if each.when_unsatisfiable != "ScheduleAnyway"
            ),
            "" if spec.co_location is None else spec.co_location.topology_key,
            spec.priority,
            spec.interruption_penalty,
            spec.reclamation_penalty,
            keep_off,
        )
        return Meaning(
            profile,
            group_of(spec.co_location, namespace),
            parse(spec.resources),
            _finer(spec.reclamation_penalty),
        )
    except ValueError as error:
        raise MeaningError(str(error)) from error


def group_of(together: CoLocation | None, namespace: str) -> str:
    if together is None:
        return ""
    selector = together.label_selector
    if selector is None:
        return group_string(together.topology_key, None, None, namespace)
    expressions = [(each.key, each.operator, each.values) for each in selector.match_expressions]
    return group_string(together.topology_key, selector.match_labels, expressions, namespace)


# Pods of one template give equal requests: each profile is worked out once.
@lru_cache(maxsize=_REMEMBERED)
def _profile(
    requirements: tuple[Expression, ...],
    tolerations: tuple[WrittenToleration, ...],
    spreads: tuple[tuple[str, int], ...],
    same: str,
    priority: int,
    interruption: QuantityValue | None,
    reclamation: QuantityValue | None,
    keep_off: int,
) -> Profile:
    wanted = [Requirement(each.key, Operator.from_text(each.operator), each.values) for each in requirements]
    if same:
        wanted.append(Requirement(same, Operator.SAME))
    interruption_bucket = _bucket(interruption)
    if interruption_bucket > keep_off and all(each.key != CAPACITY_TYPE_LABEL for each in requirements):
        wanted.append(Requirement(CAPACITY_TYPE_LABEL, Operator.NOT_IN, (CapacityType.SPOT.label,)))
    return Profile(
        wanted,
        [Spread(key, skew, WhenUnsatisfiable.DO_NOT_SCHEDULE) for key, skew in spreads],
        priority,
        interruption_bucket,
        _bucket(reclamation),
        [Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in tolerations],
        _finer(interruption),
    )


def _bucket(penalty: QuantityValue | None) -> int:
    return UNSPECIFIED if penalty is None else bucket_for(_dollars(penalty))


def _finer(penalty: QuantityValue | None) -> int:
    return 0 if penalty is None else finer_bound(_dollars(penalty))


def _dollars(penalty: QuantityValue) -> float:
    return parse_quantity(str(penalty)).to_float()
