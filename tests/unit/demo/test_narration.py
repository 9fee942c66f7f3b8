"""Decisions in plain words: who got what, why, and several of a kind in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigfleet.demo.narrate import NANOSECONDS, REASONS, Story, listed, shortfall
from bigfleet.demo.watching import SeenAction, SeenMachine, SeenNeed, Sight
from bigfleet.engine.results import ActionKind, UnmetReason
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.resources import Resources

SPOT = [
    SeenMachine(f"spot-{n}", CapacityType.SPOT, "m6i.2xlarge", zone, MachineState.IDLE, "", 0.1)
    for n, zone in enumerate(("zone-a", "zone-a", "zone-b"))
]
METAL = SeenMachine("metal-0", CapacityType.BARE_METAL, "metal-8", "hall-a", MachineState.IDLE, "", 0.0)
BATCH = SeenNeed("research", "batch", "", 100, 0.0, Resources.of(cpu=1000), True, Resources(), UnmetReason.NONE)
URGENT = replace(BATCH, cluster="payments", fingerprint="urgent", priority=1_000_000, interruption=1024.0)


def action(kind: ActionKind, machine: SeenMachine, *, at: int = 0, **changes: str) -> SeenAction:
    made = SeenAction(at * NANOSECONDS, kind, machine.id, "research", "batch", "success", "")
    return replace(made, **changes)  # type: ignore[arg-type]


def told(*actions: SeenAction) -> list[str]:
    story = Story()
    story.follow(Sight(1, 1, (*SPOT, METAL), (BATCH, URGENT), actions))
    return [line.text for line in story.lines]


def test_machines_of_a_kind_bought_together_are_one_sentence_with_the_sum_of_their_prices() -> None:
    (line,) = told(*(action(ActionKind.PROVISION, machine, at=n) for n, machine in enumerate(SPOT)))
    assert line.startswith("bought 3 spot m6i.2xlarge in zone-a and zone-b for research, $0.30/h: ")


def test_what_happens_much_later_is_a_sentence_of_its_own_and_comes_first() -> None:
    first, second = told(action(ActionKind.PROVISION, SPOT[0]), action(ActionKind.PROVISION, SPOT[2], at=60))
    assert "1 spot m6i.2xlarge in zone-b" in first and "1 spot m6i.2xlarge in zone-a" in second


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (action(ActionKind.BOOTSTRAP, METAL), "gave research 1 on-prem metal-8 in hall-a"),
        (action(ActionKind.RECLAIM, METAL), "took back 1 on-prem metal-8 in hall-a: research no longer needs it"),
        (
            action(ActionKind.PREEMPT, METAL, fingerprint="urgent"),
            "took 1 on-prem metal-8 in hall-a from research for the critical job of payments",
        ),
        (action(ActionKind.DELETE, SPOT[0], cluster="", fingerprint=""), "released 1 spot m6i.2xlarge in zone-a"),
        (
            action(ActionKind.PROVISION, SPOT[0], outcome="provider_error", error="no capacity"),
            "failed to buy 1 spot m6i.2xlarge in zone-a: no capacity",
        ),
    ],
)
def test_every_kind_of_action_has_its_words(done: SeenAction, words: str) -> None:
    (line,) = told(done)
    assert line.startswith(words)


def test_the_price_of_an_interruption_says_why_it_was_not_spot() -> None:
    on_demand = replace(SPOT[0], id="od-0", kind=CapacityType.ON_DEMAND)
    story = Story()
    bought = action(ActionKind.PROVISION, on_demand, cluster="payments", fingerprint="urgent")
    story.follow(Sight(1, 1, (on_demand,), (URGENT,), (bought,)))
    assert story.lines[0].text.endswith("an interruption would cost $1,024")


def test_an_action_that_came_to_nothing_is_not_told() -> None:
    assert told(action(ActionKind.RECLAIM, METAL, outcome="cancelled")) == []


def test_what_the_audience_does_separates_what_came_before_from_what_follows() -> None:
    story = Story()
    sight = Sight(1, 1, tuple(SPOT), (BATCH,), (action(ActionKind.PROVISION, SPOT[0]),))
    story.follow(sight)
    story.say(NANOSECONDS, "research bursts")
    story.follow(replace(sight, actions=(action(ActionKind.PROVISION, SPOT[1], at=2),)))
    assert [line.who for line in story.lines] == ["fleet", "you", "fleet"]


def test_a_need_that_was_withdrawn_is_still_named_by_what_was_done_for_it() -> None:
    story = Story()
    story.follow(Sight(1, 1, (METAL,), (BATCH, URGENT)))
    story.follow(Sight(2, 2, (METAL,), (), (action(ActionKind.PREEMPT, METAL, fingerprint="urgent"),)))
    assert "critical job of payments" in story.lines[0].text


def test_a_shortfall_says_what_is_missing_and_why() -> None:
    short = replace(
        BATCH,
        satisfied=False,
        missing=Resources({"cpu": 3500, "memory": 8 << 20}),
        reason=UnmetReason.NO_MATCHING_SUPPLY,
    )
    assert shortfall(short) == "research (batch) is short of 3500m vCPU, 8Gi memory: no machine fits"
    assert "user data" in shortfall(replace(short, reason=None))


def test_every_reason_has_words() -> None:
    assert set(REASONS) == set(UnmetReason)


@pytest.mark.parametrize(("names", "text"), [([], ""), (["a"], "a"), (["b", "a"], "a and b"), ("cab", "a, b and c")])
def test_lists_read_as_people_write_them(names: list[str], text: str) -> None:
    assert listed(names) == text
