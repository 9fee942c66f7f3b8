"""A day of demand that swings across five shards, on the pure core and a virtual clock: moves stay few and one-way."""

from __future__ import annotations

from math import pi, sin

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.instructions import Payload
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.policy import SECOND, Policy
from bigfleet.coordinator.core.reports import TABLES, TRANSFERS, Ack, Cell, Deficit, Kind, Outcome, Report, Standing
from bigfleet.coordinator.core.state import State
from bigfleet.model.resources import Resources

SHARDS, MACHINES, HOURS = 5, 60, 24
SMALL = Kind("small", "z", False, Resources.of(cpu=4000))
UNIT = Resources.of(cpu=4000)
REPORT, PLAN = 10, 30


class Day:
    """Shards are counts of machines by name; demand is a sine of two hours, each shard out of phase."""

    def __init__(self, amplitude: float, period: float) -> None:
        self.policy = Policy()
        self.leader = Leader(State(), 1, self.policy)
        self.amplitude, self.period = amplitude, period
        self.owned: dict[str, set[str]] = {}
        self.acks: dict[str, list[Ack]] = {}
        self.short_since: dict[str, int] = {}
        self.moves: list[tuple[int, str, str, str]] = []
        self.unmet = 0
        for number in range(SHARDS):
            name = f"s{number}"
            self.leader.state.apply(do.AddShard(name, "", 0, True))
            self.owned[name] = {f"{name}-m{machine}" for machine in range(MACHINES)}
            self.acks[name] = []

    def run(self) -> None:
        for second in range(0, HOURS * 3600, REPORT):
            now = (second + 1) * SECOND
            for name in self.owned:
                self.report(name, second // REPORT + 1, now)
            self.apply(self.leader.housekeeping(now))
            if second % PLAN == 0:
                planning = self.leader.planning(self.standings(now), now)
                for _ in planning.steps():
                    pass
                self.apply(self.leader.concluded(planning.plan, now))

    def demand(self, name: str, now: int) -> int:
        phase = 2 * pi * (now / SECOND / self.period + int(name[1:]) / SHARDS)
        return round(MACHINES * (0.85 + self.amplitude * sin(phase)))

    def report(self, name: str, cycle: int, now: int) -> None:
        tables = self.leader.state.tables
        version = tables.version(tables.shards[name])
        capabilities = frozenset({TABLES, TRANSFERS})
        acks, self.acks[name] = tuple(self.acks[name]), []
        _, commands = self.leader.hear(
            Report(name, cycle, 1, version=version, capabilities=capabilities, acks=acks), now
        )
        self.apply(commands, now)
        for _, instruction in self.leader.waiting(tables.shards[name], now):
            assert instruction.payload is Payload.TRANSFER, "nothing is drained while others have idle machines"
            idle = max(0, len(self.owned[name]) - self.demand(name, now))
            promised = {machine for ack in self.acks[name] for machine in ack.machines}
            free = sorted(self.owned[name] - promised)[: max(0, idle - len(promised))]
            given = free[: instruction.subject.selector.count]  # type: ignore[union-attr]
            self.acks[name].append(Ack(instruction.id, Outcome.ACCEPTED, "", tuple(given)))

    def standings(self, now: int) -> dict[int, Standing]:
        made = {}
        for name, machines in self.owned.items():
            missing = self.demand(name, now) - len(machines)
            self.unmet += max(0, missing)
            if missing > 0:
                since = self.short_since.setdefault(name, now)
                deficit = Deficit("fp", (), UNIT, missing, priority=5, age=now - since)
                standing = Standing(deficits=(deficit,))
            else:
                self.short_since.pop(name, None)
                standing = Standing(cells=(Cell(SMALL, -missing),) if missing else ())
            made[self.leader.state.tables.shards[name].generation] = standing
        return made

    def apply(self, commands: list[do.Command], now: int = 0) -> None:
        tables = self.leader.state.tables
        for command in commands:
            self.leader.state.apply(command)
            if isinstance(command, do.Release) and command.machines:
                transfer = tables.transfers[command.transfer]
                donor, recipient = (tables.generations[each].id for each in (transfer.donor, transfer.recipient))
                for machine in command.machines:
                    self.owned[donor].remove(machine)
                    self.owned[recipient].add(machine)
                    self.moves.append((now, machine, donor, recipient))


def test_a_day_of_swinging_demand_moves_machines_where_they_are_needed_and_none_back_in_its_cool_down() -> None:
    day = Day(amplitude=0.3, period=2 * 3600)
    still = Day(amplitude=0.3, period=2 * 3600)
    still.policy = still.leader.policy = Policy(after=10**18)
    day.run()
    still.run()
    assert day.leader.state.validate() == []
    assert sum(len(machines) for machines in day.owned.values()) == SHARDS * MACHINES
    last: dict[str, int] = {}
    for now, machine, _, _ in day.moves:
        assert now - last.get(machine, -(10**18)) >= day.policy.cooldown, "moved again within its cool-down"
        last[machine] = now
    swings = HOURS * 3600 / day.period
    rise = MACHINES * 2 * 0.3
    assert day.moves
    assert len(day.moves) <= SHARDS * rise * swings, "never more machines arrive than demand rises"
    assert day.unmet < 0.5 * still.unmet, "moving must help more than it hurts"
