"""A pod's wishes as a CapacityRequest: what can be asked of a fleet, and what of it cannot be said.

The pod controller writes the result into the cluster; the operator reads pods without a request of their own the same
way. Whatever is left out is named, so that somebody can be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bigfleet.crd.capacity_request import (
    CapacityRequestSpec,
    CoLocation,
    LabelSelector,
    Requirement,
    Toleration,
    TopologySpread,
)
from bigfleet.model.names import (
    INSTANCE_TYPE_LABEL,
    INTERRUPTION_PENALTY_ANNOTATION,
    KEPT_TAINT,
    RECLAMATION_PENALTY_ANNOTATION,
)
from bigfleet.model.quantity import QuantityError, parse_quantity
from bigfleet.model.taint import CONDITION_PREFIX
from bigfleet.operator.kube.objects import NodeTerm, Pod
from bigfleet.operator.reading.amounts import pod_requests

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
DO_NOT_SCHEDULE = "DoNotSchedule"


class Penalties(Struct, frozen=True):
    """What a PriorityClass declares for pods that declare nothing themselves."""

    interruption: str | None = None
    reclamation: str | None = None


NO_DEFAULTS: Mapping[str, Penalties] = {}


class Wish(Struct, frozen=True):
    """The request of one pod. `left_out` are sentences about what it does not say; `refused` says why there is none."""

    spec: CapacityRequestSpec | None
    left_out: tuple[str, ...] = ()
    refused: str = ""


def wish_of(pod: Pod, defaults: Mapping[str, Penalties] = NO_DEFAULTS, zones: Iterable[Requirement] = ()) -> Wish:
    """What the pod asks of a fleet; `zones` are what its volumes ask of its node."""
    left_out: list[str] = []
    try:
        resources = pod_requests(pod).to_wire()
    except ValueError as error:
        return Wish(None, refused=str(error))
    requirements, problem = _requirements(pod, left_out)
    if problem:
        return Wish(None, refused=problem)
    affinity = pod.spec.affinity
    together = affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else ()
    if len(together) > 1:
        left_out.append(f"{len(together) - 1} more pod affinity terms: one is asked of the fleet, the first")
    first = together[0] if together else None
    spec = CapacityRequestSpec(
        priority=pod.spec.priority,
        resources=dict(resources),
        requirements=(*requirements, *zones),
        tolerations=_tolerations(pod),
        topology_spread=tuple(
            TopologySpread(each.max_skew, each.topology_key, each.when_unsatisfiable)
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == DO_NOT_SCHEDULE
        ),
        co_location=None if first is None else CoLocation(first.topology_key, first.label_selector or LabelSelector()),
        interruption_penalty=_penalty(pod, INTERRUPTION_PENALTY_ANNOTATION, defaults, "interruption", left_out),
        reclamation_penalty=_penalty(pod, RECLAMATION_PENALTY_ANNOTATION, defaults, "reclamation", left_out),
    )
    return Wish(spec, tuple(left_out))


def _requirements(pod: Pod, left_out: list[str]) -> tuple[tuple[Requirement, ...], str]:
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required if node is not None else None
    selected = tuple(Requirement(key, "In", (value,)) for key, value in sorted(pod.spec.node_selector.items()))
    if required is None:
        return selected or (Requirement(INSTANCE_TYPE_LABEL, "Exists"),), ""
    terms = [term for term in required.node_selector_terms if term.match_expressions or term.match_fields]
    if not terms:
        return selected, ""
    usable = [term for term in terms if not _inexpressible(term)]
    if not usable:
        return (), f"node affinity {_inexpressible(terms[0])} cannot be asked of a fleet; {', '.join(OPERATORS)} can"
    if len(usable) < len(terms):
        left_out.append(f"node affinity term with {_inexpressible(next(t for t in terms if t not in usable))}")
    merged = merge_terms([term.match_expressions for term in usable])
    if merged is None:
        left_out.append(
            f"{len(usable) - 1} more node affinity terms: the first counts, because they differ in several keys"
        )
        merged = usable[0].match_expressions
    return (*merged, *selected), ""


def merge_terms(terms: list[tuple[Requirement, ...]]) -> tuple[Requirement, ...] | None:
    """One conjunction that means the same as these alternatives: they may differ in the values of one In alone."""
    if len(terms) == 1:
        return terms[0]
    first = {(each.key, each.operator): each.values for each in terms[0]}
    if any(len(term) != len(first) or {(e.key, e.operator) for e in term} != first.keys() for term in terms):
        return None
    differing = {
        (each.key, each.operator)
        for term in terms[1:]
        for each in term
        if set(each.values) != set(first[each.key, each.operator])
    }
    if not differing:
        return terms[0]
    if len(differing) > 1 or next(iter(differing))[1] != "In":
        return None
    ((key, _),) = differing
    values = {
        value for term in terms for each in term if (each.key, each.operator) == (key, "In") for value in each.values
    }
    return tuple(
        Requirement(key, "In", tuple(sorted(values))) if (each.key, each.operator) == (key, "In") else each
        for each in terms[0]
    )


def _inexpressible(term: NodeTerm) -> str:
    if term.match_fields:
        return f"on {term.match_fields[0].key}"
    for each in term.match_expressions:
        if each.operator not in OPERATORS:
            return f"{each.key} {each.operator}"
    return ""


def _tolerations(pod: Pod) -> tuple[Toleration, ...]:
    """Those that say something about a kind of machine; every pod tolerates that its node is not ready for a while, and
    those we reserve a node for that it is kept."""
    return tuple(
        Toleration(each.key, each.operator or "Equal", each.value, each.effect)
        for each in pod.spec.tolerations
        if not each.key.startswith(CONDITION_PREFIX)
        and each.key != KEPT_TAINT
        and each.operator in ("", "Equal", "Exists")
    )


def _penalty(
    pod: Pod, annotation: str, defaults: Mapping[str, Penalties], field: str, left_out: list[str]
) -> str | None:
    written = pod.metadata.annotations.get(annotation)
    if written is not None:
        try:
            if parse_quantity(written).to_float() >= 0:
                return parse_quantity(written).canonical()
            left_out.append(f"annotation {annotation} {written!r} is negative; dollars such as 40 or 0.5 are accepted")
        except QuantityError as error:
            left_out.append(f"annotation {annotation}: {error}")
    default = defaults.get(pod.spec.priority_class_name)
    value: str | None = getattr(default, field) if default is not None else None
    return value
