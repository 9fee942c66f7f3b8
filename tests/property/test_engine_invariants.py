"""What holds after every step whatever the fleet: nothing used or counted twice, rest at steady demand, determinism."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind
from tests.oracle.implementations import BOTH
from tests.oracle.step import Oracle
from tests.strategies.builders import CONFIGURED, FAILED, RACK, MachineLine, need, slot
from tests.strategies.fleets import Size, StepInput, play
from tests.strategies.ledger import Ledger
from tests.strategies.loop import Latencies, Loop

pytestmark = BOTH
FLEETS = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
FEW = settings(FLEETS, max_examples=25)
SEED = st.integers(0, 2**31)


def inputs_of(seed: int, size: Size | None = None) -> list[StepInput]:
    """A play as fixed inputs, each machine once per batch."""
    steps = []
    for step, _ in play(seed, size or Size(), Oracle()):
        steps.append(replace(step, machines=tuple({line.id: line for line in step.machines}.values())))
    return steps


@FLEETS
@given(seed=SEED)
def test_no_machine_used_twice_and_every_action_is_possible(make: Any, seed: int) -> None:
    engine, ledger = make(), Ledger()
    for step in inputs_of(seed):
        result = step.feed(engine)
        ledger.apply(step, result)
        ledger.check_actions(step, result)


@FLEETS
@given(seed=SEED)
def test_capacity_never_counted_twice(make: Any, seed: int) -> None:
    engine, ledger = make(), Ledger()
    for step in inputs_of(seed):
        result = step.feed(engine)
        ledger.apply(step, result)
        ledger.check_capacity(result)


@FLEETS
@given(seed=SEED)
def test_ruling_23_no_higher_need_is_short_while_lower_ones_hold_what_it_needs(make: Any, seed: int) -> None:
    engine, ledger = make(), Ledger()
    for step in inputs_of(seed):
        step = replace(step, policy=step.policy.with_(max_actions_per_step=0))
        result = step.feed(engine)
        ledger.apply(step, result)
        ledger.check_ruling_23(step, result)


@FLEETS
@given(seed=SEED)
def test_permuting_inputs_changes_nothing(make: Any, seed: int) -> None:
    one, other, dice = make(), make(), random.Random(seed)
    for step in inputs_of(seed):
        assert step.feed(one) == shuffled(step, dice).feed(other)


def shuffled(step: StepInput, dice: random.Random) -> StepInput:
    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dice.sample(items, len(items)))

    return replace(
        step,
        machines=mixed(step.machines),
        rollups=mixed(tuple(replace(asked, needs=mixed(asked.needs)) for asked in step.rollups)),
        links=mixed(step.links),
        forgotten=mixed(step.forgotten),
    )


@FLEETS
@given(seed=SEED)
def test_same_inputs_give_identical_bytes(make: Any, seed: int) -> None:
    one, other = make(), make()
    for step in inputs_of(seed):
        assert repr(step.feed(one)).encode() == repr(step.feed(other)).encode()


@FLEETS
@given(seed=SEED)
def test_a_step_without_changes_decides_the_same_again(make: Any, seed: int) -> None:
    """Deferred and dropped actions re-derive: an unchanged fleet at the same instant gives the same decision."""
    engine = make()
    for step in inputs_of(seed, Size(steps=1)):
        calm = replace(step, policy=step.policy.with_(reclaim_cap_fraction=0.0))
        first = calm.feed(engine)
        again = replace(calm, machines=(), rollups=(), links=(), forgotten=()).feed(engine)
        assert (first.actions, first.verdicts, first.shortfalls) == (again.actions, again.verdicts, again.shortfalls)


@FLEETS
@given(seed=SEED)
def test_history_does_not_matter_beyond_ages(make: Any, seed: int) -> None:
    """An engine that saw the machines one by one decides like one that saw them at once."""
    at_once, one_by_one = make(), make()
    step = inputs_of(seed, Size(steps=1))[0]
    expected = step.feed(at_once)
    for line in step.machines:
        StepInput(step.now, step.policy, (line,), conditions=step.conditions).feed(one_by_one)
    actual = replace(step, machines=()).feed(one_by_one)
    assert (actual.actions, actual.verdicts, actual.shortfalls) == (
        expected.actions,
        expected.verdicts,
        expected.shortfalls,
    )


@FLEETS
@given(seed=SEED)
def test_precedence_is_monotone(make: Any, seed: int) -> None:
    """What the last plain row asks for changes nothing for the entries before it."""
    step = inputs_of(seed, Size(steps=1))[0]
    before = step.feed(make())
    plain = [v for v in before.verdicts if v.key.group == "" and v.key.min_unit]
    if not plain or plain[-1] is not before.verdicts[-1]:
        return
    last = plain[-1].key
    emptied = replace(
        step,
        rollups=tuple(
            replace(
                asked,
                needs=tuple(
                    replace(n, aggregate={}) if n.profile.fingerprint == last.fingerprint and not n.group else n
                    for n in asked.needs
                )
                if asked.cluster == last.cluster
                else asked.needs,
            )
            for asked in step.rollups
        ),
    )
    after = emptied.feed(make())
    rest = [v for v in before.verdicts if (v.key.cluster, v.key.fingerprint) != (last.cluster, last.fingerprint)]
    kept = [v for v in after.verdicts if (v.key.cluster, v.key.fingerprint) != (last.cluster, last.fingerprint)]
    told = [(v.key, v.claimed, v.bootstraps, v.provisions, v.satisfied, v.domain, v.deficit) for v in rest]
    assert told == [(v.key, v.claimed, v.bootstraps, v.provisions, v.satisfied, v.domain, v.deficit) for v in kept]


@FLEETS
@given(seed=SEED)
def test_claims_are_conserved(make: Any, seed: int) -> None:
    """Every acquisition in a verdict is exactly one action, and the other way round."""
    engine = make()
    for step in inputs_of(seed):
        result = replace(step, policy=step.policy.with_(max_actions_per_step=0)).feed(engine)
        for v in result.verdicts:
            mine = [a for a in result.actions if a.need == v.key and a.cluster == v.key.cluster]
            assert sum(a.kind == ActionKind.BOOTSTRAP for a in mine) == v.bootstraps
            assert sum(a.kind == ActionKind.PROVISION for a in mine) == v.provisions
            assert sum(a.kind == ActionKind.PREEMPT and a.need == v.key for a in result.actions) == v.victims
        acquired = sum(a.kind in (ActionKind.BOOTSTRAP, ActionKind.PROVISION) for a in result.actions)
        assert acquired == sum(v.bootstraps + v.provisions for v in result.verdicts)


# Closed loops


def settled(make: Any, seed: int, latencies: Latencies) -> Loop:
    """A random fleet under constant demand, run until parking and drains have had their time."""
    (step,) = inputs_of(seed, Size(machines=20, rows=5, steps=1))
    lines = [line for line in step.machines if line.state in (1, 3, 5) and line.id and line.id != "bad"]
    needs = [n for asked in step.rollups for n in asked.needs if all(0 <= a < 2**50 for a in n.aggregate.values())]
    loop = Loop.of(make(), lines, latencies=latencies)
    loop.step(needs, empty=tuple({asked.cluster for asked in step.rollups}))
    loop.run(69)
    return loop


@FEW
@given(seed=SEED, slow=st.booleans())
def test_nothing_acquired_or_reclaimed_at_steady_demand(make: Any, seed: int, slow: bool) -> None:
    latencies = Latencies(create=30, configure=20, drain=40) if slow else Latencies()
    late = settled(make, seed, latencies).run(24)
    assert [a for a in late if a.kind != ActionKind.DELETE] == []


@FEW
@given(
    create=st.sampled_from([0, 10, 30, 60, 300]),
    configure=st.sampled_from([0, 20, 90]),
    losses=st.lists(st.integers(0, 60), max_size=5),
    units=st.integers(1, 6),
    gang=st.booleans(),
)
def test_one_acquisition_per_lost_machine(
    make: Any, create: int, configure: int, losses: list[int], units: int, gang: bool
) -> None:
    lines: list[MachineLine] = [slot(f"s{n:02}", rack="r", cpu=8) for n in range(units + len(losses) + 3)]
    loop = Loop.of(make(), lines, latencies=Latencies(create=create, configure=configure))
    wanted = need("c", units, same=RACK if gang else None, group="g" if gang else "", cpu=8)
    lost = 0
    for cycle in range(61):
        for _ in range(losses.count(cycle)):
            alive = loop.in_state(CONFIGURED, "c")
            if alive:
                loop.lose(alive[0], to=FAILED)
                lost += 1
        loop.step([wanted] if cycle == 0 else None)
    loop.run(80)
    assert loop.counts()["PROVISION"] == units + lost
    assert len(loop.in_state(CONFIGURED, "c")) == units
    assert "RECLAIM" not in loop.counts()


@FEW
@given(seed=SEED)
def test_production_rails_only_slow_things_down(make: Any, seed: int) -> None:
    """With hold, cap and guard on, a cluster never loses more of its machines at once than the cap allows."""
    (step,) = inputs_of(seed, Size(machines=24, rows=4, steps=1))
    lines = [line for line in step.machines if line.state in (1, 3, 5) and line.id and line.id != "bad"]
    policy = Policy.production()
    loop = Loop.of(make(), lines, policy=policy)
    needs = [n for asked in step.rollups for n in asked.needs if all(0 <= a < 2**50 for a in n.aggregate.values())]
    clusters = sorted({asked.cluster for asked in step.rollups})
    for cycle in range(40):
        caps = {c: policy.reclaim_cap(len(loop.in_state(CONFIGURED, c))) for c in clusters}
        emitted = loop.step(needs if cycle == 0 else None, empty=tuple(clusters) if cycle == 0 else ())
        for cluster in clusters:
            gone = sum(a.kind == ActionKind.RECLAIM and a.cluster == cluster for a in emitted)
            assert gone <= caps[cluster] + 1
            assert cycle >= 12 or gone == 0


@pytest.mark.parametrize("seed", range(2))
def test_a_fleet_of_three_hundred_settles_too(make: Any, seed: int) -> None:
    dice = random.Random(seed)
    lines = [slot(f"s{n:03}", rack=f"r{n % 12}", zone="abc"[n % 3], price=n % 4, cpu=8) for n in range(300)]
    needs = [
        need(
            f"c{n % 5}",
            dice.randint(1, 6),
            priority=dice.choice((1, 9)),
            same=dice.choice((None, RACK)),
            group=f"g{n}",
            cpu=dice.choice((2, 8)),
        )
        for n in range(40)
    ]
    loop = Loop.of(make(), lines, latencies=Latencies(create=20, configure=10))
    loop.step(needs)
    loop.run(12)
    assert not [a for a in loop.run(12) if a.kind != ActionKind.DELETE]
