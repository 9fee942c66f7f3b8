"""Kinds: pods that are placed, counted and reported alike. Everything per template is worked out here, once.

A pod's labels take part only as far as some selector names their keys: a StatefulSet's pods all differ in labels that
nobody selects by, and must not become as many kinds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.penalty import MICRO, PINNED, UNSPECIFIED, bucket_dollars
from bigfleet.operator.core.mirror.facts import Labels, Origin, PodShape, PodTerm, SpreadTerm
from bigfleet.operator.core.mirror.filters import COMMON, NodeFilter
from bigfleet.operator.core.mirror.tallies import Anchored, Domains, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bigfleet.model.taint import Toleration
    from bigfleet.operator.core.mirror.labels import LabelCheck, Selector
    from bigfleet.operator.core.mirror.nodes import Dimensions, Node
    from bigfleet.operator.core.mirror.pods import Pod, Request

Need = tuple[tuple[int, int], ...]
# Priority, fingerprint, group, exclusive tokens.
Face = tuple[int, str, str, tuple[str, ...]]

# What moving one replica costs when nobody said anything: half a cent.
REPLICA_MICRODOLLARS = 5_000
_SHAPES_REMEMBERED = 4096
# So many kinds may go before what only they needed is looked for.
_FORGOTTEN_KEPT = 1024


class Fit:
    """A size and a filter: kinds that share both find room in the same places."""

    __slots__ = ("by_domain", "cursor", "filter", "most", "most_stamp", "need", "none_since", "stamp")

    def __init__(self, need: Need, filter: NodeFilter) -> None:
        self.need = need
        self.filter = filter
        # Kept by `order`: since which entry of its log no node has had room.
        self.none_since = -1
        # Kept by `placing` for one pass: where in the order room begins.
        self.stamp = -1
        self.cursor = 0
        self.by_domain: dict[str, dict[str, list[Node]]] = {}
        # And how many find room in all, once somebody asked in that pass.
        self.most_stamp = -1
        self.most = 0


class Kind:
    """One kind of pod."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "bound",
        "counted",
        "dollars",
        "face",
        "fit",
        "hard",
        "held_by",
        "holds",
        "labels",
        "live",
        "must_stay",
        "need",
        "order",
        "pinned",
        "placeholders",
        "repelled_by",
        "same",
        "settles",
        "shape",
        "spread_by",
        "spread_name",
        "spreads",
        "tallied",
        "tokens",
        "turn",
        "users",
        "waiting",
    )

    def __init__(self, shape: PodShape, fit: Fit) -> None:
        self.shape = shape
        self.labels = dict(shape.labels)
        self.fit = fit
        self.need = fit.need
        self.tokens = _tokens(shape)
        self.order = _order(shape, bool(self.tokens))
        # When a node is emptied: those that ask for more than room first.
        self.turn = (not shape.picky, *self.order)
        profile = shape.profile
        self.same = profile.same if shape.group else None
        self.pinned = (
            shape.pinned
            or shape.origin is Origin.BARE
            or PINNED in (profile.interruption_bucket, profile.reclamation_bucket)
        )
        self.dollars = _dollars(shape)
        self.spread_name = _spread_name(shape)
        # What a node report tells of it; None of daemons.
        daemon = shape.origin is Origin.DAEMON
        self.face: Face | None = None if daemon else (profile.priority, profile.fingerprint, shape.group, self.tokens)
        # Tallies it asks before it stands somewhere …
        self.affinity: list[tuple[Tally, bool]] = []
        self.anti_affinity: list[Tally] = []
        self.repelled_by: list[Tally] = []
        self.spreads: list[tuple[Tally, int, bool]] = []
        # … and those that count it once it does: all, and those that leave out terminating pods.
        self.tallied: list[Tally] = []
        self.spread_by: list[Tally] = []
        self.holds: list[Tally] = []
        self.held_by: set[str] = set()
        # Nobody may move such a pod now.
        self.must_stay = self.pinned and not daemon
        self.live = True
        self.users = 0
        self.bound = 0
        self.waiting: list[Pod] = []
        self.placeholders: dict[str, Request] = {}
        self.reckon()

    def hold(self, budget: str, on: bool) -> None:
        """A budget without room for another eviction holds such pods where they are, or no longer does."""
        (self.held_by.add if on else self.held_by.discard)(budget)
        self.must_stay = self.face is not None and (self.pinned or bool(self.held_by))

    def asks(self) -> list[Tally]:
        """All tallies that decide where it may stand."""
        affinity = [tally for tally, _ in self.affinity]
        return [*affinity, *self.anti_affinity, *self.repelled_by, *(tally for tally, _, _ in self.spreads)]

    def reckon(self) -> None:
        """Whether it is placed one by one, whether a node that does not suit now never will, whether it is tallied."""
        one_by_one = self.shape.ports or self.affinity or self.anti_affinity or self.repelled_by or self.spreads
        self.hard = bool(one_by_one)
        self.settles = not (self.affinity or self.spreads)
        self.counted = bool(self.tallied or self.holds or self.spread_by)

    def __repr__(self) -> str:
        return f"Kind({self.shape.namespace}, {self.shape.requests.canonical}, {self.shape.profile.fingerprint})"


class Kinds:
    """All live kinds, their filters, fits and tallies."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._kinds: dict[PodShape, Kind] = {}
        self._filters: dict[object, NodeFilter] = {}
        self._fits: dict[object, Fit] = {}
        self._tallies: dict[object, Tally] = {}
        self._selecting = Anchored()
        self._remembered: dict[int, tuple[PodShape, Kind]] = {}
        self._forgotten = 0
        # Changes whenever kinds are placed or counted otherwise than before.
        self.epoch = 0
        self.domains: dict[object, Domains] = {}
        # Keys that selectors of pods name, and those that filters and topologies ask of nodes.
        self.pod_keys: set[str] = set()
        self.node_keys: set[str] = set()
        self.on_new_pod_keys: Callable[[], None] = lambda: None
        self.on_new_node_keys: Callable[[], None] = lambda: None
        self.on_new_filter: Callable[[NodeFilter], None] = lambda filter: None
        self.on_new_domains: Callable[[Domains], None] = lambda domains: None
        self.on_new_tally: Callable[[Tally, list[Kind]], None] = lambda tally, kinds: None
        self.on_new_kind: Callable[[Kind], None] = lambda kind: None

    def of(self, shape: PodShape) -> Kind:
        known = self._remembered.get(id(shape))
        if known is not None and known[0] is shape and known[1].live:
            return known[1]
        self._learn(shape)
        kind = self.with_labels(shape, shape.labels)
        if len(self._remembered) >= _SHAPES_REMEMBERED:
            self._remembered.clear()
        self._remembered[id(shape)] = (shape, kind)
        return kind

    def with_labels(self, shape: PodShape, labels: Labels) -> Kind:
        reduced = tuple(pair for pair in labels if pair[0] in self.pod_keys)
        if reduced != shape.labels:
            shape = replace(shape, labels=reduced)
        kind = self._kinds.get(shape)
        return kind if kind is not None else self._make(shape)

    def release(self, kind: Kind) -> None:
        """One user less; a kind without users is forgotten."""
        kind.users -= 1
        if kind.users:
            return
        if self._kinds.get(kind.shape) is kind:
            del self._kinds[kind.shape]
            kind.live = False
            self._forgotten += 1
            if self._forgotten > _FORGOTTEN_KEPT:
                self._sweep()

    def live(self) -> list[Kind]:
        return list(self._kinds.values())

    def filters(self) -> Iterable[NodeFilter]:
        return self._filters.values()

    def _learn(self, shape: PodShape) -> None:
        terms: list[PodTerm | SpreadTerm] = [*shape.affinity, *shape.anti_affinity, *shape.spreads]
        pod_keys = {check.key for term in terms for check in term.selector.checks}
        node_keys = {check.key for term in shape.node_terms for check in term}
        node_keys.update(term.topology_key for term in terms)
        if not node_keys <= self.node_keys:
            self.node_keys |= node_keys
            self.on_new_node_keys()
        self.learn_pod_keys(pod_keys)

    def learn_pod_keys(self, keys: set[str]) -> None:
        if not keys <= self.pod_keys:
            self.pod_keys |= keys
            self._remembered.clear()
            self.on_new_pod_keys()

    def _make(self, shape: PodShape) -> Kind:
        amounts = self._dimensions.amounts(shape.requests, absent_pods=1)
        # Devices first: that is where most nodes have nothing to offer.
        need = tuple((place, amount) for place, amount in reversed(list(enumerate(amounts))) if amount)
        devices = tuple(name for name in shape.requests.names() if name not in COMMON)
        filter = self._filter(shape.node_terms, shape.tolerations, devices)
        fit = self._fits.get((need, filter))
        if fit is None:
            fit = self._fits[need, filter] = Fit(need, filter)
        kind = self._kinds[shape] = Kind(shape, fit)
        own = (shape.namespace,)
        for term in shape.affinity:
            tally = self._tally(term.topology_key, term.namespaces, term.selector)
            kind.affinity.append((tally, tally.selects(kind)))
        for term in shape.anti_affinity:
            kind.anti_affinity.append(self._tally(term.topology_key, term.namespaces, term.selector))
            kind.holds.append(self._holders(term))
        for spread in shape.spreads:
            domains = self._domains(spread.topology_key, filter)
            tally = self._tally(spread.topology_key, own, spread.selector, domains)
            kind.spreads.append((tally, max(1, spread.max_skew), tally.selects(kind)))
        for tally in self._selecting.of(kind):
            self._connect(tally, kind)
        kind.reckon()
        self.on_new_kind(kind)
        return kind

    def _sweep(self) -> None:
        """Let go of filters, fits, tallies and domains that no live kind uses."""
        self._forgotten = 0
        self.epoch += 1
        kinds = self._kinds.values()
        asked = {id(tally) for kind in kinds for tally in _asked(kind)}
        self._tallies = {name: tally for name, tally in self._tallies.items() if id(tally) in asked}
        self._selecting = Anchored()
        for tally in self._tallies.values():
            self._selecting.add(tally)
        for kind in kinds:
            for found in (kind.tallied, kind.spread_by, kind.repelled_by):
                found[:] = [tally for tally in found if id(tally) in asked]
            kind.reckon()
        fits = {kind.fit for kind in kinds}
        filters = {fit.filter for fit in fits}
        self._fits = {name: fit for name, fit in self._fits.items() if fit in fits}
        self._filters = {name: filter for name, filter in self._filters.items() if filter in filters}
        used = {id(tally.domains) for tally in self._tallies.values() if tally.domains is not None}
        self.domains = {name: domains for name, domains in self.domains.items() if id(domains) in used}

    def _connect(self, tally: Tally, kind: Kind) -> None:
        found = kind.repelled_by if tally.holders else kind.spread_by if tally.domains is not None else kind.tallied
        if tally not in found:
            found.append(tally)

    def _filter(
        self, terms: tuple[tuple[LabelCheck, ...], ...], tolerations: tuple[Toleration, ...], devices: tuple[str, ...]
    ) -> NodeFilter:
        name = (terms, tolerations, devices)
        made = self._filters.get(name)
        if made is None:
            made = self._filters[name] = NodeFilter(*name)
            self.on_new_filter(made)
        return made

    def _domains(self, key: str, filter: NodeFilter) -> Domains:
        made = self.domains.get((key, filter))
        if made is None:
            made = self.domains[key, filter] = Domains(key, filter)
            self.on_new_domains(made)
        return made

    def _tally(
        self, key: str, namespaces: tuple[str, ...], selector: Selector, domains: Domains | None = None
    ) -> Tally:
        return self._known((key, namespaces, selector, domains), Tally(key, namespaces, selector, domains=domains))

    def _holders(self, term: PodTerm) -> Tally:
        made = Tally(term.topology_key, term.namespaces, term.selector, holders=True)
        return self._known((term.topology_key, term.namespaces, term.selector, "holders"), made)

    def _known(self, name: object, fresh: Tally) -> Tally:
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = fresh
            self._selecting.add(tally)
            selected = [kind for kind in self._kinds.values() if tally.selects(kind)]
            for kind in selected:
                self._connect(tally, kind)
                kind.reckon()
            self.epoch += bool(selected)
            if not tally.holders:
                self.on_new_tally(tally, selected)
        return tally


def _asked(kind: Kind) -> list[Tally]:
    """Tallies that exist because of this kind."""
    spreads = [tally for tally, _, _ in kind.spreads]
    return [*(tally for tally, _ in kind.affinity), *kind.anti_affinity, *kind.holds, *spreads]


def _order(shape: PodShape, apart: bool) -> tuple[object, ...]:
    """Priority, then more devices, then those that want a node each, then larger first (cpu, memory), then a text that
    no two kinds share. Who wants a node each leaves the rest of it to others; behind larger ones, which fill one node
    after the other here and spread in a real scheduler, it would seem to have no room where it has plenty."""
    amounts = dict(shape.requests.items())
    cpu, memory = amounts.pop("cpu", 0), amounts.pop("memory", 0)
    text = repr(
        (
            shape.namespace,
            shape.requests.canonical,
            shape.profile.fingerprint,
            shape.group,
            shape.labels,
            shape.node_terms,
            shape.tolerations,
            shape.ports,
            shape.affinity,
            shape.anti_affinity,
            shape.spreads,
            shape.origin,
            shape.pinned,
            shape.service,
            shape.reclamation_microdollars,
        )
    )
    return -shape.profile.priority, -sum(amounts.values()), not apart, -cpu, -memory, text


def _dollars(shape: PodShape) -> tuple[int, int]:
    """Micro-dollars of (reclaiming, interrupting) one pod; what must not be moved at all is pinned, not dear."""
    profile = shape.profile
    if profile.reclamation_bucket == UNSPECIFIED and shape.origin is Origin.REPLICATED:
        reclamation = REPLICA_MICRODOLLARS
    else:
        reclamation = shape.reclamation_microdollars or _micro(bucket_dollars(profile.reclamation_bucket))
    return reclamation, _micro(profile.interruption_dollars)


def _micro(dollars: float) -> int:
    return 0 if math.isinf(dollars) else round(dollars * MICRO)


def _tokens(shape: PodShape) -> tuple[str, ...]:
    """What no two pods of one node may share: a host port, or an anti-affinity to their own like on a hostname."""
    found = [f"port {port.protocol} {port.port} {port.ip}" for port in shape.ports]
    labels = dict(shape.labels)
    for term in shape.anti_affinity:
        own = not term.namespaces or shape.namespace in term.namespaces
        if term.topology_key == HOSTNAME_LABEL and own and term.selector.selects(labels):
            found.append(f"apart {','.join(term.namespaces)} {_selector_text(term.selector.checks)}")
    return tuple(sorted(set(found)))


def _spread_name(shape: PodShape) -> str:
    """Whom its strict spread counts, empty where the shard hears of none: gangs are told by their domain."""
    strict = shape.profile.strict_spread
    if shape.group or strict is None or strict.topology_key == HOSTNAME_LABEL:
        return ""
    whom = {_selector_text(each.selector.checks) for each in shape.spreads if each.topology_key == strict.topology_key}
    return f"{shape.namespace} {' and '.join(sorted(whom))}" if whom else ""


def _selector_text(checks: tuple[LabelCheck, ...]) -> str:
    return ";".join(f"{key} {operator} {','.join(values)}" for key, operator, values in sorted(checks))
