"""Consolidation: which nodes are closed and which closed ones are moved or deleted.

Written from docs/engine.md P35 to P37 and P39.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING

from tests.oracle.demand import Amounts, added, covers
from tests.oracle.entries import compare_units
from tests.oracle.judging import matches, same_key, strict_spread, times
from tests.oracle.placement.buying import in_open_move, resting
from tests.oracle.placement.giving_back import CLOSE, DRAIN, HOUR
from tests.oracle.placement.reports import Report, is_seen
from tests.oracle.placement.worth import has_devices, owned, published, share_of
from tests.oracle.supply import CONFIGURED, IDLE, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import Policy
    from bigfleet.model.profile import Profile
    from tests.oracle.demand import Demand
    from tests.oracle.placement.buying import Buying, Offer
    from tests.oracle.placement.worth import Worth


@dataclass(eq=False)
class Node:
    """A bound machine with work on it."""

    unit: Unit
    report: Report
    profiles: list[Profile]
    ratio: float

    @property
    def cost(self) -> float:
        return self.unit.shape.price + times(self.unit.shape.probability, self.report.interruption)

    @property
    def pods(self) -> int:
        return max(1, self.report.used.get("pods", 0))

    @property
    def placed_apart(self) -> bool:
        return any(same_key(p) is not None or strict_spread(p) is not None for p in self.profiles)


@dataclass(eq=False)
class Option:
    """Old machines and what would stand in for them; no offer: nothing."""

    old: list[Node]
    offer: Offer | None
    saving: float
    fraction: float
    gain: float = 0.0

    @property
    def pods(self) -> int:
        return sum(node.pods for node in self.old)

    @property
    def charged(self) -> int:
        """Pods that count against the evictions left: nobody is charged for a move to what lies idle and is paid for,
        or to where all are interrupted."""
        if self.offer is None:
            return self.pods
        head, firm = self.offer.head, all(node.unit.shape.probability == 0 for node in self.old)
        return 0 if (head.state == IDLE and owned(head)) or (head.shape.probability > 0 and firm) else self.pods


@dataclass
class Outcome:
    closes: list[Unit]
    moves: list[tuple[list[Unit], Unit | None]]


class Consolidation:
    def __init__(
        self, machines: list[Unit], demand: Demand, worth: Worth, buying: Buying, policy: Policy, moves: Conditions
    ) -> None:
        self.machines, self.demand, self.worth, self.buying = machines, demand, worth, buying
        self.policy, self.conditions = policy.placement, moves
        self.whole_policy = policy

    def run(self, name: str, all_moves: Conditions, now: int) -> Outcome:
        cluster = self.demand.clusters[name]
        outcome = Outcome([], [])
        if not self._has_pass(name, now):
            return outcome
        cluster.passed_at = now
        configured = [u for u in self.machines if u.cluster == name and u.state == CONFIGURED]
        candidates = [node for unit in configured if (node := self._node(unit, now, closing=False))]
        candidates = [node for node in candidates if node.ratio < self.policy.candidate_ratio]
        candidates = _worst_first(candidates)[: self.policy.candidates]
        closing = sum(unit.report is not None and unit.report.closing for unit in configured)
        limit = max(1, math.floor(self.policy.closing_fraction * len(configured)))
        running = sum(row.units.running for row in cluster.rows.values() if row.units)
        evictable = dict(self.conditions.evictions).get(name, 0) + self.policy.evictable * running
        chosen: list[Node] = []
        for node in candidates:
            option = self._closed_together(node, candidates)
            if option is None or any(each in chosen for each in option.old) or 0 < option.charged > evictable:
                continue
            group = option.old
            if closing == 0 and not chosen:
                limit = max(limit, len(group))
            chosen += group
        outcome.closes += [each.unit for each in chosen][: max(0, limit - closing)]
        lately = [m for m in all_moves.moves if m.cluster == name and now - m.started < self.policy.move_window_ns]
        self._choose_moves(name, configured, sum(len(move.old) for move in lately), outcome, now)
        return outcome

    def _closed_together(self, node: Node, candidates: list[Node]) -> Option | None:
        """Who has to be closed so that this one can go, and for what; nobody if it is worth staying."""
        if node.report.removable:
            return Option([node], None, node.cost, 1.0)
        best = self._other_room(node, candidates)
        return best if best is not None and best.fraction > self.policy.min_saving else None

    def _has_pass(self, name: str, now: int) -> bool:
        cluster = self.demand.clusters[name]
        if not self.policy.consolidate or not self.conditions.reclaim:
            return False
        if not cluster.fresh(self.whole_policy, now) or cluster.suspicious or cluster.mode_hold(self.whole_policy, now):
            return False
        if any(cluster.stranded(row) for row in cluster.rows.values()):
            return False
        return cluster.passed_at is None or now - cluster.passed_at >= self.policy.pass_ns

    def _node(self, unit: Unit, now: int, *, closing: bool) -> Node | None:
        report = unit.report
        if report is None or not report.ready or report.empty or report.pinned or report.groups:
            return None
        if report.closing != closing or not self._worth_freeing(unit, report) or in_open_move(unit, self.conditions):
            return None
        if unit.preemptor is not None or unit.taker is not None or unit.reopened:
            return None
        if any(resting(unit, self.conditions, kind, now) for kind in (DRAIN, CLOSE)):
            return None
        if closing:
            if now - report.closing_since < self.policy.closing_ns:
                return None
        elif (
            not is_seen(unit, self.demand) or unit.ready_since is None or now - unit.ready_since < self.policy.settle_ns
        ):
            return None
        known = {row.profile.fingerprint: row.profile for row in self.demand.clusters[unit.cluster].rows.values()}
        if not report.profiles or any(print not in known for print in report.profiles):
            return None
        node = Node(unit, report, [known[print] for print in report.profiles], 0.0)
        carried = self._carried(node)
        if carried is None:
            return None
        node.ratio = carried / node.cost
        return node

    def _worth_freeing(self, unit: Unit, report: Report) -> bool:
        """An owned machine is worth what others would not have to buy: some serve, and none like it lies idle."""
        if unit.shape.price <= 0 or not owned(unit):
            return unit.shape.price > 0
        bought = any(u.state == CONFIGURED and not owned(u) and u.shape.price > 0 for u in self.machines)
        idle = any(u.state == IDLE and u.klass == unit.klass for u in self.machines)
        return report.removable and bought and not idle

    def _carried(self, node: Node) -> float | None:
        used, dollars = node.report.used, node.report.interruption
        costs = [
            share_of(on(kind, used), kind) * kind.shape.price + times(kind.shape.probability, dollars)
            for kind in self.worth.classes.values()
            if kind.shape.price > 0 and _matches_all(node, kind) and covers(published(kind), on(kind, used))
        ]
        return min(costs, default=None)

    def _other_room(self, first: Node, nodes: list[Node]) -> Option | None:
        """The best single machine that takes the node's pods, and those of as many others as it can."""
        if first.placed_apart:
            return None
        options = [
            option
            for offer in [*self.buying.idle, *self.buying.slots]
            if offer.free and not self.worth.backed_off_somehow(first.unit.cluster, offer.head)
            if (option := self._together(first, nodes, offer)) is not None
        ]
        return min(options, key=cmp_to_key(_better), default=None)

    def _together(self, first: Node, nodes: list[Node], offer: Offer) -> Option | None:
        head = offer.head
        if has_devices(published(head)) and not has_devices(first.report.used):
            return None
        room = self.worth.room(first.unit.cluster, head)
        group: list[Node] = []
        used: Amounts = {}
        tokens: frozenset[str] = frozenset()
        for node in [first, *(node for node in nodes if node is not first)]:
            fits = _matches_all(node, head) and covers(room, on(head, added(used, node.report.used)))
            if (
                len(group) < self.policy.move_size
                and fits
                and not node.placed_apart
                and not owned(node.unit)
                and not tokens & node.report.tokens
            ):
                group.append(node)
                used, tokens = added(used, node.report.used), tokens | node.report.tokens
            elif node is first:
                return None
        old_cost = dollars = 0.0
        for node in group:
            old_cost += node.cost
            dollars += node.report.interruption
        free = head.state == IDLE and owned(head)
        new_cost = (0.0 if free else head.shape.price) + times(head.shape.probability, dollars)
        saving = old_cost - new_cost
        return Option(group, offer, saving, saving / old_cost)

    def _choose_moves(self, name: str, configured: list[Unit], lately: int, outcome: Outcome, now: int) -> None:
        nodes = _worst_first([node for unit in configured if (node := self._node(unit, now, closing=True))])
        options = []
        for node in nodes:
            option = self._option(node, nodes)
            if option is not None and option.gain > 0:
                options.append(option)
        options.sort(key=lambda o: (-(o.gain / o.pods), o.old[0].unit.id.encode()))
        evictions = dict(self.conditions.evictions).get(name, 0)
        most = max(1, math.floor(self.policy.move_fraction * len(configured)))
        gone: set[Unit] = set()
        for option in options:
            old = [node.unit for node in option.old]
            moving = lately + len(gone)
            if gone & set(old) or (moving > 0 and moving + len(old) > most):
                continue
            if 0 < option.charged > evictions + self._lent(name, option):
                continue
            new = None
            if option.offer is not None:
                if not option.offer.free:
                    continue
                new = option.offer.free[0]
                new.claimant = option
            gone |= set(old)
            evictions -= option.charged
            outcome.moves.append((old, new))

    def _lent(self, name: str, option: Option) -> int:
        """What may be borrowed for pods that hold machines of many times their worth."""
        carried = cost = 0.0
        for node in option.old:
            carried += node.ratio * node.cost
            cost += node.cost
        if not carried < self.policy.hostage_ratio * cost:
            return 0
        running = sum(row.units.running for row in self.demand.clusters[name].rows.values() if row.units)
        return max(self.policy.lent_least, math.floor(self.policy.lent_share * running))

    def _option(self, node: Node, nodes: list[Node]) -> Option | None:
        payback = self.policy.payback_ns / HOUR
        if node.report.removable:
            option: Option | None = Option([node], None, node.cost, 1.0)
            overlap = 0.0
        else:
            option = self._other_room(node, nodes) if self.conditions.acquire else None
            if option is None or option.offer is None or option.fraction <= self.policy.min_saving:
                return None
            head = option.offer.head
            free = head.state == IDLE and owned(head)
            overlap = 0.0 if free else head.shape.price * (self.worth.boot_ns(head) / HOUR)
        assert option is not None
        reclamation = 0.0
        for each in option.old:
            reclamation += each.report.reclamation
        option.gain = option.saving * payback - reclamation - overlap
        return option


def on(unit: Unit, used: Amounts) -> Amounts:
    """What counts of it on such a machine: pods only where they are published."""
    return {n: amount for n, amount in used.items() if n != "pods" or "pods" in unit.shape.allocatable.names()}


def _matches_all(node: Node, unit: Unit) -> bool:
    return all(matches(profile, unit.lookup, unit.shape.taints) for profile in node.profiles)


def _worst_first(nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.ratio, node.unit.id.encode()))


def _better(left: Option, right: Option) -> int:
    assert left.offer and right.offer
    if left.fraction != right.fraction:
        return -1 if left.fraction > right.fraction else 1
    a, b = left.offer.head, right.offer.head
    if a.shape.price != b.shape.price:
        return -1 if a.shape.price < b.shape.price else 1
    size = compare_units(published(b), published(a))
    if size:
        return size
    return -1 if left.offer.first < right.offer.first else 1
