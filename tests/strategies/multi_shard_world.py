"""A coordinator's core and several shards' cores on one virtual clock, through the real codecs: one seeded history.

Everything between them may be lost or repeated, everybody may crash between any two writes, or come back with an empty
disk. Machines appear, are relabelled, lost, sold again under their id, and listed by two providers; demand swings, so
machines are bound, moved and drained for others by the real rules. Checked all the time: no machine is ever acted on by
two shards; at rest: nor by none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.policy import SECOND
from bigfleet.coordinator.core.records import Phase
from bigfleet.coordinator.core.reports import Report, Standing
from bigfleet.coordinator.server.answers import Answers
from bigfleet.coordinator.server.codec import report_of, standing_of
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract import events as ev
from bigfleet.shard.coordinator_link.codec import answer_of
from bigfleet.shard.coordinator_link.link import report_message
from bigfleet.shard.coordinator_link.report import standing_of as shard_standing
from bigfleet.wire import coordinator_pb2
from tests.strategies import coordinator_world
from tests.strategies.coordinator_world import RACK
from tests.strategies.shard_world import Provider, Unit, cpu, shape_of, test_config
from tests.strategies.shard_world import World as Site

Name = tuple[str, str]
MOST_MACHINES = 11
CONFIG = {
    "cycle_interval": 6 * SECOND,
    "early_cycle_interval": 2 * SECOND,
    "reconcile_interval": 4 * SECOND,
    "transition_poll_interval": 0,
}


class SharedProvider(Provider):
    """A provider that several shards dial; each shard's calls are fenced among themselves elsewhere."""

    fleet: Fleet

    def call(self, call: ev.CallProvider) -> None:
        self.fleet.acts(self.world, (self.name, call.machine))
        super().call(call)

    def _answer(self, call: ev.CallProvider) -> ev.Event:
        if call.machine in self.units:
            self.units[call.machine].mark = (0, 0)
        return super()._answer(call)


class Shard:
    """One shard: its core with everything around it, and the line to the coordinator."""

    def __init__(self, fleet: Fleet, id: str, epoch: int = 0) -> None:
        self.id = id
        self.running = True
        self.reports = 0
        self.old_answers: list[ev.CoordinatorAnswered] = []
        config = test_config(id=id, providers=tuple(fleet.units), with_coordinator=True, **CONFIG)
        self.site = Site(config, now=fleet.now, epoch=epoch, validates=False)
        # Its first Lists have not been taken yet: they will see what everybody sees.
        for name in fleet.units:
            provider = SharedProvider(self.site, name)
            provider.fleet, provider.units = fleet, fleet.units[name]
            self.site.providers[name] = provider
        self.site.crash()
        self.operator = self.site.operator(f"c-{id}")

    def owns(self, name: Name) -> bool:
        record = self.site.core.state.fleet.find(*name) if self.running else None
        return record is not None and record.owned

    def crash(self) -> None:
        self.site.crash()
        self.reports = 0
        self.operator.connect()
        self.operator.report()

    def report(self) -> coordinator_pb2.ShardReport:
        self.reports += 1
        standing = shard_standing(self.site.core, self.site.now)
        facts = {"cycle": self.reports, "epoch": self.site.epoch, "advertise": f"{self.id}:1", "now": self.site.now}
        return report_message(standing, shard_id=self.id, **facts)  # type: ignore[arg-type]


class Fleet(coordinator_world.World):
    """One history."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.units: dict[str, dict[str, Unit]] = {"p": {}, "q": {}}
        self.names: dict[Name, None] = {}
        self.sold: list[Name] = []
        self.raw: dict[str, bytes] = {}
        for number in range(6):
            self.add("p", f"m{number}", number)
        for number in (0, 1):
            self.add("q", f"m{number}", number + 2)
        self.cores = {f"s{number}": Shard(self, f"s{number}") for number in range(3)}
        self.pass_time(1.0)

    def add(self, provider: str, id: str, number: int) -> None:
        rack, zone = f"r{number % 4}", f"z{number % 2}"
        state = MachineState.SPECULATIVE if number == 5 else MachineState.IDLE
        host = "" if number == 5 else f"host-{id}"
        self.units[provider][id] = Unit(id, state, shape_of(provider, zone=zone, labels={RACK: rack}), host)
        self.names[provider, id] = None

    # ---------------------------------------------------------------------------------------------------------- history

    def step(self) -> None:
        self.pass_time(self.random.choice((0.2, 0.5, 1.0, 2.0)))
        choice = self.random.random()
        if choice < 0.58:
            for shard in self.random.sample(list(self.cores.values()), 2):
                self.talk(shard, self.random.random())
        elif choice < 0.72:
            self.rebalance()
        elif choice < 0.76:
            self.submit_all(self.leader.housekeeping(self.now))
        elif choice < 0.82:
            self.admin()
        elif choice < 0.85:
            self.elect()
        elif choice < 0.87:
            self.random.choice(list(self.cores.values())).crash()
        elif choice < 0.91:
            self.swing()
        elif choice < 0.93:
            self.replace_core()
        else:
            self.change_machine()

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        for shard in self.cores.values():
            shard.site.run((self.now - shard.site.now) / SECOND)

    def swing(self) -> None:
        """Somebody needs more, or less."""
        shard = self.random.choice(list(self.cores.values()))
        wanted = self.random.randrange(0, 5)
        priority = self.random.choice((10, 500, 2000))
        shard.operator.send(*([cpu(shard.operator.cluster, wanted, priority=priority)] if wanted else []))

    def change_machine(self) -> None:
        """A machine appears, gets other labels, disappears, or comes back under its id somewhere else."""
        if len(self.names) < MOST_MACHINES and self.random.random() < 0.2:
            self.add(self.random.choice(list(self.units)), f"n{len(self.names)}", self.random.randrange(5))
            return
        rack, zone = f"r{self.random.randrange(4)}", f"z{self.random.randrange(2)}"
        if self.sold and self.random.random() < 0.5:
            provider, id = self.sold.pop()
            shape = shape_of(provider, zone=zone, labels={RACK: rack})
            self.units[provider][id] = Unit(id, MachineState.IDLE, shape, f"host-{id}")
            return
        provider = self.random.choice([each for each in self.units if self.units[each]])
        unit = self.random.choice(list(self.units[provider].values()))
        if self.random.random() < 0.7:
            unit.shape = replace(unit.shape, zone=zone, labels=((RACK, rack),))
        else:
            del self.units[provider][unit.id]
            self.sold.append((provider, unit.id))

    def replace_core(self) -> None:
        name = self.random.choice(list(self.cores))
        if name in self.leader.state.tables.shards and len(self.leader.state.tables.shards) > 1:
            epoch = self.cores.pop(name).site.epoch
            self.raw.pop(name, None)
            self.submit_all([do.RemoveShard(name)])
            self.cores[name] = Shard(self, name, epoch)

    def rebalance(self) -> None:
        planning = self.leader.planning(self.standings(), self.now)
        for _ in planning.steps():
            pass
        self.submit_all(self.leader.concluded(planning.plan, self.now))

    def standings(self) -> dict[int, Standing]:
        known = self.leader.state.tables.shards
        found = {name: coordinator_pb2.ShardReport.FromString(raw) for name, raw in self.raw.items() if name in known}
        return {known[name].generation: standing_of(message) for name, message in found.items()}

    # -------------------------------------------------------------------------------------------------------- the wires

    def talk(self, shard: Shard, luck: float) -> None:
        """A report and its answer; either may be lost or repeated, and the coordinator may die between two commits."""
        message = shard.report()
        raw = message.SerializeToString()
        if luck < 0.05:
            return
        body = self.heard(raw, report_of(message), luck)
        if body is None or luck < 0.25:
            return
        told = [ack.instruction_id for ack in message.instruction_acks]
        answer = answer_of(coordinator_pb2.ReportAck.FromString(body), told)
        shard.site.post(answer)
        self.check()
        if luck < 0.4:
            again = self.random.choice([answer, *shard.old_answers])
            shard.site.post(again)
        shard.old_answers = [*shard.old_answers[-3:], answer]

    def heard(self, raw: bytes, report: Report, luck: float) -> bytes | None:
        if not self.submit_all(self.leader.admit(report, self.now), luck):
            return None
        if report.shard not in self.leader.state.tables.shards:
            return None
        counts, commands = self.leader.hear(report, self.now)
        if counts:
            self.raw[report.shard] = raw
        if not self.submit_all(commands, luck):
            return None
        return Answers(self.leader).answer(report, counts, self.now)[0]

    # --------------------------------------------------------------------------------------------------------- checking

    def acts(self, site: Site, name: Name) -> None:
        """A call goes out: nobody else may think the machine is theirs."""
        others = [each.id for each in self.cores.values() if each.site is not site and each.owns(name)]
        assert not others, f"{site.config.id} acts on {name}, which is also {others}'s"

    def check(self) -> None:
        assert self.leader.state.validate() == []
        for name in self.names:
            owners = [shard.id for shard in self.cores.values() if shard.owns(name)]
            assert len(owners) <= 1, f"{name} has two owners: {owners}"

    def settle(self) -> None:
        """Everything that was begun ends; nothing new is."""
        for provider, id in self.sold:
            self.add(provider, id, 0)
        self.sold = []
        for shard in self.cores.values():
            shard.operator.send()
        for shard in self.cores.values():
            shard.site.core.validate()
        for _ in range(10):
            self.pass_time(5.0)
            for shard in self.cores.values():
                self.talk(shard, 1.0)
            self.submit_all(self.leader.housekeeping(self.now))
        self.now += 2 * self.policy.drain_within
        self.submit_all(self.leader.housekeeping(self.now))
        for _ in range(5):
            for shard in self.cores.values():
                self.talk(shard, 1.0)
        self.check()

    def check_settled(self) -> None:
        tables = self.leader.state.tables
        assert all(each.phase is not Phase.PROPOSED for each in tables.transfers.values())
        for provider, id in self.names:
            owners = [shard.id for shard in self.cores.values() if shard.owns((provider, id))]
            named = tables.holding(provider, id)
            expected = owners if named is None else [tables.generations[named.recipient].id]
            assert len(owners) == 1 and owners == expected, f"{provider}/{id} is {owners}'s, not {expected}'s"


def history(seed: int, steps: int = 50) -> Any:
    """One history to its end, checked on the way and at rest."""
    fleet = Fleet(seed)
    fleet.run(steps)
    fleet.settle()
    fleet.check_settled()
    return fleet
