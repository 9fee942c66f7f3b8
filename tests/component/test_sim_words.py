"""What `needs` and `explain` say in the middle of scenarios is true, and says it in words.

Each case plays a shipped scenario to a moment with the production engine and shard core, and reads what a person would
read there. What is expected follows from the scenario: how many pods there are, which run, what is on its way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bigfleet.cli.ctl.explaining import folded
from bigfleet.cli.ctl.reading import need_row
from bigfleet.engine.engine import Engine
from bigfleet.shard.contract import events as ev
from bigfleet.shard.core.published import Published
from bigfleet.shard.read.explaining import rendered
from bigfleet.shard.read.service import need_of
from bigfleet.sim import library
from bigfleet.sim.document.document import Nanoseconds
from bigfleet.sim.scenario.scenario import OperatorKind, Scenario, parse_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import MINUTE, SECOND


class Moment(Simulation):
    """A scenario played to an instant, and what readers are told there."""

    def __init__(self, scenario: Scenario | str, until: float) -> None:
        self.engines: list[Engine] = []
        self.wanted: ev.RunStep | None = None
        scenario = library.find(scenario) if isinstance(scenario, str) else scenario
        super().__init__(scenario, engine=self._made)
        self.kernel.run_until(Nanoseconds(int(until)))

    def _made(self) -> Engine:
        self.engines.append(Engine())
        return self.engines[-1]

    def stepped(self, shard: str, wanted: ev.RunStep, result: Any) -> None:
        self.wanted = wanted
        super().stepped(shard, wanted, result)

    def needs(self) -> list[str]:
        """Per need: its cluster, how its units are, and why some have no room."""
        core = self.sites[0].host.core
        assert core is not None
        rows = [need_row(need_of(core, verdict)) for verdict in self._latest["shard-0"].verdicts.rows()]
        return [f"{row['CLUSTER']}: {row['UNITS']}; {row['WHY']}" for row in rows]

    def explain(self) -> str:
        """What `explain --all` prints."""
        core = self.sites[0].host.core
        assert core is not None and self.wanted is not None
        engine = self.engines[-1].copy()
        engine.step(None, None, self.wanted.policy, self.wanted.now, self.wanted.conditions)
        found = []
        for verdict in self._latest["shard-0"].verdicts.rows():
            view = need_of(core, verdict)
            told = rendered(engine.explain(verdict.key), core.published, view)
            told.need.CopyFrom(view)
            found.append(told)
        return "\n".join(folded(found))

    @property
    def published(self) -> Published:
        core = self.sites[0].host.core
        assert core is not None
        return core.published

    def stories(self) -> list[str]:
        """Everything told of any machine."""
        core = self.sites[0].host.core
        assert core is not None
        return [text for view in core.read.machines() for _, text in core.read.story(view.key)]


def test_pods_that_fit_nowhere_are_told_from_wanted_to_running() -> None:
    """Forty pods of five cores, machines of eight: one machine each."""
    bought = Moment("pods-of-five", 5 * SECOND)
    assert bought.needs() == ["only: 40 wanted: 40 stranded (40 get machines now); waits for a node to appear"]
    assert "has      40 × m6i.2xlarge, on demand, in zone-a, $0.384/h each (being bought)" in bought.explain()
    assert Moment("pods-of-five", 30 * SECOND).needs() == ["only: 40 wanted: 40 run; -"]


def test_one_gpu_pods_are_told_which_machines_are_bought_for_them() -> None:
    told = Moment("one-gpu-pods", 5 * SECOND)
    assert told.needs() == ["only: 12 wanted: 12 stranded (12 get machines now); waits for a node to appear"]
    assert "3 × g6.12xlarge, on demand, in zone-a, $4.60/h each (being bought)" in told.explain()


def test_a_pod_on_whose_way_a_machine_is_knows_until_when() -> None:
    """It comes ten minutes after the others; its machine has until 15 minutes after that to appear."""
    told = Moment("one-large-among-small", 10 * MINUTE + 11 * SECOND)
    coming, running = told.needs()
    assert coming.startswith("only: 1 wanted: 1 stranded (1 is coming until 00:25:")
    assert running == "only: 24 wanted: 24 run; -"
    assert "why      Machines for it are under way; their nodes have not appeared yet." in told.explain()


def test_free_room_in_pieces_too_small_is_called_that() -> None:
    """The free cores of four nodes of 32 add up to eight, and nothing else is for sale."""
    scenario = library.find("one-large-among-small")
    sold = tuple(replace(offer, slots=4) for offer in scenario.fleets[0].offers if offer.name == "thirty-two")
    none_left = scenario.with_(fleets=(replace(scenario.fleets[0], offers=sold),), expect=())
    told = Moment(none_left, 12 * MINUTE)
    assert told.needs()[0] == "only: 1 wanted: 1 stranded (1 is missing); free space is in pieces too small"
    assert "why      Its cluster has as much free, but in pieces too small for a unit." in told.explain()


def test_services_that_only_spot_could_hold_are_told_that_it_is_too_risky() -> None:
    scenario = library.find("services-beside-spot")
    spot = tuple(offer for offer in scenario.fleets[0].offers if offer.name == "spot")
    rented = tuple(replace(offer, slots=1) for offer in scenario.fleets[0].offers if offer.name == "rented")
    fleet = replace(scenario.fleets[0], offers=(*spot, *rented))
    # With the rule that keeps them off spot they would ask for something else.
    clusters = tuple(replace(cluster, risk_rule=False) for cluster in scenario.clusters)
    told = Moment(scenario.with_(fleets=(fleet,), clusters=clusters), 20 * MINUTE)
    services, batch = told.needs()
    assert services == "only: 10 wanted: 2 run, 8 stranded (8 are missing); interrupted too often for it"
    assert batch == "only: 20 wanted: 20 run; -"
    assert "What is free is interrupted too often for what an interruption costs it." in told.explain()


def test_pods_that_share_no_node_leave_room_in_which_others_are_told_to_run() -> None:
    """Ten nodes of four cores hold one store each: thirty cores are left for thirty web pods."""
    told = Moment("one-pod-per-node", 15 * MINUTE + 4 * SECOND)
    assert told.needs() == ["only: 10 wanted: 10 run; -", "only: 30 wanted: 30 run; -"]


def test_an_operator_that_talks_nonsense_is_told_so() -> None:
    told = Moment("nonsense-stranded", 16 * MINUTE)
    assert told.needs() == ["only: 20 wanted: 20 stranded (20 are missing); its cluster contradicts itself"]
    assert "What its operator says of pods and nodes contradicts itself: it gets nothing more." in told.explain()
    assert told.published.doubted == {"only"}
    sense = Moment("nonsense-stranded", 40 * MINUTE)
    assert sense.needs() == ["only: 20 wanted: 20 run; -"]
    assert not sense.published.doubted


def test_a_refused_drain_says_whose_pods_would_have_no_room() -> None:
    told = Moment("refused-drain", 18 * MINUTE)
    assert told.needs() == ["only: 12 wanted: 12 run; -"]
    why = "1 pod of node eight-zone-a-0000 or others would have no room"
    assert f"Reclaim ended: refused (the cluster refused: {why})" in told.stories()


def test_closings_and_moves_name_the_price_and_what_they_save() -> None:
    told = Moment("owned-freed", 60 * MINUTE)
    assert told.needs() == ["late: 6 wanted: 6 run; -"]
    stories = told.stories()
    assert "closed to new pods (phase3.close): it costs $0.192/h" in stories
    moved = "its pods move (phase3.move): saves $0.192/h: $0.000/h instead of $0.192/h, 1 pod moves"
    assert moved in stories
    assert "the move is over: saves $0.192/h" in stories


def test_a_market_that_is_sold_out_is_named_to_those_it_would_serve() -> None:
    """Spot is sold out and on demand has only ten machines: four of fourteen pods wait."""
    scenario = library.find("spot-returns")
    offers = tuple(replace(offer, slots=10) if offer.name == "rented" else offer for offer in scenario.fleets[0].offers)
    told = Moment(scenario.with_(fleets=(replace(scenario.fleets[0], offers=offers),)), 34 * MINUTE)
    (need,) = told.needs()
    assert need.startswith("only: 14 wanted: 10 run, 4 stranded (4 are missing); ")


def test_what_is_told_of_units_is_what_the_cluster_has() -> None:
    """At rest, in every scenario whose clusters report placement: wanted and running as the cluster itself counts."""
    for name in library.shipped():
        scenario = library.find(name)
        if scenario.operator is not OperatorKind.PLACEMENT or name.startswith("jobs"):
            continue
        told = Moment(name, min(int(scenario.duration), 14 * MINUTE))
        live, running = told.pods("", "")
        units = [verdict.units for verdict in told._latest["shard-0"].verdicts.rows()]
        assert (sum(each.count for each in units), sum(each.running for each in units)) == (live, running), name


IDLE_FLEET = """\
name: waiting
description: Four pods and machines for them.
duration: 20m
shapes: {w: {resources: {cpu: 4, memory: 16Gi}, priority: 1000}}
fleets: [{offers: [{name: od, instance_type: m6i.2xlarge, slots: 4}]}]
clusters: [{name: prod}]
workloads: [{kind: deployment, name: w, shape: w, replicas: 4}]
"""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("do: rails, paused: true", "Rails are paused: nothing of what was decided for it is done."),
        ("do: rails, dry_run: true", "Rails are set to dry run: nothing of what was decided for it is done."),
        ("do: operator-disconnect, for: 2h", "Its operator is not connected: the shard has not heard of what is new."),
    ],
)
def test_a_summary_does_not_say_that_something_is_under_way_or_met_when_nothing_is(step: str, said: str) -> None:
    scenario = parse_scenario(f"{IDLE_FLEET}steps: [{{at: 0s, {step}}}]\n", "waiting")
    (row,) = library.play(scenario).summary["waiting"]
    assert (row["pods"], row["shard"]) == (4, said)


def test_a_summary_tells_a_gang_too_large_for_any_rack_from_one_whose_rack_is_in_use() -> None:
    (row,) = library.play(library.find("unsatisfiable-gang")).summary["unmet"]
    assert row["why"].endswith("and none could hold it even if it were empty: the largest takes 4 of its 8.")
    rack = """\
name: rack
description: One rack of four; a pod of the same cluster stands on one of them when a gang of four comes.
duration: 30m
shapes:
  train: {resources: {cpu: 90, memory: 900Gi, nvidia.com/gpu: 8}, priority: 1000, same: rack}
  infer: {resources: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}, priority: 1000}
fleets: [{offers: [{name: dgx, instance_type: p4d.24xlarge, capacity_type: reserved, idle: 4, racks: 1}]}]
clusters: [{name: ml}]
workloads:
  - {kind: deployment, name: infer, shape: infer, replicas: 2}
  - {kind: deployment, name: train, shape: train, replicas: 4, start: 5m}
"""
    (row,) = library.play(parse_scenario(rack, "rack")).summary["unmet"]
    assert "none has room now" in row["why"] and row["why"].endswith("1 of its 4 machines is in use by ml.")
