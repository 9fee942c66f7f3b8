"""Clouds whose reads lag behind their writes: a machine that was bought and is not shown yet is not bought again."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import S, World, cpu, test_config

SECOND = 10**9


class LaggingCloud:
    """Hides every machine from List, Get and further calls for so long after its Create was acknowledged."""

    def __init__(self, world: World, seconds: float) -> None:
        self.provider = world.provider
        self._world = world
        self._seconds = seconds
        self.provider.drop_answers = self._acknowledged
        self.provider.refuse = self._refuse

    @property
    def creates(self) -> int:
        return sum(count for (kind, _), count in self.provider.counts.items() if kind == CallKind.CREATE)

    def _acknowledged(self, call: ev.CallProvider) -> bool:
        if call.kind == CallKind.CREATE and self.provider.units[call.machine].state in (S.CREATING, S.IDLE):
            self.provider.hide.add(call.machine)
            self._world.after(self._seconds, lambda: self.provider.hide.discard(call.machine))
        return False

    def _refuse(self, call: ev.CallProvider) -> tuple[ev.Failure, str] | None:
        return (ev.Failure.NOT_FOUND, "unknown") if call.machine in self.provider.hide else None


def lagging(seconds: float, *, work: float = 5.0, slots: int = 60, **settings: object) -> tuple[World, LaggingCloud]:
    world = World(test_config(**settings))
    world.provider.several(slots, "s", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = work
    return world, LaggingCloud(world, seconds)


@pytest.mark.parametrize("work", [0.0, 5.0, 40.0])
@pytest.mark.parametrize("hidden", [12.0, 90.0])
def test_a_machine_that_is_not_visible_yet_is_not_bought_again(hidden: float, work: float) -> None:
    world, cloud = lagging(hidden, work=work)
    world.operator("c").send(cpu("c", 4))
    world.run(hidden + work + 60)
    assert cloud.creates == 4
    assert len(world.provider.configured("c")) == 4
    assert world.outcomes("Provision") == {"success": 4}


def test_after_the_first_sighting_absence_is_loss_at_once() -> None:
    world, cloud = lagging(12.0, work=60.0)
    world.operator("c").send(cpu("c", 1))
    world.run(30)
    bought = next(call.machine for call in world.provider.calls)
    assert world.state_of(bought) == S.CREATING
    del world.provider.units[bought]
    world.run(25)
    assert world.state_of(bought) is None
    assert cloud.creates == 2


def test_a_window_that_ends_unseen_is_a_failure_with_breaker_rest_and_shortfall() -> None:
    world, cloud = lagging(10**6, slots=2, visibility_window=60 * SECOND)
    world.operator("c").send(cpu("c", 1))
    world.run(59)
    assert cloud.creates == 1
    world.run(5)
    first = next(call.machine for call in world.provider.calls)
    assert world.state_of(first) is None
    assert [breaker.instance_type for breaker in world.core.published.breakers] == ["m"]
    assert world.outcomes("Provision")["provider_error"] == 1
    assert [short.fingerprint for short in world.core.published.shortfalls]
    # Shown again as a slot, it rests.
    world.provider.units[first].state = S.SPECULATIVE
    world.provider.units[first].host = ""
    world.provider.hide.discard(first)
    world.core.handle(ev.ListArrived("p", world.now, True, False, (world.provider.units[first].record(),)), world.now)
    view = world.core.read.machine(first)
    assert view is not None and view.not_before > world.now


def test_a_late_arrival_is_adopted() -> None:
    world, cloud = lagging(75.0, slots=1, visibility_window=60 * SECOND)
    world.operator("c").send(cpu("c", 1))
    world.run(70)
    assert world.state_of("s0") is None
    world.run(60)
    assert world.provider.configured("c") == ["s0"]
    assert cloud.creates == 1


def test_a_create_that_is_answered_with_not_found_rests() -> None:
    world = World()
    world.provider.several(50, "s", S.SPECULATIVE)
    world.provider.refuse = lambda call: (ev.Failure.NOT_FOUND, "unknown") if call.kind == CallKind.CREATE else None
    world.operator("c").send(cpu("c", 1))
    world.run(300)
    asked = [call.machine for call in world.provider.calls if call.kind == CallKind.CREATE]
    assert 1 <= len(asked) <= 6


@pytest.mark.parametrize("moment", [0.2, 3.0, 20.0])
def test_a_restart_meanwhile_does_not_buy_it_again(moment: float) -> None:
    world, cloud = lagging(45.0)
    operator = world.operator("c")
    operator.send(cpu("c", 4))
    world.run(1 + moment)
    assert cloud.creates == 4
    world.crash()
    operator.connect()
    operator.report()
    world.run(120)
    assert cloud.creates == 4
    assert len(world.provider.configured("c")) == 4
