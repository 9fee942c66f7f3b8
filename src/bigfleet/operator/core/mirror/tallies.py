"""How many pods a selector finds in each domain: the books behind (anti-)affinity and strict spreads.

A tally is made when the first kind needs it and kept by whoever comes and goes; nothing is ever rescanned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.operator.core.mirror.filters import NodeFilter
    from bigfleet.operator.core.mirror.kinds import Kind
    from bigfleet.operator.core.mirror.labels import Selector
    from bigfleet.operator.core.mirror.nodes import Node


class Domains:
    """The domains of a key among the nodes a filter lets through, and how many nodes each has."""

    __slots__ = ("filter", "key", "nodes")

    def __init__(self, key: str, filter: NodeFilter) -> None:
        self.key = key
        self.filter = filter
        self.nodes: dict[str, int] = {}

    def count(self, node: Node, change: int) -> None:
        domain = node.labels.get(self.key)
        if domain is None or not self.filter.suits_labels(node):
            return
        left = self.nodes.get(domain, 0) + change
        if left:
            self.nodes[domain] = left
        else:
            del self.nodes[domain]


class Tally:
    """Pods per domain. Of a spread, only pods on nodes that its own pods may use, and no terminating ones."""

    __slots__ = ("by_domain", "domains", "holders", "key", "namespaces", "selector")

    def __init__(
        self,
        key: str,
        namespaces: tuple[str, ...],
        selector: Selector,
        *,
        holders: bool = False,
        domains: Domains | None = None,
    ) -> None:
        self.key = key
        self.namespaces = namespaces
        self.selector = selector
        # Counts those who *have* the term, not those it selects: they repel whom it selects.
        self.holders = holders
        self.domains = domains
        self.by_domain: dict[str, int] = {}

    def selects(self, kind: Kind) -> bool:
        return (not self.namespaces or kind.shape.namespace in self.namespaces) and self.selector.selects(kind.labels)

    def count(self, node: Node, change: int) -> None:
        domain = node.labels.get(self.key)
        if domain is None or (self.domains is not None and not self.domains.filter.suits_labels(node)):
            return
        left = self.by_domain.get(domain, 0) + change
        if left:
            self.by_domain[domain] = left
        else:
            del self.by_domain[domain]

    def at(self, node: Node) -> int:
        domain = node.labels.get(self.key)
        return 0 if domain is None else self.by_domain.get(domain, 0)

    def least(self) -> int:
        """In the emptiest domain of a spread."""
        assert self.domains is not None
        if len(self.by_domain) < len(self.domains.nodes):
            return 0
        return min(self.by_domain.values(), default=0)


class Anchored:
    """Tallies found by a label that all their pods have, so that a new kind need not try every selector."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[Tally]] = {}
        self._others: list[Tally] = []

    def add(self, tally: Tally) -> None:
        anchor = tally.selector.anchor()
        (self._others if anchor is None else self._by_label.setdefault(anchor, [])).append(tally)

    def of(self, kind: Kind) -> Iterable[Tally]:
        for tally in self._others:
            if tally.selects(kind):
                yield tally
        for label in kind.labels.items():
            for tally in self._by_label.get(label, ()):
                if tally.selects(kind):
                    yield tally
