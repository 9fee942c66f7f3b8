"""What the rebalancer moves and what it leaves: units that fit, never more than is missing, nothing back and forth."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.planner import Plan, Planning, Rest
from bigfleet.coordinator.core.policy import MINUTE, SECOND, Policy
from bigfleet.coordinator.core.records import Phase, Provider, Selector, Transfer
from bigfleet.coordinator.core.reports import Cell, Deficit, Kind, Standing
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.core.supply import shape_key, shape_of
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources

NOW = 10_000 * SECOND
BIG, SMALL = Resources.of(cpu=32_000, memory=2**26), Resources.of(cpu=4_000, memory=2**23)


def cpus(amount: int) -> Resources:
    return Resources.of(cpu=amount * 1000)


def short(units: int = 4, cpu: int = 3, **fields: Any) -> Deficit:
    defaults: dict[str, Any] = {"priority": 10, "age": 90 * SECOND, "requirements": (), "fingerprint": "fp"}
    return Deficit(min_unit=cpus(cpu), units=units, **{**defaults, **fields})


def free(count: int, size: Resources = SMALL, **fields: Any) -> Cell:
    defaults: dict[str, Any] = {"instance_type": "small" if size == SMALL else "big", "zone": "z", "speculative": False}
    return Cell(Kind(allocatable=size, **{**defaults, **fields}), count)


class Fleet:
    """Shards by name, and what each reports."""

    def __init__(self, **standings: Standing) -> None:
        self.state = State()
        self.standings = {}
        for name, standing in standings.items():
            self.state.apply(do.AddShard(name, "", 1, True))
            self.standings[self.generation(name)] = standing

    def generation(self, name: str) -> int:
        return self.state.tables.shards[name].generation

    def plan(self, policy: Policy | None = None, now: int = NOW, **options: Any) -> Plan:
        planning = Planning(self.state.tables, self.standings, policy or Policy(), now, **options)
        for _ in planning.steps():
            pass
        return planning.plan

    def moves(self, **options: Any) -> list[tuple[str, str, str, int, bool]]:
        names = {shard.generation: name for name, shard in self.state.tables.shards.items()}
        return [
            (
                names[each.donor],
                names[each.recipient],
                each.selector.instance_type,
                each.selector.count,
                each.speculative,
            )
            for each in self.plan(**options).transfers
        ]


def test_idle_machines_go_to_a_shard_that_is_short_just_as_many_as_its_units_need() -> None:
    fleet = Fleet(needy=Standing((short(units=5, cpu=2),)), rich=Standing(cells=(free(100),)))
    assert fleet.moves() == [("rich", "needy", "small", 3, False)], "two units to a machine, five units"


def test_a_machine_that_holds_no_unit_is_not_moved_however_much_the_sum_is() -> None:
    fleet = Fleet(needy=Standing((short(units=5, cpu=5),)), rich=Standing(cells=(free(100, SMALL),)))
    assert fleet.moves() == []


def test_what_is_coming_is_not_asked_for_again() -> None:
    fleet = Fleet(needy=Standing((short(units=5, cpu=3),)), rich=Standing(cells=(free(100),)))
    (transfer,) = fleet.plan().transfers
    proposed = Transfer(**{**_fields(transfer), "id": "t"})
    fleet.state.apply(do.Propose(proposed))
    assert fleet.moves() == []
    fleet.state.apply(do.Release("t", ("m0", "m1", "m2")))
    assert fleet.moves() == [("rich", "needy", "small", 2, False)], "the donor had three of five"


def test_a_shard_that_does_not_use_its_own_gets_no_more_of_the_same() -> None:
    rich = Standing(cells=(free(100), free(100, BIG)))
    paused = Standing((short(units=5, cpu=3),), cells=(free(5),))
    assert Fleet(paused=paused, rich=rich).moves() == []
    fewer = Standing((short(units=5, cpu=3),), cells=(free(2),))
    assert Fleet(fewer=fewer, rich=rich).moves() == [("rich", "fewer", "small", 3, False)]
    two = Standing((short(units=2, cpu=3), short(units=2, cpu=3, fingerprint="other", priority=5)), cells=(free(3),))
    assert Fleet(two=two, rich=rich).moves() == [("rich", "two", "small", 1, False)], "each counts once"
    sums = short(units=0, cpu=3, resources=cpus(8))
    assert Fleet(sums=Standing((sums,), cells=(free(2),)), rich=rich).moves() == []
    assert Fleet(sums=Standing((sums,), cells=(free(1),)), rich=rich).moves() == [("rich", "sums", "small", 2, False)]


def test_machines_whose_labels_nobody_reports_do_not_stand_for_those_that_are_wanted() -> None:
    disk = (Requirement("example.com/disk", Operator.IN, ("ssd",)),)
    wanting = Standing((short(units=2, cpu=3, requirements=disk),), cells=(free(5),))
    assert Fleet(wanting=wanting, rich=Standing(cells=(free(9),))).moves() == [("rich", "wanting", "small", 2, False)]


def test_a_young_shortfall_waits() -> None:
    fleet = Fleet(needy=Standing((short(age=59 * SECOND),)), rich=Standing(cells=(free(9),)))
    assert fleet.moves() == []


def test_demand_bound_to_one_domain_never_crosses() -> None:
    same = (Requirement("rack", Operator.SAME),)
    for deficit in (short(constrained=True), short(requirements=same)):
        assert Fleet(needy=Standing((deficit,)), rich=Standing(cells=(free(9),))).moves() == []


def test_requirements_on_type_and_zone_are_kept() -> None:
    wanted = (
        Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("big",)),
        Requirement(ZONE_LABEL, Operator.NOT_IN, ("bad",)),
    )
    cells = (free(9), free(9, BIG, zone="bad"), free(9, BIG, zone="good"))
    fleet = Fleet(needy=Standing((short(units=1, requirements=wanted),)), rich=Standing(cells=cells))
    (move,) = fleet.plan().transfers
    assert (move.selector.instance_type, move.selector.zone) == ("big", "good")


def test_the_tightest_machine_is_asked_for_before_a_larger_one() -> None:
    fleet = Fleet(needy=Standing((short(units=1),)), rich=Standing(cells=(free(9, BIG), free(9))))
    assert fleet.moves() == [("rich", "needy", "small", 1, False)]


def test_slots_come_after_idle_machines_and_only_for_the_rest() -> None:
    cells = (free(2), free(9, speculative=True))
    fleet = Fleet(needy=Standing((short(units=5),)), rich=Standing(cells=cells))
    assert fleet.moves() == [("rich", "needy", "small", 2, False), ("rich", "needy", "small", 3, True)]


def test_a_donor_keeps_a_margin_and_what_its_own_demand_waits_for() -> None:
    fleet = Fleet(needy=Standing((short(units=99),)), rich=Standing(cells=(free(20),)))
    assert fleet.moves() == [("rich", "needy", "small", 18, False)]
    waiting = Standing((short(age=0, priority=10),), (free(20),))
    assert Fleet(needy=Standing((short(units=99),)), rich=waiting).moves() == []
    less = Standing((short(age=0, priority=9),), (free(20),))
    assert Fleet(needy=Standing((short(units=99),)), rich=less).moves() == [("rich", "needy", "small", 18, False)]


def test_the_most_important_and_then_the_oldest_shortfall_is_served_first() -> None:
    fleet = Fleet(
        old=Standing((short(units=1, age=900 * SECOND),)),
        urgent=Standing((short(units=1, priority=99),)),
        rich=Standing(cells=(free(1),)),
    )
    assert [move[1] for move in fleet.moves()] == ["urgent"]


def test_nothing_of_a_kind_is_given_away_within_its_cool_down() -> None:
    fleet = Fleet(
        was_short=Standing(cells=(free(9),)),
        was_rich=Standing((short(units=1),)),
    )
    fleet.state.apply(do.Propose(_proposed(fleet, "was_rich", "was_short")))
    fleet.state.apply(do.Release("t", ("m0",)))
    fleet.state.apply(do.Adopt("t", NOW - 5 * MINUTE))
    assert fleet.moves() == []
    assert fleet.moves(now=NOW + 6 * MINUTE) == [("was_short", "was_rich", "small", 1, False)]


def test_a_shard_gets_only_machines_of_providers_it_dials() -> None:
    fleet = Fleet(
        needy=Standing((short(units=1),), providers=frozenset({"ours"})),
        rich=Standing(cells=(free(9, provider="theirs"),)),
    )
    assert fleet.moves() == []
    fleet = Fleet(
        needy=Standing((short(units=1),), providers=frozenset({"ours"})),
        rich=Standing(cells=(free(9, provider="ours"),)),
    )
    fleet.state.apply(do.UpsertProvider(Provider("ours", "h:1", "eu")))
    (move,) = fleet.plan().transfers
    assert (move.provider, move.region) == ("ours", "eu")


def test_what_must_not_be_interrupted_gets_nothing_that_may_be() -> None:
    fleet = Fleet(needy=Standing((short(bucket=27),)), rich=Standing(cells=(free(9, probability=0.05),)))
    assert fleet.moves() == []


def test_demand_without_units_asks_by_its_sum_and_only_for_machines_its_largest_pod_fits() -> None:
    sums = Deficit("fp", (), cpus(3), 0, resources=cpus(9), priority=1, age=90 * SECOND)
    assert Fleet(needy=Standing((sums,)), rich=Standing(cells=(free(9),))).moves() == [
        ("rich", "needy", "small", 3, False)
    ]
    too_large = Deficit("fp", (), cpus(5), 0, resources=cpus(9), priority=1, age=90 * SECOND)
    assert Fleet(needy=Standing((too_large,)), rich=Standing(cells=(free(9),))).moves() == []


def test_drains_are_asked_only_when_nothing_free_is_left_and_the_shortfall_is_old() -> None:
    old = short(units=4, age=130 * SECOND, priority=50, bucket=7)
    fleet = Fleet(
        needy=Standing((old,)),
        full=Standing(totals=(("small", 30),)),
        fuller=Standing(totals=(("small", 40),), cells=(free(2, zone="elsewhere"),)),
    )
    made = fleet.plan(Policy(margin=1.0))
    (drain,) = made.drains
    assert not made.transfers
    assert (drain.donor, drain.priority, drain.bucket) == (fleet.generation("fuller"), 50, 7)
    assert drain.selector == Selector("small", "", 4)
    assert fleet.plan(Policy(margin=1.0)).drains[0].id == drain.id, "a new leader asks the same question"
    asked = {(fleet.generation("needy"), shape_key(old))}
    assert not fleet.plan(Policy(margin=1.0), draining=asked).drains
    rest = {Rest(drain.donor, drain.recipient, shape_key(old), 3): 0}
    assert fleet.plan(Policy(margin=1.0), resting=rest.keys()).drains[0].donor == fleet.generation("full")
    young = Fleet(needy=Standing((short(age=90 * SECOND),)), full=Standing(totals=(("small", 30),)))
    assert not young.plan().drains


def test_a_donor_whose_machines_are_of_unknown_size_is_told_what_is_missing_and_not_asked_twice() -> None:
    full = Standing(totals=(("small", 30),))
    (drain,) = Fleet(needy=Standing((short(units=40, age=130 * SECOND),)), full=full).plan().drains
    assert drain.units == 40 and drain.selector.count < 40, "one machine may hold them all: the donor knows"
    sums = Deficit("fp", (), cpus(2), 0, resources=cpus(9), priority=1, age=130 * SECOND)
    (drain,) = Fleet(needy=Standing((sums,)), full=full).plan().drains
    assert (drain.units, drain.missing) == (0, cpus(9)) and drain.selector.count > 1


def test_equal_shortfalls_of_two_clusters_are_one_claim() -> None:
    halves = (short(units=1, cpu=2), short(units=1, cpu=2))
    fleet = Fleet(needy=Standing(halves), rich=Standing(cells=(free(9),)))
    assert fleet.moves() == [("rich", "needy", "small", 1, False)], "both fit on one machine"


def test_a_zone_that_fails_under_fifty_shards_leads_to_a_bounded_plan_in_short_steps() -> None:
    wanted = tuple(short(units=200, fingerprint=f"f{number}") for number in range(20))
    standings = {f"s{number:02d}": Standing(wanted) for number in range(45)}
    standings |= {f"t{number}": Standing(cells=(free(300),)) for number in range(5)}
    fleet = Fleet(**standings)
    planning = Planning(fleet.state.tables, fleet.standings, Policy(), NOW)
    steps = sum(1 for _ in planning.steps())
    made = planning.plan
    assert len(made.transfers) + len(made.drains) <= Policy().max_moves
    assert steps > 50, "others get their turn at least once per shard"
    for name in (f"t{number}" for number in range(5)):
        given = sum(each.selector.count for each in made.transfers if each.donor == fleet.generation(name))
        assert 0 < given <= 270


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from((SMALL, BIG)), st.booleans()), max_size=6),
)
def test_no_plan_takes_more_than_there_is_or_gives_more_than_is_missing(
    wanted: list[tuple[int, int, int]], cells: list[tuple[int, Resources, bool]]
) -> None:
    deficits = tuple(
        short(units=units, cpu=cpu, priority=priority, fingerprint=f"f{n}")
        for n, (units, cpu, priority) in enumerate(wanted)
    )
    offers = tuple(free(n, size, speculative=slot, zone=f"z{i}") for i, (n, size, slot) in enumerate(cells))
    fleet = Fleet(needy=Standing(deficits), rich=Standing(cells=offers))
    made = fleet.plan()
    assert made == fleet.plan(), "the same inputs give the same plan"
    for each in offers:
        taken = [t.selector.count for t in made.transfers if t.selector.zone == each.kind.zone]
        assert sum(taken) <= each.count - int(each.count * 0.1)
    for deficit in deficits:
        got = [t for t in made.transfers if t.shape == shape_of(deficit)]
        carried = [t.selector.count * (_size(offers, t).get("cpu") // deficit.min_unit.get("cpu")) for t in got]
        largest = max((_size(offers, t).get("cpu") // deficit.min_unit.get("cpu") for t in got), default=0)
        assert sum(carried) < deficit.units + max(1, largest), "no machine beyond the one that completes it"
        assert all(each > 0 for each in carried)


def _size(offers: tuple[Cell, ...], transfer: Transfer) -> Resources:
    return next(each.kind.allocatable for each in offers if each.kind.zone == transfer.selector.zone)


def _fields(transfer: Transfer) -> dict[str, Any]:
    return {name: getattr(transfer, name) for name in transfer.__struct_fields__}


def _proposed(fleet: Fleet, donor: str, recipient: str) -> Transfer:
    return Transfer(
        id="t",
        phase=Phase.PROPOSED,
        donor=fleet.generation(donor),
        recipient=fleet.generation(recipient),
        selector=Selector("small", "z", 1),
    )


def test_machines_a_report_does_not_count_yet_are_not_sent_again_and_those_it_counts_hide_nothing() -> None:
    fleet = Fleet(hungry=Standing(deficits=(short(units=1),)), giver=Standing(cells=(free(5),)))
    fleet.state.apply(
        do.Propose(
            Transfer(
                id="1.1",
                phase=Phase.PROPOSED,
                donor=fleet.generation("giver"),
                recipient=fleet.generation("hungry"),
                selector=Selector("small", "z", 1),
                shape=shape_of(short()),
                units=1,
            )
        )
    )
    fleet.state.apply(do.Release("1.1", ("m",)))
    fleet.state.apply(do.Adopt("1.1", NOW))
    hungry, unsettled = fleet.generation("hungry"), Policy(settle=0, cooldown=0)
    fleet.standings[hungry] = Standing(deficits=(short(units=1),), arriving=frozenset({"1.1"}))
    assert not fleet.moves(policy=unsettled), "the report was made before the machine was counted"
    fleet.standings[hungry] = Standing(deficits=(short(units=1),), arriving=frozenset())
    assert len(fleet.moves(policy=Policy(settle=MINUTE, cooldown=0))) == 1, "it is counted, and one is still missing"
