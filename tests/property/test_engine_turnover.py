"""Giving back what is unused changes no decision: an engine that does it before every step decides like one that never
does, through machines, profiles, groups, resources and clusters that come and go."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.engine import Engine
from bigfleet.engine.policy import Policy
from bigfleet.model.requirement import Operator, Requirement
from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle
from tests.strategies.builders import (
    HOSTNAME,
    RACK,
    SECOND,
    START,
    MachineLine,
    NeedLine,
    bound,
    idle,
    need,
    removed,
    stamp_of,
)
from tests.strategies.fleets import Asked, Size, StepInput, play

FLEETS = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEED = st.integers(0, 2**31)


def with_jobs(steps: list[StepInput]) -> list[StepInput]:
    """Besides what the play is about, every step brings a job nobody saw before and ends the one before the last."""
    return [_with_job(step, number) for number, step in enumerate(steps)]


def _with_job(step: StepInput, number: int) -> StepInput:
    cluster, ended = _cluster(number), _cluster(number - 2)
    wanted = _job(cluster, number)
    lines: list[MachineLine] = [
        bound(f"node-{number}", cluster, rack=f"own-{number}", stamp=stamp_of(wanted[0]), zone=f"z{number % 3}", cpu=2),
        idle(f"free-{number}", rack=f"own-{number}", price=number / 7, cpu=2),
    ]
    if number > 1:
        lines += removed(f"node-{number - 2}", f"free-{number - 2}")
    return replace(
        step,
        machines=(*step.machines, *lines),
        rollups=(*step.rollups, Asked(cluster, wanted)),
        forgotten=(*step.forgotten, *((ended,) if number > 1 else ())),
    )


def _cluster(number: int) -> str:
    """Names in no order, so that every newcomer takes another place among the others."""
    return f"job-{number * 7 % 13:02}"


def _job(cluster: str, number: int) -> tuple[NeedLine, ...]:
    """A gang, a row that names a machine and a resource of its own, and a plain row, at priorities of their own."""
    own = Requirement(HOSTNAME, Operator.NOT_IN, (f"free-{number - 1}",))
    extra = {f"vendor.example/part-{number}": 1} if number % 3 == 0 else {}
    return (
        need(cluster, 3, priority=10 * number, same=RACK, group=f"gang-{number}", cpu=2),
        need(cluster, 1, priority=10 * number + 1, where=[own], cpu=1, **extra),
        need(cluster, 1, priority=3, group=f"plain-{number % 4}", cpu=1),
    )


def inputs_of(seed: int, size: Size) -> list[StepInput]:
    return [step for step, _ in play(seed, size, Oracle())]


@FLEETS
@given(seed=SEED)
def test_giving_back_before_every_step_changes_no_decision(seed: int) -> None:
    never, always = EngineRows(), EngineRows(gives_back=True)
    for step in with_jobs(inputs_of(seed, Size(machines=20, rows=6, steps=10))):
        kept, given_back = step.feed(never), step.feed(always)
        assert repr(kept).encode() == repr(given_back).encode()
        never.engine.validate()
        assert never.engine.machines(limit=100) == always.engine.machines(limit=100)
        for cluster in never.engine.fleet.clusters:
            assert never.engine.available_capacity(cluster) == always.engine.available_capacity(cluster)


@FLEETS
@given(seed=SEED, after=st.integers(0, 9))
def test_giving_back_once_changes_no_decision_either(seed: int, after: int) -> None:
    """Numbers from before and after are never mixed up, whenever it happens."""
    never, once = EngineRows(), EngineRows()
    for number, step in enumerate(with_jobs(inputs_of(seed, Size(machines=20, rows=6, steps=10)))):
        if number == after:
            once.engine.give_back()
        assert repr(step.feed(never)).encode() == repr(step.feed(once)).encode()
        once.engine.validate()


@FLEETS
@given(seed=SEED)
def test_what_stays_is_no_more_than_a_fresh_engine_needs(seed: int) -> None:
    """After giving back, an old engine has interned no more than one that sees its fleet for the first time."""
    old, machines, asked = Engine(), dict[str, MachineLine](), dict[str, Asked]()
    for step in with_jobs(inputs_of(seed, Size(machines=20, rows=6, steps=10))):
        replace(step, policy=Policy()).feed(old)
        machines |= {line.id: line for line in step.machines if line.id and taken_over(old, line)}
        for name in step.forgotten:
            asked.pop(name, None)
        asked |= {each.cluster: each for each in step.rollups}
    old.give_back()
    alive = [line for line in machines.values() if old.machine(line.id) is not None]
    StepInput(step.now, Policy(), tuple(removed("nobody"))).feed(old)
    old.validate()
    fresh = Engine()
    StepInput(step.now, Policy(), tuple(alive), tuple(asked.values())).feed(fresh)
    assert [name for name, size in old.tables._asdict().items() if size > getattr(fresh.tables, name)] == []


def taken_over(engine: Engine, line: MachineLine) -> bool:
    """Whether the engine has the machine as this line says; a spoiled line is rejected."""
    row = engine.machine(line.id)
    return row is not None and (row.state, row.shape, row.cluster) == (line.state, line.shape, line.cluster)


def test_the_jobs_of_these_tests_leave_something_to_give_back() -> None:
    engine = Engine()
    for step in with_jobs([StepInput(START + n * SECOND, Policy()) for n in range(12)]):
        step.feed(engine)
    before = engine.tables
    engine.give_back()
    StepInput(START + 12 * SECOND, Policy(), tuple(removed("nobody"))).feed(engine)
    after = engine.tables
    assert all(2 * after[place] < before[place] for place in (*range(6), 7)), (before, after)
    assert after.resources < before.resources
