"""Machines read between steps: one by id, or pages in text order of ids."""

from __future__ import annotations

import random

from bigfleet.engine import Engine
from bigfleet.engine.fleet.machines import MachineFilter
from bigfleet.engine.policy import Policy
from tests.strategies.builders import CONFIGURED, IDLE, SPECULATIVE, START, batch, bound, idle, removed, slot, stamp_of
from tests.strategies.builders import need as a_need


def stepped(*lines: object) -> Engine:
    engine = Engine()
    engine.step(batch(*lines), None, Policy(), START)  # type: ignore[arg-type]
    return engine


def test_one_machine() -> None:
    stamp = stamp_of(a_need("c", 1))
    engine = stepped(bound("b", "c", price=2.0, stamp=stamp), idle("i"))
    row = engine.machine("b")
    assert row is not None
    assert (row.id, row.state, row.cluster, row.stamp, row.shape.price, row.idle_since) == (
        "b",
        CONFIGURED,
        "c",
        stamp,
        2.0,
        None,
    )
    resting = engine.machine("i")
    assert resting is not None
    assert (resting.state, resting.cluster, resting.idle_since) == (IDLE, "", START)


def test_unknown_and_removed_machines_are_none() -> None:
    engine = stepped(idle("i"))
    assert engine.machine("x") is None
    assert engine.machine("") is None
    engine.step(batch(removed("i")), None, Policy(), START)
    assert engine.machine("i") is None
    assert engine.machines() == []


def test_pages_go_through_all_machines_in_text_order() -> None:
    dice = random.Random(5)
    names = list(
        dict.fromkeys(dice.choice(("m", "machine-", "machine-long-prefix-", "é")) + str(n) for n in range(300))
    )
    engine = stepped([idle(name) for name in dice.sample(names, len(names))])
    seen, after = [], ""
    while page := engine.machines(after=after, limit=7):
        seen += [row.id for row in page]
        after = page[-1].id
    assert seen == sorted(names, key=str.encode)


def test_pages_of_ids_with_a_long_common_prefix() -> None:
    names = [f"provider/zone/machine-{n:05}" for n in range(50)]
    engine = stepped([idle(name) for name in names])
    assert [row.id for row in engine.machines(after=names[29], limit=5)] == names[30:35]
    assert [row.id for row in engine.machines(after="provider", limit=1)] == names[:1]
    assert engine.machines(after="q", limit=5) == []
    assert engine.machines(after=names[-1]) == []


def test_filters() -> None:
    engine = stepped(
        bound("a", "c", type="t1", zone="x"), bound("b", "d", type="t1"), idle("i", provider="q"), slot("s", zone="x")
    )

    def ids(**facts: object) -> list[str]:
        return [row.id for row in engine.machines(MachineFilter(**facts))]  # type: ignore[arg-type]

    assert ids() == ["a", "b", "i", "s"]
    assert ids(states=(IDLE, SPECULATIVE)) == ["i", "s"]
    assert ids(cluster="d") == ["b"]
    assert ids(cluster="nobody") == []
    assert ids(instance_type="t1") == ["a", "b"]
    assert ids(zone="x") == ["a", "s"]
    assert ids(provider="q") == ["i"]
    assert ids(provider="q", zone="x") == []
