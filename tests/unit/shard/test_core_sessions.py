"""Sessions: one live stream per cluster, bound identity, bounded outboxes, resync, peers that know only the base."""

from __future__ import annotations

import pytest

from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.coordination import ClusterBinding, OwnershipTable
from bigfleet.shard.core.clusters import demand
from tests.strategies.builders import SECOND, rollup
from tests.strategies.shard_world import OLD, S, World, cpu, test_config

REJECTED = "bigfleet_shard_rollups_rejected_total"
LIFECYCLE = "bigfleet_shard_session_lifecycle_total"


def world_with(machines: int, **config: object) -> World:
    world = World(test_config(**config))
    world.provider.several(machines, "i")
    return world


def test_hello_is_acknowledged_first_with_epoch_and_term() -> None:
    world = world_with(0)
    world.told(term=7)
    operator = world.operator("c")
    world.run(0.1)
    assert operator.frames[0] == ev.Acknowledgement("hello", 7, 1)


def test_a_second_hello_is_acknowledged_and_replays_nothing() -> None:
    world = world_with(1)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    before = len(operator.frames)
    world.post(ev.HelloRepeated(operator.session))
    world.run(0.1)
    assert [type(frame) for frame in operator.frames[before:]] == [ev.Acknowledgement]


def test_a_replaced_stream_is_aborted_at_once_and_its_end_removes_nothing() -> None:
    world = world_with(1)
    first = world.operator("c")
    old = first.session
    second = world.operator("c")
    assert [(closed.session, closed.code) for closed in first.closed] == [(old, ev.CloseCode.ABORTED)]
    world.post(ev.SessionClosed(old))
    world.run(0.1)
    session = world.core.state.sessions.of("c")
    assert session is not None and session.id == second.session
    assert world.count(LIFECYCLE, "installed") == 1
    assert world.count(LIFECYCLE, "replaced") == 1
    assert world.count(LIFECYCLE, "removed") == 0


def test_a_bootstrap_request_moves_to_the_stream_that_took_over() -> None:
    world = world_with(1)
    first = world.operator("c")
    first.silent = True
    first.send(cpu("c", 1))
    world.run(5)
    (asked,) = first.of(ev.BootstrapRequest)
    second = world.operator("c")
    world.run(2)
    assert [frame.request_id for frame in second.of(ev.BootstrapRequest)] == [asked.request_id]
    assert world.provider.configured("c") == ["i0"]


def test_a_request_is_asked_again_after_a_reconnect_within_its_deadline_only() -> None:
    world = world_with(1)
    operator = world.operator("c")
    operator.silent = True
    operator.send(cpu("c", 1))
    world.run(5)
    operator.disconnect()
    world.run(5)
    assert world.state_of("i0") == S.CONFIGURING
    operator.silent = False
    operator.connect()
    world.run(2)
    assert len({frame.request_id for frame in operator.of(ev.BootstrapRequest)}) == 1
    assert world.provider.configured("c") == ["i0"]


def test_answers_of_a_stream_that_was_replaced_or_is_another_clusters_are_ignored() -> None:
    world = world_with(1)
    first = world.operator("c")
    first.silent = True
    first.send(cpu("c", 1))
    world.run(5)
    (asked,) = first.of(ev.BootstrapRequest)
    stranger = world.operator("d")
    world.post(ev.BootstrapAnswered(stranger.session, asked.request_id, b"evil"))
    world.run(1)
    assert not world.provider.calls


def test_a_rollup_for_another_cluster_is_rejected_and_counted() -> None:
    world = world_with(1)
    operator = world.operator("c")
    other = world.operator("d")
    body = rollup("c", cpu("c", 1))
    world.post(ev.RollupReceived(other.session, "c", 5, body))
    world.run(15)
    assert not world.provider.calls
    assert world.count(REJECTED, "d") == 1
    ack = other.of(ev.Acknowledgement)[-1]
    assert (ack.outcome, ack.rollup_timestamp) == ("rejected", 5) and "'d'" in ack.reason
    assert not [ack for ack in operator.of(ev.Acknowledgement) if ack.echo == "rollup"]


def test_an_undecodable_rollup_keeps_the_demand_and_is_not_acknowledged_to_a_base_peer() -> None:
    world = world_with(1)
    operator = world.operator("c", OLD)
    operator.send(cpu("c", 1))
    world.run(15)
    world.post(ev.RollupReceived(operator.session, "c", 9, None, error="needs[0].aggregate: cpu is 'x'"))
    world.run(30)
    assert world.provider.configured("c") == ["i0"]
    assert [ack.echo for ack in operator.of(ev.Acknowledgement)] == ["hello", "rollup"]
    assert world.count(REJECTED, "c") == 1
    assert world.messages("rollup rejected at ingest validation")


def test_acks_carry_the_timestamp_and_come_after_the_decision() -> None:
    world = world_with(1)
    operator = world.operator("c")
    world.run(12)
    operator.send(cpu("c", 1))
    sent = world.now
    steps = len(world.steps)
    world.run(2)
    ack = operator.of(ev.Acknowledgement)[-1]
    assert (ack.echo, ack.rollup_timestamp, ack.outcome) == ("rollup", sent, "applied")
    assert len(world.steps) > steps
    operator.report(unchanged=True)
    again = world.now
    world.run(0.1)
    assert operator.of(ev.Acknowledgement)[-1].rollup_timestamp == again


def test_resync_names_every_bound_machine_and_only_those_of_the_cluster() -> None:
    world = world_with(4)
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    other = world.operator("d")
    other.send(cpu("d", 1))
    world.run(20)
    operator.disconnect()
    operator.frames.clear()
    operator.connect()
    world.run(0.5)
    bound = world.provider.configured("c")
    kinds = [type(frame) for frame in operator.frames]
    assert kinds[:4] == [ev.Acknowledgement, ev.NodeState, ev.NodeState, ev.ResyncEnd]
    assert [frame.machine for frame in operator.of(ev.NodeState)] == bound
    assert operator.of(ev.ResyncEnd)[0].machines == tuple(bound)


def test_resync_end_leaves_out_machines_that_left_while_the_operator_was_away() -> None:
    world = world_with(20)
    operator = world.operator("c")
    operator.send(cpu("c", 3))
    world.run(20)
    lost, *kept = world.provider.configured("c")
    operator.disconnect()
    world.provider.lose_host(lost)
    world.run(20)
    operator.frames.clear()
    operator.connect()
    world.run(0.2)
    assert operator.of(ev.ResyncEnd)[0].machines == tuple(kept)


def test_node_frames_carry_what_the_reference_leaves_empty() -> None:
    world = World()
    world.provider.add("i0", labels={"team": "a"})
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    frame = operator.of(ev.NodeState)[-1]
    assert (frame.cluster, frame.node_name, frame.provider_id) == ("c", "i0", "host-i0")
    assert frame.shape is not None and dict(frame.shape.labels)["team"] == "a"
    world.post(ev.NodeReported(operator.session, "i0", "ip-10-0-0-1", ready=True))
    operator.disconnect()
    operator.connect()
    world.run(0.1)
    assert operator.of(ev.NodeState)[-1].node_name == "ip-10-0-0-1"
    stranger = world.operator("d")
    world.post(ev.NodeReported(stranger.session, "i0", "evil"))
    assert world.core.nodes.name("c", "i0") == "ip-10-0-0-1" and world.core.nodes.name("d", "i0") == "i0"


def test_a_stuck_operator_harms_nobody_and_its_outbox_stays_bounded() -> None:
    world = world_with(8, outbox_limit=4)
    stuck = world.operator("stuck", OLD)
    stuck.stuck = True
    stuck.send(cpu("stuck", 4))
    fine = world.operator("fine")
    fine.send(cpu("fine", 4, priority=5))
    world.run(120)
    assert len(world.provider.configured("fine")) == 4
    session = world.core.state.sessions.of("stuck")
    assert session is not None and session.outbox.coalesced <= 4
    stuck.stuck = False
    world.run(90)
    assert len(world.provider.configured("stuck")) == 4


def test_node_states_are_coalesced_but_draining_is_seen_before_the_end() -> None:
    world = world_with(1)
    operator = world.operator("c", OLD)
    operator.send(cpu("c", 1))
    world.run(15)
    operator.frames.clear()
    operator.stuck = True
    operator.send()
    world.run(20)
    assert world.provider.states() == {S.IDLE: 1}
    operator.stuck = False
    world.run(2)
    assert operator.node_states("i0") == [S.DRAINING, S.IDLE]
    assert len(operator.of(ev.ReclaimInstruction)) == 1


def test_a_machine_another_cluster_has_by_now_looks_drained_to_the_first() -> None:
    world = world_with(1)
    low = world.operator("low")
    low.send(cpu("low", 1, priority=1))
    world.run(15)
    low.frames.clear()
    low.evict_after = 0.1
    low.disconnect()
    world.operator("high").send(cpu("high", 1, priority=10**6))
    world.run(30)
    low.connect()
    world.run(1)
    assert world.provider.configured("high") == ["i0"]
    assert low.of(ev.ResyncEnd)[-1].machines == ()


def test_a_disconnected_cluster_keeps_its_machines_but_gets_no_new_ones() -> None:
    world = world_with(3)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    operator.send(cpu("c", 3))
    operator.disconnect()
    world.run(60)
    assert len(world.provider.configured("c")) == 1
    operator.connect()
    operator.send(cpu("c", 3))
    world.run(15)
    assert len(world.provider.configured("c")) == 3


def test_a_cluster_claimed_by_another_shard_is_credited_but_does_not_acquire() -> None:
    world = World(test_config(with_coordinator=True))
    world.provider.several(2, "i")
    world.told(table=OwnershipTable(1, 1, "shard-0"))
    operator = world.operator("c", connect=False)
    operator.connect(bound_shard_id="shard-9")
    operator.send(cpu("c", 1))
    world.run(30)
    assert not world.provider.calls
    world.told(bindings=(ClusterBinding("c", "shard-0"),))
    world.run(15)
    assert world.provider.configured("c") == ["i0"]


def test_a_step_takes_over_so_many_rollups_and_the_next_follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "ROLLUPS_PER_STEP", 2)
    world = World()
    operators = [world.operator(f"c{number}") for number in range(7)]
    world.run(15)
    before, began = len(world.steps), world.now
    for operator in operators:
        operator.send(cpu(operator.cluster, 1))
    world.run(1.5)
    taken = [[each.cluster for each in step.demand.rollups] for step in world.steps[before:] if step.demand is not None]
    assert sorted(name for step in taken for name in step) == sorted(operator.cluster for operator in operators)
    assert max(map(len, taken)) == 2
    assert all(operator.of(ev.Acknowledgement)[-1].outcome == "applied" for operator in operators)
    assert world.now - began < 2 * SECOND, "nobody waited for another cycle"


def test_a_large_rollup_lets_the_others_go_first_and_then_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "LARGE_ROWS", 5)
    world = World()
    crowd, small = world.operator("crowd"), world.operator("small")
    world.run(15)
    small.send(cpu("small", 1))
    world.run(0.2)
    before = len(world.steps)
    # Both wait now: a step was taken a moment ago.
    crowd.send(*(cpu("crowd", 1, priority=number) for number in range(8)))
    small.send(cpu("small", 2))
    world.run(1.5)
    taken = [[each.cluster for each in step.demand.rollups] for step in world.steps[before:] if step.demand is not None]
    assert [each for each in taken if each] == [["small"], ["crowd"]]
    assert crowd.of(ev.Acknowledgement)[-1].outcome == "applied"
