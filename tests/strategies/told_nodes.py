"""The store of node reports beside an oracle: both hear the same steps, and what they know is compared machine by
machine. The engine's own step only carries machines into the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigfleet.engine.batches import Conditions
from bigfleet.engine.engine import Engine
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.nodes.reports import EMPTY, READY, REMOVABLE, STAYS
from bigfleet.engine.nodes.sessions import NEVER
from tests.oracle.placement.reports import is_counted_on, is_seen
from tests.oracle.placement.worth import Worth, kind_of
from tests.oracle.supply import CONFIGURED, CONFIGURING, CREATING

if TYPE_CHECKING:
    from bigfleet.engine.batches import DemandBatch, MachineBatch
    from bigfleet.engine.policy import Policy
    from tests.oracle.step import Oracle, OracleResult
    from tests.oracle.supply import Unit


class ToldNodes:
    """A fleet with its node reports, without decisions."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.keeps_numbers = True
        self.nodes = Nodes(self.engine.catalog, self.engine.fleet, self.engine.demand.cover_resources)
        self.conditions = Conditions()
        self.rejected: dict[str, int] = {}

    def hear(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch,
        policy: Policy,
        now: int,
        outcomes: Any,
    ) -> None:
        self.engine.step(machines, demand, policy, now, self.conditions)
        self.rejected = {}
        if machines is not None and len(machines):
            self.nodes.follow()
        self.nodes.take_over(demand, outcomes, now, self.rejected)
        self.nodes.settle()
        self.nodes.validate()

    def disagreement(self, oracle: Oracle, result: OracleResult, policy: Policy) -> str | None:
        if self.rejected.get("node", 0) != result.rejected.get("node", 0):
            return f"rejected {self.rejected.get('node')}, not {result.rejected.get('node')}"
        for unit in oracle.machines.values():
            mine, theirs = self._told(unit.id), _told(unit, oracle)
            if mine != theirs:
                return f"{unit.id}: {mine} != {theirs}"
        coming = {unit.id for unit in oracle.machines.values() if _is_coming(unit, oracle)}
        young = set(self.engine.fleet.ids.texts(self.nodes.young))
        if self.nodes.heard and young != coming:
            return f"young {sorted(young)}, coming {sorted(coming)}"
        return self._rooms(oracle, policy)

    def _told(self, id: str) -> Any:
        nodes, fleet = self.nodes, self.engine.fleet
        slot = fleet.ids.find(id)
        row = nodes.row(slot)
        if row < 0:
            return None
        r, load = nodes.r, nodes.load(row)
        names = self.engine.catalog.resources
        said = int(r.said[row])
        flags = int(r.flags[row])
        session = int(r.cluster[row])
        return (
            [bool(flags & bit) for bit in (READY, EMPTY, REMOVABLE, STAYS)],
            int(r.priority[row]),
            _amounts(names, r.used[row]),
            _amounts(names, nodes.said.amount[said]) if said >= 0 else {},
            float(r.reclamation[row]),
            float(r.interruption[row]),
            int(r.closing[row]),
            (load.profiles, load.groups, nodes.tokens(row)),
            _instant(r.ready_since[row]),
            _instant(r.open_version[row]),
            bool(nodes.s.reporting[session]) and id in self._seen(session),
        )

    def _seen(self, cluster: int) -> set[str]:
        nodes, fleet = self.nodes, self.engine.fleet
        version = int(nodes.s.seen_version[cluster])
        return {
            fleet.ids.text(int(nodes.r.slot[row]))
            for row in nodes.rows(cluster)
            if nodes.r.open_version[row] != NEVER and version != NEVER and version >= nodes.r.open_version[row]
            if fleet.v.state[nodes.r.slot[row]] == CONFIGURED
        }

    def _rooms(self, oracle: Oracle, policy: Policy) -> str | None:
        units = list(oracle.machines.values())
        worth = Worth(units, oracle.demand, policy.placement, _Nothing(), 0)  # type: ignore[arg-type]
        catalog, fleet = self.engine.catalog, self.engine.fleet
        offers = {offer: number for number, offer in enumerate(catalog.offers)}
        for name in oracle.demand.clusters:
            for unit in units:
                theirs = {n: a for n, a in worth.room(name, unit).items() if a}
                overhead = oracle.demand.clusters[name].overhead
                have = {n: max(0, a - overhead.get(n, 0)) for n, a in unit.shape.allocatable.items()}
                wide = np.array([have.get(n, 0) for n in catalog.resources], np.int64)
                cluster = fleet.cluster_index.get(name, -1)
                mine = _amounts(catalog.resources, self.nodes.smallest(cluster, offers[kind_of(unit)], wide))
                if {n: theirs.get(n, 0) for n in catalog.resources} != {n: mine.get(n, 0) for n in catalog.resources}:
                    return f"room of {unit.id} for {name}: {mine} != {theirs}"
        return None


class _Nothing:
    backoffs = ()


def _told(unit: Unit, oracle: Oracle) -> Any:
    report = unit.report
    if report is None:
        return None
    return (
        [report.ready, report.empty, report.removable, report.pinned],
        report.max_pod_priority,
        {name: amount for name, amount in report.used.items() if amount},
        {name: amount for name, amount in report.allocatable.items() if amount},
        report.reclamation,
        report.interruption,
        report.closing_since,
        (report.profiles, report.groups, report.tokens),
        unit.ready_since,
        unit.open_version,
        is_seen(unit, oracle.demand),
    )


def _is_coming(unit: Unit, oracle: Oracle) -> bool:
    if not unit.cluster:
        return unit.state == CREATING
    cluster = oracle.demand.clusters.get(unit.cluster)
    if cluster is None or not cluster.reporting:
        return False
    if unit.state == CREATING:
        return True
    if unit.state == CONFIGURING:
        return not is_counted_on(unit, oracle.demand)
    if unit.state != CONFIGURED:
        return False
    return unit.ready_since is None or (unit.open_version is not None and not is_seen(unit, oracle.demand))


def _amounts(names: list[str], row: Any) -> dict[str, int]:
    return {name: int(amount) for name, amount in zip(names, row, strict=False) if amount}


def _instant(value: Any) -> int | None:
    return None if int(value) == NEVER else int(value)
