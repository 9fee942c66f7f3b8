"""Giving back beside an oracle: the engine's rooms are told what the oracle claimed in a step, and must then find the
same runs of emptiness, offers, reclaims, closes and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigfleet.engine.giving_back.giving import GivingBack, aborted, begun
from bigfleet.engine.nodes.sessions import NEVER
from bigfleet.engine.nodes.standing import Standing, standing
from tests.oracle.placement.buying import Buying
from tests.oracle.placement.consolidate import Option
from tests.oracle.step import Oracle
from tests.oracle.supply import IDLE, SPECULATIVE
from tests.strategies.told_nodes import ToldNodes

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
    from bigfleet.engine.policy import Policy
    from tests.oracle.supply import Unit


class TellingOracle(Oracle):
    """Remembers what its last step gave back, before rails."""

    going: dict[str, Any]
    moved: tuple[list[Any], list[Any]]
    offered: tuple[set[str], set[str]]
    gone: list[str]

    def step(self, *args: Any, **named: Any) -> Any:
        self.going = {}
        result = super().step(*args, **named)
        self.gone = result.aborted
        return result

    def _reclaims(self, *args: Any) -> Any:
        self.going = super()._reclaims(*args)
        return self.going

    def _consolidate(self, units: Any, worth: Any, buying: Buying, *rest: Any) -> Any:
        self.offered = (
            {unit.id for offer in buying.closing for unit in offer.members},
            {unit.id for offer in buying.empty for unit in offer.members},
        )
        self.moved = super()._consolidate(units, worth, buying, *rest)
        return self.moved


class GivenBack(ToldNodes):
    """A fleet with node reports that decides what it gives back."""

    def __init__(self) -> None:
        super().__init__()
        self.giving = GivingBack()
        self.standing = Standing()

    def decide(
        self,
        oracle: TellingOracle,
        machines: MachineBatch | None,
        demand: DemandBatch,
        policy: Policy,
        now: int,
        conditions: Conditions,
        outcomes: Any,
    ) -> str | None:
        """Hears a step the oracle has decided; what differs, if anything does."""
        self.conditions = conditions
        self.hear(machines, demand, policy, now, outcomes)
        engine, nodes, placement = self.engine, self.nodes, policy.placement
        fleet, catalog = engine.fleet, engine.catalog
        connected = engine.demand.store.c.connected
        self.standing = standing(conditions, fleet, nodes.s, engine.demand.store.c.lacking, placement, now)
        fleet.keep(self.standing.news, now)
        fleet.settle()
        if not nodes.heard:
            return None
        self.giving.begin(nodes, fleet, self.standing, connected, placement, now)
        closing, empty = self.giving.offered(nodes, fleet, catalog, conditions, placement, now)
        w = engine._world()
        dropped = self._claim(oracle, w)
        busy = {
            fleet.ids.find(unit.id)
            for unit in oracle.machines.values()
            if unit.preemptor is not None or unit.taker is not None or unit.reopened
        }
        going = self.giving.reclaims(w, catalog, fleet, nodes, self.standing, busy, placement, now)
        passed = self.giving.consolidate(
            w,
            catalog,
            fleet,
            nodes,
            self.standing,
            engine._clusters_by_name().tolist(),
            dropped,
            conditions,
            placement,
            now,
        )
        victims = {fleet.ids.find(u.id) for u in oracle.machines.values() if u.preemptor is not None}
        mine = {
            "empty": {u: self._empty_since(u) for u in oracle.machines},
            "offered": tuple(set(fleet.ids.texts(slots)) for slots in (closing, empty)),
            "going": {
                fleet.clusters[c]: [
                    (id, reason) for id, reason in zip(fleet.ids.texts(np.array(g.slots)), g.reasons, strict=True)
                ]
                for c, g in going.items()
                if g.slots and conditions.reclaim
            },
            "moves": [
                *((fleet.clusters[c], *self._named(move)) for c, move in begun(self.standing, fleet, conditions, now)),
                *((fleet.clusters[p.cluster], *self._named(move)) for p in passed for move in p.moves),
            ],
            "closes": [fleet.ids.text(slot) for p in passed for slot in p.closes],
            "aborted": aborted(self.standing, victims),
        }
        theirs = {
            "empty": {u.id: u.empty_since for u in oracle.machines.values()},
            "offered": oracle.offered,
            "going": {
                name: [(unit.id, reason) for unit, reason, _ in units]
                for name, units in oracle.going.items()
                if units and oracle.demand.clusters[name].reporting
            },
            "moves": [_named(action) for part in oracle.moved for action in part if action.kind != 6],
            "closes": [action.machine for part in oracle.moved for action in part if action.kind == 6],
            "aborted": oracle.gone,
        }
        for name in mine:
            if mine[name] != theirs[name]:
                return f"{name}: {mine[name]} != {theirs[name]}"
        return None

    def _claim(self, oracle: TellingOracle, w: Any) -> Any:
        """Claims what the oracle's entries claimed of the free pool."""
        fleet, dropped = self.engine.fleet, []
        cells: dict[int, list[Unit]] = {}
        for unit in oracle.machines.values():
            if unit.state in (IDLE, SPECULATIVE):
                cells.setdefault(int(fleet.v.cell[fleet.ids.find(unit.id)]), []).append(unit)
        for cell, units in cells.items():
            units.sort(key=lambda unit: unit.id.encode())
            claimed = [unit.claimant is not None and not isinstance(unit.claimant, Option) for unit in units]
            last = max((at for at, each in enumerate(claimed) if each), default=-1)
            w.cells.taken[cell] = last + 1
            dropped += [fleet.ids.find(units[at].id) for at in range(last) if not claimed[at]]
        return np.array(dropped, np.int32)

    def _empty_since(self, id: str) -> int | None:
        row = self.nodes.row(self.engine.fleet.ids.find(id))
        since = int(self.nodes.r.empty_since[row]) if row >= 0 else NEVER
        return None if since == NEVER else since

    def _named(self, move: Any) -> tuple[tuple[str, ...], str]:
        texts = self.engine.fleet.ids.text
        return tuple(map(texts, move.old)), texts(move.new) if move.new >= 0 else ""


def _named(action: Any) -> tuple[str, tuple[str, ...], str]:
    if action.kind == 3:
        return action.cluster, (action.machine,), ""
    return action.cluster, action.replaces, action.machine
