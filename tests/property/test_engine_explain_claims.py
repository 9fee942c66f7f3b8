"""What an explanation claims is true: the named change satisfies the need, and where none is named, none helps."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.engine.explain import (
    REMEDIES,
    HigherPriority,
    LossReporter,
    MoreSupply,
    RemedyKind,
    Source,
    WithoutConstraint,
)
from bigfleet.engine.results import NeedKey
from tests.oracle.step import Oracle
from tests.strategies.fleets import Size, play
from tests.strategies.remedied import Fleet, constraints, varied, without

FLEETS = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEED = st.integers(0, 2**31)
SMALL = Size(machines=16, rows=6, steps=3)
# Enough for every change a small fleet offers.
EVERYTHING = 400
KINDS = {RemedyKind.SUPPLY: MoreSupply, RemedyKind.PRIORITY: HigherPriority, RemedyKind.CONSTRAINT: WithoutConstraint}


@FLEETS
@given(seed=SEED)
def test_every_remedy_satisfies_its_need_and_where_there_is_none_nothing_helps(seed: int) -> None:
    fleet, dice = Fleet.of(seed, SMALL), random.Random(seed)
    keys = fleet.short_keys()
    engine = fleet.engine().engine
    for key in dice.sample(keys, min(2, len(keys))):
        for kind in REMEDIES:
            told = engine.explain(key, (kind,), trials=EVERYTHING)
            assert not told.awaits_drain
            assert told.exhausted
            if told.remedy is not None:
                assert isinstance(told.remedy, KINDS[kind])
                assert fleet.satisfied_by(key, told.remedy, told.remedy_at) == (True, True)
            else:
                assert not helps(fleet, key, kind, told.remedy_at, dice)


def helps(fleet: Fleet, key: NeedKey, kind: RemedyKind, at: int, dice: random.Random) -> bool:
    """Whether any of a few changes of a kind satisfies the need."""
    if kind is RemedyKind.SUPPLY:
        shapes = [unit.shape for unit in fleet.oracle.machines.values()]
        return any(
            any(fleet.with_machines(key, shape, count, at))
            for shape in dice.sample(shapes, min(3, len(shapes)))
            for count in (1, 40)
        )
    behind = fleet.rows_behind(key)
    if kind is RemedyKind.PRIORITY:
        mine = behind[0].profile.priority
        levels = {2**31 - 1, min(mine + 1, 2**31 - 1), dice.randint(mine, 2**31 - 1)} - {mine}
        return any(any(fleet.with_profiles(key, lambda p, n=n: varied(p, priority=n), at)) for n in levels)  # type: ignore[misc]
    texts = sorted({text for row in behind for text in constraints(row.profile)})
    return any(
        any(fleet.with_profiles(key, lambda p, text=text: without(p, WithoutConstraint(text)), at))  # type: ignore[misc]
        for text in texts
    )


@FLEETS
@given(seed=SEED)
def test_the_first_remedy_is_the_first_kind_that_has_one(seed: int) -> None:
    fleet = Fleet.of(seed, SMALL)
    engine = fleet.engine().engine
    for key in fleet.short_keys()[:2]:
        each = [engine.explain(key, (kind,), trials=EVERYTHING).remedy for kind in REMEDIES]
        first = next((remedy for remedy in each if remedy is not None), None)
        assert engine.explain(key, trials=3 * EVERYTHING).remedy == first


@FLEETS
@given(seed=SEED)
def test_what_was_granted_is_what_was_claimed_and_losses_are_never_its_own(seed: int) -> None:
    fleet = Fleet.of(seed, SMALL)
    engine = fleet.engine().engine
    assert fleet.result is not None
    for verdict in fleet.result.verdicts:
        told = engine.explain(verdict.key, ())
        assert told.verdict == verdict
        counts = {source: sum(g.count for g in told.granted if g.source is source) for source in Source}
        assert counts[Source.IDLE] == verdict.bootstraps
        assert counts[Source.SPECULATIVE] == verdict.provisions
        assert counts[Source.PREEMPTED] == verdict.victims
        assert sum(counts.values()) == verdict.claimed + verdict.victims
        assert told.price_per_hour == sum(g.price * g.count for g in told.granted)
        assert all(lost.winner != verdict.key and lost.count > 0 for lost in told.lost)
        if verdict.satisfied:
            assert told.lost == () and told.remedy is None


@FLEETS
@given(seed=SEED)
def test_explaining_and_reporting_change_no_decision(seed: int) -> None:
    """An engine that is asked after every step decides like one that never is."""
    from tests.oracle.implementations import EngineRows

    asked, silent = EngineRows(), EngineRows()
    heard: list[NeedKey] = []
    asked.engine.reporter = LossReporter(asked.engine, lambda key, lost: heard.append(key))
    for step, _ in play(seed, SMALL, Oracle()):
        heard.clear()
        told = step.feed(asked)
        assert told == step.feed(silent)
        short = {(s.key.cluster, s.key.fingerprint, s.key.group) for s in told.shortfalls}
        assert {(key.cluster, key.fingerprint, key.group) for key in heard} == short
        for verdict in told.verdicts[:3]:
            asked.engine.explain(verdict.key, trials=4)
