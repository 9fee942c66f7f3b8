"""The engine in a closed loop: what it decides comes true after a while, and at steady demand it must come to rest."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind, UnmetReason
from tests.oracle.implementations import BOTH
from tests.strategies.builders import (
    CONFIGURED,
    DRAINING,
    GPU,
    IDLE,
    ON_DEMAND,
    RACK,
    SPECULATIVE,
    SPOT,
    ZONE,
    MachineLine,
    NeedLine,
    bound,
    idle,
    need,
    several,
    slot,
    stamp_of,
)
from tests.strategies.loop import Latencies, Loop

pytestmark = BOTH
NODE = {"cpu": 64, "mem": 256, "gpu": 8}


def names(count: int, prefix: str) -> list[str]:
    return [f"{prefix}{n:03}" for n in range(count)]


# Integration


def test_training_job_with_topology(make: Any) -> None:
    lines = [slot(id, rack="r1") for id in names(64, "s")]
    loop = Loop.of(make(), lines, latencies=Latencies(create=30, configure=20))
    loop.step([need("c", 64, same=RACK, group="job")])
    loop.run(10)
    assert len(loop.in_state(CONFIGURED, "c")) == 64
    assert loop.counts() == {"PROVISION": 64, "BOOTSTRAP": 64}


def test_capacity_stockout(make: Any) -> None:
    loop = Loop.of(make(), [slot(id, rack="r1") for id in names(32, "s")])
    loop.step([need("c", 64, same=RACK, group="job")])
    loop.run(5)
    assert len(loop.in_state(CONFIGURED, "c")) == 32
    assert "PREEMPT" not in loop.counts()
    assert loop.result is not None
    assert [s.deficit.get(GPU) for s in loop.result.shortfalls] == [256]


def test_withdrawal(make: Any) -> None:
    wanted = need("c", 64, same=RACK, group="job")
    loop = Loop.of(make(), [bound(id, "c", rack="r1", stamp=stamp_of(wanted)) for id in names(64, "b")])
    assert not loop.step([wanted])
    assert [a.kind for a in loop.step([], empty=("c",))] == [ActionKind.RECLAIM] * 64
    assert not loop.run(3)
    assert len(loop.in_state(IDLE)) == 64


def test_priority_inversion(make: Any) -> None:
    low, high = need("low", 4, priority=100_000), need("high", 4, priority=1_000_000)
    lines = several(4, bound, "m", "low", stamp=stamp_of(low))
    loop = Loop.of(make(), lines)
    assert [a.kind for a in loop.step([low, high])] == [ActionKind.PREEMPT] * 4
    boots = loop.step()
    assert [(a.kind, a.cluster) for a in boots] == [(ActionKind.BOOTSTRAP, "high")] * 4
    assert not loop.run(5)


def test_same_domain_no_oscillation(make: Any) -> None:
    lines = [*several(2, bound, "a", "c", zone="a"), *several(3, idle, "b", zone="b")]
    loop = Loop.of(make(), lines)
    first = loop.step([need("c", 5, same=ZONE, group="g")])
    assert sorted((a.kind.name, a.machine) for a in first) == [
        ("BOOTSTRAP", "b0"),
        ("BOOTSTRAP", "b1"),
        ("BOOTSTRAP", "b2"),
        ("RECLAIM", "a0"),
        ("RECLAIM", "a1"),
    ]
    assert not loop.run(3)


# Fixed points


def gang_fleet(
    racks: int, rack_gangs: list[int], zone_gangs: list[int], held: tuple[int, int], free: dict[Any, tuple[int, int]]
) -> tuple[list[MachineLine], list[NeedLine]]:
    """Two clusters with rack gangs and zone gangs of whole nodes, unstamped machines scattered over racks and zones."""
    lines: list[MachineLine] = []
    needs: list[NeedLine] = []
    for cluster in ("c1", "c2"):
        for n, size in enumerate(rack_gangs):
            facts = {"types": ["rack-node"], "interruption": 16384, "reclamation": 32768}
            needs.append(need(cluster, size, same=RACK, group=f"rack-{n}", **facts, **NODE))
        for n, size in enumerate(zone_gangs):
            facts = {"types": ["zone-node"], "interruption": 32768, "reclamation": 65536}
            needs.append(need(cluster, size, same=ZONE, group=f"zone-{n}", **facts, **NODE))
        lines += spots(lambda id, **facts: bound(id, cluster, **facts), f"{cluster}-", held, racks)  # noqa: B023
    for make_line, counts in free.items():
        lines += spots(make_line, make_line.__name__, counts, racks)
    return lines, needs


def spots(make_line: Any, prefix: str, counts: tuple[int, int], racks: int) -> list[MachineLine]:
    made = []
    for type, count in zip(("rack-node", "zone-node"), counts, strict=True):
        for n in range(count):
            where = {"rack": f"r{n // 4 % racks}", "zone": "abc"[n % 3]}
            made.append(make_line(f"{prefix}-{type}-{n:02}", type=type, **where, **NODE))
    return made


SHAPES = {
    "aligned": (gang_fleet(4, [3, 3], [6, 6], (6, 12), {idle: (3, 3), slot: (6, 6)}), 4),
    "field": (gang_fleet(10, [2, 4, 3, 2, 4, 3], [4, 8, 6, 5], (24, 27), {idle: (12, 24), slot: (24, 40)}), 10),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_gang_steady_demand_fixed_point_engine_loop(make: Any, shape: str) -> None:
    """Forty cycles, cluster order alternating, instant transitions: after settling nothing happens any more."""
    (lines, needs), settle = SHAPES[shape]
    loop = Loop.of(make(), lines)
    for cycle in range(40):
        emitted = loop.step(sorted(needs, key=lambda n: n.cluster, reverse=cycle % 2 == 1))
        assert cycle < settle or not emitted, f"cycle {cycle}: {emitted}"


@pytest.mark.parametrize("shape", SHAPES)
def test_gang_steady_demand_comes_to_rest_with_slow_transitions(make: Any, shape: str) -> None:
    (lines, needs), _ = SHAPES[shape]
    loop = Loop.of(make(), lines, latencies=Latencies(create=60, configure=30, drain=120))
    loop.step(needs)
    loop.run(40)
    assert not loop.run(40)


def test_mixed_steady_demand_fixed_point(make: Any) -> None:
    """Plain, spread, gang and foldable demand of two priorities together: forty cycles without a late action."""
    needs = [
        need("c1", 9, cpu=2, mem=4),
        need("c1", 4, spread=(ZONE, 1), cpu=8),
        need("c1", 3, same=RACK, group="g", cpu=8),
        need("c2", 2, same=RACK, group="small", cpu=1),
        need("c2", 7, priority=5000, cpu=4),
    ]
    lines = [
        slot(id, zone="abc"[n % 3], rack=f"r{n % 4}", price=n % 3, cpu=8, mem=16) for n, id in enumerate(names(30, "s"))
    ]
    loop = Loop.of(make(), lines, latencies=Latencies(create=30, configure=10))
    loop.step(needs)
    loop.run(8)
    assert not loop.run(40)
    assert loop.result is not None
    assert all(v.satisfied for v in loop.result.verdicts)


# Acquisitions per loss


@pytest.mark.parametrize("latency", [0, 30, 60, 300])
@pytest.mark.parametrize("kind", ["plain", "gang", "folded", "spread"])
def test_acquisitions_per_loss_is_one_for_any_create_latency(make: Any, latency: int, kind: str) -> None:
    """Without credit for its own Creating machines the reference bought dwell + 1 replacements per loss."""
    wanted = {
        "plain": need("c", 4, cpu=8),
        "gang": need("c", 4, same=RACK, group="g", cpu=8),
        "folded": need("c", 4, same=RACK, group="g", cpu=2),
        "spread": need("c", 4, spread=(RACK, 9), cpu=8),
    }[kind]
    lines = [slot(id, rack="r", cpu=8) for id in names(20, "s")]
    loop = Loop.of(make(), lines, latencies=Latencies(create=latency, configure=20, drain=30))
    loop.step([wanted])
    loop.run(60)
    bought = 1 if kind == "folded" else 4
    assert loop.counts() == {"PROVISION": bought, "BOOTSTRAP": bought}
    lost = loop.in_state(CONFIGURED, "c")[0]
    loop.lose(lost, to=8)
    loop.run(60)
    assert loop.counts() == {"PROVISION": bought + 1, "BOOTSTRAP": bought + 1}
    assert len(loop.in_state(CONFIGURED, "c")) == bought


def test_machine_lost_while_creating_is_bought_once_more(make: Any) -> None:
    loop = Loop.of(make(), [slot(id, cpu=8) for id in names(5, "s")], latencies=Latencies(create=100))
    (first,) = loop.step([need("c", cpu=8)])
    loop.run(3)
    loop.lose(first.machine, to=8)
    loop.run(30)
    assert loop.counts() == {"PROVISION": 2, "BOOTSTRAP": 1}


# Preemption over time


@pytest.mark.parametrize("drain", [0, 30, 600])
def test_improvement_one_victim_per_missing_machine_for_any_drain_time(make: Any, drain: int) -> None:
    """The reference picks a new victim in every cycle of the drain."""
    low, high = need("low", 20, priority=0), need("high", 3, priority=1_000_000)
    loop = Loop.of(
        make(), [bound(id, "low", stamp=stamp_of(low)) for id in names(20, "m")], latencies=Latencies(drain=drain)
    )
    loop.step([low, high])
    loop.run(70)
    assert loop.counts() == {"PREEMPT": 3, "BOOTSTRAP": 3}
    assert len(loop.in_state(CONFIGURED, "high")) == 3
    assert loop.result is not None
    assert {v.key.cluster: v.satisfied for v in loop.result.verdicts} == {"high": True, "low": False}


def test_while_victims_drain_the_preemptor_is_no_shortfall(make: Any) -> None:
    low, high = need("low", 3, priority=0), need("high", 3, priority=1000)
    loop = Loop.of(
        make(), [bound(id, "low", stamp=stamp_of(low)) for id in names(3, "m")], latencies=Latencies(drain=45)
    )
    loop.step([low, high])
    for _ in range(4):
        loop.step()
        assert loop.result is not None
        assert {s.key.cluster for s in loop.result.shortfalls} == {"low"}
        assert len(loop.in_state(DRAINING)) == 3
        assert {v.reason for v in loop.result.verdicts if v.key.cluster == "high"} == {UnmetReason.AWAITING_DRAIN}


# Shrinking


def test_surplus_idle_released_once_never_rebought(make: Any) -> None:
    lines = [idle(id, capacity=ON_DEMAND) for id in names(6, "i")]
    loop = Loop.of(make(), lines)
    loop.step([need("c", 2)])
    loop.run(100)
    assert loop.counts() == {"BOOTSTRAP": 2, "DELETE": 4}


def test_shrink_idle_expiry_delete_only_for_elastic_capacity(make: Any) -> None:
    kinds = {"metal": 1, "reserved": 2, "demand": ON_DEMAND, "spot": SPOT}
    loop = Loop.of(make(), [bound(name, "c", capacity=kind) for name, kind in kinds.items()])
    loop.step([need("c", 4)])
    loop.step([], empty=("c",))
    loop.run(80)
    assert loop.in_state(IDLE) == ["metal", "reserved"]
    assert loop.in_state(SPECULATIVE) == ["demand", "spot"]
    assert loop.counts() == {"RECLAIM": 4, "DELETE": 2}


def test_parking_canary(make: Any) -> None:
    """A gang that can never be whole stops touching the fleet, and takes its chance when it is probed again."""
    lines = [idle(id, rack=f"r{n}") for n, id in enumerate(names(3, "i"))]
    loop = Loop.of(make(), lines)
    loop.step([need("c", 2, same=RACK, group="g")])
    assert loop.counts() == {"BOOTSTRAP": 1}
    assert not loop.run(30)
    loop.change(idle("late", rack="r0"))
    loop.run(40)
    assert loop.counts() == {"BOOTSTRAP": 2}


def test_contention_canary(make: Any) -> None:
    """Two equal gangs and room for one: one is served, the other waits, nobody takes turns."""
    lines = [idle(id, rack="r") for id in names(4, "i")]
    loop = Loop.of(make(), lines)
    loop.step([need("a", 4, same=RACK, group="g"), need("b", 4, same=RACK, group="g")])
    loop.run(50)
    assert loop.counts() == {"BOOTSTRAP": 4}


def test_improvement_gang_does_not_move_for_ever_between_domains_with_excess(make: Any) -> None:
    """By "smallest total first" a domain gains by losing its excess, and the gang moves back and forth."""
    (lines, needs), _ = SHAPES["field"]
    loop = Loop.of(make(), lines, policy=Policy(reclaim_cap_fraction=0.05))
    loop.step(needs)
    loop.run(40)
    assert not loop.run(20)


def test_improvement_folded_gang_does_not_preempt_for_ever(make: Any) -> None:
    """A machine without the Same key must not satisfy the fold of a gang it cannot hold."""
    gang = need("c", 2, same=RACK, group="g", priority=1000, cpu=2)
    low = need("low", 1, priority=1, cpu=4)
    lines = [bound("bare", "c", cpu=4), bound("racked", "low", rack="r", cpu=4, stamp=stamp_of(low))]
    loop = Loop.of(make(), lines)
    loop.step([gang, low])
    loop.run(20)
    assert loop.counts()["PREEMPT"] == 1
    assert loop.in_state(CONFIGURED, "c") == ["racked"]


def test_improvement_gang_that_preempts_when_probed_gets_its_victims(make: Any) -> None:
    """Parked again at once it could not take what it had drained; the owner got it back, and all that for ever."""
    gang = need("c", 2, same=RACK, group="g", priority=1000)
    low = need("low", 1, priority=1)
    loop = Loop.of(make(), [bound("own", "c", rack="r", stamp=stamp_of(gang))], latencies=Latencies(drain=120))
    loop.step([gang, low])
    loop.run(10)
    loop.change(bound("late", "low", rack="r", stamp=stamp_of(low)))
    loop.run(120)
    assert loop.counts() == {"PREEMPT": 1, "BOOTSTRAP": 1}
    assert loop.in_state(CONFIGURED, "c") == ["late", "own"]
