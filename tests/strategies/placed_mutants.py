"""Sixteen ways to get the rules for reporting clusters wrong, and how many random fleets it takes to notice each.

`python -m tests.strategies.placed_mutants [FLEETS]` prints one JSON line. A mutant is the oracle with one rule broken;
where a play's results differ from the sound ones it is killed. An engine that made the same mistake would be, too.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.oracle import step
from tests.oracle.demand import Cluster
from tests.oracle.judging import times
from tests.oracle.placement import belief, buying, coming, consolidate, giving_back, lots, preempt, worth
from tests.oracle.placement.needs import Need
from tests.oracle.step import Oracle
from tests.strategies.differential import difference
from tests.strategies.fleets import Size
from tests.strategies.placed_fleets import PlacedStep, play_placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZE = Size(machines=32, rows=8, steps=8)
FLEETS = 1200


@contextmanager
def _patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _riders_before_precedence() -> Any:
    sound = buying.Buying._riders
    return _patched((buying.Buying, "_riders", lambda self, need, reach=1: list(reversed(sound(self, need, reach)))))


def _remainders_forgotten() -> Any:
    return _patched((lots.Book, "open", lambda self, cluster, lot: None))


def _coming_without_deadline() -> Any:
    sound = coming.coming_lots
    return _patched((step, "coming_lots", lambda *given: sound(*given[:-1], -1)))


def _price_instead_of_value() -> Any:
    return _patched((buying.Buying, "_choose", lambda self, fills: min(fills, key=lambda f: (f.price, f.offer.first))))


def _penalty_not_summed() -> Any:
    sound = buying.Buying._fill

    def fill(self: Any, need: Any, *rest: Any) -> Any:
        found = sound(self, need, *rest)
        if found is not None:
            found.risk = times(found.offer.head.shape.probability, need.dollars)
        return found

    return _patched((buying.Buying, "_fill", fill))


def _closing_nodes_are_room() -> Any:
    sound = coming._is_coming

    def is_coming(unit: Any, demand: Any) -> bool:
        closing = unit.state == 5 and unit.report is not None and unit.report.closing
        cluster = demand.clusters.get(unit.cluster)
        return sound(unit, demand) or bool(closing and cluster and cluster.reporting)

    return _patched((coming, "_is_coming", is_coming))


def _move_without_overlap_price() -> Any:
    sound = consolidate.Consolidation._option

    def option(self: Any, node: Any, nodes: Any) -> Any:
        with mock.patch.object(worth.Worth, "boot_ns", lambda self, unit: 0):
            return sound(self, node, nodes)

    return _patched((consolidate.Consolidation, "_option", option))


def _closed_each_for_itself() -> Any:
    sound = consolidate.Consolidation._closed_together

    def together(self: Any, node: Any, candidates: Any) -> Any:
        option = sound(self, node, candidates)
        return option and replace(option, old=[node])

    return _patched((consolidate.Consolidation, "_closed_together", together))


def _refusal_ignored() -> Any:
    def never(*_: Any) -> bool:
        return False

    return _patched(*((module, "resting", never) for module in (buying, giving_back, consolidate)))


def _spread_by_machines() -> Any:
    put, buy = lots.Book.put, buying.Buying._buy

    def placed(self: Any, need: Any, portion: Any, lot: Any, units: int) -> Any:
        before = dict(need.counts)
        used = put(self, need, portion, lot, units)
        if need.spread:
            need.counts = before | {need.domain_of(u): before.get(need.domain_of(u), 0) + len(used) for u in used}
        return used

    def bought(self: Any, need: Any, fill: Any, *, once: bool) -> None:
        before = dict(need.counts)
        domain = need.domain_of(fill.offer.head) if need.spread else ""
        buy(self, need, fill, once=once)
        if need.spread:
            need.counts = before | {domain: before.get(domain, 0) + 1}

    return _patched((lots.Book, "put", placed), (buying.Buying, "_buy", bought))


def _exclusive_ignored() -> Any:
    sound = worth.fits

    def fits(left: Any, carried: Any, portion: Any, unit: Any) -> int:
        return sound(left, frozenset(), replace(portion, tokens=frozenset()), unit)

    return _patched(*((module, "fits", fits) for module in (worth, lots, buying, coming, preempt, belief)))


def _pinned_moved() -> Any:
    sound = consolidate.Consolidation._node

    def node(self: Any, unit: Any, now: int, *, closing: bool) -> Any:
        with mock.patch.object(unit, "report", unit.report and replace(unit.report, pinned=False)):
            return sound(self, unit, now, closing=closing)

    return _patched((consolidate.Consolidation, "_node", node))


def _stranded_counted_twice() -> Any:
    sound = Cluster.stranded

    def stranded(self: Any, row: Any) -> int:
        return min(2 * sound(self, row), row.units.count)

    return _patched((Cluster, "stranded", stranded))


def _tokens_wait_their_turn() -> Any:
    return _patched((Need, "has_tokens", False))


def _devices_wait_their_turn() -> Any:
    return _patched((Need, "has_devices", False))


def _gang_evicts_the_first_rack() -> Any:
    def worth(drained: int, victims: Any, domain: str) -> tuple[int, bytes]:
        return (-drained, domain.encode())

    return _patched((preempt, "_worth", worth))


def _gang_rests_though_machines_came() -> Any:
    return _patched((step, "classes_with_more", lambda *_: []))


def _devices_filled_as_they_come() -> Any:
    return _patched((buying.Buying, "_filled_anew", lambda self, need, portion, chosen: chosen))


MUTANTS: dict[str, Callable[[], Any]] = {
    "riders before precedence": _riders_before_precedence,
    "remainders forgotten": _remainders_forgotten,
    "coming without deadline": _coming_without_deadline,
    "price instead of value": _price_instead_of_value,
    "penalty not summed": _penalty_not_summed,
    "closing nodes counted as room": _closing_nodes_are_room,
    "move without overlap price": _move_without_overlap_price,
    "closed each for itself": _closed_each_for_itself,
    "refusal ignored": _refusal_ignored,
    "spread by machines": _spread_by_machines,
    "exclusive ignored": _exclusive_ignored,
    "pinned moved": _pinned_moved,
    "stranded counted twice": _stranded_counted_twice,
    "tokens wait their turn": _tokens_wait_their_turn,
    "devices wait their turn": _devices_wait_their_turn,
    "gang evicts the first rack": _gang_evicts_the_first_rack,
    "gang rests though machines came": _gang_rests_though_machines_came,
    "devices filled as they come": _devices_filled_as_they_come,
}


def killed(fleets: int = FLEETS, names: Sequence[str] = tuple(MUTANTS)) -> dict[str, int | None]:
    """Per mutant the number of fleets it took to notice it; None if none of them did."""
    alive = dict.fromkeys(names)
    found: dict[str, int | None] = dict.fromkeys(names)
    for seed in range(fleets):
        played = list(play_placed(seed, SIZE, Oracle()))
        for name in list(alive):
            if _differs(MUTANTS[name], played):
                found[name] = seed + 1
                del alive[name]
        if not alive:
            break
    return found


def _differs(mutant: Callable[[], Any], played: list[tuple[PlacedStep, Any]]) -> bool:
    oracle = Oracle()
    with mutant():
        try:
            return any(difference(sound, inputs.feed(oracle)) is not None for inputs, sound in played)
        except (AssertionError, IndexError, KeyError):
            return True


def main(fleets: int) -> int:
    found = killed(fleets)
    print(
        json.dumps({"fleets": fleets, "killed after fleets": found, "alive": [n for n, at in found.items() if not at]})
    )
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else FLEETS))
