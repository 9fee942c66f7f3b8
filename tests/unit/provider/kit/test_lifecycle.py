"""The lifecycle core by example: every documented rule of the provider contract, on a clock that we turn."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.kit.core.core import InstanceError, Lifecycle, Rules, Timeouts
from bigfleet.provider.kit.core.events import (
    Acknowledge,
    ConfigureRequested,
    ConfirmReady,
    CreateRequested,
    DeleteRequested,
    DrainRequested,
    Event,
    HostLost,
    Instruction,
    LateSuccess,
    MachineBroken,
    NodeReady,
    Refusal,
    Refuse,
    Repaired,
    Restarted,
    SaveFence,
    SlotsWithdrawn,
    StartWork,
    StopWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.records import Host, Instance, Token

S = MachineState
HOST = Host("acme", "i-1")


def fleet(*ids: str, **rules: object) -> Lifecycle:
    core = Lifecycle(Rules(**rules), "g1")  # type: ignore[arg-type]
    core.seed(Instance(i, "box", zone="a", price_per_hour=0.1) for i in ids or ("m",))
    return core


def send(core: Lifecycle, event: Event, now: float = 0.0) -> list[Instruction]:
    out = core.handle(event, now)
    core.validate()
    return out


def ack(core: Lifecycle, event: Event, now: float = 0.0) -> Acknowledge:
    answer = send(core, event, now)[-1]
    assert isinstance(answer, Acknowledge), answer
    return answer


def refused(core: Lifecycle, event: Event) -> Refusal:
    answer = send(core, event)[-1]
    assert isinstance(answer, Refuse), answer
    return answer.refusal


def state(core: Lifecycle, machine_id: str = "m") -> MachineState:
    record = core.get(machine_id)
    assert record is not None
    return record.state


def to_idle(core: Lifecycle, machine_id: str = "m") -> str:
    operation = ack(core, CreateRequested(machine_id)).operation_id
    send(core, WorkDone(machine_id, operation, Host("acme", f"host-of-{machine_id}")))
    return operation


def to_configured(core: Lifecycle, machine_id: str = "m", cluster: str = "c1") -> str:
    operation = ack(core, ConfigureRequested(machine_id, cluster, b"blob", {"k": "v"})).operation_id
    send(core, WorkDone(machine_id, operation))
    return operation


def test_a_whole_life_passes_the_documented_states() -> None:
    core = fleet()
    created = ack(core, CreateRequested("m"))
    assert created.machine.state is S.CREATING and created.machine.host is None
    send(core, WorkDone("m", created.operation_id, HOST))
    assert state(core) is S.IDLE
    configured = ack(core, ConfigureRequested("m", "c1", b"blob", {"k": "v"}))
    assert (configured.machine.state, configured.machine.cluster, configured.machine.metadata) == (
        S.CONFIGURING,
        "c1",
        {"k": "v"},
    )
    send(core, WorkDone("m", configured.operation_id))
    drained = ack(core, DrainRequested("m", 5))
    assert drained.machine.state is S.DRAINING and drained.machine.cluster == "c1" and drained.machine.metadata
    send(core, WorkDone("m", drained.operation_id))
    idle = core.get("m")
    assert idle and idle.state is S.IDLE and idle.host == HOST and not idle.cluster and not idle.metadata
    deleted = ack(core, DeleteRequested("m"))
    assert deleted.machine.state is S.DELETING and deleted.machine.host == HOST
    send(core, WorkDone("m", deleted.operation_id))
    slot = core.get("m")
    assert slot and slot.state is S.SPECULATIVE and slot.host is None
    assert [line.after for line in core.story("m")] == [
        "SPECULATIVE",
        "CREATING",
        "IDLE",
        "CONFIGURING",
        "CONFIGURED",
        "DRAINING",
        "IDLE",
        "DELETING",
        "SPECULATIVE",
    ]


def test_rows_come_before_the_work_and_the_answer_comes_last() -> None:
    out = send(fleet(), CreateRequested("m", Token("s", 1, 1)))
    assert [type(i).__name__ for i in out] == ["SaveFence", "SaveOperation", "SaveMachine", "StartWork", "Acknowledge"]


def test_a_repeat_returns_the_recorded_operation_and_starts_nothing() -> None:
    core = fleet()
    first = ack(core, CreateRequested("m"))
    for _ in range(3):
        out = send(core, CreateRequested("m"))
        assert out == [Acknowledge(first.operation_id, first.machine)]
    send(core, WorkDone("m", first.operation_id, HOST))
    assert ack(core, CreateRequested("m")).operation_id == first.operation_id


def test_every_cycle_mints_a_fresh_operation() -> None:
    core = fleet()
    seen = [to_idle(core)]
    for _ in range(2):
        seen.append(to_configured(core))
        drained = ack(core, DrainRequested("m")).operation_id
        send(core, WorkDone("m", drained))
        seen.append(drained)
    assert len(set(seen)) == 5
    assert ack(core, DrainRequested("m")).operation_id == seen[-1]


def test_configure_for_another_cluster_is_refused_and_for_the_same_one_repeated() -> None:
    core = fleet()
    to_idle(core)
    operation = ack(core, ConfigureRequested("m", "c1")).operation_id
    assert refused(core, ConfigureRequested("m", "c2")) is Refusal.OUT_OF_POSITION
    send(core, WorkDone("m", operation))
    assert refused(core, ConfigureRequested("m", "c2")) is Refusal.OUT_OF_POSITION
    assert ack(core, ConfigureRequested("m", "c1")).operation_id == operation
    record = core.get("m")
    assert record and record.cluster == "c1"


@pytest.mark.parametrize(
    ("event", "reached"),
    [
        (ConfigureRequested("m", "c1"), "speculative"),
        (DrainRequested("m"), "speculative"),
        (DeleteRequested("m"), "speculative"),
        (DrainRequested("m"), "idle"),
        (CreateRequested("m"), "configured"),
        (DeleteRequested("m"), "configured"),
    ],
)
def test_out_of_position_is_refused_and_moves_nothing(event: Event, reached: str) -> None:
    core = fleet()
    if reached != "speculative":
        to_idle(core)
    if reached == "configured":
        to_configured(core)
        # The record of the first Create must not make a repeat of it legal here.
    before = core.get("m")
    assert refused(core, event) is Refusal.OUT_OF_POSITION
    assert core.get("m") is before


def test_checks_run_in_the_documented_order() -> None:
    core = fleet(can_delete=False)
    stale = Token("s", 1, 1)
    assert refused(core, CreateRequested("ghost", Token("s", 5, 5))) is Refusal.UNKNOWN
    assert refused(core, CreateRequested("ghost", stale)) is Refusal.FENCED, "the fence precedes existence"
    assert refused(core, CreateRequested("", stale)) is Refusal.INVALID
    ack(core, CreateRequested("m", Token("s", 5, 5)))
    assert refused(core, CreateRequested("m", stale)) is Refusal.FENCED, "the fence precedes the repeat"
    assert refused(core, DeleteRequested("m", stale)) is Refusal.UNSUPPORTED, "capability precedes the fence"
    assert core.fences.mark("s", "m") == (5, 5)


def test_a_passing_token_advances_its_mark_even_when_the_request_is_refused() -> None:
    core = fleet()
    assert refused(core, DrainRequested("m", 0, Token("s", 5, 5))) is Refusal.OUT_OF_POSITION
    assert refused(core, CreateRequested("m", Token("s", 5, 4))) is Refusal.FENCED
    ack(core, CreateRequested("m", Token("s", 5, 6)))


def test_marks_are_per_shard_and_machine_and_zero_tokens_leave_none() -> None:
    core = fleet("a", "b")
    ack(core, CreateRequested("a", Token("s", 1, 30)))
    ack(core, CreateRequested("b", Token("s", 1, 7)))
    assert refused(core, CreateRequested("b", Token("s", 1, 7))) is Refusal.FENCED
    assert refused(core, CreateRequested("b", Token("s", 0, 999))) is Refusal.FENCED
    out = send(core, CreateRequested("a"))
    assert not [i for i in out if isinstance(i, SaveFence)]
    ack(core, CreateRequested("a", Token("t", 0, 0)))


def test_int64_extremes_are_ordinary_marks_and_negative_values_are_invalid() -> None:
    core = fleet()
    top = 2**63 - 1
    ack(core, CreateRequested("m", Token("s", top, top)))
    assert refused(core, CreateRequested("m", Token("s", top, top))) is Refusal.FENCED
    assert refused(core, CreateRequested("m", Token("s", top - 1, top))) is Refusal.FENCED
    for bad in (Token("n", -1, 1), Token("n", 1, -1), Token("", 3, 0), Token("x" * 5000, 1, 1)):
        assert refused(core, CreateRequested("m", bad)) is Refusal.INVALID


def test_marks_on_unknown_machines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.provider.kit.core.fences.UNKNOWN_MARKS_KEPT", 10)
    core = fleet()
    ack(core, CreateRequested("m", Token("s", 1, 1)))
    for n in range(50):
        assert refused(core, CreateRequested(f"ghost-{n}", Token("s", 1, 1))) is Refusal.UNKNOWN
    assert len(core.fences) == 11
    assert core.fences.mark("s", "m") == (1, 1)


def test_bad_requests_name_the_field() -> None:
    core = fleet()
    to_idle(core)
    answer = send(core, ConfigureRequested("m", ""))[-1]
    assert isinstance(answer, Refuse) and answer.refusal is Refusal.INVALID and "cluster_id" in answer.message
    to_configured(core)
    answer = send(core, DrainRequested("m", -5))[-1]
    assert isinstance(answer, Refuse) and answer.refusal is Refusal.INVALID and "grace_period_seconds" in answer.message
    assert refused(core, CreateRequested("x" * 100_000)) is Refusal.INVALID


def test_a_transition_that_outlasts_its_timeout_fails_and_its_late_success_is_discarded() -> None:
    core = fleet(timeouts=Timeouts(create=10))
    operation = ack(core, CreateRequested("m"), now=5.0).operation_id
    assert core.next_deadline() == 15.0
    assert send(core, Tick(), now=14.9) == []
    out = send(core, Tick(), now=15.0)
    assert StopWork("m", operation, "failed") in out
    record = core.get("m")
    assert record and record.state is S.FAILED and "timed out" in record.last_error
    late = send(core, WorkDone("m", operation, HOST), now=16.0)
    assert late == [LateSuccess("m", operation, HOST)]
    assert send(core, WorkFailed("m", operation, "too late"), now=16.0) == []
    assert core.get("m") == record and core.next_deadline() is None


def test_a_drain_gets_its_grace_on_top_of_its_timeout() -> None:
    core = fleet(timeouts=Timeouts(drain=10))
    to_idle(core)
    to_configured(core)
    ack(core, DrainRequested("m", 600), now=100.0)
    assert core.next_deadline() == 710.0


def test_failed_is_terminal_until_repaired() -> None:
    core = fleet()
    to_idle(core)
    operation = ack(core, ConfigureRequested("m", "c1")).operation_id
    send(core, WorkFailed("m", operation, "no route to host"))
    failed = core.get("m")
    assert failed and failed.last_error == "configure failed: no route to host"
    for event in (CreateRequested("m"), ConfigureRequested("m", "c1"), DrainRequested("m"), DeleteRequested("m")):
        assert refused(core, event) is Refusal.OUT_OF_POSITION
    assert core.get("m") is failed
    send(core, Repaired("m", HOST))
    repaired = core.get("m")
    assert repaired and repaired.state is S.IDLE and not repaired.last_error and not repaired.cluster
    to_configured(core, cluster="c2")


def test_a_create_without_a_host_fails() -> None:
    core = fleet()
    operation = ack(core, CreateRequested("m")).operation_id
    send(core, WorkDone("m", operation))
    record = core.get("m")
    assert record and record.state is S.FAILED and "no host" in record.last_error


def test_configured_waits_for_readiness() -> None:
    core = fleet(readiness_gate=True, timeouts=Timeouts(configure=10))
    to_idle(core)
    operation = ack(core, ConfigureRequested("m", "c1"), now=0.0).operation_id
    assert send(core, NodeReady("m", operation), now=1.0) == [], "ready before the backend is done means nothing"
    (_, confirm) = send(core, WorkDone("m", operation), now=2.0)
    assert isinstance(confirm, ConfirmReady) and confirm.deadline == 10.0
    assert state(core) is S.CONFIGURING
    send(core, NodeReady("m", operation), now=3.0)
    assert state(core) is S.CONFIGURED
    send(core, DrainRequested("m"), now=4.0)


def test_readiness_that_never_comes_fails_at_the_configure_deadline() -> None:
    core = fleet(readiness_gate=True, timeouts=Timeouts(configure=10))
    to_idle(core)
    operation = ack(core, ConfigureRequested("m", "c1")).operation_id
    send(core, WorkDone("m", operation), now=2.0)
    send(core, Tick(), now=10.0)
    record = core.get("m")
    assert record and record.state is S.FAILED and record.last_error.startswith("node readiness")


def test_a_lost_host_leaves_the_list_and_its_slot_returns_later() -> None:
    core = fleet("m", "n", relist_after=60.0)
    to_idle(core)
    to_configured(core)
    cursor = core.page().cursor
    send(core, HostLost("m", "spot reclaim"), now=100.0)
    assert core.get("m") is None
    assert [m.id for m in core.page().machines] == ["n"]
    delta = core.page(since=cursor)
    assert (list(delta.machines), list(delta.removed_ids), delta.full) == ([], ["m"], False)
    assert refused(core, DrainRequested("m")) is Refusal.UNKNOWN
    assert core.next_deadline() == 160.0
    send(core, Tick(), now=160.0)
    record = core.get("m")
    assert record and record.state is S.SPECULATIVE and record.host is None and not record.cluster
    assert core.page(since=delta.cursor).machines == [record]
    to_idle(core)


def test_a_host_lost_in_the_middle_of_work_stops_the_work() -> None:
    core = fleet()
    to_idle(core)
    operation = ack(core, ConfigureRequested("m", "c1")).operation_id
    out = send(core, HostLost("m", "gone"))
    assert [i.operation_id for i in out if isinstance(i, StopWork)] == [operation]
    assert send(core, WorkDone("m", operation)) == [LateSuccess("m", operation, None)]


def test_a_broken_machine_fails_from_any_state_and_withdrawn_slots_vanish() -> None:
    core = fleet("a", "b", "c")
    to_idle(core, "a")
    send(core, MachineBroken("a", "fan"))
    assert state(core, "a") is S.FAILED
    send(core, SlotsWithdrawn(("a", "b", "zz")))
    assert [m.id for m in core.page().machines] == ["a", "c"]
    assert core.next_deadline() is None


def test_a_restart_fails_open_work_or_takes_it_up_again() -> None:
    for reattach in (False, True):
        core = fleet()
        operation = ack(core, CreateRequested("m")).operation_id
        record = core.get("m")
        assert record is not None
        from bigfleet.provider.kit.core.core import Snapshot

        again = Lifecycle(Rules(), "g1", Snapshot("g1", [record]))
        out = again.handle(Restarted(reattach), 50.0)
        again.validate()
        if reattach:
            (start,) = out
            assert isinstance(start, StartWork) and start.reattach and start.operation_id == operation
            send(again, WorkDone("m", operation, HOST), now=60.0)
            assert state(again) is S.IDLE
        else:
            failed = again.get("m")
            assert failed and "interrupted by a provider restart" in failed.last_error


def test_the_blob_is_in_no_representation() -> None:
    core = fleet()
    to_idle(core)
    event = ConfigureRequested("m", "c1", b"join-secret")
    assert "join-secret" not in repr(event)
    assert "join-secret" not in repr(send(core, event))


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("id", "", "id"),
        ("instance_type", "", "instance_type"),
        ("capacity_type", CapacityType.UNSPECIFIED, "capacity_type"),
        ("capacity_type", CapacityType.SPOT, "interruption_probability"),
        ("price_per_hour", float("nan"), "price_per_hour"),
        ("price_per_hour", float("inf"), "price_per_hour"),
        ("price_per_hour", -1.0, "price_per_hour"),
        ("interruption_probability", 1.5, "interruption_probability"),
        ("interruption_probability", float("nan"), "interruption_probability"),
        ("labels", {"zone": "a"}, "label"),
        ("state", S.CONFIGURED, "CONFIGURED"),
        ("state", S.IDLE, "host"),
    ],
)
def test_an_instance_that_cannot_be_published_stops_the_first_boot(field: str, value: object, word: str) -> None:
    good = {"id": "m", "instance_type": "box", "zone": "a", "price_per_hour": 0.1}
    core = Lifecycle(Rules(), "g1")
    with pytest.raises(InstanceError, match=word):
        core.seed([Instance("ok", "box"), Instance(**{**good, field: value})])  # type: ignore[arg-type]
    assert not core.machines, "nothing is half-published"


def test_ids_must_be_unique_and_zones_can_be_required() -> None:
    with pytest.raises(InstanceError, match="twice"):
        Lifecycle(Rules(), "g1").seed([Instance("m", "box"), Instance("m", "box")])
    with pytest.raises(InstanceError, match="zone"):
        Lifecycle(Rules(require_zone=True), "g1").seed([Instance("m", "box")])
    with pytest.raises(InstanceError, match="zone"):
        Lifecycle(Rules(), "g1").seed([Instance("m", "box", host=HOST)])
