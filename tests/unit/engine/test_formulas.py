"""The formulas by themselves and as decisions: effective cost, grace, the reclaim cap, the shares of a maximum."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bigfleet.engine.batches import Shape, Stamp
from bigfleet.engine.policy import Policy, drain_grace_seconds
from bigfleet.model.penalty import PINNED, bucket_dollars, bucket_for
from bigfleet.model.resources import Resources
from tests.oracle.assign import effective_cost
from tests.oracle.implementations import BOTH
from tests.oracle.supply import SPECULATIVE, Unit
from tests.strategies.asking import decide, preempts, provisions
from tests.strategies.builders import ON_DEMAND, SPOT, bound, need, slot


def unit(price: float, risk: float) -> Unit:
    shape = Shape("p", "t", "z", SPOT, price, risk, Resources())
    return Unit("m", shape, SPECULATIVE, "", 0, 0.0, 0.0, "", "", 0)


def test_effective_cost() -> None:
    assert effective_cost(unit(3.0, 0.0), 100.0) == 3.0
    assert effective_cost(unit(1.8, 0.1), 5.0) == pytest.approx(2.30)
    assert effective_cost(unit(1.8, 0.0), math.inf) == 1.8
    assert effective_cost(unit(1.8, 0.1), math.inf) == math.inf


@BOTH
def test_effective_cost_spot_wins_at_5_and_on_demand_at_50(make: Any) -> None:
    lines = [slot("spot", price=1.8, risk=0.1, capacity=SPOT), slot("demand", price=6, capacity=ON_DEMAND)]
    assert provisions(decide(make, lines, need("c", interruption=5))) == ["spot"]
    assert provisions(decide(make, lines, need("c", interruption=50))) == ["demand"]


def test_bucket_bounds() -> None:
    assert [bucket_dollars(b) for b in (0, 1, 2, 3, 26)] == [0.0, 0.0, 0.5, 1.0, 8_388_608.0]
    assert bucket_dollars(PINNED) == math.inf
    assert bucket_for(8_388_609) == PINNED


@pytest.mark.parametrize(
    ("gap", "seconds"),
    [
        (1_000_000, 10),
        (900_001, 10),
        (899_999, 30),
        (500_001, 30),
        (499_999, 120),
        (100_001, 120),
        (99_999, 600),
        (0, 600),
        (2**32, 10),
    ],
)
def test_drain_grace(gap: int, seconds: int) -> None:
    assert drain_grace_seconds(gap) == seconds


@BOTH
def test_victim_score(make: Any) -> None:
    """Lower priority outweighs any penalty, a lower penalty decides between equals."""
    lines = [
        bound("a", "q", stamp=Stamp(50, 0.0, 0.0)),
        bound("b", "q", stamp=Stamp(10, 8192.0, 8192.0)),
        bound("d", "q", stamp=Stamp(10, 4096.0, 8192.0)),
    ]
    assert preempts(decide(make, lines, need("c", 3))) == ["d", "b", "a"]


@BOTH
def test_improvement_pinned_penalty_times_no_risk_is_no_cost(make: Any) -> None:
    """The reference computes infinity × 0 = NaN and the order of safe machines is undefined."""
    lines = [
        slot("a", price=5.0, risk=0.0),
        slot("b", price=2.0, risk=0.0),
        slot("d", price=0.1, risk=0.01),
        slot("e", price=0.2, risk=0.5),
    ]
    wanted = need("c", 4, interruption=9e9)
    assert wanted.profile.interruption_bucket == PINNED
    assert provisions(decide(make, lines, wanted)) == ["b", "a", "d", "e"]


@BOTH
def test_improvement_ties_go_by_price_then_id(make: Any) -> None:
    lines = [slot("z", price=1.0, risk=0.0), slot("a", price=1.0, risk=0.0), slot("m", price=0.5, risk=0.5)]
    assert provisions(decide(make, lines, need("c", 3, interruption=1))) == ["m", "a", "z"]


def test_reclaim_cap_arithmetic() -> None:
    policy = Policy(reclaim_cap_fraction=0.05)
    assert [policy.reclaim_cap(n) for n in (0, 1, 19, 21, 40, 100)] == [1, 1, 1, 1, 2, 5]
    assert Policy(reclaim_cap_fraction=0.25).reclaim_cap(40) == 10
    assert Policy(reclaim_cap_fraction=0.5).reclaim_cap(7) == 3
