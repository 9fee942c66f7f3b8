"""List by example: cursors, pages, filters, removals, and what a fresh `describe` changes."""

from __future__ import annotations

import pytest

from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.core import Lifecycle, Rules
from bigfleet.provider.kit.core.events import (
    CreateRequested,
    Described,
    HostLost,
    InstanceSkipped,
    SlotsWithdrawn,
    Tick,
    WorkDone,
)
from bigfleet.provider.kit.core.records import Host, Instance

S = MachineState


def slots(count: int, **fields: object) -> list[Instance]:
    return [Instance(f"m{n:03d}", "box", zone="a", price_per_hour=0.1, **fields) for n in range(count)]  # type: ignore[arg-type]


def fleet(count: int = 10) -> Lifecycle:
    core = Lifecycle(Rules(relist_after=60.0), "g1")
    core.seed(slots(count))
    return core


def make_idle(core: Lifecycle, machine_id: str) -> None:
    operation = core.handle(CreateRequested(machine_id), 0.0)[-1].operation_id  # type: ignore[union-attr]
    core.handle(WorkDone(machine_id, operation, Host("acme", machine_id)), 0.0)


def describe(core: Lifecycle, instances: list[Instance], complete: bool = False, now: float = 0.0) -> list[object]:
    out = core.handle(Described(instances, core.changes.head, complete), now)
    core.validate()
    return list(out)


def test_states_filter_is_an_exact_union() -> None:
    core = fleet(4)
    make_idle(core, "m000")
    assert {m.id for m in core.page([S.IDLE]).machines} == {"m000"}
    assert len(core.page([S.IDLE, S.SPECULATIVE]).machines) == 4
    assert core.page([S.FAILED, 0, 99]).machines == []


def test_pages_continue_until_everything_was_seen_once() -> None:
    core = fleet(10)
    seen: list[str] = []
    cursor, more = b"", True
    while more:
        page = core.page(max_results=3, since=cursor)
        assert 1 <= len(page.machines) <= 3
        seen += [m.id for m in page.machines]
        cursor, more = page.cursor, page.more
    assert sorted(seen) == [f"m{n:03d}" for n in range(10)]
    assert cursor == core.page().cursor
    assert core.page(since=cursor).machines == []


def test_a_change_during_paging_is_seen_again_and_a_removal_is_reported() -> None:
    core = fleet(6)
    first = core.page(max_results=3)
    core.handle(CreateRequested("m000"), 0.0)
    core.handle(SlotsWithdrawn(("m001",)), 0.0)
    rest = core.page(since=first.cursor)
    assert [m.id for m in rest.machines] == ["m003", "m004", "m005", "m000"]
    assert list(rest.removed_ids) == ["m001"]


def test_a_filtered_page_that_ends_on_its_last_match_has_no_more() -> None:
    core = fleet(6)
    make_idle(core, "m005")
    page = core.page([S.IDLE], max_results=1)
    assert [m.id for m in page.machines] == ["m005"] and not page.more and page.cursor == core.page().cursor


@pytest.mark.parametrize(
    "cursor",
    [
        b"",
        b"junk",
        b"\x00\xff" * 9,
        b"x" * 4096,
        b"g1.",
        b"g1.-1",
        b"g1.+1",
        b"g1.1_0",
        b"g1. 1",
        b"g1.01",
        b"g2.1",
        b"g1.999999",
        b"g1.5!",
        b"~g1.5",
        b"g1.5\x00",
        "g1.٥".encode(),
    ],
)
def test_a_cursor_we_never_gave_means_a_full_list(cursor: bytes) -> None:
    core = fleet(5)
    page = core.page(since=cursor)
    assert len(page.machines) == 5 and page.full


def test_deltas_hold_exactly_what_changed() -> None:
    core = fleet(50)
    cursor = core.page().cursor
    for n in (3, 1, 2):
        core.handle(CreateRequested(f"m{n:03d}"), 0.0)
    assert [m.id for m in core.page(since=cursor).machines] == ["m003", "m001", "m002"]


def test_the_log_is_compacted_and_old_tombstones_turn_old_cursors_into_full_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bigfleet.provider.kit.core.changes.TOMBSTONES_KEPT", 10)
    core = fleet(40)
    early = core.page().cursor
    for n in range(11):
        core.handle(SlotsWithdrawn((f"m{n:03d}",)), 0.0)
        core.validate()
    page = core.page(since=early)
    assert page.full and not page.removed_ids and len(page.machines) == 29
    for turn in range(100):
        describe(core, slots(40, interruption_probability=turn / 4000))
    assert len(core.changes._revisions) < 3 * 40 + 1100
    assert len(core.page().machines) == 40


def test_describe_adds_and_refreshes_but_never_moves() -> None:
    core = fleet(2)
    make_idle(core, "m000")
    before = core.get("m000")
    head = core.changes.head
    assert describe(core, slots(2)) == []
    assert core.changes.head == head, "no change, no revision"
    describe(core, slots(3, labels={"rack": "r1"}))
    after = core.get("m000")
    assert before and after and after.labels == {"rack": "r1"}
    assert (after.state, after.host, after.zone) == (before.state, before.host, before.zone)
    assert core.get("m002") is not None


def test_describe_keeps_what_create_measured() -> None:
    core = fleet(1)
    operation = core.handle(CreateRequested("m000"), 0.0)[-1].operation_id  # type: ignore[union-attr]
    core.handle(WorkDone("m000", operation, Host("acme", "h"), {"cpu": "3"}, {"cpu": "2900m"}), 0.0)
    describe(core, slots(1, resources={"cpu": "4"}))
    record = core.get("m000")
    assert record and record.resources == {"cpu": "3"} and record.shape.allocatable == (("cpu", "2900m"),)


def test_unfit_instances_are_skipped_by_name_and_the_rest_applied() -> None:
    core = fleet(1)
    bad = Instance("bad", "box", price_per_hour=-1)
    out = describe(core, [bad, *slots(2), *slots(1)])
    problems = [i.problem for i in out if isinstance(i, InstanceSkipped)]
    assert len(problems) == 2 and "m000" in problems[0] and "bad" in problems[1]
    assert core.get("m001") is not None and core.get("bad") is None


def test_absence_is_believed_the_second_time_and_only_when_complete() -> None:
    core = fleet(4)
    make_idle(core, "m000")
    make_idle(core, "m001")
    present = [Instance("m000", "box", zone="a", price_per_hour=0.1, host=Host("acme", "m000")), *slots(3)[1:]]
    for _ in range(5):
        describe(core, present, complete=False)
    assert len(core.machines) == 4
    describe(core, present, complete=True)
    assert len(core.machines) == 4
    describe(core, present, complete=True)
    assert sorted(core.machines) == ["m000", "m002"], "m001 lost its host, m003 is no longer offered"
    describe(core, present, complete=True)
    assert not core.get("m001"), "a lost machine stays out although its slot is described"
    core.handle(Tick(), 60.0)
    record = core.get("m001")
    assert record and record.state is S.SPECULATIVE


def test_a_machine_that_changed_while_it_was_described_is_not_judged() -> None:
    core = fleet(1)
    as_of = core.changes.head
    make_idle(core, "m000")
    for _ in range(3):
        core.handle(Described(slots(1), as_of, complete=True), 0.0)
    assert core.get("m000") is not None


def test_one_reappearance_resets_the_count() -> None:
    core = fleet(2)
    for _ in range(3):
        describe(core, slots(1), complete=True)
        describe(core, slots(2), complete=True)
    assert len(core.machines) == 2


def test_a_lost_host_without_a_slot_returns_only_when_described() -> None:
    core = Lifecycle(Rules(relist_after=60.0), "g1")
    metal = Instance("m", "box", zone="a", host=Host("acme", "h"))
    core.seed([metal])
    core.handle(HostLost("m"), 0.0)
    describe(core, [metal], now=10.0)
    assert core.get("m") is None
    core.handle(Tick(), 60.0)
    assert core.get("m") is None
    describe(core, [metal], now=61.0)
    assert core.get("m") is not None
