"""Providers that have nothing left, in whatever words they say it: the next best is bought, and people are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import S, World, cpu, test_config

SOLD_OUT = (ev.Failure.SOLD_OUT, "no m left in a")
EXHAUSTED = (ev.Failure.EXHAUSTED, "InsufficientInstanceCapacity")
BUSY = (ev.Failure.BUSY, "no capacity")
THROTTLED = (ev.Failure.THROTTLED, "rate exceeded")
Answer = tuple[ev.Failure, str]


def selling(answer: Answer, *sold_out: str, **settings: object) -> World:
    """Cheap, middling and dear slots; purchases of those named are refused with the answer."""
    world = World(test_config(**settings))
    for price, name in ((1.0, "cheap"), (2.0, "middling"), (9.0, "dear")):
        world.provider.several(20, name, S.SPECULATIVE, type=name, price=price)
    world.provider.refuse = refusing(answer, *sold_out)
    return world


def refusing(answer: Answer, *names: str) -> Callable[[ev.CallProvider], Answer | None]:
    return lambda call: answer if call.kind == CallKind.CREATE and call.machine.startswith(names) else None


def creates(world: World, name: str) -> int:
    return sum(call.kind == CallKind.CREATE and call.machine.startswith(name) for call in world.provider.calls)


@pytest.mark.parametrize("answer", [SOLD_OUT, EXHAUSTED, BUSY])
def test_the_next_best_class_is_bought_within_one_cycle(answer: Answer) -> None:
    world = selling(answer, "cheap")
    world.operator("c").send(cpu("c", 4))
    world.run(12)
    assert len(world.provider.configured("c")) == 4
    assert {machine.rstrip("0123456789") for machine in world.provider.configured("c")} == {"middling"}
    assert creates(world, "cheap") <= 8
    assert [shape.instance_type for shape, _ in world.core.published.sold_out] == ["cheap"]
    assert world.outcomes("Provision")["sold_out"] == 4
    assert world.state_of("cheap0") == S.SPECULATIVE


def test_classes_that_are_sold_out_one_after_another_are_found_one_after_another() -> None:
    world = selling(EXHAUSTED, "cheap", "middling")
    world.operator("c").send(cpu("c", 4))
    world.run(15)
    assert {machine.rstrip("0123456789") for machine in world.provider.configured("c")} == {"dear"}


def test_one_refusal_that_passes_is_no_stock_out() -> None:
    world = World()
    world.provider.several(4, "s", S.SPECULATIVE)
    left = [2]

    def refuse(call: ev.CallProvider) -> Answer | None:
        left[0] -= 1
        return EXHAUSTED if left[0] >= 0 else None

    world.provider.refuse = refuse
    world.operator("c").send(cpu("c", 1))
    world.run(20)
    assert len(world.provider.configured("c")) == 1
    assert not world.core.published.breakers and not world.core.published.sold_out


def test_refusals_of_two_classes_at_once_are_a_limit_on_calls() -> None:
    """Two needs, each for its own class, both refused: nobody is called sold out, and calls become few."""
    world = selling(EXHAUSTED, "cheap", "dear", breaker_delay=1, breaker_delay_max=1)
    world.operator("c").send(
        cpu("c", 4, types=["cheap"]),
        cpu("c", 4, types=["dear"]),
    )
    world.run(6)
    assert not world.core.published.sold_out
    burst = len(world.provider.calls)
    world.run(20)
    assert len(world.provider.calls) - burst < 20
    world.provider.refuse = lambda call: None
    world.run(120)
    assert len(world.provider.configured("c")) == 8


def test_a_provider_that_limits_calls_is_asked_slowly_and_everything_arrives() -> None:
    world = World()
    world.provider.several(30, "s", S.SPECULATIVE)
    allowed = [0]

    def refuse(call: ev.CallProvider) -> Answer | None:
        if call.kind != CallKind.CREATE:
            return None
        allowed[0] += 1
        return None if allowed[0] % 3 == 0 else THROTTLED

    world.provider.refuse = refuse
    world.operator("c").send(cpu("c", 30))
    world.run(900)
    assert len(world.provider.configured("c")) == 30
    assert "sold_out" not in world.outcomes()
    assert not world.core.published.breakers


def test_a_provider_where_nothing_works_is_away_and_not_sold_out() -> None:
    world = selling(BUSY, "cheap")
    world.run(1)
    world.provider.list_fails = world.provider.read_fails = "unavailable"
    world.provider.refuse = lambda call: BUSY
    world.operator("c").send(cpu("c", 4))
    world.run(60)
    assert not world.core.published.sold_out
    assert creates(world, "dear") == 0


def test_what_was_sold_out_is_bought_again_once_there_is_some() -> None:
    world = selling(SOLD_OUT, "cheap", "middling", "dear")
    world.operator("c").send(cpu("c", 2))
    world.run(30)
    assert not world.provider.configured("c") and len(world.core.published.sold_out) == 3
    world.provider.refuse = lambda call: None
    world.run(120)
    assert len(world.provider.configured("c")) == 2
    assert len(world.core.published.sold_out) < 3
