"""Lists that are wrong: nothing that runs is disowned, nothing is bought again, and true losses are still noticed."""

from __future__ import annotations

from collections import deque

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.core.machines.suspicions import SAMPLE, STALE_LISTS
from tests.strategies.shard_world import S, Unit, World, cpu, test_config

SECOND = 10**9


class Replica:
    """A cloud whose List is read from a copy that is so many seconds old; Get and acks are true."""

    def __init__(self, world: World, seconds: float) -> None:
        self.provider = world.provider
        self._world = world
        self._lag = round(seconds * SECOND)
        self._copies: deque[tuple[int, tuple[ev.ListedMachine, ...]]] = deque()
        self._copy()
        world.provider.list = self._list  # type: ignore[method-assign]

    def _copy(self) -> None:
        self._copies.append((self._world.now, tuple(unit.record() for unit in self.provider.units.values())))
        self._world.after(0.25, self._copy)

    def _list(self, wanted: ev.StartList) -> None:
        while len(self._copies) > 1 and self._copies[1][0] <= self._world.now - self._lag:
            self._copies.popleft()
        arrived = ev.ListArrived("p", self._world.now, wanted.full, True, self._copies[0][1])
        self._world.after(0.05, lambda: self._world.post(arrived))


def creates(world: World, provider: str = "p") -> int:
    counts = world.providers[provider].counts
    return sum(count for (kind, _), count in counts.items() if kind == CallKind.CREATE)


def taken(world: World) -> list[str]:
    """Machines the cluster was told are no longer its own."""
    told = world.operators["c"].of(ev.NodeState)
    return sorted({frame.machine for frame in told if frame.state not in (S.CONFIGURING, S.CONFIGURED)})


def running(machines: int, slots: int = 40, **settings: object) -> World:
    world = World(test_config(**settings))
    for provider, price in zip(world.providers.values(), (1.0, 4.0), strict=False):
        provider.several(slots, f"{provider.name}-", S.SPECULATIVE, price=price)
    world.operator("c").send(cpu("c", machines))
    world.run(30)
    assert len(world.provider.configured("c")) == machines
    return world


@pytest.mark.parametrize("lag", [2.0, 8.0, 12.0, 40.0])
@pytest.mark.parametrize(("interval", "poll"), [(3, 1), (10, 1), (10, 0)])
@pytest.mark.parametrize("work", [0.0, 3.0])
def test_a_list_that_lags_buys_nothing_twice_and_loses_no_node(
    lag: float, interval: int, poll: int, work: float
) -> None:
    settings = {"reconcile_interval": interval * SECOND, "transition_poll_interval": poll * SECOND}
    world = World(test_config(**settings))
    world.provider.several(6, "cheap", S.SPECULATIVE)
    world.provider.several(12, "dear", S.SPECULATIVE, price=3.0)
    world.provider.work[CallKind.CREATE] = world.provider.work[CallKind.CONFIGURE] = work
    Replica(world, lag)
    world.operator("c").send(cpu("c", 4))
    world.run(150)
    assert len(world.provider.configured("c")) == 4
    assert creates(world) == 4 and not taken(world)
    assert [call.kind for call in world.provider.calls].count(CallKind.CREATE) == 4
    assert world.outcomes("Provision") == {"success": 4}
    assert len(world.provider.reads) < 40 + SAMPLE * 150 // interval


@pytest.mark.parametrize("seconds", [14.0, 300.0])
def test_an_empty_list_takes_nothing_while_get_finds_the_machines(seconds: float) -> None:
    """Neither the nodes, nor the slots they are bought from: what is asked for meanwhile comes from the cheap one."""
    world = running(20, providers=("p", "q"))
    true, reads = world.provider.list, len(world.provider.reads)
    lists = world.provider.lists

    def empty(wanted: ev.StartList) -> None:
        world.provider.lists += 1
        arrived = ev.ListArrived("p", world.now, wanted.full, True)
        world.after(0.05, lambda: world.post(arrived))

    world.provider.list = empty  # type: ignore[method-assign]
    world.run(seconds)
    assert not taken(world) and not creates(world, "q")
    assert len(world.provider.reads) - reads <= SAMPLE * (world.provider.lists - lists)
    assert world.count(STALE_LISTS, "p") >= 1 and world.messages("a List is stale")
    world.operators["c"].send(cpu("c", 22))
    world.run(10)
    assert len(world.provider.configured("c")) == 22
    world.provider.list = true  # type: ignore[method-assign]
    world.run(60)
    assert not taken(world) and not creates(world, "q") and creates(world) == 22
    assert len(world.core.state.fleet.machines) == 80
    reads = len(world.provider.reads)
    world.run(60)
    assert len(world.provider.reads) == reads, "nobody is suspected any more"


@pytest.mark.parametrize("how", ["gone", "slots"])
def test_a_zone_that_is_truly_lost_is_noticed_at_once_with_few_gets(how: str) -> None:
    world = World()
    world.validates = False
    for index in range(2000):
        world.provider.add(f"z{index}", S.CONFIGURED, cluster="c")
    world.operator("c").send(cpu("c", 2000))
    world.run(12)
    assert len(world.core.state.fleet.of_cluster("c")) == 2000
    reads = len(world.provider.reads)
    for index in range(2000):
        if how == "gone":
            del world.provider.units[f"z{index}"]
        else:
            world.provider.lose_host(f"z{index}")
    # One List, for a large loss a second one five seconds later, and a Get.
    world.run(10.2 + (5.2 if how == "gone" else 0.2))
    assert len(taken(world)) == 2000
    assert len(world.provider.reads) - reads <= SAMPLE


def test_one_machine_that_get_finds_keeps_the_others_and_those_that_are_gone_go() -> None:
    world = running(8)
    bound = world.provider.configured("c")
    hidden = {*bound[:4]}
    truth = dict(world.provider.units)

    def partly(wanted: ev.StartList) -> None:
        records = tuple(unit.record() for unit in truth.values() if unit.id not in hidden)
        arrived = ev.ListArrived("p", world.now, wanted.full, True, records)
        world.after(0.05, lambda: world.post(arrived))

    world.provider.list = partly  # type: ignore[method-assign]
    del world.provider.units[bound[0]], truth[bound[0]]
    world.run(40)
    assert taken(world) == [bound[0]]
    assert len(world.provider.configured("c")) == 8 and creates(world) == 9


def test_while_get_does_not_answer_nothing_is_lost_for_the_visibility_window() -> None:
    world = running(4, visibility_window=60 * SECOND)
    world.provider.hide |= set(world.provider.units)
    world.provider.read_fails = "unavailable"
    world.run(55)
    assert not taken(world) and creates(world) == 4
    world.run(40)
    assert len(taken(world)) == 4


def test_a_slot_as_it_was_before_the_purchase_is_one_that_is_not_visible_yet() -> None:
    """List and Get both show the slot for a while after Create was acknowledged."""
    world = World()
    world.provider.several(20, "s", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 5.0
    since: dict[str, int] = {}
    honest = Unit.record

    def record(unit: Unit) -> ev.ListedMachine:
        told = honest(unit)
        if unit.state != S.SPECULATIVE and world.now < since.setdefault(unit.id, world.now) + 60 * SECOND:
            return ev.ListedMachine(told.id, S.SPECULATIVE, told.shape)
        return told

    provider, answer = world.provider, world.provider._answer

    def acknowledged(call: ev.CallProvider) -> ev.Event:
        result = answer(call)
        unit = provider.units[call.machine]
        if isinstance(result, ev.CallDone):
            since.setdefault(unit.id, world.now)
            return ev.CallDone(call.op, honest(unit))
        return result

    provider._answer = acknowledged  # type: ignore[method-assign]
    for unit in provider.units.values():
        unit.record = lambda unit=unit: record(unit)  # type: ignore[method-assign,misc]
    world.operator("c").send(cpu("c", 3))
    world.run(130)
    assert len(provider.configured("c")) == 3
    assert [call.kind for call in provider.calls].count(CallKind.CREATE) == 3


def test_a_machine_that_comes_back_is_told_in_its_story() -> None:
    world = running(1)
    [machine] = world.provider.configured("c")
    world.provider.hide.add(machine)
    world.run(20)
    assert world.state_of(machine) is None
    world.provider.hide.clear()
    world.run(20)
    lines = [line.text for line in world.core.read.story(machine)]
    assert "gone → Configured of c: seen again at the provider" in lines
    assert lines.index("gone → Configured of c: seen again at the provider") > next(
        index for index, line in enumerate(lines) if "→ gone" in line
    )


def test_a_purchase_that_took_too_long_heals_although_its_window_is_not_over() -> None:
    """Acknowledged, undone before anybody saw it, and called failed: the slot is a slot again at once."""
    world = World(test_config(create_timeout=20 * SECOND, transition_poll_interval=0))
    world.provider.add("s0", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 600.0
    world.operator("c").send(cpu("c", 1))
    world.run(1.5)
    assert world.state_of("s0") == S.CREATING
    world.provider.lose_host("s0")
    world.operators["c"].send()
    world.run(60)
    assert world.state_of("s0") == S.SPECULATIVE
