"""Shortfalls as they are told: one per fingerprint, deficits summed, the oldest age; by priority, then age. What
clusters that are away lack is a shortfall of its own: nothing can be done for it before they are back.

The engine keeps one per row of demand, of which there may be many thousands; they are folded in columns and only what
is told is rendered: the first `TOLD` of them, and how many there are. A cluster or group is named where all rows of
the fingerprint agree on it. Counted demand is told per unit too, because units of two sizes do not add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.demand.rows import PLAIN
from bigfleet.engine.outcome.shortfall import ShortfallBatch
from bigfleet.engine.results import UnmetReason
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigfleet.engine.results import Shortfall
    from bigfleet.shard.contract.step_result import Rows


@dataclass(frozen=True, slots=True)
class Short:
    """Everything of one fingerprint that nobody can answer yet; `rows` of demand were folded.

    The engine's `Shortfall` is one row's and has its key; here cluster and group are empty where the rows differ.
    """

    fingerprint: str
    cluster: str
    group: str
    priority: int
    deficit: Resources
    since: int
    age: int
    escalated: bool
    topology_constrained: bool
    rows: int
    # Where demand is counted: the unit, how many of it are missing, how many of those are on their way, and why.
    min_unit: str = ""
    units: int = 0
    coming: int = 0
    cause: UnmetReason = UnmetReason.NONE
    # Its clusters are away, or another shard's: nothing may be had for it now.
    away: bool = False


# One cluster can have a hundred thousand profiles that nobody can serve, and this is made in every step.
TOLD = 10_000
# Names of one shortfall that are told, of those that no machine here has; the needs themselves name them all.
NAMES = 64


@dataclass(frozen=True, slots=True)
class Shorts:
    """A step's, folded already where the step was taken, in the order they are told; `total` counts the others too."""

    items: tuple[Short, ...]
    total: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", max(self.total, len(self.items)))


def folded(table: Rows[Shortfall] | Shorts) -> tuple[Short, ...]:
    """The table by fingerprint; to be called before the engine's next step."""
    return shorts(table).items


def shorts(table: Rows[Shortfall] | Shorts, most: int = TOLD) -> Shorts:
    """The same, with their number."""
    if isinstance(table, Shorts):
        return table
    if isinstance(table, ShortfallBatch):
        found, total = _of_batch(table, most)
    else:
        found = _listed(table.rows())
        total = len(found)
    ordered = sorted(found, key=lambda short: (-short.priority, -short.age, short.fingerprint.encode(), short.min_unit))
    return Shorts(tuple(ordered[:most]), total)


def _listed(rows: Iterable[Shortfall], *, away: bool = False) -> list[Short]:
    found: dict[tuple[str, str], Short] = {}
    deficit: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        key = row.key
        place = (key.fingerprint, key.min_unit if row.units else "")
        mine = deficit.setdefault(place, {})
        for name, amount in row.deficit.items():
            mine[name] = mine.get(name, 0) + amount
        known = found.get(place)
        found[place] = Short(
            key.fingerprint,
            key.cluster if known is None or known.cluster == key.cluster else "",
            key.group if known is None or known.group == key.group else "",
            row.priority,
            row.deficit,
            row.since if known is None else min(known.since, row.since),
            row.age if known is None else max(known.age, row.age),
            row.escalated or (known is not None and known.escalated),
            row.topology_constrained or (known is not None and known.topology_constrained),
            1 if known is None else known.rows + 1,
            place[1],
            row.units + (0 if known is None else known.units),
            row.coming + (0 if known is None else known.coming),
            row.cause if known is None or known.since > row.since else known.cause,
            away,
        )
    return [
        replace(each, deficit=Resources(deficit[place], limit=2**63)) if each.rows > 1 else each
        for place, each in found.items()
    ]


def _of_batch(batch: ShortfallBatch, most: int) -> tuple[list[Short], int]:
    """Counted rows have more to tell than columns hold and are listed; sums are folded as they are. Rows of clusters
    that are away are told apart from others."""
    w = batch.needs.current
    clusters = w.e.cluster[batch.entry]
    counted, there = (column[clusters].astype(np.bool_) for column in (w.c.counted, w.c.connected))
    found: list[Short] = []
    total = 0
    for away, of in ((False, there), (True, ~there)):
        if not of.any():
            continue
        told, number = _columns(_some(batch, of & ~counted), most, away=away)
        listed = _listed(_some(batch, of & counted).rows(), away=away)
        found += [*told, *listed]
        total += number + len(listed)
    return found, total


def _some(batch: ShortfallBatch, which: NDArray[np.bool_]) -> ShortfallBatch:
    return batch if which.all() else structs.replace(batch, part=batch.part[which], entry=batch.entry[which])


def _columns(batch: ShortfallBatch, most: int, *, away: bool) -> tuple[list[Short], int]:
    if not len(batch):
        return [], 0
    needs, w = batch.needs, batch.needs.current
    texts = needs.catalog.texts.texts
    profile = w.e.prof[batch.entry]
    numbers, which = np.unique(w.p.text[profile], return_inverse=True)
    count = len(numbers)
    one = np.empty(count, np.int64)
    one[which] = np.arange(len(which))
    since = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(since, which, w.parts.since[batch.part])
    deficit = np.zeros((count, w.parts.rest.shape[1]), np.int64)
    np.add.at(deficit, which, w.parts.rest[batch.part])
    odd = _odd_names(batch, which, deficit)
    rows = np.bincount(which, minlength=count)
    constrained = np.bincount(which, w.e.kind[batch.entry] != PLAIN, count) > 0
    cluster = _agreed(w.e.cluster[batch.entry], which, one)
    group = _agreed(w.e.group[batch.entry], which, one)
    policy, now = batch.policy, batch.now
    told = np.arange(count)
    if count > most:
        # By priority, then age, as they are told.
        told = np.lexsort((since, -w.p.priority[profile[one]]))[:most]
    found = []
    for index in told.tolist():
        begun = int(since[index])
        found.append(
            Short(
                texts[int(numbers[index])],
                "" if cluster[index] < 0 else needs.clusters[int(cluster[index])],
                "" if group[index] < 0 else texts[int(group[index])],
                int(w.p.priority[profile[one[index]]]),
                _both(needs.amounts(deficit[index]), odd.get(index)),
                begun,
                (now - begun) // policy.cycle_ns + 1,
                now - begun >= policy.escalate_after_ns,
                bool(constrained[index]),
                int(rows[index]),
                away=away,
            )
        )
    return found, count


def _odd_names(batch: ShortfallBatch, which: NDArray[np.intp], deficit: NDArray[np.int64]) -> dict[int, Resources]:
    """What is missing of names that share a column, and out of that column: what it says does not add up."""
    needs, rest = batch.needs, batch.needs.current.parts.rest
    column = needs.catalog.resource(ODD)
    if column < 0:
        return {}
    deficit[:, column] = 0
    found: dict[int, dict[str, int]] = {}
    for at in np.nonzero(rest[batch.part, column])[0].tolist():
        mine = found.setdefault(int(which[at]), {})
        for name, amount in needs.catalog.odd.pairs(int(rest[batch.part[at], column])):
            mine[name] = mine.get(name, 0) + amount
    return {index: Resources(dict(sorted(mine.items())[:NAMES]), limit=2**63) for index, mine in found.items()}


def _both(one: Resources, other: Resources | None) -> Resources:
    return one if other is None else Resources({**dict(one.items()), **dict(other.items())}, limit=2**63)


def _agreed(column: NDArray[np.int32], which: NDArray[np.intp], one: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value all rows of a fingerprint have; -1 where they differ."""
    first = column[one].astype(np.int64)
    first[which[column != first[which]]] = -1
    return first
