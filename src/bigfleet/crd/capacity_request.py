"""CapacityRequest: one pod's need, as its creator wrote it and the operator acknowledged it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from bigfleet.crd.metadata import ObjectMeta, QuantityValue


class Requirement(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A label expression; also the form of a selector's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpread(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class CoLocation(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    topology_key: str
    label_selector: LabelSelector | None = None


class CapacityRequestSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An absent penalty is not the same as a penalty of 0: it stays undeclared on the wire."""

    priority: int
    resources: dict[str, QuantityValue]
    requirements: tuple[Requirement, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread: tuple[TopologySpread, ...] = ()
    co_location: CoLocation | None = None
    interruption_penalty: QuantityValue | None = None
    reclamation_penalty: QuantityValue | None = None


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    type: str
    status: str
    last_transition_time: str
    reason: str
    # Kubernetes requires the key even when there is nothing to say, so it has no default to omit.
    message: str
    observed_generation: int = 0


class CapacityRequestStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    phase: str = ""
    acknowledged_at: str | None = None
    conditions: tuple[Condition, ...] = ()


class CapacityRequest(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    PLURAL: ClassVar[str] = "capacityrequests"
    NAMESPACED: ClassVar[bool] = True

    metadata: ObjectMeta
    spec: CapacityRequestSpec
    status: CapacityRequestStatus = CapacityRequestStatus()
