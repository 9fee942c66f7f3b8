"""A coordinator's pure core and shards that keep the protocol, under losses and crashes, one seeded history at a time.

The shards here are written from the contract alone: what they persist, when they act, when they let go. They share no
code with the shard, so a misunderstanding on either side shows. Checked at every instant: no machine has two shards
that would act on it, and the coordinator always knows one owner, a shard or a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.instructions import Payload
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.ownership import IN_TRANSIT, owner_of
from bigfleet.coordinator.core.policy import SECOND, Policy
from bigfleet.coordinator.core.records import Phase, Row
from bigfleet.coordinator.core.reports import TABLES, TRANSFERS, Ack, Cell, Deficit, Kind, Outcome, Report, Standing
from bigfleet.coordinator.core.state import State
from bigfleet.model.resources import Resources

RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
SIZE = Resources.of(cpu=8000)
UNIT = Resources.of(cpu=4000)


@dataclass(frozen=True)
class Table:
    """What a shard has persisted of the coordinator's answer."""

    term: int
    version: int
    keys: tuple[str, ...]
    default: str
    domains: dict[tuple[str, str], str]
    transfers: dict[str, tuple[Phase, str, tuple[str, ...]]]


@dataclass
class ModelShard:
    """One shard: `table` and `released` survive a crash, the rest does not."""

    id: str
    epoch: int = 1
    cycle: int = 0
    running: bool = True
    table: Table | None = None
    released: dict[str, tuple[str, ...]] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    idle: set[str] = field(default_factory=set)
    draining: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def acts_on(self, machine: str, labels: dict[str, str]) -> bool:
        if not self.running or self.table is None:
            return False
        if any(machine in machines for machines in self.released.values()):
            return False
        for phase, recipient, machines in self.table.transfers.values():
            if phase is not Phase.PROPOSED and machine in machines:
                return recipient == self.id
        for key in self.table.keys:
            owner = self.table.domains.get((key, labels.get(key, "")))
            if owner is not None:
                return owner == self.id
        return self.table.default == self.id

    def receive(self, table: Table) -> None:
        """Persist a newer table; a release to a transfer it no longer has was called off."""
        if self.table is not None and (table.term, table.version) < (self.table.term, self.table.version):
            return
        self.table = table
        for name in list(self.released):
            known = table.transfers.get(name)
            if known is None or known[0] is not Phase.PROPOSED:
                del self.released[name]

    def crash(self) -> None:
        self.epoch += 1
        self.cycle = 0
        self.acks = []


class World:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000 * SECOND
        self.rows: dict[tuple[str, str], Row] = {}
        self.term = 0
        self.policy = Policy(
            after=0, preempt_after=0, cooldown=20 * SECOND, settle=5 * SECOND, rest=5 * SECOND, margin=0.0
        )
        self.shards = {f"s{number}": ModelShard(f"s{number}") for number in range(3)}
        self.machines = {f"m{number}": {RACK: f"r{number % 4}", ZONE: f"z{number % 2}"} for number in range(8)}
        self.moves: list[tuple[int, str, str, str]] = []
        self.elect()

    def elect(self) -> None:
        """A new leader from what was committed; whatever the old one knew is gone."""
        self.term += 1
        self.leader = Leader(State(self.rows.values()), self.term, self.policy)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()

    def step(self) -> None:
        self.now += self.random.randrange(0, 3 * SECOND)
        choice = self.random.random()
        if choice < 0.55:
            self.exchange(self.random.choice(list(self.shards.values())), self.random.random())
        elif choice < 0.67:
            planning = self.leader.planning(self.standings(), self.now)
            for _ in planning.steps():
                pass
            self.submit_all(self.leader.concluded(planning.plan, self.now))
        elif choice < 0.75:
            self.submit_all(self.leader.housekeeping(self.now))
        elif choice < 0.85:
            self.admin()
        elif choice < 0.90:
            self.elect()
        elif choice < 0.95:
            self.random.choice(list(self.shards.values())).crash()
        else:
            self.replace_shard()

    def settle(self) -> None:
        """Everybody is heard, often enough for every change to end; nothing new is begun."""
        for _ in range(12):
            self.now += SECOND
            for shard in self.shards.values():
                if shard.running:
                    self.exchange(shard, 1.0)
            self.submit_all(self.leader.housekeeping(self.now))
        self.now += 2 * self.policy.drain_within
        self.submit_all(self.leader.housekeeping(self.now))
        for _ in range(6):
            for shard in self.shards.values():
                if shard.running:
                    self.exchange(shard, 1.0)

    def exchange(self, shard: ModelShard, luck: float) -> None:
        """A report and its answer; either may be lost, and the coordinator may die between any two commits."""
        if not shard.running or luck < 0.05:
            return
        shard.cycle += 1
        report = Report(
            shard=shard.id,
            cycle=shard.cycle,
            epoch=shard.epoch,
            version=shard.table.version if shard.table is not None else 0,
            highest_term=shard.table.term if shard.table is not None else 0,
            capabilities=frozenset({TABLES, TRANSFERS}),
            acks=tuple(shard.acks),
        )
        if not self.submit_all(self.leader.admit(report, self.now), luck):
            return
        counts, commands = self.leader.hear(report, self.now)
        if not self.submit_all(commands, luck) or luck < 0.15:
            return
        if not counts:
            return
        shard.acks = []
        tables = self.leader.state.tables
        known = tables.shards[shard.id]
        instructions = self.leader.waiting(known, self.now)
        if report.version != tables.version(known):
            shard.receive(self.table_for(known))
        for _, instruction in instructions:
            self.obey(shard, instruction)

    def obey(self, shard: ModelShard, instruction: Any) -> None:
        subject = instruction.subject
        if instruction.payload is Payload.DRAIN:
            taken = shard.draining.setdefault(subject.id, tuple(self.owned_by(shard)[: subject.selector.count]))
            shard.acks.append(Ack(instruction.id, Outcome.ACCEPTED, "", taken))
            return
        chosen = shard.released.get(subject.id)
        if chosen is None:
            able = [each for each in self.owned_by(shard) if not subject.machines or each in subject.machines]
            if subject.machines and self.random.random() < 0.5:
                shard.acks.append(Ack(instruction.id, Outcome.FAILED, "still draining"))
                return
            chosen = tuple(able[: len(subject.machines) or subject.selector.count])
            if chosen:
                shard.released[subject.id] = chosen
        shard.acks.append(Ack(instruction.id, Outcome.ACCEPTED, "", chosen))

    def owned_by(self, shard: ModelShard) -> list[str]:
        return [name for name, labels in self.machines.items() if shard.acts_on(name, labels)]

    def admin(self) -> None:
        key, value = self.random.choice([(RACK, f"r{n}") for n in range(4)] + [(ZONE, f"z{n}") for n in range(2)])
        shard = self.random.choice(list(self.shards))
        command = self.random.choice(
            [do.AssignDomain(key, value, shard), do.MoveDomain(key, value, shard), do.UnassignDomain(key, value)]
        )
        self.submit_all([command])

    def replace_shard(self) -> None:
        """Stop a shard for good, remove it, and start another under its name with an empty disk."""
        name = self.random.choice(list(self.shards))
        if name in self.leader.state.tables.shards and len(self.leader.state.tables.shards) > 1:
            epoch = self.shards[name].epoch
            self.shards[name].running = False
            self.submit_all([do.RemoveShard(name)])
            self.shards[name] = ModelShard(name, epoch=epoch + 1)

    def submit_all(self, commands: list[Any], luck: float = 1.0) -> bool:
        """Commit one after the other; False when the coordinator died on the way."""
        for command in commands:
            before = self.leader.state.tables.moved.copy()
            try:
                applied = self.leader.state.apply(command)
            except Refused:
                self.submit_all(self.leader.refused(command, self.now))
                continue
            if luck < 0.3 and self.random.random() < 0.2:
                if self.random.random() < 0.5:
                    self.commit(applied.rows)
                self.elect()
                return False
            self.commit(applied.rows)
            if isinstance(command, do.Release) and before != self.leader.state.tables.moved:
                self.note(command)
        return True

    def note(self, command: do.Release) -> None:
        transfer = self.leader.state.tables.transfers[command.transfer]
        generations = self.leader.state.tables.generations
        donor = generations[transfer.donor].id if transfer.donor in generations else ""
        for machine in transfer.machines:
            self.moves.append((self.now, machine, donor, generations[transfer.recipient].id))

    def commit(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.value is None:
                self.rows.pop((row.table, row.key), None)
            else:
                self.rows[row.table, row.key] = row

    def standings(self) -> dict[int, Standing]:
        """Some shards have idle machines, some are short, as it happens."""
        made = {}
        for name, shard in self.shards.items():
            known = self.leader.state.tables.shards.get(name)
            if known is None:
                continue
            mine = self.owned_by(shard)
            short = self.random.random() < 0.4
            deficit = Deficit("fp", (), UNIT, self.random.randrange(1, 5), priority=5, age=10**12)
            cells = tuple(
                Cell(Kind("t", zone, False, SIZE), sum(1 for each in mine if self.machines[each][ZONE] == zone))
                for zone in ("z0", "z1")
            )
            made[known.generation] = Standing(
                deficits=(deficit,) if short else (),
                cells=() if short else tuple(cell for cell in cells if cell.count),
                totals=(("t", len(mine)),),
                machines=len(mine),
            )
        return made

    def table_for(self, shard: Any) -> Table:
        tables = self.leader.state.tables
        return Table(
            term=self.leader.term,
            version=tables.version(shard),
            keys=(RACK, ZONE),
            default=tables.default.id,  # type: ignore[union-attr]
            domains={
                place: tables.generations[each.holder].id if each.holder and not tables.awaited(each) else ""
                for place, each in tables.domains.items()
            },
            transfers={
                name: (each.phase, tables.generations[each.recipient].id, each.machines)
                for name, each in tables.transfers.items()
            },
        )

    def check(self) -> None:
        assert self.leader.state.validate() == []
        for machine, labels in self.machines.items():
            acting = [shard.id for shard in self.shards.values() if shard.acts_on(machine, labels)]
            assert len(acting) <= 1, f"{machine} has two owners: {acting}"

    def check_settled(self) -> None:
        """Once everything has come to rest, every machine has exactly the shard the coordinator says."""
        self.check()
        tables = self.leader.state.tables
        for machine, labels in self.machines.items():
            owner = owner_of(tables, "", machine, labels)
            assert owner != IN_TRANSIT, f"{machine} is nobody's"
            acting = [shard.id for shard in self.shards.values() if shard.acts_on(machine, labels)]
            assert acting == [tables.generations[owner].id], (
                f"{machine} is {acting}'s, not {tables.generations[owner].id}'s"
            )


def history(seed: int, steps: int = 120) -> World:
    """One history to its end, checked on the way and at rest."""
    world = World(seed)
    world.run(steps)
    world.settle()
    world.check_settled()
    return world
