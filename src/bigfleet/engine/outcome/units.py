"""What counted entries are told: where their units are, and why some are missing (P41 to P43). Computed when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.belief import value_of
from bigfleet.engine.counted.book import HOST
from bigfleet.engine.demand.rows import GANG, PARKED, SPREAD
from bigfleet.engine.fleet.cells import IDLE, SPECULATIVE
from bigfleet.engine.results import Supply, UnitParts, UnmetReason

if TYPE_CHECKING:
    from bigfleet.engine.counted.step import CountedStep
    from bigfleet.engine.decide.need_names import Needs
    from bigfleet.engine.demand.demand import Demand
    from bigfleet.engine.nodes.nodes import Nodes
    from bigfleet.engine.nodes.standing import Standing
    from bigfleet.engine.outcome.verdict import FreeSupply


@dataclass(eq=False)
class UnitOutcome:
    """What a step did for reporting clusters; `step` is None when nobody lacked room. `fresh` is by cluster, `freed` by
    class: unclaimed machines that were given back in the step, less those claimed for moves."""

    needs: Needs
    step: CountedStep | None
    demand: Demand
    nodes: Nodes
    standing: Standing
    fresh: NDArray[np.bool_]
    acquire: bool
    risk_limit: float
    freed: NDArray[np.int64]
    # By entry what shortfalls tell of it, once somebody asked: the cause, and what comes by part.
    told: dict[int, tuple[UnmetReason, dict[int, tuple[int, int, int, int]]]] = field(default_factory=dict)

    def is_counted(self, entry: int) -> bool:
        w = self.needs.current
        return bool(w.c.counted[w.e.cluster[entry]])

    def turn(self, entry: int) -> int:
        return -1 if self.step is None else self.step.turn_of.get(entry, -1)

    def portions(self, entry: int) -> dict[int, tuple[int, int, int, int]]:
        """By part: coming, until, acquired, awaiting."""
        turn, w = self.turn(entry), self.needs.current
        if turn < 0 or self.step is None:
            return {}
        t, q = self.step.book.t, self.step.book.q
        first, n = int(t.first[turn]), int(t.n[turn])
        if int(t.kind[turn]) == HOST:
            found = {}
            for part in self._parts(entry):
                lacking = int(w.rows.lacking[w.parts.row[part]])
                if n:
                    got = [lacking if int(column[first]) else 0 for column in (q.coming, q.acquired, q.awaiting)]
                    found[part] = (got[0], int(q.until[first]), got[1], got[2])
            return found
        return {
            int(q.part[k]): (int(q.coming[k]), int(q.until[k]), int(q.acquired[k]), int(q.awaiting[k]))
            for k in range(first, first + n)
        }

    def tokens(self, entry: int) -> frozenset[str]:
        """What no two units of a row may bring to one node; none for gangs, whose parts may differ in it."""
        w = self.needs.current
        if int(w.e.kind[entry]) == GANG:
            return frozenset()
        cluster = int(w.e.cluster[entry])
        place = int(w.parts.row[w.e.part[entry]]) - int(w.c.start[cluster])
        return self.demand.sparse(self.needs.clusters[cluster]).tokens.get(place, frozenset())

    def _parts(self, entry: int) -> range:
        w = self.needs.current
        return range(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))

    def units(self, entry: int) -> UnitParts:
        w = self.needs.current
        first = int(w.e.part[entry])
        rows = w.parts.row[first : first + int(w.e.parts[entry])]
        # Entries have few rows: lists are added faster than columns.
        count, running, stranded = (
            sum(column[rows].tolist()) for column in (w.rows.count, w.rows.running, w.rows.lacking)
        )
        found = self.portions(entry).values()
        coming, acquired, awaiting = (sum(each[place] for each in found) for place in (0, 2, 3))
        return UnitParts(
            count=count,
            running=running,
            room=count - running - stranded,
            stranded=stranded,
            coming=coming,
            coming_until=max((each[1] for each in found), default=0),
            acquired=acquired,
            awaiting=awaiting,
            missing=stranded - coming - acquired - awaiting,
        )

    def claimed(self, entry: int) -> tuple[int, int, int]:
        """Machines taken for the entry in all, of them Idle ones and purchases."""
        return (0, 0, 0) if self.step is None else self.step.taken_by.get(self.turn(entry), (0, 0, 0))

    def satisfiable(self, entry: int) -> bool:
        w, turn = self.needs.current, self.turn(entry)
        if int(w.e.kind[entry]) != GANG:
            return False
        return turn < 0 or self.step is None or bool(self.step.book.t.ok[turn])

    def domain(self, entry: int) -> str | None:
        """Where a gang is, or goes."""
        w, turn = self.needs.current, self.turn(entry)
        if int(w.e.kind[entry]) != GANG or int(w.p.same[w.e.prof[entry]]) < 0:
            return None
        if turn >= 0 and self.step is not None:
            domain = int(self.step.book.t.domain[turn])
            return self.needs.catalog.domain_texts[domain] if domain >= 0 else None
        cluster = int(w.e.cluster[entry])
        said = self.demand.sparse(self.needs.clusters[cluster]).domains
        there: dict[str, int] = {}
        for part in self._parts(entry):
            for name, units in said.get(int(w.parts.row[part]) - int(w.c.start[cluster]), {}).items():
                there[name] = there.get(name, 0) + units
        return min((d for d in there if there[d] > 0), key=lambda d: (-there[d], d.encode()), default=None)

    # ---- why -------------------------------------------------------------------------------------------------------

    def reason(self, entry: int, counts: Supply, supply: FreeSupply, victims: int) -> UnmetReason:
        """The first reason that applies (P42); something of the entry is stranded."""
        w, units = self.needs.current, self.units(entry)
        cluster, kind = int(w.e.cluster[entry]), int(w.e.kind[entry])
        span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
        if supply.lacks_some and (w.parts.agg[span].sum(axis=0)[~supply.published] > 0).any():
            return UnmetReason.RESOURCE_NOT_PUBLISHED
        if not w.c.connected[cluster]:
            return UnmetReason.CLUSTER_DISCONNECTED
        if units.missing == 0:
            return UnmetReason.AWAITING_DRAIN if units.awaiting else UnmetReason.AWAITING_NODE
        if not self.fresh[cluster] or not self.acquire:
            return UnmetReason.ACQUISITION_HELD
        if self.step is None or not self.step.believed[cluster]:
            return UnmetReason.NOT_BELIEVED
        if kind == GANG and (not self.satisfiable(entry) or int(w.e.flags[entry]) & PARKED):
            return UnmetReason.TOPOLOGY_UNSATISFIABLE
        if counts.idle + counts.speculative + counts.configured == 0:
            return supply.none(entry)
        if victims:
            return UnmetReason.PREEMPTION_EXHAUSTED
        return self._lacks(entry, supply, kind)

    def _lacks(self, entry: int, supply: FreeSupply, kind: int) -> UnmetReason:
        w, catalog = self.needs.current, self.needs.catalog
        cluster = int(w.e.cluster[entry])
        usable = supply.usable(entry)
        free = usable & (supply.count[:, IDLE] + supply.count[:, SPECULATIVE] > 0)
        key = self.needs.entry_key(entry)
        shut = any(
            self.standing.backed_off(cluster, offer, key)
            for offer in np.unique(w.k.offer[: catalog.class_count][free]).tolist()
        )
        if (supply.held[usable] > 0).any():
            return UnmetReason.SUPPLY_BACKED_OFF
        if shut:
            return UnmetReason.DID_NOT_HELP
        unclaimed = usable & (supply.unclaimed > 0)
        if self.too_risky(entry, unclaimed):
            return UnmetReason.RISK_TOO_HIGH
        assert self.step is not None
        if kind == SPREAD and (unclaimed.any() or self.step.has_lots(w, self.turn(entry))):
            return UnmetReason.SPREAD_UNSATISFIABLE
        wanted = w.parts.rest[int(w.e.part[entry]) : int(w.e.part[entry]) + int(w.e.parts[entry])].sum(axis=0)
        left = np.zeros(len(wanted), np.int64)
        if self.step.seen_left(w, self.nodes, entry, self.turn(entry), left):
            return UnmetReason.EXCLUSIVE
        return UnmetReason.FRAGMENTATION if (left >= wanted).all() else UnmetReason.PRIORITY_STARVED

    def too_risky(self, entry: int, classes: NDArray[np.bool_]) -> bool:
        """Whether one of these classes is too risky for some part of the entry (P11)."""
        w, catalog = self.needs.current, self.needs.catalog
        dollars = float(w.p.told_dollars[w.e.prof[entry]])
        chances = w.k.risk[: catalog.class_count][classes]
        if not len(chances) or dollars == 0.0 or not chances.any():
            return False
        worst = float(chances.max()) * dollars
        assert self.step is not None
        kinds = self.step.book.kinds
        pods = catalog.resource("pods")
        return np.isinf(worst) or any(
            worst > self.risk_limit * value_of(w, kinds.alive, kinds.pods, catalog.class_count, pods, entry, part)
            for part in self._parts(entry)
        )
