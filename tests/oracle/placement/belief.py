"""Belief: a cluster that says nonsense gets at most what its count needs once more.

Written from docs/engine.md P19. In integers, so that no sum depends on its order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.oracle.demand import Amounts, added
from tests.oracle.placement.reports import is_seen
from tests.oracle.placement.worth import fits, published

if TYPE_CHECKING:
    from tests.oracle.demand import Demand
    from tests.oracle.placement.needs import Need
    from tests.oracle.placement.worth import Worth
    from tests.oracle.supply import Unit


def believed(name: str, machines: list[Unit], demand: Demand, needs: list[Need], worth: Worth) -> bool:
    if not worth.placement.doubt:
        return True
    mine = [need for need in needs if need.cluster == name]
    seen = [u for u in machines if u.cluster == name and u.report is not None and is_seen(u, demand)]
    return _suspect(seen, mine) <= sum(_fresh_price(need, worth) for need in mine)


def _suspect(seen: list[Unit], needs: list[Need]) -> int:
    used: Amounts = {}
    for unit in seen:
        assert unit.report is not None
        used = added(used, unit.report.used)
    running: Amounts = {}
    for need in needs:
        for part in need.parts:
            running = added(running, {name: amount * part.running for name, amount in part.unit.items()})
    explained = all(10 * amount <= 11 * running.get(name, 0) for name, amount in used.items() if name != "pods")
    suspects = [
        u for u in seen if not explained or (u.report and not u.report.empty and not any(u.report.used.values()))
    ]
    return sum(_micro(unit) for unit in suspects)


def _fresh_price(need: Need, worth: Worth) -> int:
    total = 0
    for part in need.parts:
        prices = [
            -(-part.count // most) * _micro(kind)
            for kind in worth.classes.values()
            if need.matches(kind) and not worth.risky(need, part, kind)
            if (most := fits(published(kind), frozenset(), part, kind)) > 0
        ]
        total += min(prices, default=0)
    return total


def _micro(unit: Unit) -> int:
    if unit.shape.price == 0:
        return 50 * unit.shape.allocatable.get("cpu") or 1_000_000
    return math.floor(unit.shape.price * 1_000_000 + 0.5)
