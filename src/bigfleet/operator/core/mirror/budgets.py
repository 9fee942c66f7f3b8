"""PodDisruptionBudgets: which kinds of pods nobody may evict now. Counts no evictions; the API server does."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bigfleet.operator.core.mirror.facts import BudgetGone, BudgetSeen
from bigfleet.operator.core.mirror.kinds import Kind, Kinds
from bigfleet.operator.core.mirror.nodes import Node


class Budgets:
    """All budgets by name."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._by_name: dict[str, BudgetSeen] = {}
        # Kinds that came under a spent budget, or out of it, since the nodes were told.
        self._flipped: set[Kind] = set()

    def seen(self, seen: BudgetSeen) -> None:
        self._kinds.learn_pod_keys({check.key for check in seen.selector.checks})
        before = self._by_name.get(seen.name)
        self._by_name[seen.name] = seen
        if before is None or replace(before, allowed=0) != replace(seen, allowed=0):
            changed = True
        else:
            changed = (before.allowed <= 0) != (seen.allowed <= 0)
        if changed:
            self._hold(seen.name)

    def gone(self, gone: BudgetGone) -> None:
        if self._by_name.pop(gone.name, None) is not None:
            self._hold(gone.name)

    def _hold(self, name: str) -> None:
        budget = self._by_name.get(name)
        for kind in self._kinds.live():
            held = budget is not None and budget.allowed <= 0 and _covers(budget, kind)
            if held != (name in kind.held_by):
                kind.hold(name, held)
                self._flipped.add(kind)

    def settle(self, nodes: Iterable[Node], touched: set[str]) -> None:
        """Tell the nodes whose pods may be moved now or no longer."""
        if self._flipped:
            for node in nodes:
                if node.name in touched or not self._flipped.isdisjoint(node.kinds):
                    node.held = sum(kind.must_stay for kind in node.kinds)
                    touched.add(node.name)
            self._flipped.clear()

    def judge(self, kind: Kind) -> None:
        """A new kind."""
        for budget in self._by_name.values():
            if budget.allowed <= 0 and _covers(budget, kind):
                kind.hold(budget.name, True)


def _covers(budget: BudgetSeen, kind: Kind) -> bool:
    return budget.namespace == kind.shape.namespace and budget.selector.selects(kind.labels)
