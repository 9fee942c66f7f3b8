"""Machine counts: by state with the result, by offer and cluster until the next step."""

from __future__ import annotations

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.policy import Policy
from tests.strategies.builders import CONFIGURED, IDLE, START, batch, bound, demand, idle, need, removed, several


def test_counts_follow_machines_that_come_and_go() -> None:
    engine = Engine()
    first = engine.step(
        batch(several(3, bound, "b", "c"), several(2, idle, "i")), demand(need("c", 3)), Policy(), START
    )
    assert first.counts.total == 5
    assert {state: n for state, n in first.counts.by_state.items() if n} == {CONFIGURED: 3, IDLE: 2}
    rows = {(row.state, row.cluster): row.count for row in first.counts.rows()}
    assert rows == {(CONFIGURED, "c"): 3, (IDLE, ""): 2}

    second = engine.step(batch(removed("b0", "i1")), None, Policy(), START + 1)
    assert {(row.state, row.cluster): row.count for row in second.counts.rows()} == {
        (CONFIGURED, "c"): 2,
        (IDLE, ""): 1,
    }
    assert first.counts.by_state[CONFIGURED] == 3
    with pytest.raises(RuntimeError, match="render what you keep"):
        list(first.counts.rows())
