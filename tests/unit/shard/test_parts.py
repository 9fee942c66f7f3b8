"""The small parts of the shard core on their own: settings, timers, backoff, outbox lanes, records, purity."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import bigfleet.shard
from bigfleet.engine.batches import REMOVED, Stamp
from bigfleet.engine.policy import IdleHold
from bigfleet.model.machine import MachineState as S
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ConfigError, ShardConfig, parse_duration, read_settings
from bigfleet.shard.core.clusters.quarantine import Baseline
from bigfleet.shard.core.machines.failures import LocalFailures
from bigfleet.shard.core.machines.matching import parse_canonical
from bigfleet.shard.core.state.backoff import Rests, delay
from bigfleet.shard.core.state.fleet import Fleet
from bigfleet.shard.core.state.operations import STAGES, Stage
from bigfleet.shard.core.state.outbox import Outbox, Renderer
from bigfleet.shard.core.state.timers import Timers
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import shape_of

IMPURE = {"google", "random", "os"}


@pytest.mark.parametrize("room", ["core", "contract"])
def test_what_decides_draws_no_luck_and_opens_no_file(room: str) -> None:
    """Clocks, threads, sockets, logs and the wire are a contract in pyproject.toml."""
    for path in sorted((Path(bigfleet.shard.__file__).parent / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not IMPURE & {name.split(".")[0] for name in names}, path


# ------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("0", 0), ("10s", 10 * SECOND), ("1m30s", 90 * SECOND), ("250ms", SECOND // 4), ("1.5h", 5400 * SECOND)],
)
def test_durations_are_read_exactly(text: str, nanoseconds: int) -> None:
    assert parse_duration("x", text) == nanoseconds


@pytest.mark.parametrize("text", ["", "10", "s", "5 m", "-3s", "1m30", "10sec", None])
def test_a_bad_duration_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="cycle-interval"):
        parse_duration("cycle-interval", text)


def test_settings_have_the_names_of_the_flags() -> None:
    config = read_settings(
        ShardConfig,
        {
            "id": "s-1",
            "providers": ["p", "q"],
            "domain": ["zone=a"],
            "cycle-interval": "5s",
            "reclaim-cap-fraction": 0.25,
            "empty-rollup-guard": False,
            "idle-hold-by-provider": {"q": {"spot": "30s"}},
            "victim-weight-drain": 2,
            "max-actions-per-cycle": 7,
        },
    )
    policy = config.policy()
    assert config.providers == ("p", "q") and config.domain == (("zone", "a"),)
    assert (policy.cycle_ns, policy.reclaim_cap_fraction, policy.max_actions_per_step) == (5 * SECOND, 0.25, 7)
    assert not policy.guard.enabled and policy.victim.drain == 2.0
    assert policy.idle_hold_by_provider["q"] == IdleHold(300 * SECOND, 30 * SECOND)
    assert read_settings(ShardConfig, {"dry-run": True}, base=config).providers == ("p", "q")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cycle-intervall": "5s"}, "cycle-intervall"),
        ({"dry-run": "yes"}, "dry-run"),
        ({"execute-concurrency": 0}, "execute-concurrency"),
        ({"execute-attempts": -1}, "execute-attempts"),
        ({"reclaim-cap-fraction": 2}, "reclaim-cap-fraction"),
        ({"reclaim-cap-fraction": "x"}, "reclaim-cap-fraction"),
        ({"domain": "zone"}, "domain"),
        ({"ignore-provider": ["z"]}, "ignore-provider"),
        ({"cycle-interval": "0"}, "cycle-interval"),
        ({"idle-hold-by-provider": {"p": {"metal": "1s"}}}, "idle-hold-by-provider.p"),
        ({"id": 5}, "id"),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_settings(ShardConfig, settings)


def test_defaults_are_those_of_the_binaries() -> None:
    policy = ShardConfig().policy()
    assert (policy.reclaim_hold_ns, policy.reclaim_cap_fraction, policy.guard.enabled) == (120 * SECOND, 0.05, True)
    assert (policy.idle_hold.on_demand_ns, policy.idle_hold.spot_ns) == (300 * SECOND, 60 * SECOND)


# ----------------------------------------------------------------------------------------------- timers, backoff


def test_timers_fire_in_order_and_only_the_last_instant_counts() -> None:
    timers = Timers()
    timers.arm("a", "x", 5)
    timers.arm("a", "y", 3)
    timers.arm("a", "x", 9)
    timers.cancel("a", "z")
    assert timers.next() == 3
    assert timers.take(4) == ("a", "y") and timers.take(8) is None
    assert timers.take(9) == ("a", "x") and timers.next() is None


def test_rearming_for_ever_does_not_grow_the_heap() -> None:
    timers = Timers()
    for due in range(10_000):
        timers.arm("a", "x", due)
    assert len(timers._heap) < 3000 and timers.take(10**6) == ("a", "x") and timers.take(10**6) is None


def test_delays_double_stay_below_the_cap_and_repeat_themselves() -> None:
    delays = [delay(SECOND, 30 * SECOND, attempt, "m") for attempt in range(1, 12)]
    assert all(SECOND // 2 << min(n, 4) <= d <= 30 * SECOND for n, d in enumerate(delays))
    assert delays == [delay(SECOND, 30 * SECOND, attempt, "m") for attempt in range(1, 12)]
    assert len({delay(SECOND, 30 * SECOND, 3, f"m{n}") for n in range(20)}) > 15


def test_failures_of_one_wave_count_once() -> None:
    rests: Rests[str] = Rests(10, 1000)
    first = rests.failed("k", 0)
    assert rests.failed("k", 1) == first and rests.resting("k", first - 1) and not rests.resting("k", first)
    assert rests.failed("k", first) - first > first
    rests.succeeded("k")
    assert rests.until("k") == 0


def test_every_stage_can_end_and_none_leaves_the_end() -> None:
    assert set(STAGES) == set(Stage) and not STAGES[Stage.DONE]
    assert all(Stage.DONE in later for stage, later in STAGES.items() if stage != Stage.DONE)


# -------------------------------------------------------------------------------------------------------- outbox


# Renders keys as they are.
PLAIN = Renderer(
    node=lambda cluster, machine, draining: ev.NodeState(
        machine, cluster, S.DRAINING if draining else S.IDLE, machine, "", "", None
    ),
    hint=lambda _cluster, fingerprint: ev.AvailableCapacity(fingerprint, (), 1, "HIGH", 0.0),
    members=lambda _cluster: ("m1", "m2"),
    still_wanted=lambda request: request.request_id != "stale",
)


def drained(outbox: Outbox, limit: int = 100) -> list[ev.Frame]:
    return outbox.take("c", limit, PLAIN, lambda hint: None)


def request(id: str) -> ev.BootstrapRequest:
    return ev.BootstrapRequest(id, "c", (), "m", "m")


def test_lanes_are_sent_in_order_of_importance() -> None:
    outbox = Outbox(10, knows_end=True)
    outbox.hint("fp")
    outbox.node("m3", draining=False)
    outbox.replay(["m1", "m2"])
    outbox.request("m4", request("r"))
    outbox.reclaim("m5", ev.ReclaimInstruction("i", ("m5",), 1, 0))
    outbox.acknowledge(ev.Acknowledgement("hello", 0, 1))
    kinds = [type(frame).__name__ for frame in drained(outbox)]
    assert kinds == [
        "Acknowledgement",
        "ReclaimInstruction",
        "BootstrapRequest",
        "NodeState",
        "NodeState",
        "ResyncEnd",
        "NodeState",
        "AvailableCapacity",
    ]
    assert len(outbox) == 0


def test_taking_little_leaves_the_rest() -> None:
    outbox = Outbox(10, knows_end=True)
    outbox.replay(["m1", "m2"])
    assert [type(f).__name__ for f in drained(outbox, 1)] == ["NodeState"]
    assert [type(f).__name__ for f in drained(outbox, 9)] == ["NodeState", "ResyncEnd"]


def test_a_cancel_replaces_an_unsent_instruction() -> None:
    outbox = Outbox(10, knows_end=False)
    outbox.reclaim("m", ev.ReclaimInstruction("i", ("m",), 1, 0))
    outbox.cancel("m", ev.ReclaimCancel("i"))
    assert drained(outbox) == [ev.ReclaimCancel("i")]


def test_stale_requests_are_not_sent() -> None:
    outbox = Outbox(10, knows_end=False)
    outbox.request("m", request("stale"))
    assert drained(outbox) == []


def test_a_full_lane_forgets_the_oldest_and_tells_everything_again() -> None:
    outbox = Outbox(2, knows_end=True)
    for index in range(5):
        outbox.node(f"m{index}", draining=False)
    assert outbox.coalesced == 2
    told = drained(outbox)
    assert [f.machine for f in told if isinstance(f, ev.NodeState)] == ["m1", "m2", "m3", "m4"]
    assert [f for f in told if isinstance(f, ev.ResyncEnd)] == [ev.ResyncEnd(("m1", "m2"))]


# ------------------------------------------------------------------------------------------------------- records


def test_a_batch_holds_each_change_once_and_then_nothing() -> None:
    fleet = Fleet()
    shape = shape_of("p")
    one = fleet.add("m1", "m1", S.IDLE, shape, owned=True, host="h")
    fleet.add("m2", "m2", S.SPECULATIVE, shape_of("p"), owned=True)
    fleet.change(one, state=S.CONFIGURING, cluster="c", stamp=Stamp(5))
    batch = fleet.batch({"m1": 77})
    assert batch is not None and [batch.ids[i] for i in range(len(batch))] == ["m1", "m2"]
    assert len(batch.shapes) == 1 and batch.clusters == ("c",) and batch.stamps == (Stamp(5),)
    assert batch.state.tolist() == [4, 1] and batch.not_before.tolist() == [77, 0]
    assert fleet.batch({}) is None
    fleet.remove(one)
    gone = fleet.batch({})
    assert gone is not None and gone.state.tolist() == [REMOVED]
    assert isinstance(gone.state, np.ndarray)
    fleet.validate()


def test_a_machine_that_is_not_owned_is_kept_from_the_engine() -> None:
    fleet = Fleet()
    record = fleet.add("m", "m", S.IDLE, shape_of("p"), owned=True, host="h")
    assert fleet.batch({}) is not None
    fleet.change(record, owned=False)
    batch = fleet.batch({})
    assert batch is not None and batch.state.tolist() == [REMOVED]
    fleet.change(record, host="h2")
    assert fleet.batch({}) is None
    assert not +fleet.counts.states and not +fleet.counts.dollars
    fleet.validate()


def test_counts_follow_and_emptied_label_sets_disappear() -> None:
    fleet = Fleet()
    record = fleet.add("m", "m", S.IDLE, shape_of("p", price=0.35), owned=True, host="h")
    assert +fleet.counts.states == {(S.IDLE, 3, 1): 1} and fleet.counts.dollars[""] == 350_000
    fleet.change(record, state=S.CONFIGURED, cluster="c", stamp=Stamp(interruption_dollars=3.0))
    assert +fleet.counts.states == {(S.CONFIGURED, 3, 5): 1} and dict(+fleet.counts.dollars) == {"c": 350_000}
    assert fleet.of_cluster("c") == ["m"]


def test_need_keys_are_read_back() -> None:
    assert parse_canonical("").is_zero
    assert dict(parse_canonical("cpu=1000,example.com/x=2").items()) == {"cpu": 1000, "example.com/x": 2}


def test_baselines_are_journalled_only_when_they_moved() -> None:
    assert Baseline(100, {"cpu": 1000}).near(Baseline(90, {"cpu": 1100}))
    assert not Baseline(100, {"cpu": 1000}).near(Baseline(100, {"cpu": 100}))
    assert not Baseline(100, {"cpu": 1000}).near(Baseline(20, {"cpu": 1000}))


def test_counts_of_clusters_that_are_gone_are_dropped() -> None:
    fleet = Fleet()
    shape = shape_of("p")
    record = fleet.add("m", "m", S.IDLE, shape, owned=True, host="i-1")
    for number in range(5_000):
        fleet.change(record, state=S.CONFIGURED, cluster=f"job-{number}")
        fleet.change(record, state=S.IDLE, cluster="")
        if number % 100 == 0:
            fleet.compact()
    fleet.validate()
    assert len(fleet.counts.clusters) + len(fleet.counts.dollars) < 5_000
    assert +fleet.counts.clusters == {} and +fleet.counts.dollars == {"": 1_000_000}


def test_how_often_a_machine_got_stuck_is_forgotten_in_the_end() -> None:
    failures = LocalFailures(stuck_hold=10 * SECOND)
    first = failures.note("m", S.CONFIGURED, 0, stuck=True)
    failures.forget("m")
    again = failures.note("m", S.CONFIGURED, first, stuck=True)
    assert again - first > first
    failures.prune(again + 61 * 60 * SECOND)
    fresh = failures.note("m", S.CONFIGURED, again + 61 * 60 * SECOND, stuck=True)
    assert fresh - (again + 61 * 60 * SECOND) == first
