"""A provider that cannot be reached: what was never sent to it is bought elsewhere, and it is used again when back."""

from __future__ import annotations

import pytest

from bigfleet.cli import words
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.service import need_of
from tests.strategies.shard_world import S, World, cpu, test_config

REFUSED = (ev.Failure.UNREACHED, "failed to connect to all addresses")
SILENT = (ev.Failure.DEADLINE, "no answer")


def two(**settings: object) -> World:
    """Two machines run on the cheap provider p; q is dearer."""
    world = World(test_config(providers=("p", "q"), **settings))
    for name, price in (("p", 1.0), ("q", 3.0)):
        world.providers[name].several(10, f"{name}-", S.SPECULATIVE, price=price)
    world.operator("c").send(cpu("c", 2))
    world.run(20)
    assert len(world.providers["p"].configured("c")) == 2
    return world


def cut(world: World, answer: tuple[ev.Failure, str] = REFUSED) -> None:
    p = world.providers["p"]
    p.refuse, p.list_fails, p.read_fails = (lambda call: answer), answer[1], answer[1]


def mend(world: World) -> None:
    p = world.providers["p"]
    p.refuse, p.list_fails, p.read_fails = (lambda call: None), "", ""


def bought(world: World, name: str) -> int:
    return sum(count for (kind, _), count in world.providers[name].counts.items() if kind == CallKind.CREATE)


@pytest.mark.parametrize("more", [1, 3, 8])
def test_what_was_never_sent_is_bought_elsewhere_within_a_minute(more: int) -> None:
    world = two()
    cut(world)
    world.operators["c"].send(cpu("c", 2 + more))
    world.run(60)
    assert len(world.providers["q"].configured("c")) == more
    assert len(world.providers["p"].configured("c")) == 2, "what is bound stays as it is"
    assert [world.state_of(f"p-{index}") for index in (0, 1)] == [S.CONFIGURED, S.CONFIGURED]
    world.run(900)
    assert bought(world, "q") == more and bought(world, "p") == 2


def test_when_it_is_back_it_is_used_again_by_itself() -> None:
    world = two()
    cut(world)
    world.operators["c"].send(cpu("c", 5))
    world.run(300)
    assert list(world.core.published.away) == ["p"]
    assert world.messages("a provider is away")
    calls = len(world.providers["p"].calls)
    world.operators["c"].send(cpu("c", 6))
    world.run(60)
    assert len(world.providers["p"].calls) == calls, "nothing is asked of it meanwhile"
    mend(world)
    world.run(15)
    assert not world.core.published.away and world.messages("a provider that was away is back")
    world.operators["c"].send(cpu("c", 8))
    world.run(15)
    assert len(world.providers["p"].configured("c")) == 4
    assert bought(world, "q") == 4


def test_who_would_be_served_by_it_alone_is_told_that_it_is_away() -> None:
    world = two()
    cut(world)
    world.operators["c"].send(cpu("c", 15))
    world.run(120)
    assert len(world.providers["q"].configured("c")) == 10
    (verdict,) = world.results[-1].verdicts.rows()
    need = need_of(world.core, verdict)
    (barred,) = need.barred
    assert barred.startswith("p: it cannot be reached")
    assert words.why(need) == "nothing is asked of p"


def test_a_short_absence_changes_nothing() -> None:
    world = two()
    cut(world)
    world.operators["c"].send(cpu("c", 5))
    world.run(15)
    mend(world)
    world.run(60)
    assert len(world.providers["p"].configured("c")) == 5 and not bought(world, "q")


def test_what_may_have_been_applied_is_not_bought_twice() -> None:
    world = two()
    world.providers["p"].drop_answers = lambda call: call.kind == CallKind.CREATE
    world.operators["c"].send(cpu("c", 5))
    world.run(2)
    cut(world, SILENT)
    world.run(120)
    assert bought(world, "p") == 5 and not bought(world, "q")
    world.providers["p"].drop_answers = lambda call: False
    mend(world)
    world.run(60)
    assert len(world.providers["p"].configured("c")) == 5 and not bought(world, "q")


def test_a_provider_whose_list_alone_is_broken_is_still_bought_from() -> None:
    world = two()
    world.providers["p"].list_fails = "internal"
    world.run(120)
    world.operators["c"].send(cpu("c", 5))
    world.run(30)
    assert len(world.providers["p"].configured("c")) == 5 and not bought(world, "q")
