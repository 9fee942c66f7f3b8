"""The parts of Kubernetes object metadata that BigFleet reads."""

from __future__ import annotations

import msgspec

# Kubernetes writes a quantity as text or, where it is a whole number, as an integer.
QuantityValue = int | str


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None
