"""Random small fleets in which some clusters report placement and some send sums, all from one seed.

Beside `fleets.py`, which draws machines, profiles and sums; this adds counts, node reports, sessions, deadlines,
backoffs, rests and moves. Values come from small sets on purpose, and some of it is nonsense: operators err.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bigfleet.engine.batches import Conditions, DemandBatch
from bigfleet.engine.placement import Backoff, Load, Move, Rest, RestKind
from bigfleet.engine.policy import Placement, Policy, RollupGuard
from bigfleet.engine.results import ActionKind, NeedKey
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from tests.strategies.builders import (
    CONFIGURED,
    CONFIGURING,
    DRAINING,
    GPU,
    RACK,
    RESERVED,
    SECOND,
    SPECULATIVE,
    MachineLine,
    NeedLine,
    batch,
    rollup,
)
from tests.strategies.fleets import CLUSTERS, GIB, Asked, Flavour, Size, _World, finer_than
from tests.strategies.placed import CountedLine, NodeLine, counted, reports, with_deadlines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.step import OracleResult

PRIORITIES = (0, 1, 100, 1000, 5000)
ANY, CALM, SHOPPING = range(3)
TOKENS = ((), (), (), ("port:80",), ("port:80", "port:81"))


@dataclass(frozen=True)
class AskedUnits:
    """One reporting cluster's roll-up as lines."""

    cluster: str
    lines: tuple[CountedLine, ...]
    version: int
    overhead: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PlacedStep:
    """Everything one step is given."""

    now: int
    policy: Policy
    machines: tuple[MachineLine, ...] = ()
    deadlines: tuple[tuple[str, int], ...] = ()
    sums: tuple[Asked, ...] = ()
    units: tuple[AskedUnits, ...] = ()
    nodes: tuple[tuple[str, tuple[NodeLine, ...]], ...] = ()
    confirmed: tuple[tuple[str, int], ...] = ()
    streams: tuple[str, ...] = ()
    links: tuple[tuple[str, bool], ...] = ()
    forgotten: tuple[str, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)

    def feed(self, engine: Any) -> OracleResult:
        change = DemandBatch(
            rollups=[
                *(rollup(a.cluster, *a.needs, overhead=dict(a.overhead)) for a in self.sums),
                *(counted(a.cluster, *a.lines, version=a.version, overhead=dict(a.overhead)) for a in self.units),
            ],
            links=list(self.links),
            forgotten=list(self.forgotten),
            streams=list(self.streams),
            confirmed=list(self.confirmed),
            reports=[reports(cluster, *lines) for cluster, lines in self.nodes],
        )
        machines = with_deadlines(batch(self.machines), dict(self.deadlines)) if self.machines else None
        result: OracleResult = engine.step(machines, change, self.policy, self.now, self.conditions)
        return result

    def shuffled(self, dice: random.Random) -> PlacedStep:
        """The same step with its records in another order; a machine given twice keeps its order."""

        def mixed(items: Any) -> Any:
            return tuple(dice.sample(items, len(items)))

        ids = [line.id for line in self.machines]
        return replace(
            self,
            machines=mixed(self.machines) if len(set(ids)) == len(ids) else self.machines,
            sums=mixed(tuple(replace(a, needs=mixed(a.needs)) for a in self.sums)),
            units=mixed(tuple(replace(a, lines=mixed(a.lines)) for a in self.units)),
            nodes=mixed(tuple((cluster, mixed(lines)) for cluster, lines in self.nodes)),
            conditions=replace(
                self.conditions,
                backoffs=mixed(self.conditions.backoffs),
                rests=mixed(self.conditions.rests),
                moves=mixed(self.conditions.moves),
            ),
        )


def play_placed(seed: int, size: Size, oracle: Any) -> Iterator[tuple[PlacedStep, OracleResult]]:
    """Step inputs and what the oracle made of them; later inputs follow from what it decided."""
    kind = _RackWorld if seed // 16 % 4 == 3 else _DeviceWorld if seed // 16 % 16 == 6 else _PlacedWorld
    world = kind(random.Random(seed), size)
    result: OracleResult | None = None
    for _ in range(world.dice.randint(1, size.steps)):
        inputs = world.next_placed(result)
        result = inputs.feed(oracle)
        yield inputs, result


class _PlacedWorld(_World):
    """The fleet as the generator believes it to be, with nodes."""

    def __init__(self, dice: random.Random, size: Size) -> None:
        super().__init__(dice, size)
        self.reporting = {name for name in self.clusters if dice.random() < 0.75}
        self.versions = dict.fromkeys(self.clusters, 1)
        self.lines: dict[str, tuple[CountedLine, ...]] = {}
        self.closing: dict[str, int] = {}
        self.moves: list[Move] = []
        # Without clusters in which nothing waits, nothing would ever be closed or moved; without many plain rows of one
        # cluster and much to buy, nobody would ever share a machine.
        self.mood = dice.choice((CALM, CALM, SHOPPING, SHOPPING, ANY, ANY))
        self.closed = dice.choice((0.0, 0.1, 0.6)) if self.mood == CALM else 0.1
        if self.mood == SHOPPING:
            self._go_shopping()
        elif self.mood == CALM:
            self.flavour = Flavour(same=0.05, spread=0.1, picky=0.1, bound=12, free=8)
            self.profiles = [self._profile() for _ in range(dice.randint(1, 4))]
        if self.mood == CALM or dice.random() < 0.4:
            # Owned ones too where nodes are closed and moved; where much is bought they would only be in the way.
            markets = (2, 3, 3, 3, 4) if self.mood == CALM else (3, 3, 4)
            self.shapes = [
                replace(shape, capacity_type=dice.choice(markets), price=shape.price or 2.0) for shape in self.shapes
            ]
        if dice.random() < 0.3:
            self.shapes = [
                replace(shape, allocatable=Resources({**dict(shape.allocatable.items()), "pods": dice.choice((2, 4))}))
                for shape in self.shapes
            ]

    def _go_shopping(self) -> None:
        dice = self.dice
        self.flavour = Flavour(same=0.0, spread=0.0, picky=0.05, bound=1, free=12)
        self.clusters = self.clusters[:1]
        self.reporting = set(self.clusters)
        self.profiles = [
            Profile(
                [],
                [],
                dice.choice(self.priorities),
                bucket := dice.choice((0, 2, 2, 3)),
                0,
                (),
                finer_than(bucket, number),
            )
            for number in range(dice.randint(2, 5))
        ]
        self.shapes = [
            replace(
                self._shape(),
                capacity_type=dice.choice((3, 4)),
                price=dice.choice((0.5, 1.0, 1.5, 2.0, 3.25)),
                probability=dice.choice((0.0, 0.02, 0.1, 0.5)),
                allocatable=Resources(
                    {"cpu": dice.choice((2000, 4000, 8000, 16000)), "memory": dice.choice((4, 8, 32)) * GIB}
                ),
                taints=(),
            )
            for _ in range(dice.randint(2, 4))
        ]
        # The same machine, cheaper and interrupted: there the sum of all penalties decides.
        self.shapes = [replace(shape, probability=0.0) for shape in self.shapes]
        self.shapes += [
            replace(shape, capacity_type=4, price=shape.price * 0.6, probability=dice.choice((0.05, 0.1, 0.3)))
            for shape in self.shapes
        ]

    def next_placed(self, result: OracleResult | None) -> PlacedStep:
        dice = self.dice
        if result is not None:
            self._note(result)
            kept = [a for a in result.actions if a.kind not in (ActionKind.CLOSE, ActionKind.REOPEN)]
            result = replace(result, actions=kept)
        base = self.next_step(result)
        if result is not None and dice.random() < 0.05:
            self.reporting ^= {dice.choice(self.clusters)}
        self.moves = [move for move in self.moves if dice.random() < 0.9]
        units = tuple(self._units(asked) for asked in base.rollups if asked.cluster in self.reporting)
        # Little stands in the way of consolidation where the world is calm, or it would hardly ever be seen.
        policy = base.policy.with_(guard=RollupGuard()) if self.mood == CALM else base.policy
        sent = {asked.cluster for asked in units}
        nodes = tuple((name, lines) for name in self.clusters if (lines := self._nodes(name)))
        return PlacedStep(
            now=base.now,
            policy=policy.with_(placement=self._placement()),
            machines=base.machines,
            deadlines=tuple((line.id, self._deadline()) for line in base.machines if dice.random() < 0.5),
            sums=tuple(asked for asked in base.rollups if asked.cluster not in self.reporting),
            units=units,
            nodes=nodes,
            confirmed=tuple(
                (name, self.versions[name])
                for name in self.clusters
                if name in self.reporting - sent and (self.mood == CALM or dice.random() < 0.7)
            ),
            streams=tuple(name for name in self.clusters if dice.random() < 0.03),
            links=() if self.mood == CALM else base.links,
            forgotten=base.forgotten,
            conditions=self._placed_conditions(base.conditions),
        )

    def _note(self, result: OracleResult) -> None:
        for action in result.actions:
            if action.kind == ActionKind.CLOSE:
                self.closing[action.machine] = self.now
            elif action.kind == ActionKind.REOPEN:
                self.closing.pop(action.machine, None)
            elif action.replaces:
                until = self.now + SECOND * self.dice.choice((20, 600))
                self.moves.append(Move(action.cluster, action.replaces, action.machine, self.now, until))

    def _deadline(self) -> int:
        return self.now + SECOND * self.dice.choice((-1, 5, 40, 400))

    # Demand

    def _units(self, asked: Asked) -> AskedUnits:
        dice = self.dice
        self.versions[asked.cluster] += dice.choice((0, 1, 2))
        lines = tuple(line for line in (self._line(row) for row in asked.needs) if line is not None)
        before = self.lines.get(asked.cluster, ())
        if before and dice.random() < 0.5:
            lines = tuple(self._later(line) for line in before)
        self.lines[asked.cluster] = lines
        return AskedUnits(asked.cluster, lines, self.versions[asked.cluster], asked.overhead)

    def _asked(self, cluster: str) -> Asked:
        asked = super()._asked(cluster)
        if self.mood == SHOPPING and self.dice.random() < 0.7:
            asked = replace(asked, needs=tuple(self._need(cluster) for _ in range(self.dice.randint(3, 8))))
        return asked

    def _line(self, row: NeedLine) -> CountedLine | None:
        dice = self.dice
        unit = {name: amount for name, amount in row.min_unit.items() if amount} or {"cpu": 500}
        if any(amount < 0 for amount in row.aggregate.values()):
            return None
        count = dice.choice((1, 1, 2, 4) if self.mood == SHOPPING else (1, 1, 2, 3, 5, 9))
        row = replace(row, min_unit=unit, aggregate={name: amount * count for name, amount in unit.items()})
        running = dice.choice((0, 0, 1, count))
        stranded = 0 if self.mood == CALM else dice.choice((0, 1, count - running, count - running, count - running))
        if dice.random() > 0.03:
            running = min(running, count)
            stranded = min(stranded, count - running)
        domains: tuple[tuple[str, int], ...] = ()
        if (row.profile.spread or (row.profile.same and running)) and dice.random() < 0.7:
            names = dice.sample(("r1", "r2", "r10", "a", "b", "x"), 2)
            domains = tuple((name, dice.choice((0, 1, 2, 3))) for name in names)
        return CountedLine(row, count, running, stranded, domains, dice.choice(TOKENS))

    def _later(self, line: CountedLine) -> CountedLine:
        dice = self.dice
        if dice.random() < 0.5:
            return line
        running = min(line.count, line.running + dice.choice((0, 1, 2)))
        return line.now(running=running, stranded=min(line.stranded, line.count - running))

    # Nodes

    def _nodes(self, cluster: str) -> tuple[NodeLine, ...]:
        found = []
        for line in self.machines.values():
            on_a_node = line.cluster == cluster and line.state in (CONFIGURING, CONFIGURED, DRAINING) and line.shape
            if on_a_node and self.dice.random() < (0.9 if self.mood == CALM else 0.6):
                found.append(self._node(line, cluster))
        if self.dice.random() < 0.03:
            found.append(NodeLine("nobody"))
        return tuple(found)

    def _node(self, line: MachineLine, cluster: str) -> NodeLine:
        dice = self.dice
        assert line.shape is not None
        have = dict(line.shape.allocatable.items())
        empty = dice.random() < (0.1 if self.mood == CALM else 0.35)
        used = (
            {} if empty else {name: int(amount * dice.choice((0.1, 0.25, 0.5, 1.0))) for name, amount in have.items()}
        )
        real = {name: amount - dice.choice((0, 0, amount // 4)) for name, amount in have.items()}
        rows = self.lines.get(cluster, ())
        prints = {
            row.row.profile.fingerprint
            for row in dice.sample(rows, min(len(rows), dice.choice((1, 1, 2) if self.mood == CALM else (0, 1, 1, 2))))
        }
        # What is owned gives way only where it is removable.
        removable = 0.6 if line.shape.capacity_type == RESERVED else 0.15 if self.mood == CALM else 0.3
        return NodeLine(
            line.id,
            ready=dice.random() < 0.9,
            empty=empty,
            removable=not empty and dice.random() < removable,
            pinned=dice.random() < 0.05,
            priority=dice.choice((*self.priorities, *PRIORITIES)) if dice.random() < 0.9 else -5,
            used=used,
            allocatable=real if dice.random() < 0.5 else {},
            reclamation=dice.choice((0.0, 0.005, 0.5, 8.0)),
            interruption=dice.choice((0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 256.0, float("inf"))),
            closing_since=self.now - 1500 * SECOND if dice.random() < self.closed else self.closing.get(line.id, 0),
            version=self.versions[cluster] + dice.choice((-1, -1, 0, 0, 1)),
            load=Load(tuple(sorted(prints)), ("g1",) if dice.random() < 0.1 else (), dice.choice(TOKENS)),
        )

    # Policy and conditions

    def _placement(self) -> Placement:
        dice = self.dice
        return Placement(
            fresh_ns=dice.choice((30, 200)) * SECOND,
            mode_hold_ns=dice.choice((0, 600)) * SECOND,
            open_remainders=dice.choice((1, 2, 64)),
            riders=dice.choice((0, 1, 16)),
            within=dice.choice((0.0, 0.1, 0.5)),
            paid_ratio=dice.choice((0.0, 0.5, 1.0)),
            risk_limit=dice.choice((0.5, 4.0)),
            second_pass_from=dice.choice((1, 2, 8)),
            doubt=dice.random() < 0.5,
            boot_ns=dice.choice((0, 20, 120, 1800)) * SECOND,
            boot_by_provider={"q": 60 * SECOND} if dice.random() < 0.3 else {},
            empty_min_ns=dice.choice((0, 30, 120)) * SECOND,
            empty_max_ns=dice.choice((200, 3600)) * SECOND,
            closed_empty_ns=dice.choice((0, 60)) * SECOND,
            consolidate=dice.random() < (0.9 if self.mood == CALM else 0.6),
            pass_ns=dice.choice((0, 30)) * SECOND,
            settle_ns=dice.choice((0, 0, 600)) * SECOND,
            candidate_ratio=dice.choice((0.8, 1.0)),
            candidates=dice.choice((1, 64)),
            min_saving=dice.choice((0.0, 0.25)),
            closing_fraction=dice.choice((0.15, 1.0)),
            closing_ns=dice.choice((0, 60, 1200)) * SECOND,
            payback_ns=dice.choice((600, 3600)) * SECOND,
            move_size=dice.choice((1, 2, 6)),
            move_fraction=dice.choice((0.05, 1.0)),
            move_window_ns=dice.choice((0, 300)) * SECOND,
            # Drawn aside: the fleets that tell mutants apart stay as they are.
            gangs_awake=random.Random(dice.getstate()[1][0]).choice((0, 1, 32)),
            refills=random.Random(dice.getstate()[1][3]).choice((0, 1, 16, 16)),
            reopen_ratio=random.Random(dice.getstate()[1][1]).choice((0.0, 0.8, 1.0)),
            evictable=random.Random(dice.getstate()[1][2]).choice((0.0, 0.3, *[1.0] * 6)),
            hostage_ratio=random.Random(dice.getstate()[1][4]).choice((0.05, 0.3, 0.6)),
            lent_least=random.Random(dice.getstate()[1][5]).choice((0, 1, 4)),
            lent_share=random.Random(dice.getstate()[1][6]).choice((0.0, 0.005, 0.2)),
        )

    def _placed_conditions(self, conditions: Conditions) -> Conditions:
        dice = self.dice
        backoffs, rests = [], []
        for _ in range(dice.choice((0, 0, 1, 2))):
            shape, cluster = dice.choice(self.shapes), dice.choice(self.clusters)
            row = None
            lines = self.lines.get(cluster, ())
            if lines and dice.random() < 0.5:
                need = dice.choice(lines).row
                unit = "" if need.profile.same else ",".join(f"{n}={a}" for n, a in sorted(need.min_unit.items()))
                row = NeedKey(cluster, need.profile.fingerprint, need.group, unit)
            until = self.now + SECOND * dice.choice((0, 60))
            kind = (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)
            backoffs.append(Backoff(cluster, *kind, until, row))
        ids = sorted(self.machines)
        for id in dice.sample(ids, min(len(ids), dice.choice((0, 0, 1, 9)))):
            rests.append(Rest(id, RestKind(dice.choice((1, 2))), self.now + SECOND * dice.choice((0, 60))))
        moves = [replace(move, ended=move.ended or dice.random() < 0.1) for move in self.moves]
        bound = [line for line in self.machines.values() if line.state == CONFIGURED]
        if ids and bound and dice.random() < 0.2:
            old = dice.choice(bound)
            new = dice.choice(("", dice.choice(ids)))
            if new != old.id:
                moves.append(Move(old.cluster, (old.id,), new, self.now - SECOND, self.now + 60 * SECOND))
        return replace(
            conditions,
            backoffs=tuple(backoffs),
            rests=tuple(rests),
            moves=tuple(moves),
            evictions=self._some_borrowed(
                tuple((name, dice.choice((0, 1, 60, 60))) for name in self.clusters if dice.random() < 0.8)
            ),
        )

    def _some_borrowed(self, evictions: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """Drawn aside, as above."""
        aside = random.Random(self.dice.getstate()[1][7])
        return tuple((name, pods if aside.random() < 0.8 else aside.choice((-1, -3))) for name, pods in evictions)


class _RackWorld(_PlacedWorld):
    """Racks of one kind of machine, full of work of several priorities, and gangs that want one of them: which rack a
    gang takes, and whom it finds free when it rests, would hardly ever be asked otherwise."""

    def __init__(self, dice: random.Random, size: Size) -> None:
        super().__init__(dice, size)
        self.mood, self.closed = ANY, 0.0
        self.clusters = CLUSTERS
        self.reporting = {name for name in CLUSTERS if dice.random() < 0.9}
        self.versions = dict.fromkeys(CLUSTERS, 1)
        self.priorities = [0, 500, 5000]
        self.flavour = Flavour(
            same=0.5,
            spread=0.0,
            picky=0.0,
            bound=dice.choice((6, 12)),
            free=dice.choice((0, 1, 2)),
            groups=("g1", "g2", "g3"),
        )
        racks = dice.sample(("r1", "r2", "r3", "r10"), dice.choice((2, 2, 3)))
        plain = replace(
            self._shape(), zone="a", probability=0.0, taints=(), allocatable=Resources({"cpu": 4000, "memory": 8 * GIB})
        )
        self.shapes = [replace(plain, labels=((RACK, rack),)) for rack in racks]
        self.usual = {rack: dice.choice((0, 100, 500, 1000)) for rack in racks}
        gangs = [Requirement(RACK, Operator.SAME)]
        self.profiles = [
            Profile(
                gangs if n < 2 else [], [], dice.choice((500, 5000, 5000) if n < 2 else self.priorities), 0, 0, (), 0
            )
            for n in range(4)
        ]
        self.policy = self._policy()

    def _machine(self, id: str) -> MachineLine:
        line = super()._machine(id)
        return replace(line, cluster=CLUSTERS[-1]) if line.cluster and self.dice.random() < 0.8 else line

    def _need(self, cluster: str) -> NeedLine:
        line = super()._need(cluster)
        unit = {"cpu": self.dice.choice((2000, 4000, 4000, 4000)), "memory": GIB}
        return replace(line, min_unit=unit, aggregate=unit)

    def _line(self, row: NeedLine) -> CountedLine | None:
        line = super()._line(row)
        if line is None or not row.profile.same or self.dice.random() < 0.2:
            return line
        # Nothing of it runs, so that it may go to any rack.
        count = self.dice.choice((1, 2, 2, 3))
        whole = {name: amount * count for name, amount in line.row.min_unit.items()}
        return CountedLine(replace(line.row, aggregate=whole), count, 0, count)

    def _node(self, line: MachineLine, cluster: str) -> NodeLine:
        shown = super()._node(line, cluster)
        assert line.shape is not None
        usual = self.usual.get(line.shape.label(RACK) or "", 0)
        return replace(shown, ready=True, empty=False, priority=self.dice.choice((usual, usual, usual, 0, 1000)))

    def _policy(self) -> Policy:
        return super()._policy().with_(park_after_cycles=1, max_actions_per_step=0)


class _DeviceWorld(_PlacedWorld):
    """One cluster whose rows ask for a few devices each, and machines with eight of them to be bought: who goes
    together on a machine would hardly ever be asked otherwise."""

    def __init__(self, dice: random.Random, size: Size) -> None:
        super().__init__(dice, size)
        self.mood, self.closed = SHOPPING, 0.0
        self._go_shopping()
        self.shapes = [
            replace(
                shape,
                labels=(),
                probability=dice.choice((0.0, 0.0, 0.02)),
                allocatable=Resources({"cpu": dice.choice((16000, 32000)), "memory": 64 * GIB, GPU: 8}),
            )
            for shape in self.shapes[:2]
        ]

    def _machine(self, id: str) -> MachineLine:
        line = super()._machine(id)
        return replace(line, state=SPECULATIVE, cluster="", stamp=None) if self.dice.random() < 0.8 else line

    def _line(self, row: NeedLine) -> CountedLine | None:
        dice = self.dice
        unit = {"cpu": dice.choice((1000, 2000, 4000, 6000)), "memory": GIB, GPU: dice.choice((1, 1, 2, 3, 4, 5, 6))}
        count = dice.choice((1, 1, 2, 3))
        whole = {name: amount * count for name, amount in unit.items()}
        return CountedLine(replace(row, min_unit=unit, aggregate=whole), count, 0, count, (), dice.choice(TOKENS[1:]))

    def _placement(self) -> Placement:
        dice = self.dice
        return replace(
            super()._placement(),
            riders=dice.choice((1, 2, 16, 16)),
            refills=dice.choice((1, 2, 16)),
            refilled=dice.choice((0, 1, 256, 256)),
        )
