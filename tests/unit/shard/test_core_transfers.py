"""Machines given away and drained for other shards: by kind and by name, called off, repeated, across restarts."""

from __future__ import annotations

from typing import Any

from bigfleet.model.names import INSTANCE_TYPE_LABEL
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.coordination import (
    Ack,
    AckOutcome,
    CoordinatorInstruction,
    DrainFor,
    LetGo,
    OwnershipTable,
    Phase,
    Selector,
    TableTransfer,
)
from tests.strategies.shard_world import S, World, cpu, test_config

ME = "shard-0"


def fleet(count: int = 3, **config: Any) -> World:
    world = World(test_config(with_coordinator=True, **config))
    world.provider.several(count, "m")
    return world


class Coordinator:
    """Says what a coordinator that keeps its contract says: a table that lists what it asks for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = 0
        self.transfers: dict[str, TableTransfer] = {}
        self.table()

    def table(self) -> None:
        self.version += 1
        transfers = tuple(self.transfers.values())
        self.world.told(table=OwnershipTable(1, self.version, ME, transfers=transfers))

    def propose(self, name: str, machines: tuple[str, ...] = (), provider: str = "p") -> None:
        self.transfers[name] = TableTransfer(name, Phase.PROPOSED, ME, "other", provider, machines)
        self.table()

    def released(self, name: str, machines: tuple[str, ...]) -> None:
        self.transfers[name] = TableTransfer(name, Phase.RELEASED, ME, "other", "p", machines)
        self.table()

    def call_off(self, name: str) -> None:
        del self.transfers[name]
        self.table()

    def ask(self, name: str, *machines: str, speculative: bool = False, **selector: Any) -> Ack:
        wanted = LetGo(name, machines, Selector(**selector), speculative)
        return self.world.told(instructions=(CoordinatorInstruction("i/" + name, 1, wanted),))["i/" + name]

    def drain(
        self,
        name: str,
        priority: int,
        *machines: str,
        bucket: int = 0,
        units: int = 0,
        missing: Resources = Resources.ZERO,
        **selector: Any,
    ) -> None:
        wanted = DrainFor(name, priority, bucket, machines, Selector(**selector), units, missing)
        self.world.told(instructions=(CoordinatorInstruction("d/" + name, 1, wanted),))

    def drained(self, name: str) -> tuple[str, ...]:
        return self.world.acks()["d/" + name].machines


def test_released_machines_are_given_up_and_the_answer_repeats_also_after_a_restart() -> None:
    world = fleet(4)
    coordinator = Coordinator(world)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    coordinator.propose("t")
    first = coordinator.ask("t", count=2)
    assert first.outcome is AckOutcome.ACCEPTED and first.machines == ("m3", "m2")
    assert coordinator.ask("t", count=2).machines == first.machines
    operator.send(cpu("c", 4))
    world.run(30)
    assert world.provider.configured("c") == ["m0", "m1"]
    world.crash()
    operator.connect()
    operator.report()
    world.run(30)
    assert coordinator.ask("t", count=2).machines == first.machines
    assert world.provider.configured("c") == ["m0", "m1"]
    coordinator.released("t", first.machines)
    world.crash()
    world.run(30)
    assert world.owned() == {"m0", "m1"}


def told(world: World, machine: str) -> list[str]:
    """What a person reads of whose a machine is."""
    lines = [line.text for line in world.core.state.stories.of(machine)]
    return [text for text in lines if "given up" in text or "this shard's" in text]


def test_the_story_of_a_machine_names_the_shard_it_went_to_and_the_one_it_came_from() -> None:
    world = fleet()
    world.provider.add("theirs", labels={"topology.bigfleet/rack": "r"})
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("1.7")
    (gone, *_) = coordinator.ask("1.7", count=1).machines
    assert told(world, gone)[-1] == "given up: to other, whose demand lacks machines (transfer 1.7)"
    coordinator.released("1.7", (gone,))
    assert len([line for line in told(world, gone) if "given up" in line]) == 1, "told once"
    coordinator.transfers["1.9"] = TableTransfer("1.9", Phase.RELEASED, "other", ME, "p", (gone,))
    del coordinator.transfers["1.7"]
    coordinator.table()
    assert told(world, gone)[-1] == "now this shard's: demand here lacked machines, and other gave it (transfer 1.9)"
    coordinator.propose("2.1")
    assert gone in coordinator.ask("2.1", gone).machines
    coordinator.call_off("2.1")
    assert told(world, gone)[-1] == "now this shard's again: its transfer was called off"
    domain = ("topology.bigfleet/rack", "r", "neighbour")
    world.told(table=OwnershipTable(1, coordinator.version + 1, ME, domains=(domain,)))
    assert told(world, "theirs")[-1] == "given up: neighbour's by the coordinator's table"


def test_a_released_transfer_that_is_called_off_gives_the_machines_back() -> None:
    world = fleet()
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("t")
    assert coordinator.ask("t", count=3).machines and not world.owned()
    world.crash()
    world.run(15)
    assert not world.owned()
    coordinator.call_off("t")
    assert world.owned() == {"m0", "m1", "m2"}
    world.crash()
    world.run(15)
    assert world.owned() == {"m0", "m1", "m2"}


def test_a_request_repeated_after_it_was_called_off_takes_nothing() -> None:
    world = fleet()
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("t")
    coordinator.ask("t", count=1)
    coordinator.call_off("t")
    late = coordinator.ask("t", count=1)
    assert late.outcome is AckOutcome.FAILED and not late.machines and len(world.owned()) == 3


def test_only_free_machines_that_match_and_hold_the_unit_are_given() -> None:
    world = fleet(2)
    world.provider.several(2, "s", S.SPECULATIVE)
    world.provider.add("big", size={"cpu": 64_000}, type="xl")
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("slots")
    coordinator.propose("large")
    coordinator.propose("typed")
    assert coordinator.ask("slots", speculative=True, count=9).machines == ("s1", "s0")
    assert coordinator.ask("large", count=9, min_unit=Resources.of(cpu=8000)).machines == ("big",)
    small = Requirement(INSTANCE_TYPE_LABEL, Operator.NOT_IN, ("xl",))
    assert coordinator.ask("typed", count=9, requirements=(small,)).machines == ("m1", "m0")


def test_machines_are_given_by_name_and_the_provider_counts() -> None:
    world = World(test_config(providers=("p", "q"), with_coordinator=True))
    for provider in world.providers.values():
        provider.add("m")
        provider.add("slot", S.SPECULATIVE)
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("t", ("m",), "q")
    assert coordinator.ask("t", "m", provider="q").machines == ("m",)
    coordinator.propose("u", ("slot",), "p")
    assert coordinator.ask("u", "slot", speculative=True, provider="p").machines == ("slot",)
    owned = {(record.provider, record.id) for record in world.core.state.fleet.all() if record.owned}
    assert owned == {("p", "m"), ("q", "slot")}


def test_an_id_two_providers_have_is_not_given_without_naming_one() -> None:
    world = World(test_config(providers=("p", "q"), with_coordinator=True))
    for provider in world.providers.values():
        provider.add("m")
    coordinator = Coordinator(world)
    world.run(5)
    coordinator.propose("t", ("m",), "")
    coordinator.propose("u", (), "")
    assert coordinator.ask("t", "m").machines == () == coordinator.ask("u", count=2).machines
    assert len(world.owned()) == 2


def test_a_paused_shard_gives_nothing_and_asks_to_be_asked_again() -> None:
    world = fleet()
    coordinator = Coordinator(world)
    world.run(5)
    world.post(ev.RailsSet(True, False, "test"))
    coordinator.propose("t")
    assert coordinator.ask("t", count=1).outcome is AckOutcome.FAILED
    coordinator.drain("d", 1000, count=1)
    assert world.acks()["d/d"].outcome is AckOutcome.FAILED


def filled(*priorities: int, **config: Any) -> tuple[World, Coordinator, Any]:
    world = fleet(len(priorities), **config)
    coordinator = Coordinator(world)
    operator = world.operator("c")
    operator.send(*(cpu("c", 1, priority=each) for each in priorities))
    world.run(30)
    assert len(world.provider.configured("c")) == len(priorities)
    return world, coordinator, operator


def bound_for(world: World, priority: int) -> str:
    (key,) = [key for key, each in world.core.state.fleet.machines.items() if each.stamp.priority == priority]
    return key


def test_a_drain_takes_the_lowest_priority_and_the_answer_repeats_also_after_a_restart() -> None:
    world, coordinator, operator = filled(10, 500, 2000)
    low = bound_for(world, 10)
    coordinator.drain("d", 1000, count=1)
    world.run(5)
    assert coordinator.drained("d") == (low,)
    (order,) = [each for each in operator.of(ev.ReclaimInstruction) if each.preemptor_priority == 1000]
    assert order.nodes == (low,)
    world.crash()
    world.run(60)
    coordinator.drain("d", 1000, count=1)
    assert coordinator.drained("d") == (low,)
    assert world.state_of(low) == S.IDLE


def test_drained_machines_stay_free_across_a_restart_until_they_are_asked_for_by_name() -> None:
    world, coordinator, operator = filled(10, 500)
    low = bound_for(world, 10)
    operator.evict_after = 10.0
    coordinator.drain("d", 1000, count=1)
    world.run(2)
    coordinator.propose("t", (low,))
    assert coordinator.ask("t", low).outcome is AckOutcome.FAILED, "it still drains"
    world.run(30)
    world.crash()
    operator.connect()
    operator.report()
    world.run(300)
    assert world.state_of(low) == S.IDLE, "its own demand would have it, and must leave it"
    assert not world.core.read.free_kinds(), "nor is it anybody else's to ask for"
    assert coordinator.ask("t", low).machines == (low,)
    assert low not in world.owned()


def test_drained_machines_are_used_again_when_their_transfer_is_called_off() -> None:
    world, coordinator, _ = filled(10, 500)
    low = bound_for(world, 10)
    coordinator.drain("d", 1000, count=1)
    world.run(2)
    coordinator.propose("t", (low,))
    world.run(60)
    assert world.state_of(low) == S.IDLE
    coordinator.call_off("t")
    world.run(20)
    assert world.state_of(low) == S.CONFIGURED


def test_drained_machines_nobody_proposes_to_move_are_used_again() -> None:
    world, coordinator, _ = filled(10, 500)
    low = bound_for(world, 10)
    coordinator.drain("d", 1000, count=1)
    world.run(60)
    assert world.state_of(low) == S.IDLE
    world.run(900)
    assert world.state_of(low) == S.CONFIGURED


def test_no_more_is_drained_than_the_missing_units_or_sum_need() -> None:
    """The coordinator asks for up to sixteen, because it does not know that each of these holds four units."""
    for wanted, machines in (
        ({"units": 1}, 1),
        ({"units": 4}, 1),
        ({"units": 5}, 2),
        ({"missing": Resources.of(cpu=4000)}, 1),
        ({"missing": Resources.of(cpu=4001)}, 2),
        ({"missing": Resources.of(cpu=99_000)}, 3),
        ({}, 3),
    ):
        world, coordinator, _ = filled(10, 10, 10)
        (size,) = {each.shape.allocatable.get("cpu") for each in world.core.state.fleet.all()}
        assert size == 4000
        unit = {"min_unit": Resources.of(cpu=1000)} if "units" in wanted else {}
        coordinator.drain("d", 1000, count=16, **wanted, **unit)  # type: ignore[arg-type]
        world.run(5)
        assert len(coordinator.drained("d")) == machines, wanted


def test_a_drain_spares_higher_priorities_and_other_kinds() -> None:
    world, coordinator, _ = filled(500, 600)
    coordinator.drain("high", 500, count=2)
    coordinator.drain("elsewhere", 1000, count=2, zone="b")
    coordinator.drain("other-provider", 1000, count=2, provider="q")
    named = bound_for(world, 600)
    coordinator.drain("named", 1000, named, "unknown")
    world.run(5)
    answers = [world.acks()["d/" + name].machines for name in ("high", "elsewhere", "other-provider", "named")]
    assert answers == [(), (), (), (named,)]


def test_victims_are_judged_by_who_uses_them_now_not_by_whom_they_were_bound_for() -> None:
    """The machine was bound for a need of priority 10 that is gone; one of priority 900 lives on it since."""
    world, coordinator, operator = filled(10, 500)
    stale, other = bound_for(world, 10), bound_for(world, 500)
    operator.send(cpu("c", 1, priority=900), cpu("c", 1, priority=500))
    world.run(15)
    assert world.core.state.fleet.machines[stale].stamp.priority == 10, "nothing was rebound"
    held = {each.key.fingerprint.split("|")[0]: each.claimed for each in world.results[-1].verdicts.rows()}
    assert held == {"p=900": 1, "p=500": 1}
    coordinator.drain("d", 800, count=2)
    world.run(5)
    assert len(coordinator.drained("d")) == 1, "only one of them serves less than priority 800"
    assert coordinator.drained("d")[0] in (stale, other)


def test_engine_and_oracle_rank_the_same_victims() -> None:
    answers = []
    for oracle in (True, False):
        world = World(test_config(with_coordinator=True), oracle=oracle)
        world.provider.several(6, "m")
        coordinator = Coordinator(world)
        operator = world.operator("c")
        operator.send(*(cpu("c", 2, priority=each) for each in (10, 300, 700)))
        world.run(30)
        operator.send(cpu("c", 2, priority=900), cpu("c", 2, priority=300), cpu("c", 2, priority=700))
        world.run(15)
        coordinator.drain("d", 800, count=3)
        world.run(5)
        answers.append(coordinator.drained("d"))
    assert answers[0] == answers[1] and len(answers[0]) == 3


def test_a_node_whose_pods_matter_more_is_not_drained() -> None:
    world, coordinator, operator = filled(10)
    machine = bound_for(world, 10)
    world.post(ev.NodeReported(operator.session, machine, "node", True, False, 5000))
    coordinator.drain("d", 1000, count=1)
    world.run(5)
    assert coordinator.drained("d") == ()


def test_a_report_names_transfers_that_its_shortfalls_do_not_count_yet() -> None:
    world = fleet(1)
    world.told(table=OwnershipTable(1, 1, "other"))
    world.operator("c").send(cpu("c", 1))
    world.run(20)
    assert world.core.published.shortfalls and not world.core.read.arriving()
    sent = TableTransfer("t", Phase.RELEASED, "other", ME, "p", ("m0",))
    world.told(table=OwnershipTable(1, 2, "other", transfers=(sent,)))
    assert world.core.published.shortfalls and world.core.read.arriving() == ("t",)
    world.run(20)
    assert not world.core.published.shortfalls and not world.core.read.arriving()


def test_a_machine_that_its_donor_had_in_use_is_read_at_once_when_it_arrives() -> None:
    world = fleet(1, reconcile_interval=3600 * 10**9)
    world.told(table=OwnershipTable(1, 1, "other"))
    world.provider.units["m0"].state, world.provider.units["m0"].cluster = S.CONFIGURED, "elsewhere"
    world.run(5)
    world.provider.units["m0"].state, world.provider.units["m0"].cluster = S.IDLE, ""
    world.operator("c").send(cpu("c", 1))
    sent = TableTransfer("t", Phase.RELEASED, "other", ME, "p", ("m0",))
    world.told(table=OwnershipTable(1, 2, "other", transfers=(sent,)))
    world.run(20)
    assert world.provider.configured("c") == ["m0"]


def test_machines_of_a_consolidation_move_are_nobodys_to_give() -> None:
    world = fleet(3)
    coordinator = Coordinator(world)
    world.run(5)
    moves = world.core.consolidation.moves
    moves.begin("c", ("m0",), "m2", 0.5)
    assert sum(world.core.read.free_kinds().values()) == 1
    coordinator.propose("t")
    assert coordinator.ask("t", count=3).machines == ("m1",)
