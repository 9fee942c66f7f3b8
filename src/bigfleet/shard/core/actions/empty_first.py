"""Which of several equal machines is drained: an empty one where the cluster reported any.

The engine takes machines of the same price and stamp in order of their ids. The cluster knows better: of machines that
cost the same, were bound for the same, hold the same and look the same to everything it asks for, a node without pods
goes first, and nobody is evicted. Changes no count, no price, no stamp and no domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bigfleet.engine.batches import Shape
from bigfleet.engine.results import Action
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.profile import Profile
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.machines.matching import attribute
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, EMIT
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import DRAINS
from bigfleet.shard.core.state.state import ShardState

Look = tuple[object, ...]


class Twins:
    """Empty machines that can go instead of decided ones."""

    def __init__(self, state: ShardState, nodes: Nodes, demand: Demand, placement: Placement) -> None:
        self._state = state
        self._placement = placement
        self._nodes = nodes
        self._demand = demand

    def of(self, actions: Iterable[Action]) -> dict[str, str]:
        """Decided machine → the empty one to drain instead; machines not named are drained as decided."""
        drained: dict[str, list[str]] = {}
        for action in actions:
            # A cluster that reports placement had its say about every single node.
            counted = self._placement.reports_placement(action.cluster)
            if action.kind in DRAINS and action.disposition == EMIT and not counted:
                drained.setdefault(action.cluster, []).append(action.machine)
        instead: dict[str, str] = {}
        for cluster, machines in drained.items():
            if self._nodes.empty(cluster):
                instead.update(self._in(cluster, machines))
        return instead

    def _in(self, cluster: str, decided: list[str]) -> Iterable[tuple[str, str]]:
        known = self._demand.clusters.get(cluster)
        looks = _Looks({} if known is None else known.profiles)
        machines, empty = self._state.fleet.machines, self._nodes.empty(cluster)
        spare: dict[Look, list[str]] = {}
        # The smallest id comes last, where it is taken first.
        for key in sorted(set(empty) - set(decided), reverse=True):
            record = machines.get(key)
            if record is not None and self._free(record, cluster):
                spare.setdefault(looks.of(record), []).append(key)
        for key in decided:
            record = machines.get(key)
            if record is not None and key not in empty and (equals := spare.get(looks.of(record))):
                yield key, equals.pop()

    def _free(self, record: Record, cluster: str) -> bool:
        return (
            record.state == CONFIGURED
            and record.cluster == cluster
            and record.owned
            and self._state.operations.on(record.key) is None
            and not self._state.resting(record.key)
        )


class _Looks:
    """What machines look like to some profiles: price, size, and every label one of them asks about."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        asked = {requirement.key for profile in profiles.values() for requirement in profile.requirements}
        spread = {each.topology_key for profile in profiles.values() for each in profile.spread}
        # Any set of machines is spread over hosts.
        self._keys = sorted((asked | spread) - {HOSTNAME_LABEL})
        self._by_host = HOSTNAME_LABEL in asked
        self._known: dict[int, Look] = {}

    def of(self, record: Record) -> Look:
        # Stamps are interned. A gang counts on machines with its own stamp, so those of others are not the same to it.
        look = self._known.get(id(record.shape))
        if look is None:
            look = self._known[id(record.shape)] = self._look(record.shape)
        return look, id(record.stamp), record.key if self._by_host else ""

    def _look(self, shape: Shape) -> Look:
        values = tuple(attribute("", shape, key) for key in self._keys)
        return (shape.price, shape.probability, shape.capacity_type, shape.allocatable, shape.taints, values)
