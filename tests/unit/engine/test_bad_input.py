"""Bad records: each is refused and counted under one reason, the last good one stays, the rest of the batch applies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from bigfleet.engine.batches import DemandBatch, Shape, Stamp
from bigfleet.engine.policy import Policy
from bigfleet.model.resources import Resources
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps
from tests.strategies.builders import (
    CONFIGURED,
    CREATING,
    DELETING,
    DRAINING,
    IDLE,
    SPECULATIVE,
    START,
    MachineLine,
    batch,
    bound,
    demand,
    idle,
    machine,
    need,
    removed,
    rollup,
)

GOOD = idle("good")


def shaped(**changes: Any) -> MachineLine:
    shape = idle("bad").shape
    assert isinstance(shape, Shape)
    return replace(idle("bad"), shape=replace(shape, **changes))


BAD = {
    "price-nan": ("price", shaped(price=math.nan)),
    "price-negative": ("price", shaped(price=-0.01)),
    "price-infinite": ("price", shaped(price=math.inf)),
    "probability-nan": ("interruption_probability", shaped(probability=math.nan)),
    "probability-negative": ("interruption_probability", shaped(probability=-0.1)),
    "probability-above-one": ("interruption_probability", shaped(probability=1.0001)),
    "empty-id": ("id", idle("")),
    "duplicate": ("duplicate", GOOD),
    "unknown-state": ("state", replace(idle("bad"), state=9)),
    "unknown-state-255": ("state", replace(idle("bad"), state=255)),
    "configured-without-cluster": ("structural", replace(idle("bad"), state=CONFIGURED)),
    "draining-without-cluster": ("structural", replace(idle("bad"), state=DRAINING)),
    "idle-with-cluster": ("structural", machine("bad", IDLE, "c")),
    "slot-with-cluster": ("structural", machine("bad", SPECULATIVE, "c")),
    "deleting-with-cluster": ("structural", machine("bad", DELETING, "c")),
    "257-labels": ("labels", idle("bad", labels={f"k{n}": "v" for n in range(257)})),
    "allocatable-too-large": ("range", shaped(allocatable=Resources({"cpu": 2**40 + 1}))),
    "stamp-priority-too-high": ("range", idle("bad", stamp=Stamp(priority=2**31))),
    "stamp-priority-huge": ("range", idle("bad", stamp=Stamp(priority=-(2**70)))),
    "stamp-dollars-nan": ("range", idle("bad", stamp=Stamp(interruption_dollars=math.nan))),
    "stamp-dollars-negative": ("range", idle("bad", stamp=Stamp(reclamation_dollars=-1.0))),
    "stamp-and-price": ("price", replace(shaped(price=math.nan), stamp=Stamp(priority=2**31))),
    "removal-of-nobody": ("id", removed("")[0]),
}


@BOTH
@pytest.mark.parametrize("case", BAD)
def test_bad_machine_is_rejected_and_the_rest_applies(make: Any, case: str) -> None:
    reason, line = BAD[case]
    result = make().step(batch(GOOD, line), demand(need("c", 5)), Policy(), START)
    assert result.rejected == {reason: 1}
    assert bootstraps(result) == ["good"]


@BOTH
@pytest.mark.parametrize("case", [name for name, (_, line) in BAD.items() if line.id == "bad"])
def test_last_good_record_stays(make: Any, case: str) -> None:
    engine = make()
    engine.step(batch(idle("bad")), None, Policy(), START)
    result = engine.step(batch(BAD[case][1]), demand(need("c", 5)), Policy(), START + 1)
    assert result.rejected == {BAD[case][0]: 1}
    assert bootstraps(result) == ["bad"]


@BOTH
def test_provider_ingest_rejects_garbage_machines(make: Any) -> None:
    lines = [line for _, line in BAD.values()]
    result = make().step(batch(GOOD, *lines), demand(need("c", 5)), Policy(), START)
    assert sum(result.rejected.values()) == len(BAD)
    assert bootstraps(result) == ["good"]


@BOTH
def test_limits_themselves_are_accepted(make: Any) -> None:
    lines = [
        idle("labels", labels={f"k{n}": "v" for n in range(256)}),
        shaped(allocatable=Resources({"cpu": 2**40})),
        idle("sure", risk=1.0),
        machine("bought", CREATING, "c"),
    ]
    assert make().step(batch(*lines), None, Policy(), START).rejected == {}


@BOTH
def test_removing_an_unknown_machine_is_no_error(make: Any) -> None:
    result = make().step(batch(removed("nobody"), GOOD), demand(need("c")), Policy(), START)
    assert result.rejected == {}
    assert bootstraps(result) == ["good"]


@BOTH
def test_removed_machine_is_gone(make: Any) -> None:
    engine = make()
    engine.step(batch(bound("b", "c")), demand(need("c")), Policy(), START)
    result = engine.step(batch(removed("b"), GOOD), None, Policy(), START + 1)
    assert bootstraps(result) == ["good"]


@BOTH
@pytest.mark.parametrize("amount", [-1, 2**52 + 1, 2**62])
@pytest.mark.parametrize("column", ["aggregate", "min_unit"])
def test_bad_row_is_rejected_and_the_others_apply(make: Any, amount: int, column: str) -> None:
    asked = rollup("c", need("c", 1, priority=1), need("c", 1, priority=2))
    bad = np.array(getattr(asked, column))
    bad[0, 0] = amount
    result = make().step(batch(GOOD), DemandBatch([structs.replace(asked, **{column: bad})]), Policy(), START)
    assert result.rejected == {"range": 1}
    assert [v.priority for v in result.verdicts] == [2]
    assert bootstraps(result) == ["good"]


@BOTH
def test_rows_whose_merged_sum_is_out_of_range_are_rejected_together(make: Any) -> None:
    large = replace(need("c", 1, cpu=1), aggregate={"cpu": 2**52})
    small = replace(large, aggregate={"cpu": 1})
    other = need("c", 1, priority=5, cpu=1)
    result = make().step(batch(idle("i", cpu=4)), demand(large, small, other), Policy(), START)
    assert result.rejected == {"range": 1}
    assert [v.priority for v in result.verdicts] == [5]


@BOTH
def test_many_rows_cannot_wrap_around(make: Any) -> None:
    large = replace(need("c", 1, cpu=1), aggregate={"cpu": 2**52})
    result = make().step(None, demand(*[large] * 5000), Policy(), START)
    assert result.rejected == {"range": 1}
    assert not result.verdicts


@pytest.mark.parametrize("column", ["state", "shape", "cluster", "stamp", "not_before"])
def test_columns_of_different_length_are_refused(column: str) -> None:
    good = batch(idle("a"), idle("b"))
    with pytest.raises(ValueError, match=column):
        structs.replace(good, **{column: getattr(good, column)[:1]})


@pytest.mark.parametrize("column", ["shape", "cluster", "stamp"])
@pytest.mark.parametrize("machines", [1, 1000])
@pytest.mark.parametrize("number", [-2, 1])
def test_pointing_outside_a_table_is_refused(column: str, machines: int, number: int) -> None:
    good = batch([idle(f"m{n}") for n in range(machines)])
    bad = getattr(good, column).copy()
    bad[-1] = number
    with pytest.raises(ValueError, match=column):
        structs.replace(good, **{column: bad})
