"""AvailableCapacity: a hint the operator writes; nobody writes its status."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from bigfleet.crd.capacity_request import Requirement
from bigfleet.crd.metadata import ObjectMeta, QuantityValue


class AvailableCapacitySpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    resources: dict[str, QuantityValue]
    available_count: int
    availability: str
    cost: QuantityValue
    requirements: tuple[Requirement, ...] = ()


class AvailableCapacity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    PLURAL: ClassVar[str] = "availablecapacities"
    NAMESPACED: ClassVar[bool] = False

    metadata: ObjectMeta
    spec: AvailableCapacitySpec
