"""The engine: one call applies what changed and decides everything a shard does (`docs/engine.md`).

Pure: no clock, no I/O, no logging. One thread owns an engine. Results share the engine's columns, so rows are rendered
before the next step; counts may be kept. A step without news and before `next_timer` returns the previous decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.counted.closing import age_units, classes_with_more, clear_parking, count_short, mark_parked
from bigfleet.engine.counted.judging import count_judged, judged_blocks, lie_empty
from bigfleet.engine.counted.step import CountedStep, in_order, runs
from bigfleet.engine.counted.turns import find_lacking
from bigfleet.engine.decide.assign import (
    SHORTS,
    begin_assign,
    count_pending,
    credit_units,
    order_pending,
    serve_pending,
)
from bigfleet.engine.decide.fold import fold_gangs
from bigfleet.engine.decide.preempt import take_draining, take_victims, wanting
from bigfleet.engine.decide.reclaim import (
    BINDINGS,
    CAPPED,
    COUNT,
    EXCESS,
    NEXT,
    PARKING,
    RELEASABLE,
    VICTIMS,
    ReclaimRules,
    reclaim,
    release,
    spend,
    survey,
    token_time,
)
from bigfleet.engine.decide.victims import (
    BLOCKS,
    TAKES,
    Ranked,
    Victims,
    Weights,
    count_blocks,
    forget_lost,
    make_blocks,
    victim_slots,
)
from bigfleet.engine.decide.workbench import Workbench
from bigfleet.engine.decide.world import (
    Bindings,
    Pairs,
    Rules,
    World,
)
from bigfleet.engine.demand.demand import Demand
from bigfleet.engine.demand.entries import build_entries
from bigfleet.engine.explain import REMEDIES, TRIALS, Explanation, RemedyKind, copied, explain
from bigfleet.engine.fleet.fleet import NEVER, Fleet
from bigfleet.engine.fleet.machines import ANY_MACHINE, MachineFilter, MachineRow, one_machine, page_of_machines
from bigfleet.engine.fleet.openings import Openings
from bigfleet.engine.fleet.placing import KEPT
from bigfleet.engine.fleet.tally import Columns, Counts
from bigfleet.engine.giving_back.giving import GivingBack, aborted, begun
from bigfleet.engine.kernels import jit
from bigfleet.engine.kernels.columns import grown, room
from bigfleet.engine.kernels.ids import LIVE, USED
from bigfleet.engine.kernels.view import kept
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.nodes.sessions import NEVER as UNCHANGED
from bigfleet.engine.nodes.standing import Standing, standing
from bigfleet.engine.outcome.actions import NO_ACQUISITIONS, Acquisitions, Names, all_actions, bindings, shares
from bigfleet.engine.outcome.capacity import FreeCapacity
from bigfleet.engine.outcome.need_names import Needs
from bigfleet.engine.outcome.outcome import Latest, Reporter, StepResult
from bigfleet.engine.outcome.placed import (
    Placed,
    acquired,
    consolidated,
    given_back,
    preempted,
    released,
    with_dropped,
)
from bigfleet.engine.outcome.shortfall import ShortfallBatch, age_parts, count_parts, next_change
from bigfleet.engine.outcome.units import UnitOutcome
from bigfleet.engine.outcome.verdict import VerdictBatch
from bigfleet.engine.placement import Move
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import AvailableCapacity, NeedKey, RollupOutcome
from bigfleet.engine.turnover import Tables, give_back, overgrown, tables

Probe = Callable[[str], None]


class _Pending(NamedTuple):
    """Entries the shard-wide pass served, in order, and the places in it of those that stayed short."""

    order: NDArray[np.int32]
    short: NDArray[np.int32]


_NONE = np.zeros(0, np.int32)
_NO_GAPS = np.zeros(0, np.int64)
_NO_TURNS = np.zeros(0, np.int64)
_NO_CLUSTERS = np.zeros(0, np.uint8)
_NO_RANKS = np.zeros((4, 0), np.int64)


class Engine:
    """A shard's decision core."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter
        # For whoever compares this engine's numbers with another's: nothing is given back, so that they stay.
        self.keeps_numbers = False
        self.catalog = Catalog()
        self.fleet = Fleet(self.catalog)
        self.demand = Demand(self.catalog, self.fleet)
        self.nodes = Nodes(self.catalog, self.fleet, self.demand.cover_resources)
        self.fleet.on_classes = self._complete
        self._bench = Workbench()
        self._by_name = np.zeros(0, np.int32)
        self._clock = np.zeros(1, np.int64)
        # Reclaim's steps. The first is 2: machines that no step found excess have 0, which is not the one before it.
        self._epoch = 1
        self._last: Latest | None = None
        self._openings = Openings()
        self._retry_all = True
        self._doors_changed = True
        self._seen: World | None = None
        self._which = np.zeros(16, np.int32)
        self._out = np.zeros(8, np.int64)
        self._kept = Tables()
        self._wants_room = False
        self._capacity = FreeCapacity()
        self._shapes_covered = 0
        self._standing = Standing()
        self._giving = GivingBack()
        self._fresh = np.zeros(0, bool)
        # Classes of which this step's machines brought more that are free or will be (P17).
        self._more = _NONE

    # ---- the step --------------------------------------------------------------------------------------------------

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions = Conditions(),  # noqa: B008  a frozen value
        probe: Probe | None = None,
    ) -> StepResult:
        """Applies what changed and decides. `probe` is called at the end of each phase."""
        last = self._last
        if (
            last is not None
            and last.stable
            and _nothing(machines, demand)
            and last.result.now <= now < last.result.next_timer
        ):
            if (last.policy is policy or last.policy == policy) and (
                last.conditions is conditions or last.conditions == conditions
            ):
                result = self._again(last, now)
                if probe is not None:
                    for name in ("apply", "fold", "assign", "preempt", "reclaim", "publish"):
                        probe(name)
                return self._report(result)
        tell = probe if probe is not None else _nobody
        self._clock[0] += 1
        rejected: dict[str, int] = {}
        rollups = self._apply(machines, demand, policy, now, conditions, rejected)
        tell("apply")
        w = self._fold(conditions)
        tell("fold")
        rules = Rules(
            now, conditions.acquire, policy.cycle_ns, policy.park_after_cycles, policy.reprobe_every_cycles,
            policy.same_candidates,
        )  # fmt: skip
        counted = self._count(w, rules, policy) if self.nodes.heard else None
        w, pending = self._assign(w, rules, counted, policy, conditions)
        tell("assign")
        w = self._preempt(w, pending, policy, conditions, counted, now)
        tell("preempt")
        result, stable = self._decide(w, pending, rules, policy, conditions, rejected, rollups, tell, counted)
        self._last = Latest(policy, conditions, result, stable)
        tell("publish")
        return self._report(result)

    def _report(self, result: StepResult) -> StepResult:
        if self.reporter is not None:
            self.reporter.decided(result)
        return result

    def _again(self, last: Latest, now: int) -> StepResult:
        """The previous decision, seen from now."""
        before = last.result
        last.result = replace(
            before,
            now=now,
            verdicts=replace(before.verdicts, now=now),
            shortfalls=replace(before.shortfalls, now=now),
            rejected={},
            rollups={},
        )
        return last.result

    def _apply(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions,
        rejected: dict[str, int],
    ) -> dict[str, RollupOutcome]:
        moved = self._give_back()
        catalog, fleet = self.catalog, self.fleet
        # As long as nobody reports placement nobody pays for it.
        heard = self.nodes.heard or (demand is not None and _reports(demand))
        if heard and not self.nodes.heard:
            self.nodes.know(np.nonzero(self.demand.store.c.ready[: len(fleet.clusters)])[0])
        if machines is not None and demand is not None and demand.rollups:
            catalog.expect(machines.shapes)
        rollups = self.demand.apply(demand, policy, now, rejected) if demand is not None else {}
        stale = not catalog.keys_are_current()
        if stale:
            catalog.rekey()
        if stale or moved:
            catalog.complete_matches()
            fleet.units.forget()
            self.demand.split_all()
            fleet.place_all(now)
            self._retry_all = True
        catalog.complete_matches()
        self.demand.split()
        fleet.name(catalog.named_ids, now)
        fleet.advance(now)
        self._more = _NONE
        if machines is not None and len(machines):
            # Not what the last step counted: classes may have been derived anew since.
            before = catalog.machines_by_class()
            fleet.apply(machines, now, rejected)
            if heard:
                self._more = classes_with_more(before, catalog.machines_by_class())
            self.nodes.follow()
            self.demand.follow_machines()
        if demand is not None and heard:
            self.nodes.take_over(demand, rollups, now, rejected)
        self.demand.cover_clusters()
        if self.nodes.heard:
            self._hear(policy, conditions, now)
        catalog.rank_domains()
        self._complete()
        fleet.settle()
        self._openings.set_holds(catalog, policy, anew=self._retry_all)
        self._openings.set_breakers(catalog, conditions, now)
        last = self._last
        self._doors_changed = last is None or last.conditions.acquire != conditions.acquire or last.policy is not policy
        if moved:
            self._kept = self.tables
        return rollups

    def _hear(self, policy: Policy, conditions: Conditions, now: int) -> None:
        """Last of the inputs where clusters report placement: nodes, and what conditions say about machines."""
        shapes = self.catalog.shapes
        if self._shapes_covered != len(shapes):
            # What is left of a machine is compared in all it has, also in what no row names.
            names = {name for shape in shapes[self._shapes_covered :] for name in shape.allocatable.names()}
            self.demand.cover_resources(tuple(sorted(names)))
            self._shapes_covered = len(shapes)
        self.nodes.settle()
        waiting = self.demand.store.c.lacking
        self._standing = standing(conditions, self.fleet, self.nodes.s, waiting, policy.placement, now)
        self.fleet.keep(self._standing.news, now)

    def _give_back(self) -> bool:
        """Drops what nobody uses any more, when there is enough of it; everything is then to be derived anew."""
        if self.keeps_numbers or not (
            self._wants_room or overgrown(self.tables, self._kept, int(self.fleet.ids.v.meta[LIVE]))
        ):
            return False
        self._wants_room = False
        self.catalog = give_back(self.catalog, self.fleet, self.demand, self.nodes)
        self._shapes_covered = 0
        self._bench = Workbench()
        self._by_name = np.zeros(0, np.int32)
        return True

    def _complete(self) -> None:
        """New classes: what they match, and which units they belong to."""
        catalog, fleet = self.catalog, self.fleet
        if catalog.complete_matches():
            self.demand.cover_clusters()
            self.demand.joined(fleet.units.refresh(catalog.match, catalog.class_count, len(fleet.clusters)))

    def _fold(self, conditions: Conditions) -> World:
        store = self.demand.store
        clusters = len(self.fleet.clusters)
        self._bench.fit(self.catalog, self.fleet, store.entries)
        self._which = grown(self._which, max(clusters, len(self.fleet.cells.owners.used)))
        w = self._world()
        rebuild = self._which
        found = fold_gangs(
            w.c, w.rows, w.p, w.k, self.catalog.class_count, w.match, w.cells, w.owners, w.units, w.held, w.dom,
            w.pairs, clusters, rebuild,
        )  # fmt: skip
        if found:
            build_entries(
                w.c, w.rows, w.e, w.parts, w.p, w.texts, store.regions.v, w.owners, w.units, self.demand.descending,
                rebuild, found,
            )  # fmt: skip
        return w

    def _count(self, w: World, rules: Rules, policy: Policy) -> CountedStep | None:
        """What counted entries look at in this step; None where nothing lacks room."""
        mark_parked(w, rules, len(self.fleet.clusters), self._more)
        self._giving.begin(self.nodes, self.fleet, self._standing, w.c.connected, policy.placement, rules.now)
        self._fresh = self._fresh_clusters(policy, rules.now)
        lacking = find_lacking(w, len(self.fleet.clusters))
        if lacking is None:
            return None
        return CountedStep(lacking, policy, rules.now, self._bench.victims, self._bench.ranked)

    def _fresh_clusters(self, policy: Policy, now: int) -> NDArray[np.bool_]:
        """Reporting clusters whose last roll-up of this stream is young enough (P3)."""
        s, n = self.nodes.s, len(self.fleet.clusters)
        known = (s.reporting[:n] != 0) & (s.streamed[:n] != 0) & (self.demand.store.c.connected[:n] != 0)
        return known & (now - s.seen_at[:n] <= policy.placement.fresh_ns)

    def _assign(
        self, w: World, rules: Rules, counted: CountedStep | None, policy: Policy, conditions: Conditions
    ) -> tuple[World, _Pending]:
        clusters = len(self.fleet.clusters)
        which = self._which
        found = begin_assign(w, clusters, self._retry_all, self._doors_changed, which)
        self._retry_all = False
        at = 0
        while at < found:
            at = credit_units(w, rules, which, at, found)
            if at < found:
                w = self._bench.grow_credit(w, int(which[at]))
        count = count_pending(w, clusters)
        if not count and counted is None:
            return w, _Pending(_NONE, _NONE)
        order, short = np.empty(count, np.int32), np.empty(count, np.int32)
        order_pending(w, self._clusters_by_name(), clusters, order)
        w = self._bench.count_universe(w, count)
        if counted is None:
            w = self._serve_sums(w, rules, order, 0, count, short)
        else:
            w = self._serve_both(w, rules, order, short, counted, policy, conditions)
        return w, _Pending(order, short[: int(w.free.meta[SHORTS])])

    def _serve_sums(
        self, w: World, rules: Rules, order: NDArray[np.int32], first: int, last: int, short: NDArray[np.int32]
    ) -> World:
        at = first
        while at < last:
            at = serve_pending(w, rules, order, at, last, short)
            if at < last:
                w = self._bench.grow_service(w, int(order[at]))
        return w

    def _serve_both(
        self,
        w: World,
        rules: Rules,
        order: NDArray[np.int32],
        short: NDArray[np.int32],
        counted: CountedStep,
        policy: Policy,
        conditions: Conditions,
    ) -> World:
        """One pass over entries of both kinds (P17)."""
        closing, empty = self._giving.offered(
            self.nodes, self.demand.store.c.lacking, self.fleet, self.catalog, conditions, policy.placement, rules.now
        )
        w = counted.open(
            self._world, self.catalog, self.fleet, self.demand, self.nodes, policy, conditions, self._standing,
            self._giving.published(self.catalog, policy.placement), self._fresh, closing, empty,
        )  # fmt: skip
        stretches: Iterable[tuple[bool, int, int]] = [(True, 0, len(counted.entries))]
        if len(order):
            stretches = runs(self._ranks(w, order), self._ranks(w, counted.entries))
        for is_turn, first, last in stretches:
            if is_turn:
                counted.serve(w, first, last)
            else:
                w = self._serve_sums(w, rules, order, first, last, short)
        counted.finish(w)
        return w

    def _ranks(self, w: World, entries: NDArray[np.int32]) -> NDArray[np.int64]:
        """Keys of entries in the order of service, most significant first (R2.8)."""
        e = w.e
        return np.stack(
            (w.p.precedence[e.prof[entries]], e.arrival[entries], w.c.rank[e.cluster[entries]], e.seq[entries])
        ).astype(np.int64)

    def _clusters_by_name(self) -> NDArray[np.int32]:
        clusters = len(self.fleet.clusters)
        if len(self._by_name) != clusters:
            self._by_name = np.argsort(self.demand.store.c.rank[:clusters]).astype(np.int32)
        return self._by_name

    def _preempt(
        self, w: World, pending: _Pending, policy: Policy, conditions: Conditions, counted: CountedStep | None, now: int
    ) -> World:
        v = self._bench.victims
        v.meta.fill(0)
        order, short = pending
        turns = counted.short() if counted is not None else _NO_TURNS
        if not len(short) and not len(turns):
            return w
        clusters = len(self.fleet.clusters)
        mask = np.zeros(max(1, self.catalog.class_count), np.uint8)
        chosen = np.empty(len(short), np.int32)
        found = wanting(w, order, short, len(short), mask, chosen)
        if (not found and not len(turns)) or not conditions.preempt:
            return w
        weights = policy.victim
        terms = Weights(
            weights.priority,
            weights.drain / max(weights.drain_estimate_seconds, 1.0),
            weights.interruption,
            weights.reclamation,
            weights.penalty_floor_dollars,
        )
        w = self._bench.written(w, clusters)
        most = count_blocks(w, clusters)
        if self.nodes.heard:
            most += count_judged(w, clusters)
        if most > len(v.cell):
            size = room(len(v.cell), most)
            v = Victims(*(column if name == "meta" else grown(column, size) for name, column in v._asdict().items()))
        profiles = w.e.prof[order[chosen[:found]]]
        if counted is not None and len(turns):
            mine = w.e.prof[counted.entries[turns]]
            profiles = np.concatenate((profiles, mine))
            mask |= w.match[np.unique(w.p.con[mine])][:, : len(mask)].max(axis=0)
        ceiling = int(w.p.priority[profiles].max())
        make_blocks(w, v, self.fleet.cells.members.v, self.fleet.v.place, clusters, mask, ceiling, terms)
        if self.nodes.heard:
            mark = counted.book.mark if counted is not None else np.zeros(len(self.fleet.v.state), np.uint8)
            judged_blocks(
                w, v, self.nodes.r, self.nodes.s, self.fleet.v, self.fleet.cells.members.v,
                self._giving.published(self.catalog, policy.placement), mark, clusters, mask, ceiling, terms, now,
            )  # fmt: skip
        r = self._bench.ranked
        blocks = int(v.meta[BLOCKS])
        if blocks > len(r.block):
            r = r._replace(
                block=grown(r.block, room(len(r.block), blocks)), heap=grown(r.heap, room(len(r.heap), blocks))
            )
        r.meta[:] = 0
        domains = np.full(found, -1, np.int32)
        mine = self._ranks(w, order[chosen[:found]]) if len(turns) else _NO_RANKS
        theirs = self._ranks(w, counted.entries[turns]) if counted is not None and len(turns) else _NO_RANKS
        steps = [(False, 0, found)] if not len(turns) else list(runs(mine, theirs))
        for kernel in (take_draining, take_victims):
            for is_turn, first, last in steps:
                if not is_turn:
                    w, v = self._preempt_sums(w, v, r, terms, kernel, order, chosen, first, last, domains)
                    continue
                assert counted is not None
                if kernel is take_draining:
                    counted.await_draining(w, v, first, last)
                else:
                    v = counted.choose_victims(w, v, r, terms, first, last)
        self._bench.victims, self._bench.ranked = v, r
        return w

    def _preempt_sums(
        self,
        w: World,
        v: Victims,
        r: Ranked,
        terms: Weights,
        kernel: Callable[..., int],
        order: NDArray[np.int32],
        chosen: NDArray[np.int32],
        first: int,
        last: int,
        domains: NDArray[np.int32],
    ) -> tuple[World, Victims]:
        at, blocks = first, int(v.meta[BLOCKS])
        while at < last:
            at = kernel(w, v, r, terms, order, chosen, at, last, domains)
            if at < last:
                parts = int(w.e.parts[order[chosen[at]]])
                size = room(len(v.take_n), int(v.meta[TAKES]) + blocks * parts + 1024)
                v = v._replace(
                    take_entry=grown(v.take_entry, size), take_block=grown(v.take_block, size),
                    take_first=grown(v.take_first, size), take_n=grown(v.take_n, size),
                )  # fmt: skip
                w = self._bench.grow_universe(w)
        return w, v

    def _decide(
        self,
        w: World,
        pending: _Pending,
        rules: Rules,
        policy: Policy,
        conditions: Conditions,
        rejected: dict[str, int],
        rollups: dict[str, RollupOutcome],
        tell: Probe,
        counted: CountedStep | None,
    ) -> tuple[StepResult, bool]:
        fleet = self.fleet
        order, short = pending
        clusters = len(fleet.clusters)
        members, place = fleet.cells.members.v, fleet.v.place
        live = not conditions.paused and not conditions.dry_run
        self._epoch += 1
        hold = ReclaimRules(
            rules.now,
            self._epoch,
            policy.reclaim_hold_ns,
            policy.reclaim_cap_fraction,
            policy.reclaim_cap_window_ns,
            live,
        )
        v, out = self._bench.victims, self._out
        survey(w, v, clusters, hold, out)
        found = out.tolist()
        # Phase 1: what was acquired. Phase 2: victims.
        made1 = NO_ACQUISITIONS
        if found[BINDINGS]:
            made1 = Acquisitions.of(found[BINDINGS])
            bindings(w, members, place, *made1)
        n2 = found[VICTIMS]
        slot2, entry2, gap = _NONE, _NONE, _NO_GAPS
        if n2:
            slot2, entry2, gap = np.empty(n2, np.int32), np.empty(n2, np.int32), np.empty(n2, np.int64)
            victim_slots(w, v, members, place, slot2, entry2, gap)
        # Phase 3: excess and releases.
        n3 = n4 = capped = 0
        timer = NEVER
        slot3, cluster3, slot4 = _NONE, _NONE, _NONE
        if found[EXCESS]:
            slot3, cluster3 = np.empty(found[EXCESS], np.int32), np.empty(found[EXCESS], np.int32)
            resting = self._changed_mode(policy, rules.now) if self.nodes.heard else _NO_CLUSTERS
            reclaim(w, fleet.v, members, self._clusters_by_name(), clusters, hold, resting, slot3, cluster3, out)
            n3 = int(out[COUNT]) if conditions.reclaim else 0
            capped = int(out[CAPPED]) if conditions.reclaim else 0
            timer = int(out[NEXT])
            if capped:
                timer = min(timer, token_time(w, clusters, hold))
        if found[RELEASABLE]:
            slot4 = np.empty(found[RELEASABLE], np.int32)
            release(w, fleet.v, members, rules.now, slot4, out)
            n4 = int(out[COUNT]) if conditions.release else 0
            timer = min(timer, int(out[NEXT]))
        else:
            timer = min(timer, found[NEXT])
        tell("reclaim")

        needs = Needs(w, self.catalog, fleet.clusters, int(self._clock[0]), self._clock)
        names = Names(self._machine_ids, fleet.clusters, needs.entry_key)
        placed: Placed | None = None
        if self.nodes.heard:
            placed = self._decide_placed(
                w, counted, policy, conditions, rules.now, live, made1, slot2, entry2, gap, slot3[:n3], cluster3[:n3],
                slot4[:n4],
            )  # fmt: skip
            actions, deferred, spent = placed.rails(w, policy, conditions, names, live)
            capped += placed.capped
            timer = min(timer, placed.timer)
        else:
            k1, k2, k3 = shares((found[BINDINGS], n2, n3 + n4), policy.max_actions_per_step if live else 0)
            deferred = found[BINDINGS] + n2 + n3 + n4 - k1 - k2 - k3
            kept3 = min(n3, k3)
            spent = live and policy.reclaim_cap_fraction > 0 and kept3 > 0
            if spent:
                spend(w, cluster3, kept3, policy.reclaim_cap_window_ns)
            actions = all_actions(
                w, fleet.v.cluster, names, conditions, policy, (k1, k2, kept3, k3 - kept3), made1, slot2, entry2, gap,
                slot3, cluster3, slot4,
            )  # fmt: skip
        if n2:
            forget_lost(w, v)
        part_of, entry_of = _NONE, _NONE
        if len(short):
            most = count_parts(w, order, short, len(short))
            part_of, entry_of = np.empty(most, np.int32), np.empty(most, np.int32)
            lacking = age_parts(w, order, short, len(short), rules.now, part_of, entry_of)
            part_of, entry_of = part_of[:lacking], entry_of[:lacking]
        if placed is not None:
            part_of, entry_of = self._age_units(w, counted, clusters, rules.now, part_of, entry_of)
            if counted is not None:
                timer = min(timer, rules.now + policy.cycle_ns) if counted.hopeless else timer
                mine = counted.entries
                order = in_order(self._ranks(w, np.concatenate((order, mine))), order, mine) if len(order) else mine
        if len(part_of) or found[PARKING]:
            timer = min(timer, next_change(w, rules, part_of, len(part_of), policy.escalate_after_ns, clusters))
        timer = min(timer, fleet.next_due, self._openings.next)
        doubted = counted.doubted() if counted is not None else ()
        verdicts = VerdictBatch(
            needs, order, entry2, slot2, w.cells.cls[fleet.v.cell[slot2]] if n2 else _NONE, rules.now,
            conditions.acquire, policy, self._unit_outcome(needs, counted, policy, conditions, placed),
        )  # fmt: skip
        result = StepResult(
            now=rules.now,
            actions=actions,
            verdicts=verdicts,
            shortfalls=ShortfallBatch(part_of, entry_of, rules.now, policy, needs, verdicts),
            rejected=rejected,
            rollups=rollups,
            deferred=deferred,
            capped=capped,
            counts=Counts(fleet.counted, partial(self._columns, int(self._clock[0]))),
            next_timer=timer,
            aborted=placed.aborted if placed is not None else _all_of(conditions.moves),
            doubted=tuple(sorted((fleet.clusters[each] for each in doubted), key=str.encode)),
        )  # fmt: skip
        # What reporting clusters say runs out all the time: their freshness, holds and deadlines.
        return result, not spent and placed is None

    def _changed_mode(self, policy: Policy, now: int) -> NDArray[np.uint8]:
        """Clusters that changed their mode so lately that nothing of them is reclaimed (P2)."""
        changed = self.nodes.s.changed_at[: len(self.fleet.clusters)]
        return ((changed != UNCHANGED) & (now - changed < policy.placement.mode_hold_ns)).astype(np.uint8)

    def _age_units(
        self,
        w: World,
        counted: CountedStep | None,
        clusters: int,
        now: int,
        part_of: NDArray[np.int32],
        entry_of: NDArray[np.int32],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """What counted entries lack at the end, behind the shortfalls of sums."""
        if counted is not None:
            short = counted.close(w, clusters)
        else:
            short = np.zeros(len(w.c.start), np.uint8)
            clear_parking(w, clusters)
        most = count_short(w, clusters, short)
        parts, entries = np.empty(most, np.int32), np.empty(most, np.int32)
        found = age_units(w, clusters, short, now, parts, entries)
        return np.concatenate((part_of, parts[:found])), np.concatenate((entry_of, entries[:found]))

    def _unit_outcome(
        self, needs: Needs, counted: CountedStep | None, policy: Policy, conditions: Conditions, placed: Placed | None
    ) -> UnitOutcome | None:
        if placed is None:
            return None
        return UnitOutcome(
            needs, counted, self.demand, self.nodes, self._standing, self._fresh, conditions.acquire,
            policy.placement.risk_limit, placed.freed,
        )  # fmt: skip

    def _decide_placed(
        self,
        w: World,
        counted: CountedStep | None,
        policy: Policy,
        conditions: Conditions,
        now: int,
        live: bool,
        made1: Acquisitions,
        slot2: NDArray[np.int32],
        entry2: NDArray[np.int32],
        gap: NDArray[np.int64],
        slot3: NDArray[np.int32],
        cluster3: NDArray[np.int32],
        slot4: NDArray[np.int32],
    ) -> Placed:
        """The three phases where clusters report placement: what counted entries got beside what sums did."""
        fleet, giving, placement = self.fleet, self._giving, policy.placement
        dropped = counted.dropped if counted is not None else _NONE
        victims = set(slot2.tolist())
        busy = victims | (counted.busy() if counted is not None else set())
        doubted = counted.doubted() if counted is not None else set()
        going = giving.reclaims(w, self.catalog, fleet, self.nodes, self._standing, busy, doubted, placement, now)
        passed = giving.consolidate(
            w, self.catalog, fleet, self.nodes, self._standing, self._clusters_by_name().tolist(), dropped, conditions,
            placement, now,
        )  # fmt: skip
        begun_moves = begun(self._standing, fleet, conditions, now)
        moved = np.array([move.new for each in passed for move in each.moves if move.new >= 0], np.int32)
        # Machines that were bought and dropped again, and that no move took.
        freed = np.zeros(self.catalog.class_count, np.int64)
        if len(dropped):
            dropped = dropped[~np.isin(dropped, moved)]
            np.add.at(freed, w.cells.cls[fleet.v.cell[dropped]], 1)
            if conditions.release:
                slot4 = with_dropped(w, fleet, dropped, slot4, now)
        if len(slot4):
            slot4 = slot4[((fleet.v.flags[slot4] & KEPT) == 0) & ~np.isin(slot4, moved)]
        empty = lie_empty(
            self.nodes.r, self.nodes.s, fleet.v, fleet.cells.v, giving.published(self.catalog, placement), slot2, now
        )
        capped = live and policy.reclaim_cap_fraction > 0
        reclaims, refused = given_back(
            w, going if conditions.reclaim else {}, slot3, cluster3, policy, policy.reclaim_cap_window_ns * capped
        )
        return Placed(
            first=acquired(w, fleet, counted, made1, policy),
            second=preempted(w, fleet, slot2, entry2, gap, empty),
            reclaims=reclaims,
            rest=consolidated(fleet, begun_moves, passed, policy),
            releases=released(slot4),
            capped=refused,
            freed=freed,
            aborted=tuple(aborted(self._standing, victims)),
            timer=min(giving.next, self._standing.next),
        )

    # ---- between steps ---------------------------------------------------------------------------------------------

    def available_capacity(self, cluster: str) -> list[AvailableCapacity]:
        """What free supply a cluster's entries could hope for, by fingerprint."""
        number = self.fleet.cluster_index.get(cluster)
        if number is None or self._last is None:
            return []
        return self._capacity.of(self._last.result.verdicts.needs, number)

    @property
    def latest(self) -> Latest | None:
        """The last step, None before the first."""
        return self._last

    def explain(self, key: NeedKey, kinds: tuple[RemedyKind, ...] = REMEDIES, trials: int = TRIALS) -> Explanation:
        """Why a need got what it got, and the first single change that would satisfy it (`docs/engine.md` §8)."""
        return explain(self, key, kinds, trials)

    def written(self, w: World) -> World:
        """The last step's world with all credit in its log."""
        return self._bench.written(w, len(self.fleet.clusters))

    def copy(self) -> Engine:
        """An engine of its own in the same state, for questions that begin with "what if"."""
        return copied(self)

    def give_back(self) -> None:
        """The next step that decides anything gives back what is unused, however little it is."""
        self._wants_room = True

    @property
    def tables(self) -> Tables:
        """How much is interned."""
        return tables(self.catalog, self.fleet)

    def validate(self) -> None:
        """Every invariant of what outlives a step; for tests, between steps."""
        self.catalog.validate()
        self.fleet.validate()
        self.demand.validate()
        self.nodes.validate()

    def machine(self, id: str) -> MachineRow | None:
        """One machine as the engine knows it, None if it does not."""
        return one_machine(self.fleet, id)

    def machines(self, where: MachineFilter = ANY_MACHINE, after: str = "", limit: int = 500) -> list[MachineRow]:
        """The first machines of a kind behind an id, in text order of their ids."""
        return page_of_machines(self.fleet, where, after, limit)

    def warm(self, progress: jit.Progress | None = None) -> None:
        """Compiles every kernel, or loads it from the cache, telling (done, total)."""
        jit.warm(progress)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _machine_ids(self, slots: NDArray[np.int32]) -> list[str]:
        return self.fleet.ids.texts(slots)

    def _world(self) -> World:
        catalog, cells, store = self.catalog, self.fleet.cells, self.demand.store
        bench, stamps, before = self._bench, catalog.stamps, self._seen
        self._seen = kept(
            before, World,
            store.c, store.rows, store.entries, store.parts, catalog.p, catalog.classes, catalog.match, cells.v,
            cells.owners, self.fleet.units.v, cells.lists.v, self.fleet.ids.v, catalog.texts.v, catalog.domains,
            kept(
                before.pairs if before is not None else None, Pairs,
                stamps.pair_table, stamps.pair_fingerprint, stamps.pair_group, stamps.pair_head,
            ),
            kept(
                before.bind if before is not None else None, Bindings,
                stamps.binding_priority, stamps.binding_interruption, stamps.binding_reclamation,
            ),
            bench.lists, bench.log, bench.late, bench.got, bench.free, bench.uni, bench.tmp,
        )  # fmt: skip
        return self._seen

    def _columns(self, clock: int) -> Columns:
        """What machines are counted by; valid until the next step."""
        if clock != int(self._clock[0]):
            raise RuntimeError(
                f"counts of step {clock} were asked for after step {int(self._clock[0])}; "
                "render what you keep before the engine's next step"
            )
        fleet, used = self.fleet, int(self.fleet.ids.v.meta[USED])
        offers = self.catalog.shape_offer[fleet.v.shape[:used]]
        return Columns(fleet.v.state[:used], offers, fleet.v.cluster[:used], self.catalog.offers, fleet.clusters)


def _all_of(moves: tuple[Move, ...]) -> tuple[str, ...]:
    """First old machines of the moves that have not ended: where nobody reports placement none goes on."""
    return tuple(sorted({move.old[0] for move in moves if not move.ended}, key=str.encode)) if moves else ()


def _nobody(_name: str) -> None:
    """Whom the engine tells about its phases when no probe was given."""


def _reports(demand: DemandBatch) -> bool:
    return bool(demand.reports) or any(rollup.counted is not None for rollup in demand.rollups)


def _nothing(machines: MachineBatch | None, demand: DemandBatch | None) -> bool:
    return (machines is None or not len(machines)) and (
        demand is None
        or not (
            demand.rollups or demand.links or demand.forgotten or demand.streams or demand.confirmed or demand.reports
        )
    )


__all__ = ["Engine", "Latest", "Reporter", "StepResult"]
