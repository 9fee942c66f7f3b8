"""Providers that limit calls without saying so, and providers that answer slowly: pods run soon, and nothing dearer is
bought, for few calls in vain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from bigfleet.cli import words
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.service import need_of
from tests.strategies.builders import SECOND
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, test_config

REFUSED = (ev.Failure.EXHAUSTED, "Rate exceeded")
Answer = tuple[ev.Failure, str]


class Bucket:
    """A token bucket for all calls that change something; refuses with a bare RESOURCE_EXHAUSTED."""

    def __init__(self, world: World, per_second: float, burst: float) -> None:
        self.world, self.rate, self.burst = world, per_second, burst
        self.tokens, self.at = burst, world.now
        self.taken: Counter[CallKind] = Counter()
        self.refused = 0

    def __call__(self, call: ev.CallProvider) -> Answer | None:
        now = self.world.now
        self.tokens = min(self.burst, self.tokens + (now - self.at) / SECOND * self.rate)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            self.taken[call.kind] += 1
            return None
        self.refused += 1
        return REFUSED


def two_kinds(**settings: object) -> World:
    """Eighty cheap slots and eighty that cost three times as much; a host takes two seconds to come."""
    world = World(test_config(**settings))
    world.provider.several(80, "cheap", S.SPECULATIVE, type="cheap", price=1.0)
    world.provider.several(80, "dear", S.SPECULATIVE, type="dear", price=3.0)
    world.provider.work[CallKind.CREATE] = world.provider.work[CallKind.CONFIGURE] = 2.0
    return world


def dear(world: World) -> int:
    return sum(kind == CallKind.CREATE and machine.startswith("dear") for kind, machine in world.provider.counts)


@pytest.mark.parametrize(("rate", "seconds"), [(0.5, 240), (1, 130), (4, 45), (30, 20)])
def test_a_bucket_without_words_is_used_well_and_nothing_dearer_is_bought(rate: float, seconds: float) -> None:
    """Forty pods take eighty calls; a bucket that is never idle would need 80 / rate seconds."""
    world = two_kinds()
    bucket = world.provider.refuse = Bucket(world, rate, 2 * rate)
    world.operator("c").send(cpu("c", 40))
    world.run(seconds)
    assert len(world.provider.configured("c")) == 40
    assert dear(world) == 0
    assert "sold_out" not in world.outcomes() and not world.core.published.breakers
    assert bucket.refused <= 4 * sum(bucket.taken.values())


@pytest.mark.parametrize("work", [0.0, 0.2, 5.0, 40.0])
@pytest.mark.parametrize("burst", [1, 2, 10])
def test_a_wave_of_refusals_is_one_refusal_however_many_calls_it_has(work: float, burst: int) -> None:
    """All that was asked at once says less than what is asked one by one."""
    world = two_kinds(cycle_interval=SECOND // 2)
    world.provider.work[CallKind.CREATE] = world.provider.work[CallKind.CONFIGURE] = work
    world.provider.refuse = Bucket(world, 1, burst)
    world.operator("c").send(cpu("c", 20))
    world.run(60 + 2 * work)
    assert len(world.provider.configured("c")) == 20 and dear(world) == 0


def test_what_was_bought_is_bound_before_more_is_bought() -> None:
    world = two_kinds()
    world.provider.refuse = Bucket(world, 0.5, 1)
    world.operator("c").send(cpu("c", 40))
    paid = []
    for _ in range(60):
        world.run(2)
        paid.append(sum(unit.state == S.IDLE for unit in world.provider.units.values()))
    assert len(world.provider.configured("c")) >= 20
    assert max(paid) <= 4, "machines that are paid for wait while others are bought"


def test_refusals_by_chance_do_not_stop_anything() -> None:
    """Seven calls of ten are refused, however slowly they come."""
    dice = random.Random(3)
    world = two_kinds(idle_hold_on_demand=10 * SECOND)
    world.provider.refuse = lambda call: REFUSED if dice.random() < 0.7 else None
    operator = world.operator("c")
    operator.send(cpu("c", 40))
    world.run(240)
    assert len(world.provider.configured("c")) == 40
    assert not world.core.published.sold_out
    operator.send()
    world.run(420)
    assert set(world.provider.states()) == {S.SPECULATIVE}, "what nobody needs is given back"


def test_a_kind_that_is_sold_out_is_found_although_the_provider_limits_calls() -> None:
    world = two_kinds()
    bucket = Bucket(world, 2, 4)
    empty: list[str] = []
    world.provider.refuse = lambda call: (
        REFUSED if call.kind == CallKind.CREATE and call.machine.startswith(tuple(empty) or ("-",)) else bucket(call)
    )
    operator = world.operator("c")
    operator.send(cpu("c", 20))
    world.run(60)
    assert len(world.provider.configured("c")) == 20 and dear(world) == 0
    empty.append("cheap")
    operator.send(cpu("c", 24, types=["cheap", "dear"]), cpu("c", 10, types=["dear"]))
    world.run(240)
    assert len(world.provider.configured("c")) == 34


def test_what_is_sold_out_after_a_limit_was_felt_is_found_although_nothing_else_is_asked() -> None:
    world = two_kinds()
    bucket = world.provider.refuse = Bucket(world, 2, 4)
    operator = world.operator("c")
    operator.send(cpu("c", 20))
    world.run(60)
    assert bucket.refused and len(world.provider.configured("c")) == 20
    world.provider.refuse = lambda call: (
        REFUSED if call.kind == CallKind.CREATE and call.machine.startswith("cheap") else None
    )
    operator.send(cpu("c", 24))
    world.run(240)
    assert len(world.provider.configured("c")) == 24 and dear(world) == 4


def test_the_last_ones_of_a_kind_and_then_none_is_a_stock_out_within_a_minute() -> None:
    world = two_kinds()
    left = [8]

    def refuse(call: ev.CallProvider) -> Answer | None:
        if call.kind != CallKind.CREATE or call.machine.startswith("dear"):
            return None
        left[0] -= 1
        return REFUSED if left[0] < 0 else None

    world.provider.refuse = refuse
    world.operator("c").send(cpu("c", 20))
    world.run(60)
    assert len(world.provider.configured("c")) == 20 and dear(world) == 12


def test_a_machine_whose_binding_is_always_refused_does_not_keep_out_the_others() -> None:
    world = two_kinds()
    world.provider.several(12, "idle", type="cheap", price=1.0)
    world.provider.refuse = lambda call: REFUSED if call.machine.startswith("idle") else None
    world.operator("c").send(cpu("c", 20))
    world.run(120)
    assert len(world.provider.configured("c")) >= 8


def test_a_refused_get_proves_a_limit() -> None:
    world = two_kinds()
    world.run(1)
    world.provider.refuse = lambda call: REFUSED if call.kind == CallKind.CREATE else None
    world.operator("c").send(cpu("c", 4))
    world.post(ev.ReadFailed("p", "cheap0", "Rate exceeded", limited=True))
    world.run(30)
    assert not world.core.published.sold_out and dear(world) == 0


def test_people_are_told_that_a_provider_limits_calls_and_when_that_is_over() -> None:
    world = two_kinds()
    world.provider.refuse = Bucket(world, 0.5, 1)
    cluster = PlacingOperator(world, "c")
    cluster.start(40, 3)
    world.run(60)
    assert "limits calls" in world.core.published.limiting["p"]
    assert world.messages("a provider limits calls")
    (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == "c"]
    assert "provider p: it limits calls" in words.why(need_of(world.core, verdict))
    waiting = [op.machine.key for op in world.core.read.operations() if op.attempts]
    assert waiting and all("limits calls" in str(world.core.read.story(key)) for key in waiting)
    world.provider.refuse = lambda call: None
    world.run(180)
    assert not cluster.waiting
    assert not world.core.published.limiting


# ------------------------------------------------------------------------------------------------------- slow answers


def slow(seconds: float, *kinds: CallKind) -> tuple[World, Callable[[], int]]:
    """Calls of these kinds are applied at once and answered so much later."""
    world = World(test_config(idle_hold_on_demand=5 * SECOND))
    world.provider.several(30, "s", S.SPECULATIVE)
    answers: list[ev.Event] = []
    world.provider.drop_answers = lambda call: call.kind in kinds
    answer = world.provider._answer

    def later(call: ev.CallProvider) -> ev.Event:
        event = answer(call)
        if call.kind in kinds:
            world.after(seconds, lambda: world.post(event, epoch=call.fence.epoch))
            answers.append(event)
        return event

    world.provider._answer = later  # type: ignore[method-assign]
    return world, lambda: len(answers)


def test_what_get_shows_is_done_however_slow_the_answer_is() -> None:
    world, answers = slow(50, CallKind.CREATE, CallKind.CONFIGURE)
    world.operator("c").send(cpu("c", 10))
    world.run(20)
    assert len(world.provider.configured("c")) == 10
    world.run(100)
    assert answers() == 20, "every call went out once"
    assert world.outcomes("Provision") == {"success": 10}


def test_giving_back_does_not_wait_for_slow_answers_either() -> None:
    world, _ = slow(50, CallKind.DRAIN, CallKind.DELETE)
    operator = world.operator("c")
    operator.send(cpu("c", 10))
    world.run(20)
    assert len(world.provider.configured("c")) == 10
    operator.send()
    world.run(40)
    assert set(world.provider.states()) == {S.SPECULATIVE}


def test_calls_applied_after_their_deadline_do_not_make_the_rest_wait_one_by_one() -> None:
    """Nobody answers, and the provider is at work 40 s after it was asked."""
    world = World(test_config())
    world.provider.several(30, "s", S.SPECULATIVE)
    execute = world.provider._execute
    world.provider.drop_answers = lambda call: True
    world.provider._execute = lambda call: world.after(40, lambda: execute(call))  # type: ignore[method-assign]
    world.operator("c").send(cpu("c", 12))
    world.run(180)
    assert len(world.provider.configured("c")) == 12


def test_a_get_from_before_the_call_says_nothing_about_it() -> None:
    world, _ = slow(50, CallKind.CREATE)
    world.operator("c").send(cpu("c", 1))
    world.run(1.5)
    call = world.provider.calls[0]
    assert world.state_of(call.machine) == S.CREATING
    old = world.provider.units[call.machine].record()
    world.post(ev.MachineRead("p", call.machine, world.now - 60 * SECOND, old))
    assert world.state_of(call.machine) == S.CREATING
