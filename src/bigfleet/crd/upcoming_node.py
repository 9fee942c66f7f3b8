"""UpcomingNode: a node on its way into the cluster or out of it, written by the operator."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from bigfleet.crd.metadata import ObjectMeta, QuantityValue


class Taint(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    key: str
    effect: str
    value: str = ""


class UpcomingNodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    resources: dict[str, QuantityValue]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


class NodeReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    kind: str = ""
    name: str = ""


class UpcomingNodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    phase: str = ""
    node_ref: NodeReference | None = None
    provider_id: str = msgspec.field(default="", name="providerID")
    provisioning_start_time: str | None = None
    last_error: str = ""


class UpcomingNode(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    PLURAL: ClassVar[str] = "upcomingnodes"
    NAMESPACED: ClassVar[bool] = False

    metadata: ObjectMeta
    spec: UpcomingNodeSpec
    status: UpcomingNodeStatus = UpcomingNodeStatus()
