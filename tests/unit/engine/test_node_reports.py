"""What clusters say about their nodes is kept as they said it, and what follows from it (engine.md P2 to P5, P8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bigfleet.engine.batches import DemandBatch
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import RollupOutcome
from tests.oracle.step import Oracle
from tests.strategies.builders import DRAINING, SECOND, START, batch, bound, idle, need, rollup
from tests.strategies.fleets import Size
from tests.strategies.placed import counted, node, pods, reports
from tests.strategies.placed_fleets import play_placed
from tests.strategies.told_nodes import ToldNodes

APPLIED = {"c": RollupOutcome.APPLIED}
FACTS: dict[str, Any] = {"cpu": 8, "mem": 32, "price": 0.4}


class Cluster:
    """One cluster's steps, a line each."""

    def __init__(self) -> None:
        self.told = ToldNodes()
        self.now = START

    def __call__(self, *machines: Any, outcome: RollupOutcome = RollupOutcome.APPLIED, after: int = 0, **change: Any):  # type: ignore[no-untyped-def]
        self.now += after * SECOND
        lines = batch(*machines) if machines else None
        self.told.hear(lines, DemandBatch(**change), Policy(), self.now, {"c": outcome})
        return self

    @property
    def rejected(self) -> int:
        return self.told.rejected.get("node", 0)

    def seen(self) -> set[str]:
        return self.told._seen(self.told.engine.fleet.cluster_index["c"])

    def young(self) -> set[str]:
        return set(self.told.engine.fleet.ids.texts(self.told.nodes.young))

    def reported(self) -> set[str]:
        nodes, fleet = self.told.nodes, self.told.engine.fleet
        return {fleet.ids.text(int(nodes.r.slot[row])) for row in nodes.rows(fleet.cluster_index["c"])}

    def room(self, cpu: int) -> int:
        nodes, catalog = self.told.nodes, self.told.engine.catalog
        wide = np.zeros(catalog.width, np.int64)
        wide[catalog.resource("cpu")] = cpu
        offer = int(catalog.shape_offer[self.told.engine.fleet.v.shape[self.told.engine.fleet.ids.find("n")]])
        cluster = self.told.engine.fleet.cluster_index["c"]
        return int(nodes.smallest(cluster, offer, wide)[catalog.resource("cpu")])


def asked(version: int = 1) -> dict[str, Any]:
    return {"rollups": [counted("c", pods("c", 1, running=1, cpu=1), version=version)]}


def test_a_node_is_seen_once_a_roll_up_is_as_new_as_its_first_open_report() -> None:
    c = Cluster()(bound("n", "c", **FACTS), **asked(3), reports=[reports("c", node("n", version=5))])
    assert (c.seen(), c.young()) == (set(), {"n"})
    c(reports=[reports("c", node("n", version=9))])
    c(confirmed=[("c", 4)])
    assert c.seen() == set()
    c(confirmed=[("c", 5)])
    assert (c.seen(), c.young()) == ({"n"}, set())


def test_closing_ends_the_run_of_open_reports() -> None:
    c = Cluster()(bound("n", "c", **FACTS), **asked(5), reports=[reports("c", node("n", version=5))])
    c(reports=[reports("c", node("n", version=6, closing_since=START))])
    assert c.seen() == set()
    c(reports=[reports("c", node("n", version=7))])
    assert (c.seen(), c.young()) == (set(), {"n"})
    c(confirmed=[("c", 7)])
    assert c.seen() == {"n"}


def test_draining_ends_the_run_and_leaving_the_cluster_ends_the_report() -> None:
    c = Cluster()(bound("n", "c", **FACTS), **asked(5), reports=[reports("c", node("n", version=5))])
    here = bound("n", "c", **FACTS)
    c(here.to(DRAINING, "c"))
    assert (c.seen(), c.reported()) == (set(), {"n"})
    c(here)
    assert c.seen() == set()
    c(idle("n", **FACTS))
    assert c.reported() == set()
    c(here)
    assert (c.reported(), c.young()) == (set(), {"n"})


def test_a_machine_that_takes_the_place_of_a_removed_one_has_no_report() -> None:
    c = Cluster()(bound("n", "c", **FACTS), **asked(5), reports=[reports("c", node("n", version=5))])
    c(bound("n", "c", **FACTS).to(0))
    assert c.reported() == set()
    c(bound("m", "c", **FACTS))
    assert (c.reported(), c.young()) == (set(), {"m"})


def test_a_new_stream_forgets_reports_and_confirms_nothing() -> None:
    c = Cluster()(bound("n", "c", **FACTS), **asked(5), reports=[reports("c", node("n", version=5))])
    c(streams=["c"])
    assert (c.reported(), c.young()) == (set(), {"n"})
    c(confirmed=[("c", 9)], reports=[reports("c", node("n", version=5))])
    assert c.seen() == set()
    c(**asked(5))
    assert c.seen() == {"n"}


def test_reports_on_strangers_and_of_impossible_amounts_are_rejected() -> None:
    c = Cluster()(bound("n", "c", **FACTS), bound("other", "d", **FACTS), idle("free", **FACTS), **asked())
    lines = [node("n", cpu=2**50), node("other"), node("free"), node("nobody")]
    c(reports=[reports("c", *lines)])
    assert (c.rejected, c.reported()) == (4, set())


def test_room_is_the_smallest_that_nodes_of_the_kind_say_now() -> None:
    c = Cluster()(bound("n", "c", **FACTS), bound("m", "c", **FACTS), **asked())
    assert c.room(8000) == 8000
    c(reports=[reports("c", node("n", allocatable={"cpu": 7000, "memory": 1}), node("m", allocatable={"cpu": 7500}))])
    assert c.room(8000) == 7000
    c(reports=[reports("c", node("n", allocatable={"cpu": 7700}))])
    assert c.room(8000) == 7500
    c(reports=[reports("c", node("m"))])
    assert c.room(8000) == 7700
    c(bound("n", "c", **FACTS).to(0))
    c(bound("n", "c", **FACTS))
    assert c.room(8000) == 8000


def test_clusters_of_sums_are_kept_and_say_nothing_until_they_count() -> None:
    c = Cluster()(bound("n", "c", **FACTS), rollups=[rollup("c", need("c", 1, cpu=1))])
    c(reports=[reports("c", node("n"))])
    assert (c.reported(), c.young()) == ({"n"}, set())
    number = c.told.engine.fleet.cluster_index["c"]
    c(**asked(), after=7)
    assert int(c.told.nodes.s.changed_at[number]) == START + 7 * SECOND
    assert c.seen() == {"n"}


def test_nothing_is_kept_by_machine_while_nobody_reports() -> None:
    told = ToldNodes()
    lines = [bound(f"n{n}", "c", **FACTS) for n in range(50)]
    told.hear(batch(lines), DemandBatch(rollups=[rollup("c", need("c", 1, cpu=1))]), Policy(), START, APPLIED)
    assert sum(column.nbytes for column in told.nodes.r) < 200


def test_loads_that_came_and_went_are_given_back() -> None:
    lines = [bound(f"n{n}", "c", **FACTS) for n in range(300)]
    c = Cluster()(*lines, **asked())
    for wave in range(9):
        shown = [
            node(f"n{n}", profiles=[f"p{wave}", f"q{n}"], exclusive=[f"port:{wave}-{n % 7}"], version=wave)
            for n in range(300)
        ]
        c(reports=[reports("c", *shown)])
    loads = c.told.nodes.loads
    assert len(loads.table) < 2000
    assert len(loads.token_sets) < 1200
    told = {c.told.engine.fleet.ids.text(int(c.told.nodes.r.slot[row])): row for row in c.told.nodes.rows(0)}
    for n in (0, 5, 299):
        row = told[f"n{n}"]
        assert c.told.nodes.load(row).profiles == ("p8", f"q{n}")
        assert c.told.nodes.tokens(row) == {f"port:8-{n % 7}"}


def test_rooms_of_many_kinds_stay_apart() -> None:
    kinds = [bound(f"n{n}", "c", type=f"t{n}", **FACTS) for n in range(200)]
    c = Cluster()(*kinds, **asked())
    c(reports=[reports("c", *(node(f"n{n}", allocatable={"cpu": 1000 + n}) for n in range(200)))])
    nodes, catalog, fleet = c.told.nodes, c.told.engine.catalog, c.told.engine.fleet
    wide = np.full(catalog.width, 8000, np.int64)
    for n in range(200):
        offer = int(catalog.shape_offer[fleet.v.shape[fleet.ids.find(f"n{n}")]])
        assert nodes.smallest(fleet.cluster_index["c"], offer, wide)[catalog.resource("cpu")] == 1000 + n


@pytest.mark.parametrize("seed", range(40))
def test_the_store_knows_what_the_oracle_knows(seed: int) -> None:
    oracle, told = Oracle(), ToldNodes()
    for step, result in play_placed(seed, Size(machines=32, rows=8, steps=8), oracle):
        feeding = _Feeding(told, result.rollups)
        step.feed(feeding)
        assert told.disagreement(oracle, result, step.policy) is None


class _Feeding:
    """Stands where a step is fed, with the outcomes the oracle found."""

    def __init__(self, told: ToldNodes, outcomes: Any) -> None:
        self.told, self.outcomes = told, outcomes

    def step(self, machines: Any, demand: Any, policy: Policy, now: int, _conditions: Any) -> None:
        self.told.hear(machines, demand, policy, now, self.outcomes)
