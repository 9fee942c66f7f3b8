"""Which supply could be added for a short need: known kinds of machines, where they would have to be, how many at most.

Only proposes; whether an offer helps is tried elsewhere. Kinds are known classes, as they are or, where no class that
fits lies in a domain that counts, moved there by its zone or label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.catalog import UNNAMED
from bigfleet.engine.demand.rows import GANG, PLAIN
from bigfleet.engine.fleet.cells import DRAINING, IDLE, SPECULATIVE
from bigfleet.model.names import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.taint import tolerates

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.engine.decide.need_names import Needs
    from bigfleet.engine.decide.world import World
    from bigfleet.engine.engine import Engine, StepResult
    from bigfleet.model.profile import Profile

# Kinds proposed per domain before those of other domains: the cheapest ones.
KINDS = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """`least` machines should do if nobody else wants them, `most` if everybody before the need takes some."""

    shape: Shape
    domain_key: str
    domain: str
    least: int
    most: int


def offers_for(
    engine: Engine, result: StepResult, entry: int, held: Mapping[str | None, int] | None = None
) -> Iterator[Offer]:
    """Every offer, the most promising first: domains that lack least, in each the cheapest kinds.

    `held` counts machines that serve the need already, by domain: a spread lacks them where there are fewest.
    """
    needs = result.verdicts.needs
    w, catalog = needs.current, engine.catalog
    profile = catalog.profiles[int(w.e.prof[entry])]
    kind = int(w.e.kind[entry])
    key = _domain_key(profile, kind)
    kinds = _kinds(engine, w, entry)
    if key == HOSTNAME_LABEL:
        # Only a machine that holds all of the group keeps it together on one.
        key, kinds = "", [shape for shape in kinds if _holds_all(needs, entry, shape)]
    if not key:
        fitting = [shape for shape in kinds if _matches(shape, profile)]
        fitting = fitting or [moved for shape in kinds if (moved := _moved(engine, shape, profile)) is not None]
        for shape in fitting:
            yield _offer(result, engine, entry, shape, *_where(profile, shape))
        return
    domains = _domains(engine, result, entry, key)
    if kind != GANG and held is not None:
        domains.sort(key=lambda domain: held.get(domain, 0))
    for some in (slice(KINDS), slice(KINDS, None)):
        for domain in domains:
            for shape in _there(kinds, profile, key, domain)[some]:
                yield _offer(result, engine, entry, shape, key, domain)


def _there(kinds: Iterable[Shape], profile: Profile, key: str, domain: str) -> list[Shape]:
    """Kinds that match in a domain, or would if they were there."""
    found = [shape for shape in kinds if shape.label(key) == domain and _matches(shape, profile)]
    if found:
        return found
    placed = dict.fromkeys(_placed(shape, key, domain) for shape in kinds)
    return [shape for shape in placed if _matches(shape, profile)]


def _domain_key(profile: Profile, kind: int) -> str:
    if kind == GANG:
        return profile.same.key if profile.same is not None else ""
    if kind == PLAIN:
        return ""
    strict = (spread for spread in profile.spread if spread.strict and spread.topology_key != HOSTNAME_LABEL)
    return next(strict).topology_key


def _kinds(engine: Engine, w: World, entry: int) -> list[Shape]:
    """Shapes whose machines hold a smallest unit and something of everything that is missing, cheapest first."""
    catalog, n = engine.catalog, engine.catalog.class_count
    span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
    have = np.maximum(w.k.alloc[:n] - w.c.overhead[int(w.e.cluster[entry])], 0)
    fits = (have[:, None, :] >= w.parts.unit[span][None, :, :]).all(axis=2).any(axis=1)
    missing = w.parts.left[span].sum(axis=0) > 0
    good = fits & (have[:, missing] > 0).all(axis=1) & (w.k.named[:n] == UNNAMED)
    shapes = [catalog.class_shape(number) for number in np.nonzero(good)[0].tolist()]
    return sorted(
        dict.fromkeys(shapes), key=lambda s: (s.price, s.provider, s.instance_type, s.zone, s.capacity_type, s.labels)
    )


def _holds_all(needs: Needs, entry: int, shape: Shape) -> bool:
    w = needs.current
    overhead = needs.amounts(w.c.overhead[int(w.e.cluster[entry])])
    return shape.allocatable.minus(overhead).covers(needs.total(w.parts.agg, entry))


def _domains(engine: Engine, result: StepResult, entry: int, key: str) -> list[str]:
    """Values of a key: a group's own domain first, then by how much of the group each could hold; else by text."""
    needs = result.verdicts.needs
    w, catalog = needs.current, engine.catalog
    column = catalog.keys.index(key)
    numbers = np.unique(w.k.dom[: catalog.class_count, column])
    texts = sorted((catalog.domain_texts[number] for number in numbers.tolist() if number >= 0), key=str.encode)
    first: list[str] = []
    if int(w.e.kind[entry]) == GANG:
        own = int(w.e.domain[entry])
        first = [catalog.domain_texts[own]] if own >= 0 else []
        if not w.c.counted[int(w.e.cluster[entry])]:
            first += [catalog.texts.texts[text] for text in w.e.candidate[entry].tolist() if text >= 0]
        required = next((r for r in catalog.profiles[int(w.e.prof[entry])].requirements if r.key == key), None)
        texts += list(required.values) if required is not None else []
        if not first:
            # A counted gang's candidates are not kept: where most machines lie that it could use, it lacks least.
            free = _free_by_domain(catalog.class_count, w, entry, column)
            most = {catalog.domain_texts[number]: count for number, count in free.items()}
            texts.sort(key=lambda text: -most.get(text, 0))
    return list(dict.fromkeys(first + texts))


def _free_by_domain(classes: int, w: World, entry: int, column: int) -> dict[int, int]:
    """Machines that are free or will be, of classes that match and hold some unit, by number of the domain."""
    span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
    holds = w.k.alloc[:classes, None, :] >= w.parts.unit[span][None, :, :]
    good = np.any(np.all(holds, axis=2), axis=1) & (w.match[int(w.p.con[w.e.prof[entry]]), :classes] != 0)
    count = w.k.count[:classes][:, [IDLE, SPECULATIVE, DRAINING]].sum(axis=1)
    found: dict[int, int] = {}
    for cls in np.nonzero(good & (count > 0))[0].tolist():
        domain = int(w.k.dom[cls, column])
        found[domain] = found.get(domain, 0) + int(count[cls])
    return found


def _offer(result: StepResult, engine: Engine, entry: int, shape: Shape, key: str, domain: str) -> Offer:
    w = result.verdicts.needs.current
    offered = np.zeros(w.k.alloc.shape[1], np.int64)
    for name, amount in shape.allocatable.items():
        column = engine.catalog.resource(name)
        if column >= 0:
            offered[column] = amount
    have = np.maximum(offered - w.c.overhead[int(w.e.cluster[entry])], 0)
    span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
    gang = int(w.e.kind[entry]) == GANG
    home = gang and int(w.e.domain[entry]) >= 0 and engine.catalog.domain_texts[int(w.e.domain[entry])] == domain
    units = result.verdicts.units
    if units is not None and units.is_counted(entry):
        alone = bool(units.tokens(entry))
        least = most = _holders(w.parts.left[span], w.parts.unit[span], have, alone)
    else:
        least = _machines(w.parts.left[span] if home or not gang else w.parts.agg[span], have)
        most = _machines(w.parts.agg[span], have)
    others = result.verdicts.pending[result.verdicts.pending != entry]
    for part in range(int(w.e.parts[others].max()) if len(others) else 0):
        those = others[w.e.parts[others] > part]
        rows = w.e.part[those] + part
        # Who acquired something else may prefer these, and a group may move to them.
        movable = (w.e.kind[those] == GANG) | (w.e.boots[those] + w.e.provisions[those] > 0)
        wanted = np.where(movable[:, None], w.parts.agg[rows], w.parts.left[rows])
        most += _machines(wanted, np.maximum(offered - w.c.overhead[w.e.cluster[those]], 0))
    return Offer(shape, key, domain, max(1, least), max(1, most))


def _machines(amounts: NDArray[np.int64], have: NDArray[np.int64]) -> int:
    """Machines that hold these amounts, row by row; what they have nothing of is left out."""
    counts = np.where(have > 0, -(-amounts // np.maximum(have, 1)), 0)
    return int(counts.max(axis=1).sum())


def _holders(amounts: NDArray[np.int64], unit: NDArray[np.int64], have: NDArray[np.int64], alone: bool) -> int:
    """Machines that hold these amounts in whole units, row by row; rows no machine holds are left out. `alone`: one
    unit a machine."""
    total = 0
    for missing, one in zip(amounts, unit, strict=True):
        wanted = one > 0
        fits = int((have[wanted] // one[wanted]).min())
        fits = min(fits, 1) if alone else fits
        if fits:
            total += -(-int(missing[wanted][0] // one[wanted][0]) // fits)
    return total


# ---- shapes and where they are -------------------------------------------------------------------------------------


def _where(profile: Profile, shape: Shape) -> tuple[str, str]:
    """The domain worth naming for a plain need: what the profile asks of the place, else the zone."""
    for requirement in profile.requirements:
        if requirement.key not in (INSTANCE_TYPE_LABEL, HOSTNAME_LABEL) and requirement.operator is Operator.IN:
            return requirement.key, shape.label(requirement.key) or ""
    return (ZONE_LABEL, shape.zone) if shape.zone else ("", "")


def _matches(shape: Shape, profile: Profile) -> bool:
    return tolerates(profile.tolerations, shape.taints) and all(meets(shape, r) for r in profile.requirements)


def meets(shape: Shape, requirement: Requirement) -> bool:
    """Whether new machines of a shape would meet a requirement."""
    # A machine that does not exist yet has a name nobody asked for.
    if requirement.key == HOSTNAME_LABEL:
        return requirement.matches("\U0010ffff")
    return requirement.matches(shape.label(requirement.key))


def _placed(shape: Shape, key: str, value: str) -> Shape:
    """The shape as it would be there."""
    if key == ZONE_LABEL:
        return replace(shape, zone=value)
    return replace(shape, labels=tuple(sorted({**dict(shape.labels), key: value}.items())))


def _moved(engine: Engine, shape: Shape, profile: Profile) -> Shape | None:
    """The shape where the profile wants it, None if only another kind of machine would do."""
    for requirement in profile.requirements:
        if meets(shape, requirement):
            continue
        if requirement.key in (INSTANCE_TYPE_LABEL, HOSTNAME_LABEL):
            return None
        if requirement.operator is Operator.IN:
            shape = _placed(shape, requirement.key, requirement.values[0]) if requirement.values else shape
        elif requirement.operator is Operator.EXISTS:
            known = sorted(v for s in engine.catalog.shapes if (v := s.label(requirement.key)) is not None)
            shape = _placed(shape, requirement.key, known[0] if known else "any")
        else:
            shape = replace(shape, labels=tuple(pair for pair in shape.labels if pair[0] != requirement.key))
    return shape if _matches(shape, profile) else None
