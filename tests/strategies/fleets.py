"""Random small fleets and what happens to them over a few steps, all from one seed.

A play is a list of step inputs as readable lines, so that a disagreement can be cut down and printed. Values are drawn
from small sets on purpose: ties, shared fingerprints and contested machines are where two implementations part ways.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bigfleet.engine.batches import Breaker, Conditions, DemandBatch, Shape, Stamp
from bigfleet.engine.policy import IdleHold, Policy, RollupGuard
from bigfleet.engine.results import ActionKind
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration
from tests.oracle.entries import folded_profile
from tests.strategies.builders import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    GPU,
    HOSTNAME,
    IDLE,
    INSTANCE_TYPE,
    RACK,
    SECOND,
    SPECULATIVE,
    START,
    ZONE,
    MachineLine,
    NeedLine,
    batch,
    removed,
    rollup,
    stamp_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.oracle.step import OracleResult

CLUSTERS = ("c-1", "c-10", "c-2")
TEAM = "team"
GIB = 2**20
UNDER_WAY = (CONFIGURING, CREATING, DRAINING, DRAINING, FAILED, DELETING)
PRIORITIES = (0, 100, 100, 1000, 1000, 200_000, 1_000_000, -5, 2**31 - 1, -(2**31))
BUCKETS = (0, 1, 2, 3, 8, 16, 26, 27)
DOLLARS = (0.0, 0.0, 0.5, 1.0, 32.0, 8192.0, 8388608.0, math.inf)


def finer_than(bucket: int, turn: int) -> int:
    """Some profiles of the lowest bucket tell less than half a dollar; without the dice, so that fleets stay theirs."""
    return (0, 10_000, 125_000)[turn % 3] if bucket == 2 else 0


@dataclass(frozen=True)
class Asked:
    """One cluster's roll-up as lines."""

    cluster: str
    needs: tuple[NeedLine, ...] = ()
    overhead: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class StepInput:
    """Everything one step is given."""

    now: int
    policy: Policy
    machines: tuple[MachineLine, ...] = ()
    rollups: tuple[Asked, ...] = ()
    links: tuple[tuple[str, bool], ...] = ()
    forgotten: tuple[str, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)

    def feed(self, engine: Any) -> OracleResult:
        change = DemandBatch(
            rollups=[rollup(a.cluster, *a.needs, overhead=dict(a.overhead)) for a in self.rollups],
            links=list(self.links),
            forgotten=list(self.forgotten),
        )
        quiet = not (self.rollups or self.links or self.forgotten)
        machines = batch(self.machines) if self.machines else None
        result: OracleResult = engine.step(machines, None if quiet else change, self.policy, self.now, self.conditions)
        return result


@dataclass(frozen=True)
class Flavour:
    """What a play is mostly about; without one, rare machinery would almost never be reached."""

    same: float = 0.3
    spread: float = 0.3
    picky: float = 0.3
    bound: int = 6
    free: int = 5
    large_units: bool = False
    groups: tuple[str, ...] = ("", "g1", "g2")
    racks: tuple[str, ...] = ("r1", "r2", "r2", "r10")


FLAVOURS = (
    Flavour(),
    Flavour(same=0.0, spread=0.0),
    Flavour(same=0.9, spread=0.1, picky=0.1, large_units=True),
    Flavour(same=0.6, spread=0.1, picky=0.1, bound=20, free=1, large_units=True),
    Flavour(same=0.9, spread=0.0, picky=0.0, bound=12, free=3, large_units=True, groups=("g1",), racks=("r1", "r2")),
    Flavour(same=0.0, spread=0.95, picky=0.1),
    Flavour(same=0.1, spread=0.6, picky=0.1, bound=20, free=1),
    Flavour(same=0.1, spread=0.1, picky=0.2, bound=20, free=1),
)


@dataclass(frozen=True)
class Size:
    """How large a play may get."""

    machines: int = 24
    rows: int = 8
    steps: int = 4


def play(seed: int, size: Size, oracle: Any) -> Iterator[tuple[StepInput, OracleResult]]:
    """Step inputs and what the oracle made of them; later inputs follow from what it decided."""
    world = _World(random.Random(seed), size)
    result: OracleResult | None = None
    for _ in range(world.dice.randint(1, size.steps)):
        inputs = world.next_step(result)
        result = inputs.feed(oracle)
        yield inputs, result


class _World:
    """The fleet as the generator believes it to be."""

    def __init__(self, dice: random.Random, size: Size) -> None:
        self.dice = dice
        self.flavour = dice.choice(FLAVOURS)
        self.priorities = dice.sample(PRIORITIES, 3)
        self.clusters = CLUSTERS[: dice.choice((1, 2, 2, 3))]
        self.shapes = [self._shape() for _ in range(dice.randint(1, 6))]
        self.profiles = [self._profile() for _ in range(dice.randint(1, 5))]
        self.policy = self._policy()
        self.now = START
        self.size = size
        self.machines: dict[str, MachineLine] = {}
        self.demand: dict[str, tuple[NeedLine, ...]] = {}
        self.spare_ids = [f"m{n}" for n in range(3 * size.machines + 3)]
        dice.shuffle(self.spare_ids)

    def next_step(self, result: OracleResult | None) -> StepInput:
        dice = self.dice
        changed: dict[str, MachineLine] = {}
        if result is None:
            for _ in range(dice.randint(0, self.size.machines)):
                line = self._machine(self.spare_ids.pop())
                changed[line.id] = line
        else:
            self.now += dice.choice((0, 1, 10, 10, 10, 35, 70, 90, 130, 330)) * SECOND
            changed = self._carry_on(result)
            for _ in range(dice.choice((0, 0, 1, 3))):
                line = self._mutation()
                changed[line.id] = line
        lines = list(changed.values())
        dice.shuffle(lines)
        lines += [self._spoil(dice.choice(lines)) for _ in range(dice.choice((0, 0, 0, 0, 1))) if lines]
        self.machines.update(changed)
        self.machines = {id: line for id, line in self.machines.items() if line.state}
        if result is not None and dice.random() < 0.1:
            self.policy = self._policy()
        return StepInput(
            now=self.now,
            policy=self.policy,
            machines=tuple(lines),
            rollups=tuple(self._asked(name) for name in self.clusters if result is None or dice.random() < 0.4),
            links=tuple((name, dice.random() < 0.4) for name in self.clusters if dice.random() < 0.12),
            forgotten=tuple(name for name in self.clusters if result is not None and dice.random() < 0.03),
            conditions=self._conditions(),
        )

    # Supply

    def _shape(self) -> Shape:
        dice = self.dice
        labels = {}
        if dice.random() < 0.9:
            labels[RACK] = dice.choice(self.flavour.racks)
        if dice.random() < 0.4:
            labels[TEAM] = dice.choice(("x", "y", ""))
        if dice.random() < 0.1:
            labels[HOSTNAME] = "m1"
        if dice.random() < 0.1:
            labels[ZONE] = "b"
        have = {"cpu": dice.choice((1000, 2000, 4000, 8000)), "memory": dice.choice((1, 4, 8)) * GIB}
        if dice.random() < 0.4:
            have[GPU] = dice.choice((1, 4, 8))
        if dice.random() < 0.1:
            have = {"cpu": 0, "memory": 0, GPU: 1}
        taints = [Taint("team", dice.choice(("x", "y")), dice.choice(("NoSchedule", "NoExecute")))]
        other = [Taint("soft", "", "PreferNoSchedule"), Taint("node.kubernetes.io/not-ready", "", "NoSchedule")]
        return Shape(
            provider=dice.choice(("p", "p", "q")),
            instance_type=dice.choice(("t1", "t2", "t1", "t2", "")),
            zone=dice.choice(("a", "b", "c", "a", "b", "")),
            capacity_type=dice.choice((0, 1, 2, 3, 3, 4)),
            price=dice.choice((0.0, 0.5, 1.0, 1.0, 3.25)),
            probability=dice.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
            allocatable=Resources(have),
            labels=tuple(labels.items()),
            taints=tuple(taints if dice.random() < 0.15 else dice.sample(other, dice.choice((0, 0, 0, 1)))),
        )

    def _machine(self, id: str) -> MachineLine:
        dice = self.dice
        shape = dice.choice(self.shapes)
        if dice.random() < 0.15:
            shape = replace(
                shape, labels=(*[p for p in shape.labels if p[0] != RACK], (RACK, dice.choice(("r1", "r9"))))
            )
        flavour = self.flavour
        state = dice.choice((IDLE, SPECULATIVE) * flavour.free + (CONFIGURED,) * flavour.bound + UNDER_WAY)
        line = MachineLine(id, state, shape, not_before=self.now + SECOND * dice.choice((-5, 0, 20, 200)))
        if dice.random() < 0.9:
            line = replace(line, not_before=0)
        named = state in (CONFIGURED, DRAINING) or (state in (CONFIGURING, CREATING, FAILED) and dice.random() < 0.8)
        if named:
            line = replace(line, cluster=dice.choice(self.clusters))
        if state in (CONFIGURED, CONFIGURING, CREATING, DRAINING):
            line = replace(line, stamp=self._stamp())
        return line

    def _stamp(self) -> Stamp | None:
        dice = self.dice
        if dice.random() < 0.15:
            return None
        profile = dice.choice(self.profiles)
        if dice.random() < 0.3:
            profile = folded_profile(profile)
        stamp = stamp_for(profile, dice.choice(self.flavour.groups))
        if dice.random() < 0.3:
            stamp = structs.replace(stamp, priority=dice.choice((*self.priorities, *PRIORITIES)))
        if dice.random() < 0.3:
            stamp = structs.replace(
                stamp, interruption_dollars=dice.choice(DOLLARS), reclamation_dollars=dice.choice(DOLLARS)
            )
        if dice.random() < 0.03:
            stamp = structs.replace(stamp, reclamation_dollars=dice.choice((math.nan, -1.0)))
        return stamp

    def _mutation(self) -> MachineLine:
        dice = self.dice
        if self.machines and dice.random() < 0.7:
            line = dice.choice(list(self.machines.values()))
            return removed(line.id)[0] if dice.random() < 0.3 else self._machine(line.id)
        return self._machine(self.spare_ids.pop()) if self.spare_ids else removed("gone")[0]

    def _spoil(self, line: MachineLine) -> MachineLine:
        """The line again, or its machine under a fresh id, with something wrong about it."""
        dice = self.dice
        shape = line.shape or self.shapes[0]
        bad: list[Callable[[], MachineLine]] = [
            lambda: line,
            lambda: replace(line, id=""),
            lambda: replace(line, id="bad", state=9, shape=shape),
            lambda: replace(line, id="bad", state=CONFIGURED, cluster="", shape=shape),
            lambda: replace(line, id="bad", state=IDLE, cluster="c-1", shape=shape),
            lambda: replace(line, id="bad", state=IDLE, cluster="", shape=replace(shape, price=math.nan)),
            lambda: replace(line, id="bad", state=IDLE, cluster="", shape=replace(shape, price=-1.0)),
            lambda: replace(line, id="bad", state=IDLE, cluster="", shape=replace(shape, probability=1.5)),
            lambda: replace(
                line, id="bad", state=IDLE, cluster="", shape=replace(shape, allocatable=Resources({"cpu": 2**41}))
            ),
        ]
        return dice.choice(bad)()

    def _carry_on(self, result: OracleResult) -> dict[str, MachineLine]:
        """Most of what was decided comes true, and some of what was under way is finished."""
        dice = self.dice
        known = {p.fingerprint: p for p in self.profiles} | {
            folded_profile(p).fingerprint: folded_profile(p) for p in self.profiles
        }
        changed: dict[str, MachineLine] = {}
        finished = {CREATING: IDLE, DRAINING: IDLE, DELETING: SPECULATIVE}
        for line in self.machines.values():
            if line.state in finished and dice.random() < 0.4:
                changed[line.id] = line.to(finished[line.state])
            elif line.state == CONFIGURING and line.cluster and dice.random() < 0.6:
                changed[line.id] = replace(line, state=CONFIGURED)
        for action in result.actions:
            if action.machine not in self.machines or dice.random() < 0.25:
                continue
            line = self.machines[action.machine]
            if action.kind in (ActionKind.RECLAIM, ActionKind.PREEMPT):
                changed[line.id] = replace(line, state=DRAINING)
            elif action.kind == ActionKind.DELETE:
                changed[line.id] = line.to(SPECULATIVE)
            elif action.need is not None and action.need.fingerprint in known:
                profile, group = known[action.need.fingerprint], action.need.group
                marks = Stamp(fingerprint=profile.fingerprint, group=group)
                if action.kind == ActionKind.PROVISION:
                    changed[line.id] = line.to(CREATING, action.cluster, marks)
                elif dice.random() < 0.5:
                    changed[line.id] = line.to(CONFIGURED, action.cluster, stamp_for(profile, group))
                else:
                    changed[line.id] = line.to(CONFIGURING, action.cluster, marks)
        return changed

    # Demand

    def _profile(self) -> Profile:
        dice = self.dice
        requirements = []
        flavour = self.flavour
        if dice.random() < flavour.picky:
            requirements.append(Requirement(INSTANCE_TYPE, Operator.IN, tuple(dice.sample(("t1", "t2", "t3"), 2))))
        if dice.random() < flavour.picky:
            key = dice.choice((RACK, TEAM, ZONE, INSTANCE_TYPE, HOSTNAME))
            values = {HOSTNAME: ("m1", "m2", "m3", "m4"), RACK: ("r1", "r2", "r3", "r9"), TEAM: ("x", "y", "")}
            operator = dice.choice((1, 2, 2, 3, 4)) if dice.random() < 0.95 else 0
            some = tuple(dice.sample(values.get(key, ("a", "b", "t1")), 2))
            requirements.append(Requirement(key, Operator(operator), some if operator in (1, 2) else ()))
        if dice.random() < flavour.same:
            key = dice.choice((RACK, RACK, RACK, RACK, ZONE, ZONE, TEAM, HOSTNAME))
            some = ("r1", "r2", "a", "x", "m1") if dice.random() < 0.15 else ()
            requirements.append(Requirement(key, Operator.SAME, some))
        spreads = []
        for _ in range(dice.choice((1, 1, 2)) if dice.random() < flavour.spread else 0):
            key = dice.choice((RACK, RACK, ZONE, HOSTNAME, TEAM))
            spreads.append(Spread(key, dice.choice((0, 1, 1, 2, 3)), WhenUnsatisfiable(dice.choice((1, 1, 1, 2)))))
        tolerations = []
        if dice.random() < 0.25:
            tolerations.append(
                dice.choice((Toleration("team", "Exists"), Toleration("team", "Equal", "x", "NoSchedule")))
            )
        priority, bucket = dice.choice(self.priorities), dice.choice(BUCKETS)
        finer = finer_than(bucket, len(requirements) + len(spreads))
        return Profile(requirements, spreads, priority, bucket, dice.choice(BUCKETS), tolerations, finer)

    def _need(self, cluster: str) -> NeedLine:
        dice = self.dice
        profile = dice.choice(self.profiles)
        unit = {"cpu": dice.choice((0, 500, 1000, 1000, 3000)), "memory": dice.choice((0, 1, 1, 2, 5)) * GIB}
        if self.flavour.large_units:
            unit = {"cpu": dice.choice((500, 1000, 2000, 4000))}
        if dice.random() < 0.2 and any(shape.allocatable.get(GPU) for shape in self.shapes):
            unit[GPU] = dice.choice((1, 2, 4))
        if dice.random() < 0.03:
            unit["example.com/rare"] = 1
        count = dice.choice((0, 1, 1, 2, 3, 5, 9))
        floor = dice.choice((unit, unit, {}, {"cpu": 1000}))
        group = dice.choice(self.flavour.groups) if profile.same else dice.choice(("", "", "", "g1"))
        return NeedLine(cluster, profile, {n: a * count for n, a in unit.items()}, dict(floor), group)

    def _asked(self, cluster: str) -> Asked:
        dice = self.dice
        needs = list(self.demand.get(cluster, ()))
        if dice.random() < 0.5 or not needs:
            needs = [self._need(cluster) for _ in range(dice.randint(0, dice.choice((2, 4, self.size.rows))))]
        elif dice.random() < 0.6:
            needs[dice.randrange(len(needs))] = self._need(cluster)
        if needs and dice.random() < 0.03:
            needs.append(replace(needs[0], aggregate={"cpu": dice.choice((-1, 2**52, 2**52 + 1, 2**60))}))
        if dice.random() < 0.05:
            needs = []
        dice.shuffle(needs)
        self.demand[cluster] = tuple(needs)
        overhead = {"cpu": 500, "memory": GIB // 2} if dice.random() < 0.15 else {}
        return Asked(cluster, tuple(needs), tuple(overhead.items()))

    # Policy and conditions

    def _policy(self) -> Policy:
        dice = self.dice
        guard = RollupGuard(
            enabled=dice.random() < 0.5, min_rows=dice.choice((2, 10)), retain_fraction=dice.choice((0.1, 0.6))
        )
        return Policy(
            reclaim_hold_ns=dice.choice((0, 0, 0, 30, 120)) * SECOND,
            reclaim_cap_fraction=dice.choice((0.0, 0.0, 0.05, 0.4)),
            max_actions_per_step=dice.choice((0, 0, 0, 0, 1, 3, 7)),
            park_after_cycles=dice.choice((1, 2, 8)),
            reprobe_every_cycles=dice.choice((3, 32)),
            idle_hold_by_provider={"q": IdleHold(0, 30 * SECOND)} if dice.random() < 0.3 else {},
            guard=guard,
            supply_count_cap=dice.choice((256, 2)),
            same_candidates=dice.choice((6, 2)),
        )

    def _conditions(self) -> Conditions:
        dice = self.dice
        breakers = []
        if dice.random() < 0.2:
            shape = dice.choice(self.shapes)
            until = self.now + SECOND * dice.choice((-1, 0, 5, 60))
            breakers.append(Breaker(shape.provider, shape.instance_type, shape.zone, shape.capacity_type, until))
        if dice.random() < 0.75:
            return Conditions(breakers=tuple(breakers))
        flags = {name: dice.random() < 0.75 for name in ("acquire", "preempt", "reclaim", "release")}
        flags |= {name: dice.random() < 0.15 for name in ("paused", "dry_run")}
        return Conditions(**flags, breakers=tuple(breakers))
