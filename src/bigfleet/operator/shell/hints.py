"""AvailableCapacity: what the shard hints the cluster could get, one object per profile, with its price.

An object is removed when the shard says nothing is available any more, and when the shard has not spoken of it within
the first minutes of a stream: then nobody asks for that profile any longer.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from bigfleet.crd.available_capacity import AvailableCapacity
from bigfleet.model.names import API_GROUP, API_VERSION, available_capacity_name
from bigfleet.model.requirement import Operator
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.worklist import Worklist
from bigfleet.wire import shard_pb2

PATH = f"/apis/{API_GROUP}/{API_VERSION}/availablecapacities"
_CONFIDENCE = shard_pb2.AvailableCapacityUpdate
_AVAILABILITY = {
    _CONFIDENCE.CONFIDENCE_LOW: "Low",
    _CONFIDENCE.CONFIDENCE_MEDIUM: "Medium",
    _CONFIDENCE.CONFIDENCE_HIGH: "High",
}
_OPERATORS = {int(operator): operator.text for operator in Operator}


class Hints:
    """All hints of the present stream, and the objects that show them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard: dict[str, shard_pb2.AvailableCapacityUpdate] = {}
        self._objects: dict[str, AvailableCapacity] = {}
        self.work = Worklist("available capacity", self._settle, at_once=8)

    def heard(self, frame: shard_pb2.AvailableCapacityUpdate) -> None:
        if not frame.supersedes_key:
            return
        name = available_capacity_name(frame.supersedes_key)
        self._heard[name] = frame
        self.work.add(name)

    def connected(self) -> None:
        """A new stream tells everything anew."""
        self._heard.clear()

    def remove_unheard(self) -> None:
        for name in self._objects:
            if name not in self._heard:
                self.work.add(name)

    def seen(self, seen: AvailableCapacity) -> None:
        self._objects[seen.metadata.name] = seen

    def gone(self, name: str) -> None:
        self._objects.pop(name, None)

    async def _settle(self, name: str) -> None:
        frame, known = self._heard.get(name), self._objects.get(name)
        nothing = frame is None or (not frame.available_count and not frame.requirements and not frame.cost_per_hour)
        try:
            if nothing:
                if known is not None:
                    await self._client.delete(f"{PATH}/{name}")
                self._heard.pop(name, None)
                return
            assert frame is not None
            spec = _spec(frame)
            if known is None:
                await self._client.create(PATH, _object(name, spec))
            elif msgspec.to_builtins(known.spec) != spec:
                await self._client.patch(f"{PATH}/{name}", {"spec": spec})
        except ApiError as error:
            if error.status == 404:
                self._objects.pop(name, None)
            if error.status not in (404, 409):
                raise
            if not nothing:
                self.work.add_later(name, 0.5)


def _spec(frame: shard_pb2.AvailableCapacityUpdate) -> dict[str, Any]:
    requirements = [
        {
            "key": each.key,
            "operator": _OPERATORS.get(each.operator, ""),
            **({"values": list(each.values)} if each.values else {}),
        }
        for each in frame.requirements
    ]
    return {
        "resources": dict(frame.resources.resources),
        "availableCount": frame.available_count,
        "availability": _AVAILABILITY.get(frame.confidence, "None"),
        # A quantity has no exponent of a float: dollars to the micro-dollar, as text.
        "cost": f"{Decimal(f'{frame.cost_per_hour:.6f}').normalize():f}",
        **({"requirements": requirements} if requirements else {}),
    }


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "AvailableCapacity",
        "metadata": {"name": name},
        "spec": spec,
    }
