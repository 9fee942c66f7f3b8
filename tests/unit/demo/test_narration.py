"""Decisions in plain words: who got what, why, and several of a kind in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigfleet.demo.narrate import NANOSECONDS, Story, listed
from bigfleet.demo.reasons import REASONS, shortfall
from bigfleet.demo.watching import SeenAction, SeenMachine, SeenNeed, Sight
from bigfleet.engine.results import ActionKind, UnmetReason
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.resources import Resources

SPOT = [
    SeenMachine(
        f"spot-{n}", CapacityType.SPOT, "m6i.2xlarge", zone, MachineState.SPECULATIVE, "", 0.1, False, risk=0.075
    )
    for n, zone in enumerate(("zone-a", "zone-a", "zone-b"))
]
RENTED = [
    replace(machine, id=f"rented-{n}", kind=CapacityType.ON_DEMAND, price=0.4, risk=0.0)
    for n, machine in enumerate(SPOT)
]
METAL = SeenMachine("metal-0", CapacityType.BARE_METAL, "metal-8", "hall-a", MachineState.CONFIGURED, "research", 0.0)
METAL = replace(METAL, serves="batch")
BATCH = SeenNeed(
    "research", "batch", "", 100, 0.0, Resources.of(cpu=1000), True, Resources(), UnmetReason.NONE, "nightly"
)
URGENT = replace(
    BATCH, cluster="payments", fingerprint="urgent", priority=1_000_000, interruption=1024.0, workload="settlement"
)
CALM = replace(URGENT, fingerprint="calm", priority=1000, workload="checkout")
ALL = (*SPOT, *RENTED, METAL)


def action(kind: ActionKind, machine: SeenMachine, *, at: int = 0, **changes: str) -> SeenAction:
    made = SeenAction(at * NANOSECONDS, kind, machine.id, "research", "batch", "success", "")
    return replace(made, **changes)  # type: ignore[arg-type]


def told(*actions: SeenAction, machines: tuple[SeenMachine, ...] = ALL) -> list[str]:
    story = Story()
    story.follow(Sight(1, 1, machines, (BATCH, URGENT), actions))
    return [line.text for line in story.lines]


def test_machines_of_a_kind_bought_together_are_one_sentence_with_the_sum_of_their_prices() -> None:
    (line,) = told(*(action(ActionKind.PROVISION, machine, at=n) for n, machine in enumerate(SPOT)))
    assert line.startswith("bought 3 spot m6i.2xlarge in zone-a and zone-b for research's nightly at $0.30/h: ")


def test_what_happens_much_later_is_a_sentence_of_its_own_and_comes_first() -> None:
    first, second = told(action(ActionKind.PROVISION, SPOT[0]), action(ActionKind.PROVISION, SPOT[2], at=60))
    assert "1 spot m6i.2xlarge in zone-b" in first and "1 spot m6i.2xlarge in zone-a" in second


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (
            action(ActionKind.BOOTSTRAP, METAL),
            "gave 1 on-prem metal-8 in hall-a to research's nightly: idle and already paid",
        ),
        (
            action(ActionKind.BOOTSTRAP, RENTED[0]),
            "gave 1 on-demand m6i.2xlarge in zone-a to research's nightly: idle and still rented",
        ),
        (action(ActionKind.RECLAIM, METAL), "took back 1 on-prem metal-8 in hall-a: research no longer needs it"),
        (
            action(ActionKind.PREEMPT, METAL, fingerprint="urgent"),
            "took 1 on-prem metal-8 in hall-a from research's nightly (batch) for payments' settlement (critical): ",
        ),
        (
            action(ActionKind.DELETE, SPOT[0], cluster="", fingerprint=""),
            "released 1 spot m6i.2xlarge in zone-a, unused for a while: saves $0.10/h",
        ),
        (
            action(ActionKind.PROVISION, SPOT[0], outcome="provider_error", error="no capacity"),
            "failed to buy 1 spot m6i.2xlarge in zone-a: no capacity",
        ),
    ],
)
def test_every_kind_of_action_has_its_words(done: SeenAction, words: str) -> None:
    (line,) = told(done)
    assert line.startswith(words)


def test_why_spot_was_good_enough_is_its_risk_against_the_price_it_saves() -> None:
    (line,) = told(action(ActionKind.PROVISION, SPOT[0]))
    assert line.endswith("spot is good enough: 7.5% risk × $0 an interruption = $0.00/h, on-demand is $0.30/h dearer")


def test_why_it_was_not_spot_is_its_risk_too() -> None:
    (line,) = told(action(ActionKind.PROVISION, RENTED[0], cluster="payments", fingerprint="urgent"))
    assert line.endswith("spot is $0.30/h cheaper, but 7.5% risk × $1,024 an interruption = $76.80/h")


def test_what_was_sold_out_when_it_was_decided_is_named_and_nothing_else_is() -> None:
    story = Story()
    bought = replace(action(ActionKind.PROVISION, RENTED[0]), cycle=2)
    story.follow(Sight(2, 2, (*(replace(each, picked=True) for each in SPOT), *RENTED), (BATCH,)))
    # Later there is spot again, which was of no help then.
    story.follow(Sight(3, 3, ALL, (BATCH,), (bought,)))
    assert story.lines[0].text.endswith("nothing idle fits; spot m6i.2xlarge is sold out")


def test_a_machine_given_to_who_it_was_taken_for_says_from_whom() -> None:
    taken = action(ActionKind.PREEMPT, METAL, fingerprint="urgent")
    given = action(ActionKind.BOOTSTRAP, METAL, at=1, cluster="payments", fingerprint="urgent")
    newest, _ = told(taken, given)
    assert newest == "gave 1 on-prem metal-8 in hall-a to payments' settlement: just taken from research's nightly"


def test_what_is_bought_for_the_displaced_names_who_displaced_them_even_when_that_ends_later() -> None:
    bought = action(ActionKind.PROVISION, SPOT[0])
    taken = action(ActionKind.PREEMPT, METAL, at=1, fingerprint="urgent")
    _, oldest = told(bought, taken)
    assert oldest.startswith(
        "bought 1 spot m6i.2xlarge in zone-a for research's nightly, which lost machines to payments' settlement, at"
    )


def test_what_was_decided_before_anybody_was_displaced_is_not_blamed_on_it() -> None:
    story = Story()
    story.follow(Sight(4, 4, ALL, (BATCH, URGENT)))
    story.say(0, "a critical job")
    bought = replace(action(ActionKind.PROVISION, SPOT[0]), cycle=4)
    taken = replace(action(ActionKind.PREEMPT, METAL, at=1, fingerprint="urgent"), cycle=5)
    story.follow(Sight(6, 6, ALL, (BATCH, URGENT), (bought, taken)))
    assert "lost machines" not in next(line.text for line in story.lines if line.text.startswith("bought"))


def test_nodes_that_change_hands_inside_a_cluster_are_told() -> None:
    story = Story()
    story.follow(Sight(1, 1, ALL, (replace(CALM, claimed=8, credited=8),)))
    after = (replace(URGENT, claimed=14, credited=8), replace(CALM, claimed=8, credited=0))
    story.follow(Sight(2, 2, ALL, after))
    (line,) = story.lines
    assert line.text.startswith("payments' settlement (critical) takes over 8 nodes of payments' checkout (service)")


def test_demand_that_shrinks_is_no_takeover() -> None:
    story = Story()
    story.follow(Sight(1, 1, ALL, (replace(CALM, claimed=8, credited=8),)))
    less = replace(CALM, wanted=Resources.of(cpu=1), claimed=1, credited=1)
    story.follow(Sight(2, 2, ALL, (replace(URGENT, claimed=7, credited=7), less)))
    assert story.lines == []


def test_no_sentence_counts_a_machine_twice() -> None:
    again = [action(ActionKind.DELETE, machine, at=at, cluster="") for at in (0, 1, 2) for machine in SPOT]
    lines = told(*again)
    assert [line.split()[1] for line in lines] == ["3", "3", "3"]


def test_releasing_a_reservation_saves_nothing() -> None:
    reserved = replace(SPOT[0], kind=CapacityType.RESERVED, risk=0.0)
    (line,) = told(action(ActionKind.DELETE, reserved, cluster="", fingerprint=""), machines=(reserved,))
    assert line.endswith("saves $0.00/h")


def test_an_action_that_came_to_nothing_is_not_told() -> None:
    assert told(action(ActionKind.RECLAIM, METAL, outcome="cancelled")) == []


def test_what_the_audience_does_separates_what_came_before_from_what_follows() -> None:
    story = Story()
    sight = Sight(1, 1, tuple(SPOT), (BATCH,), (action(ActionKind.PROVISION, SPOT[0]),))
    story.follow(sight)
    story.say(NANOSECONDS, "research bursts")
    story.follow(replace(sight, actions=(action(ActionKind.PROVISION, SPOT[1], at=2),)))
    assert [line.who for line in story.lines] == ["fleet", "you", "fleet"]


def test_the_same_done_again_at_once_is_one_line_that_counts() -> None:
    story = Story()
    for second in range(3):
        story.say(second * NANOSECONDS, "research bursts")
    (line,) = story.lines
    assert line.text == "research bursts (3 times)" and line.at == 2 * NANOSECONDS


def test_a_need_that_was_withdrawn_is_still_named_by_what_was_done_for_it() -> None:
    story = Story()
    story.follow(Sight(1, 1, (METAL,), (BATCH, URGENT)))
    story.follow(Sight(2, 2, (METAL,), (), (action(ActionKind.PREEMPT, METAL, fingerprint="urgent"),)))
    assert "for payments' settlement (critical)" in story.lines[0].text


def test_a_shortfall_says_what_is_missing_and_why() -> None:
    short = replace(
        BATCH,
        satisfied=False,
        missing=Resources({"cpu": 409_500, "memory": 8 << 20}),
        reason=UnmetReason.AWAITING_DRAIN,
    )
    assert shortfall(short) == (
        "research's nightly (batch) is short of 409.5 vCPU, 8 GiB: machines are being drained for it"
    )
    assert "user data" in shortfall(replace(short, reason=None))


def test_a_shortage_with_nothing_for_sale_says_so() -> None:
    short = replace(BATCH, satisfied=False, missing=Resources.of(cpu=1), reason=UnmetReason.PRIORITY_STARVED, in_use=24)
    assert shortfall(short).endswith(
        "nothing that fits is left for sale, and the 24 in use serve equal or higher priorities"
    )
    assert "for sale" not in shortfall(replace(short, for_sale=3))


def test_every_reason_has_words() -> None:
    assert set(REASONS) == set(UnmetReason)


@pytest.mark.parametrize(("names", "text"), [([], ""), (["a"], "a"), (["b", "a"], "a and b"), ("cab", "a, b and c")])
def test_lists_read_as_people_write_them(names: list[str], text: str) -> None:
    assert listed(names) == text
