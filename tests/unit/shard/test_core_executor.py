"""The executor: intents before calls, attempts with backoff, breakers, fences, user data, and how each action ends."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import S, World, cpu, test_config

UNAVAILABLE = (ev.Failure.UNAVAILABLE, "connection refused")
OTHER = (ev.Failure.OTHER, "out of stock")
Refusal = Callable[[ev.CallProvider], tuple[ev.Failure, str] | None]


def only(kind: CallKind, answer: tuple[ev.Failure, str], times: int = 10**9) -> Refusal:
    left = [times]

    def refuse(call: ev.CallProvider) -> tuple[ev.Failure, str] | None:
        if call.kind == kind and left[0] > 0:
            left[0] -= 1
            return answer
        return None

    return refuse


def asking(world: World, machines: int, cluster: str = "c"):  # type: ignore[no-untyped-def]
    operator = world.operator(cluster)
    operator.send(cpu(cluster, machines))
    return operator


def test_the_intent_is_journalled_in_the_same_turn_before_the_call() -> None:
    world = World()
    world.provider.add("s0", S.SPECULATIVE)
    seen = []
    perform = world._perform

    def watch(instructions: list[ev.Instruction]) -> None:
        kinds = [type(instruction) for instruction in instructions]
        if ev.CallProvider in kinds:
            seen.append((kinds[0], instructions[0]))
        perform(instructions)

    world._perform = watch  # type: ignore[method-assign]
    asking(world, 1)
    world.run(15)
    kind, journal = seen[0]
    assert kind is ev.Journal and isinstance(journal, ev.Journal) and not journal.lazy
    row = json.loads(next(value for table, key, value in journal.entries if table == ev.Table.INTENT and value))
    assert row["cluster"] == "c" and row["fingerprint"] and row["deadline"] > world.now


def test_calls_in_flight_are_bounded_per_provider() -> None:
    world = World(test_config(execute_concurrency=3))
    world.provider.several(20, "s", S.SPECULATIVE)
    world.provider.latency = 2.0
    asking(world, 20)
    highest = 0
    for _ in range(400):
        world.run(0.1)
        highest = max(highest, world.core.published.inflight)
    assert highest == 3
    assert len(world.provider.configured("c")) == 20


def test_an_unavailable_provider_is_retried_with_a_fresh_fence_each_time() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.refuse = only(CallKind.CONFIGURE, UNAVAILABLE, times=2)
    asking(world, 1)
    world.run(20)
    assert world.provider.configured("c") == ["i0"]
    fences = [call.fence.sequence for call in world.provider.calls]
    assert len(fences) == 3 and fences == sorted(set(fences))
    assert world.outcomes() == {"success": 1}


def test_a_lost_answer_is_found_out_and_nothing_is_done_twice() -> None:
    world = World(test_config(execute_timeout=5 * 10**9))
    world.provider.add("s0", S.SPECULATIVE)
    dropped: list[int] = []

    def drop(call: ev.CallProvider) -> bool:
        if len(dropped) < 2:
            dropped.append(call.op)
            return True
        return False

    world.provider.drop_answers = drop
    asking(world, 1)
    world.run(90)
    assert world.provider.configured("c") == ["s0"]
    assert set(world.provider.counts.values()) == {1}


def test_a_failed_create_pauses_its_kind_and_demand_goes_elsewhere() -> None:
    world = World()
    world.provider.several(5, "cheap", S.SPECULATIVE, type="m", price=1.0)
    world.provider.several(5, "dear", S.SPECULATIVE, type="n", price=9.0)

    def refuse(call: ev.CallProvider) -> tuple[ev.Failure, str] | None:
        return OTHER if call.kind == CallKind.CREATE and call.machine.startswith("cheap") else None

    world.provider.refuse = refuse
    asking(world, 2)
    world.run(15)
    assert world.provider.configured("c") == ["dear0", "dear1"]
    assert world.core.published.breakers[0].instance_type == "m"
    tries = sum(call.machine.startswith("cheap") for call in world.provider.calls)
    assert tries == 2
    assert world.outcomes("Provision") == {"provider_error": 2, "success": 2}
    world.run(10)
    assert world.state_of("cheap0") == S.SPECULATIVE


def test_a_breaker_grows_with_every_wave_of_failures() -> None:
    world = World()
    world.provider.several(40, "s", S.SPECULATIVE)
    world.provider.refuse = only(CallKind.CREATE, OTHER)
    asking(world, 1)
    world.run(1800)
    tries = [call for call in world.provider.calls if call.kind == CallKind.CREATE]
    assert 4 <= len(tries) <= 9
    world.provider.refuse = lambda call: None
    world.run(1800)
    assert len(world.provider.configured("c")) == 1


def test_a_single_stale_answer_rests_its_machine_and_nothing_else() -> None:
    world = World()
    world.provider.several(2, "i")
    world.provider.refuse = only(CallKind.CONFIGURE, (ev.Failure.FENCED, "stale"), times=1)
    asking(world, 1)
    world.run(3)
    view = world.core.read.machine("i0")
    assert view is not None and view.record.state == S.IDLE and view.not_before > world.now
    assert world.outcomes() == {"fenced": 1, "success": 1}
    assert sum(call.machine == "i0" for call in world.provider.calls) == 1
    assert world.messages("provider fenced this shard's mutation")
    assert world.provider.configured("c") == ["i1"]
    assert not world.core.published.stood_off


def test_a_machine_the_provider_does_not_know_is_removed() -> None:
    world = World()
    world.provider.several(2, "i")
    world.run(1)
    del world.provider.units["i0"]
    asking(world, 1)
    world.run(5)
    assert world.state_of("i0") is None
    world.run(15)
    assert world.provider.configured("c") == ["i1"]


def test_a_provider_that_cannot_delete_is_not_asked_again() -> None:
    world = World(test_config(idle_hold_on_demand=10 * 10**9))
    world.provider.several(2, "i")
    world.provider.can_delete = False
    world.run(300)
    assert world.provider.states() == {S.IDLE: 2} and world.state_of("i0") == S.IDLE
    assert len(world.provider.calls) == 2


def test_a_garbage_ack_fails_the_machine_keeps_its_price_and_is_counted() -> None:
    world = World()
    unit = world.provider.add("s0", S.SPECULATIVE, price=3.0)
    asking(world, 1)
    world.run(0.5)
    call_seen: list[ev.CallProvider] = []
    world.provider.call = call_seen.append  # type: ignore[method-assign]
    world.run(10)
    (call,) = call_seen
    bad = structs.replace(unit.record(), state=S.IDLE, host="h", shape=replace(unit.shape, price=-1.0))
    world.post(ev.CallDone(call.op, bad))
    record = world.core.state.fleet.machines["s0"]
    assert record.state == S.FAILED and "ack rejected" in record.error and record.shape.price == 3.0
    assert world.count("bigfleet_shard_machines_rejected_total", "price") == 1


def test_a_transition_that_never_ends_fails_the_machine_and_the_provider_can_bring_it_back() -> None:
    world = World(test_config(create_timeout=60 * 10**9))
    world.provider.several(2, "s", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 10_000
    asking(world, 1)
    world.run(100)
    assert world.state_of("s0") == S.FAILED
    assert "not finished within 60s" in world.core.state.fleet.machines["s0"].error
    unit = world.provider.units["s0"]
    unit.state, unit.host = S.IDLE, "late"
    world.provider.work[CallKind.CREATE] = 0
    world.run(400)
    assert world.provider.configured("c") == ["s0"]


def test_an_action_is_dropped_when_its_machine_changed_meanwhile() -> None:
    world = World()
    world.provider.several(2, "i")
    world.step_seconds = 5.0
    asking(world, 1)
    world.run(2)
    world.provider.lose_host("i0")
    world.post(ev.MachineRead("p", "i0", world.now, world.provider.units["i0"].record()))
    world.run(30)
    assert world.count("bigfleet_shard_actions_deduped_total") >= 1
    assert world.provider.configured("c") == ["i1"]


def test_queued_work_is_called_off_when_demand_is_gone_before_its_turn() -> None:
    world = World(test_config(execute_concurrency=1))
    world.provider.several(3, "s", S.SPECULATIVE)
    world.provider.latency = 12.0
    operator = asking(world, 3)
    world.run(5)
    operator.send()
    world.run(120)
    creates = [call.machine for call in world.provider.calls if call.kind == CallKind.CREATE]
    assert creates == ["s0"]
    assert world.outcomes("Provision")["stale_state"] == 3


def test_without_an_answer_the_machine_is_idle_again_and_the_need_rests() -> None:
    world = World()
    world.provider.several(3, "i")
    operator = world.operator("c")
    operator.silent = True
    operator.send(cpu("c", 1))
    world.run(33)
    assert world.state_of("i0") == S.IDLE
    assert world.outcomes() == {"ctx_canceled": 1}
    world.run(300)
    asked = operator.of(ev.BootstrapRequest)
    assert len(asked) <= 5 and len({frame.request_id for frame in asked}) == len(asked)
    assert not world.provider.calls
    operator.silent = False
    world.run(300)
    assert len(world.provider.configured("c")) == 1


def test_an_operator_error_returns_the_machine_and_becomes_the_needs_reason() -> None:
    world = World()
    world.provider.several(4, "i")
    operator = world.operator("c")
    operator.error = "template x: no such field"
    line = cpu("c", 2)
    operator.send(line)
    other = world.operator("d")
    other.send(cpu("d", 1, priority=5))
    world.run(5)
    assert world.outcomes("Bootstrap")["blob_error"] == 2
    assert "no such field" in world.core.published.blocked["c", line.profile.fingerprint]
    assert world.provider.states()[S.CONFIGURED] == 1
    world.run(120)
    assert world.outcomes("Bootstrap")["blob_error"] <= 12
    operator.error = ""
    world.run(400)
    assert len(world.provider.configured("c")) == 2
    assert not world.core.published.blocked


def test_user_data_past_its_ttl_is_asked_for_again() -> None:
    world = World(test_config(execute_concurrency=1))
    world.provider.several(2, "i")
    world.provider.latency = 6.0
    operator = world.operator("c")
    operator.ttl = 4
    operator.send(cpu("c", 2))
    world.run(60)
    assert len(world.provider.configured("c")) == 2
    assert len(operator.of(ev.BootstrapRequest)) == 3


def test_no_session_leaves_the_machine_idle() -> None:
    world = World()
    world.provider.several(1, "i")
    operator = world.operator("c")
    operator.silent = True
    operator.send(cpu("c", 1))
    world.run(3)
    operator.disconnect()
    world.run(40)
    assert world.outcomes() == {"no_session": 1} and world.state_of("i0") == S.IDLE
    world.run(120)
    assert world.outcomes() == {"no_session": 1}


def test_local_bootstrap_never_asks_the_operator() -> None:
    world = World(test_config(local_bootstrap=True))
    world.provider.add("i0")
    operator = asking(world, 1)
    world.run(15)
    assert world.provider.configured("c") == ["i0"] and not operator.of(ev.BootstrapRequest)


def test_a_bought_machine_whose_demand_left_stays_idle() -> None:
    world = World()
    world.provider.add("s0", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 30
    operator = asking(world, 1)
    world.run(10)
    operator.send()
    world.run(60)
    assert world.provider.states() == {S.IDLE: 1} and world.state_of("s0") == S.IDLE


def test_histograms_and_stories_follow_a_machine() -> None:
    world = World()
    world.provider.add("i0")
    operator = asking(world, 1)
    world.run(15)
    operator.send()
    world.run(30)
    for metric in ("provisioning_latency", "configure_phase", "request_bootstrap", "drain_phase"):
        assert world.observed[f"bigfleet_shard_{metric}_seconds"] == 1, metric
    story = "\n".join(line.text for line in world.core.read.story("i0"))
    for part in ("Idle → Configuring: bound to c", "Configured → Draining", "Bootstrap ended: success"):
        assert part in story


@pytest.mark.parametrize("failure", [ev.Failure.INVALID, ev.Failure.OTHER])
def test_a_refused_configure_backs_off_and_another_machine_is_taken(failure: ev.Failure) -> None:
    world = World()
    world.provider.several(2, "i")

    def refuse(call: ev.CallProvider) -> tuple[ev.Failure, str] | None:
        return (failure, "no") if call.machine == "i0" else None

    world.provider.refuse = refuse
    asking(world, 1)
    world.run(30)
    assert world.provider.configured("c") == ["i1"]
    assert world.state_of("i0") == S.IDLE


def test_a_failed_delete_says_so_and_is_tried_again_later() -> None:
    world = World(test_config(idle_hold_on_demand=10 * 10**9))
    world.provider.add("i0")
    world.provider.refuse = only(CallKind.DELETE, (ev.Failure.OTHER, "quota service down"), times=1)
    world.run(15)
    (audit,) = world.audits
    assert audit.outcome == "provider_error" and audit.detail == "delete: quota service down"
    world.run(120)
    assert world.provider.states() == {S.SPECULATIVE: 1}


def test_published_actions_and_machines_can_be_paged() -> None:
    world = World()
    world.provider.several(5, "i")
    asking(world, 2)
    world.run(15)
    keys = [view.key for view in world.core.read.machines()]
    assert keys == sorted(keys) and len(keys) == 5
    assert [view.key for view in world.core.read.machines(after="i2")] == ["i3", "i4"]
    view = world.core.read.machine("i0")
    assert view is not None and view.story and view.record.cluster == "c"
    (cluster,) = world.core.read.clusters()
    assert (cluster.name, cluster.connected, cluster.machines) == ("c", True, {S.CONFIGURED: 2})
    assert cluster.dollars_per_hour == 2.0 and len(world.core.published.actions) == 2


def test_a_provider_that_is_away_is_probed_and_its_queue_waits() -> None:
    world = World()
    world.provider.several(40, "i")
    world.run(1)
    world.provider.refuse = lambda call: UNAVAILABLE
    asking(world, 20)
    world.run(300)
    assert len(world.provider.calls) < 100
    assert world.core.published.failed_here == 0 and not world.audits
    assert len(world.core.state.operations) == 20
    world.provider.refuse = lambda call: None
    world.run(90)
    assert len(world.provider.configured("c")) == 20
    assert world.outcomes() == {"success": 20}


def test_a_failed_configure_is_told_without_the_user_data_its_provider_quotes() -> None:
    """At once, and in every List after it, when nobody knows the user data any more."""
    world = World()
    world.provider.add("i0")
    world.provider.work[CallKind.CONFIGURE] = 1000.0
    asking(world, 1)
    world.run(15)
    quoted = base64.b64encode(world.provider.calls[-1].blob).decode()
    world.provider.breaks("i0", f"cloud-init: exit 1 in {quoted}")
    world.run(120)
    record = world.core.state.fleet.machines["i0"]
    assert record.state == S.FAILED and record.error.startswith("cloud-init: exit 1 in ")
    assert quoted not in record.error
    assert world.outcomes() == {"provider_error": 1}
    world.provider.breaks("i0", "host broke")
    world.run(120)
    assert record.error == "host broke"
