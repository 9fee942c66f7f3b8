"""Typed views of the custom resources of group bigfleet.lucy.sh, decoded straight from JSON.

They hold only the fields BigFleet uses, so a list of 250,000 requests stays small; unknown fields are skipped.
What a value means (quantities, profiles, phases) is decided in bigfleet.model and by the operator, never here.
"""

from bigfleet.crd.available_capacity import AvailableCapacity, AvailableCapacitySpec
from bigfleet.crd.capacity_request import (
    CapacityRequest,
    CapacityRequestSpec,
    CapacityRequestStatus,
    CoLocation,
    Condition,
    LabelSelector,
    Requirement,
    Toleration,
    TopologySpread,
)
from bigfleet.crd.decode import DecodeError, ObjectList, WatchEvent, decode_list, decode_object, decode_watch_event
from bigfleet.crd.metadata import ListMeta, ObjectMeta, OwnerReference, QuantityValue
from bigfleet.crd.upcoming_node import NodeReference, Taint, UpcomingNode, UpcomingNodeSpec, UpcomingNodeStatus

__all__ = [
    "AvailableCapacity",
    "AvailableCapacitySpec",
    "CapacityRequest",
    "CapacityRequestSpec",
    "CapacityRequestStatus",
    "CoLocation",
    "Condition",
    "DecodeError",
    "LabelSelector",
    "ListMeta",
    "NodeReference",
    "ObjectList",
    "ObjectMeta",
    "OwnerReference",
    "QuantityValue",
    "Requirement",
    "Taint",
    "Toleration",
    "TopologySpread",
    "UpcomingNode",
    "UpcomingNodeSpec",
    "UpcomingNodeStatus",
    "WatchEvent",
    "decode_list",
    "decode_object",
    "decode_watch_event",
]
