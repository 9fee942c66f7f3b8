"""What people read of a need that is unmet is what is the case: who refuses, what failed, what rests, what lacks."""

from __future__ import annotations

import pytest

from bigfleet.cli import words
from bigfleet.engine.results import UnmetReason
from bigfleet.shard.contract import events as ev
from bigfleet.shard.read.explaining import rendered
from bigfleet.shard.read.service import need_of
from bigfleet.wire import shardread_pb2
from tests.strategies.builders import need, rollup
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, cpu, test_config

# By the rules as they are written down, and by the engine that is shipped.
judged = pytest.mark.parametrize("oracle", [True, False], ids=["rules", "engine"])


def told(world: World, cluster: str = "c") -> shardread_pb2.NeedView:
    """The one need of a cluster, as the last step left it."""
    (verdict,) = [each for each in world.results[-1].verdicts.rows() if each.key.cluster == cluster]
    return need_of(world.core, verdict)


def refuse_every_token(world: World) -> None:
    for unit in world.provider.units.values():
        unit.mark = (10**15, 1)


def test_purchases_of_a_provider_that_refuses_the_shard_are_not_told_as_being_made() -> None:
    world = World()
    world.provider.several(8, "s", S.SPECULATIVE)
    refuse_every_token(world)
    world.operator("c").send(cpu("c", 3))
    world.run(30)
    assert world.core.published.stood_off, "the provider refused two machines: nothing more is asked of it"
    world.run(600)
    asked = len(world.provider.calls)
    world.run(60)
    assert len(world.provider.calls) == asked
    need = told(world)
    (barred,) = need.barred
    assert barred.startswith("p: ") and "refuses epoch" in barred
    assert "nothing is asked of p" in words.why(need)


def test_where_another_provider_serves_it_nothing_is_said_of_the_one_that_refuses() -> None:
    world = World(config=test_config(providers=("p", "q")))
    world.providers["p"].several(4, "s", S.SPECULATIVE, price=1.0)
    world.providers["q"].several(4, "t", S.SPECULATIVE, price=2.0)
    refuse_every_token(world)
    world.operator("c").send(cpu("c", 3))
    world.run(30)
    assert world.core.published.stood_off
    assert len(world.providers["q"].configured("c")) == 3
    assert not told(world).barred


@judged
def test_machines_that_would_fit_and_have_failed_are_counted_with_their_error(oracle: bool) -> None:
    world = World(oracle=oracle)
    world.provider.several(4, "i")
    for number in range(4):
        world.provider.units[f"i{number}"].state = S.FAILED
        world.provider.units[f"i{number}"].error = "drain: pods remain after the grace"
    world.operator("c").send(cpu("c", 2))
    world.run(20)
    need = told(world)
    assert need.unmet_reason == int(UnmetReason.SUPPLY_BACKED_OFF)
    assert need.detail == "4 that would fit have failed: pods remain after the grace"
    assert words.why(need) == need.detail
    assert need.failed_machines == 4


@judged
def test_what_the_cluster_runs_on_every_node_is_told_where_it_leaves_no_room(oracle: bool) -> None:
    world = World(oracle=oracle)
    world.provider.several(4, "s", S.SPECULATIVE, type="m.16", size={"cpu": 16000})
    operator = world.operator("c")
    operator.rollup = rollup("c", need("c", 1, cpu=15.5), overhead={"cpu": 1000})
    operator.report()
    world.run(60)
    assert not world.provider.calls
    view = told(world)
    assert view.detail.startswith("m.16 would hold it, but not beside what its cluster runs on every node")
    assert view.detail.endswith("15.5 vCPU of 16 vCPU less 1 vCPU")


def remedy(world: World, reworded: str) -> str:
    """What a person is told to do about the one need, whatever words the shard chose for what is the case."""
    (verdict,) = world.results[-1].verdicts.rows()
    need = need_of(world.core, verdict)
    made = rendered(world.engine.explain(verdict.key, kinds=()), world.core.published, need)
    need.detail = reworded
    for each in made.lost:
        each.reason = reworded
    made.need.CopyFrom(need)
    return words.without_remedy(made)


def test_what_to_do_about_failures_and_overhead_hangs_on_no_wording() -> None:
    broken = World(oracle=False)
    broken.provider.add("i", S.FAILED).error = "drain: no"
    broken.operator("c").send(cpu("c", 2))
    broken.run(20)
    assert remedy(broken, "something else") == "repair what has failed, or more machines that match"
    tight = World(oracle=False)
    tight.provider.several(4, "s", S.SPECULATIVE, type="m.16", size={"cpu": 16000})
    operator = tight.operator("c")
    operator.rollup = rollup("c", need("c", 1, cpu=15.5), overhead={"cpu": 1000})
    operator.report()
    tight.run(60)
    assert remedy(tight, "something else").startswith("machines with room for a unit beside what its cluster runs")
    small = World(oracle=False)
    small.provider.several(1, "s", S.SPECULATIVE, size={"cpu": 100})
    small.operator("c").send(cpu("c", 2))
    small.run(20)
    assert remedy(small, "4 that would fit have failed") == "no single change would satisfy it: all were tried"


@judged
def test_failed_machines_that_are_too_small_are_no_answer(oracle: bool) -> None:
    world = World(oracle=oracle)
    world.provider.add("small", S.FAILED, size={"cpu": 1000}).error = "create: no"
    world.operator("c").send(cpu("c", 2))
    world.run(20)
    need = told(world)
    assert need.unmet_reason == int(UnmetReason.NO_MATCHING_SUPPLY) and not need.detail


@judged
def test_a_fleet_without_machines_is_told_as_such_and_not_as_a_resource_nobody_has(oracle: bool) -> None:
    world = World(oracle=oracle)
    world.operator("c").send(cpu("c", 2))
    world.run(20)
    need = told(world)
    assert need.unmet_reason == int(UnmetReason.NO_MATCHING_SUPPLY)
    assert words.why(need) == "no machine is known: providers have listed none"


@judged
@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (12, "none of the 12 machines that providers have listed is this shard's"),
        (1, "the one machine that providers have listed is not this shard's"),
    ],
)
def test_a_shard_that_owns_none_of_the_machines_it_knows_says_so(oracle: bool, listed: int, said: str) -> None:
    world = World(config=test_config(domain=(("topology.kubernetes.io/zone", "elsewhere"),)), oracle=oracle)
    world.provider.several(listed, "m")
    world.operator("c").send(cpu("c", 2))
    world.run(20)
    need = told(world)
    assert need.unmet_reason == int(UnmetReason.NO_MATCHING_SUPPLY)
    assert words.why(need) == said


def test_what_a_purchase_beat_is_told_with_why_it_was_not_to_be_had() -> None:
    world = World()
    world.provider.several(6, "cheap", S.SPECULATIVE, type="cheap", price=0.1)
    world.provider.several(3, "dear", S.SPECULATIVE, type="dear", price=0.3)

    def sells(call: ev.CallProvider) -> tuple[ev.Failure, str] | None:
        return (ev.Failure.INVALID, "quota exceeded") if call.machine.startswith("cheap") else None

    world.provider.refuse = sells
    cluster = PlacingOperator(world, "c")
    cluster.start(3, 4)
    world.run(300)
    assert len(world.provider.configured("c")) == 3
    taken = world.core.published.actions
    beat = [each.beat for each in taken if each.machine.startswith("dear") and each.kind == "Provision"]
    assert beat and all("cheap in a of p" in each and "to be bought" not in each for each in beat), beat


def test_a_kind_whose_nodes_never_came_is_told_as_not_tried() -> None:
    world = World(config=test_config(ready_timeout=round(60e9)))
    world.provider.several(1, "a", S.SPECULATIVE, type="bad", price=0.5)
    world.provider.several(2, "b", S.SPECULATIVE, type="good")
    cluster = PlacingOperator(world, "c")
    cluster.never_ready = {"a0"}
    cluster.start(1, 3)
    world.run(240)
    assert not cluster.waiting
    beat = [each.beat for each in world.core.published.actions if each.machine == "b0" and each.kind == "Provision"]
    assert beat and all("to be bought" not in each for each in beat), beat
