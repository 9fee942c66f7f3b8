"""One purchase of the engine for pods that all wait at once: what its choice of machines costs, without time.

Owns the translation into a single engine step and the price of what it bought. Spot is priced with the expected
interruptions of the pods that must go there once the firm machines are full: an upper bound, by a packing of our own.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from bench.quality.demand import NOBODY, Classes
from bench.quality.kinds import UNLIMITED, Ints, Kinds
from bench.quality.offers import NAMES, amounts, offerings, pod_kind, told
from bench.quality.world import may_run
from bigfleet.engine.batches import NONE, DemandBatch, Ids, MachineBatch, Rollup, Shape
from bigfleet.engine.engine import Engine
from bigfleet.engine.placement import Counted
from bigfleet.engine.policy import SECOND, Policy
from bigfleet.engine.results import ActionKind
from bigfleet.model.resources import Resources
from bigfleet.sim.world.pods import PodKind

_START = 1_700_000_000 * SECOND
_SPECULATIVE = 1
# How much a pod's place is chosen by what cpu and memory leave of each other, against how full it gets.
_BALANCE = 5.0


class Greedy:
    """Buys for one family's classes out of its kinds."""

    def __init__(self, classes: Classes, kinds: Kinds, policy: Policy | None = None) -> None:
        self.classes, self.kinds = classes, kinds
        self._policy = policy or Policy.production()
        self._may = may_run(classes, kinds)

    def machines(self, counts: Ints) -> Ints:
        """How many of each kind one step buys for so many pods of each class."""
        result = Engine().step(self._fleet(counts), DemandBatch([self._rollup(counts)]), self._policy, _START)
        bought = [int(action.machine.split("/")[0]) for action in result.actions.rows() if action.kind in _BUYS]
        return np.bincount(np.array(bought, np.int64), minlength=len(self.kinds)).astype(np.int64)

    def dollars(self, counts: Ints) -> float:
        """Dollars an hour of what is bought, interruptions included."""
        if not counts.any():
            return 0.0
        bought = self.machines(counts)
        firm = np.where(self.kinds.limit < UNLIMITED, 0.0, self.kinds.price)
        return float(bought @ firm) + self._risk(counts, bought)

    def _risk(self, counts: Ints, bought: Ints) -> float:
        """What interruptions cost an hour once pods stand on what was bought: those kept off spot on firm machines, the
        larger first, each where cpu and memory stay in balance; then the others by what it costs to interrupt them.
        Whoever finds no firm room is interrupted now and then, or, pinned, needs one machine more."""
        kinds, classes = self.kinds, self.classes
        if not (bought[kinds.spot] > 0).any():
            return 0.0
        rows = np.repeat(np.arange(len(kinds)), bought)
        room = kinds.capacity[rows[~kinds.spot[rows]]].astype(np.float64)
        free = room.copy()
        risk, dollars = float(kinds.probability[kinds.spot].max()), 0.0
        kept_off = ~(self._may & kinds.spot).any(1)
        largest = (classes.request / np.maximum(1, kinds.capacity.max(0))).max(1)
        for cls in np.lexsort((-largest, np.where(kept_off, -np.inf, -classes.interruption))).tolist():
            request, penalty = classes.request[cls], float(classes.interruption[cls])
            for _ in range(int(counts[cls])):
                open_ = np.flatnonzero((free >= request).all(1))
                if len(open_):
                    left = (free[open_] - request)[:, :2] / room[open_, :2]
                    free[open_[np.argmin(left.max(1) + _BALANCE * abs(left[:, 0] - left[:, 1]))]] -= request
                elif np.isfinite(penalty):
                    dollars += risk * penalty
                else:
                    dollars += float(kinds.price[(kinds.capacity >= request).all(1) & ~kinds.spot].min())
        return dollars

    def _fleet(self, counts: Ints) -> MachineBatch:
        """Enough of every kind for everybody."""
        total = counts @ self.classes.request
        alone = int(counts[self.classes.exclusive != NOBODY].sum())
        ids, shape_of, shapes = [], [], []
        for kind, _rack, offering in offerings(self.kinds, racks=0):
            capacity = np.maximum(self.kinds.capacity[kind], 1)
            slots = int(1.5 * (total / capacity)[total > 0].clip(max=float(counts.sum())).max()) + alone + 50
            have = Resources.parse(offering.allocatable, round_up=False)
            shapes.append(
                Shape(
                    "p",
                    offering.instance_type,
                    "a",
                    int(offering.capacity_type),
                    offering.price_per_hour,
                    offering.interruption_probability,
                    have,
                )
            )
            ids += [f"{kind:02}/{slot:05}" for slot in range(slots)]
            shape_of += [len(shapes) - 1] * slots
        none, count = np.full(len(ids), NONE, np.int32), len(ids)
        return MachineBatch(
            Ids.of(ids),
            np.full(count, _SPECULATIVE, np.uint8),
            np.array(shape_of, np.int32),
            none,
            none,
            np.zeros(count, np.int64),
            shapes,
            [],
            [],
        )

    def _rollup(self, counts: Ints) -> Rollup:
        tolerant = (self._may & self.kinds.spot).any(1)
        # One row for classes that operators do not tell apart.
        rows: dict[tuple[str, tuple[int, ...], str], tuple[PodKind, int]] = {}
        for cls in np.flatnonzero(counts).tolist():
            kind = pod_kind(self.classes, cls, False, tolerant, bool(self.kinds.spot.any()))
            key = (told(kind).fingerprint, tuple(kind.vector), kind.name if kind.apart else "")
            rows[key] = (kind, rows.get(key, (kind, 0))[1] + int(counts[cls]))
        made = [kind for kind, _ in rows.values()]
        units = np.array([kind.vector for kind in made], np.int64).reshape(len(made), len(NAMES))
        alike: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for place, kind in enumerate(made):
            # As operators tell rows of one size of which only some may share a machine.
            units[place, NAMES.index("memory")] += alike[told(kind).fingerprint, kind.vector]
            alike[told(kind).fingerprint, kind.vector] += 1
        wanted = np.array([count for _, count in rows.values()], np.int64)
        return Rollup(
            "c",
            [told(kind) for kind in made],
            [],
            NAMES,
            np.arange(len(made), dtype=np.int32),
            np.full(len(made), NONE, np.int32),
            units * wanted[:, None],
            units,
            overhead=amounts(self.kinds.overhead),
            counted=Counted(
                count=wanted.astype(np.int32),
                running=np.zeros(len(made), np.int32),
                stranded=wanted.astype(np.int32),
                mirror_version=1,
                exclusive={place: (kind.name,) for place, kind in enumerate(made) if kind.apart},
            ),
        )


_BUYS = (ActionKind.PROVISION, ActionKind.BOOTSTRAP)
