"""The operator's side of the session: what it announces, when it reports, how it drains, how it comes back."""

from __future__ import annotations

import pytest

from bigfleet.model.names import ACK_OUTCOMES, DRAIN_REPORTS, NODE_REPORTS, PLACEMENT, RECLAIM_CANCEL
from bigfleet.model.session import AckOutcome, DrainOutcome
from bigfleet.operator.core import frames
from bigfleet.operator.core.drains import ResumedDrain
from bigfleet.operator.core.events import (
    SECOND,
    BootstrapRendered,
    CacheChanged,
    CloseNode,
    Connected,
    Cordon,
    DemandGrew,
    Dial,
    Disconnected,
    DrainCause,
    Event,
    Evict,
    EvictionEnded,
    Instruction,
    KeepShard,
    LoseNode,
    NodeGone,
    NodesChanged,
    Received,
    RenderBootstrap,
    ReopenNodes,
    ReportNodes,
    RollupAnswered,
    Say,
    SendRollup,
    Started,
    StopEvicting,
    StreamEnd,
    TimerDue,
)
from bigfleet.operator.core.frames import DrainReport
from bigfleet.operator.core.pacing import RollupPace
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.session import Session, SessionSettings

FULL = frozenset((DRAIN_REPORTS, RECLAIM_CANCEL, ACK_OUTCOMES, NODE_REPORTS))


class Told(Session):
    """A session that is checked after every event."""

    def handle(self, event: Event, now: int) -> list[Instruction]:
        out = super().handle(event, now)
        self.validate()
        return out


class Refuses:
    """No room anywhere."""

    begun: tuple[str, ...] = ()
    released: tuple[str, ...] = ()

    def is_occupied(self, machine: str) -> bool:
        return True

    def refusal(self, machine: str) -> str:
        return f"the pods of {machine} have no room elsewhere"

    def begin(self, machine: str) -> None:
        self.begun += (machine,)

    def release(self, machine: str) -> None:
        self.released += (machine,)


def session(
    *, can: frozenset[str] = FULL, complete: bool = True, address: str = "shard:1", bound: str = "", **more: object
) -> Told:
    settings = SessionSettings("c", can, address, bound_shard_id=bound, complete=complete)
    return Told(settings, doubling(lambda: 0.0), **more)  # type: ignore[arg-type]


def connected(**facts: object) -> Told:
    made = session(**facts)  # type: ignore[arg-type]
    made.handle(Connected(1), 0)
    made.handle(Received(frames.HelloAck()), 0)
    if made.capabilities:
        made.handle(Received(frames.RollupAck()), 0)
    return made


def reclaim(instruction: str = "i", priority: int = 0, *, voluntary: bool = False, grace: int = 30) -> Received:
    return Received(frames.ReclaimInstruction(instruction, ("m",), grace, priority, voluntary))


def sent(out: list[Instruction]) -> bool:
    return any(isinstance(each, SendRollup) for each in out)


# ------------------------------------------------------------------------------------------------------------ greeting


def test_hello_comes_first_then_the_nodes_then_the_demand() -> None:
    out = session(bound="shard-7").handle(Connected(7), 5)
    hello = frames.Hello("c", FULL, bound_shard_id="shard-7")
    assert out == [Say(7, hello), ReportNodes(7, anew=True), SendRollup(7, 5)]


def test_a_reference_operator_announces_nothing_and_reports_neither_nodes_nor_drains() -> None:
    made = session(can=frozenset(), bound="shard-7")
    assert made.handle(Connected(1), 0) == [Say(1, frames.Hello("c")), SendRollup(1, 0)]
    made.handle(reclaim(), 0)
    assert made.handle(EvictionEnded("m"), SECOND) == []
    made.handle(Disconnected(), 2 * SECOND)
    assert made.handle(Connected(2), 3 * SECOND)[0] == Say(2, frames.Hello("c"))


def test_the_shard_that_took_us_is_remembered_and_named_next_time() -> None:
    made = session()
    made.handle(Connected(1, shard_id="shard-3"), 0)
    assert made.bound_shard_id == ""
    assert made.handle(Received(frames.HelloAck()), 1) == [KeepShard("shard-3")]
    assert made.handle(Received(frames.HelloAck()), 1) == []
    made.handle(Disconnected(), 2)
    hello = made.handle(Connected(2), 3)[0]
    assert hello == Say(2, frames.Hello("c", FULL, bound_shard_id="shard-3"))


# ------------------------------------------------------------------------------------------------------------ roll-ups


def test_no_demand_is_told_before_the_view_of_the_cluster_is_complete() -> None:
    made = session(complete=False)
    assert not sent(made.handle(Connected(1), 0))
    made.handle(DemandGrew(), SECOND)
    assert not sent(made.handle(TimerDue(), 20 * SECOND))
    made.handle(CacheChanged(complete=True), 21 * SECOND)
    assert made.next_timer() is not None and made.next_timer() <= 21 * SECOND  # type: ignore[operator]
    assert made.handle(TimerDue(), 21 * SECOND) == [ReportNodes(1, anew=True), SendRollup(1, 21 * SECOND)]


def test_a_list_that_begins_anew_stops_the_roll_ups_until_it_is_complete() -> None:
    made = connected()
    made.handle(CacheChanged(complete=False), SECOND)
    assert not sent(made.handle(TimerDue(), 15 * SECOND))
    made.handle(CacheChanged(complete=True), 16 * SECOND)
    assert sent(made.handle(TimerDue(), 16 * SECOND))


def test_demand_is_told_at_every_interval() -> None:
    made = connected()
    assert made.next_timer() == 10 * SECOND
    assert made.handle(TimerDue(), 10 * SECOND) == [ReportNodes(1, anew=False), SendRollup(1, 10 * SECOND)]
    made.handle(Received(frames.RollupAck(10 * SECOND)), 10 * SECOND)
    assert made.next_timer() == 20 * SECOND


def test_growing_demand_is_told_early_but_not_more_than_once_a_second() -> None:
    made = connected()
    made.handle(DemandGrew(), SECOND // 2)
    assert made.next_timer() == SECOND
    assert sent(made.handle(TimerDue(), SECOND))
    made.handle(Received(frames.RollupAck(SECOND)), SECOND)
    made.handle(DemandGrew(), 5 * SECOND)
    assert made.next_timer() == 5 * SECOND


@pytest.mark.parametrize(
    ("growth", "told"),
    [
        ([12.0], 14.0),  # two seconds after the last of it
        ([12.0, 13.0, 13.5, 15.0], 17.0),
        ([12.0 + 0.5 * n for n in range(30)], 22.0),  # ten after the first of it, however long it goes on
        ([19.0, 20.5], 22.5),  # the next one by the clock waits for it too
        ([10.5], 12.5),
    ],
)
def test_an_operator_that_reports_placement_tells_growth_together(growth: list[float], told: float) -> None:
    """Pods of a Deployment come one after the other; told one by one each would be bought a machine of its own."""
    pace = RollupPace(10 * SECOND, complete=True, gathers=True)
    pace.opened(0)
    pace.sent(0)
    pace.answered(0)
    pace.sent(10 * SECOND)
    pace.answered(0)
    for at in growth:
        if pace.due() is not None and pace.due() > at * SECOND:  # type: ignore[operator]
            pace.grew(round(at * SECOND))
    assert pace.due() == told * SECOND


def test_gathering_never_makes_the_last_roll_up_too_old_to_buy_by() -> None:
    pace = RollupPace(19 * SECOND, complete=True, gathers=True)
    pace.opened(0)
    assert pace.due() == 0
    pace.grew(0)
    assert pace.due() == 0
    pace.sent(0)
    pace.answered(0)
    for at in range(15, 20):
        pace.grew(at * SECOND)
    assert pace.due() == 20 * SECOND


def test_one_roll_up_is_in_flight_at_a_time() -> None:
    made = session()
    made.handle(Connected(1), 0)
    made.handle(DemandGrew(), 2 * SECOND)
    assert not sent(made.handle(TimerDue(), 12 * SECOND))
    answered = made.handle(Received(frames.RollupAck(0, AckOutcome.HELD, "sudden loss")), 13 * SECOND)
    assert answered == [RollupAnswered(0, AckOutcome.HELD, "sudden loss")]
    assert sent(made.handle(TimerDue(), 13 * SECOND))


def test_an_answer_to_another_roll_up_is_not_taken_for_this_one() -> None:
    made = session()
    made.handle(Connected(1), 7)
    assert made.handle(Received(frames.RollupAck(6)), 8) == []
    assert made.handle(Received(frames.RollupAck(7)), 8) == [RollupAnswered(7, AckOutcome.UNSAID, "")]
    assert made.handle(Received(frames.RollupAck(7)), 8) == []


def test_a_shard_that_never_answers_still_hears_the_next_demand() -> None:
    made = session()
    made.handle(Connected(1), 0)
    assert made.next_timer() == 30 * SECOND
    assert sent(made.handle(TimerDue(), 30 * SECOND))


def test_changed_nodes_are_told_soon_but_never_before_all_of_them_were() -> None:
    made = session(complete=False)
    made.handle(Connected(1), 0)
    made.handle(NodesChanged(), 1)
    assert made.next_timer() is None
    made.handle(CacheChanged(complete=True), 2)
    made.handle(TimerDue(), 2)
    made.handle(NodesChanged(), 3)
    assert made.handle(TimerDue(), 2 + SECOND) == [ReportNodes(1, anew=False)]


# ----------------------------------------------------------------------------------------------------------- bootstrap


def test_a_bootstrap_request_is_rendered_once_and_answered() -> None:
    made = connected()
    request = frames.BootstrapRequest("r", "m")
    assert made.handle(Received(request), 0) == [RenderBootstrap(request)]
    assert made.handle(Received(request), 1) == []
    answer = frames.BootstrapAnswer("r", b"secret")
    assert made.handle(BootstrapRendered(answer), 2) == [Say(1, answer)]
    assert "secret" not in repr(answer)


def test_user_data_for_a_stream_that_ended_is_not_sent_on_the_next_one() -> None:
    made = connected()
    made.handle(Received(frames.BootstrapRequest("r", "m")), 0)
    made.handle(Disconnected(), 1)
    made.handle(Connected(2), 2)
    assert made.handle(BootstrapRendered(frames.BootstrapAnswer("r", b"x")), 3) == []


# -------------------------------------------------------------------------------------------------------------- drains


def test_a_reclaim_cordons_evicts_and_is_reported_when_the_pods_are_gone() -> None:
    made = connected()
    out = made.handle(reclaim(priority=5), 0)
    assert out == [
        Say(1, frames.ReclaimAck("i", 1)),
        Cordon("m", True),
        Evict("m", 30 * SECOND, DrainCause.PREEMPTION),
    ]
    assert made.handle(EvictionEnded("m"), SECOND) == [Say(1, DrainReport("i", "m", DrainOutcome.DRAINED))]


def test_pods_that_stay_beyond_the_grace_are_reported_and_left_alone() -> None:
    made = connected()
    made.handle(reclaim(grace=3), 0)
    assert made.handle(TimerDue(), 3 * SECOND) == [], "pods that leave at the last instant are in time"
    stop, report = made.handle(TimerDue(), made.next_timer() or 0)
    assert stop == StopEvicting("m")
    assert isinstance(report, Say) and isinstance(report.frame, DrainReport)
    assert report.frame.outcome is DrainOutcome.GRACE_EXPIRED


@pytest.mark.parametrize("grace", [0, -1])
def test_a_reclaim_without_a_grace_gets_half_a_minute(grace: int) -> None:
    assert Evict("m", 30 * SECOND, DrainCause.RECLAIM) in connected().handle(reclaim(grace=grace), 0)


def test_another_instruction_after_an_expired_grace_starts_another_eviction() -> None:
    made = connected()
    made.handle(reclaim("first"), 0)
    made.handle(TimerDue(), 31 * SECOND)
    again = made.handle(reclaim("first"), 32 * SECOND)
    assert [type(each) for each in again] == [Say, Say], "asked again for the same drain: the same answer"
    assert made.handle(reclaim("second"), 40 * SECOND)[1:] == [
        Cordon("m", True),
        Evict("m", 70 * SECOND, DrainCause.RECLAIM),
    ]


def test_a_cluster_that_forbids_evictions_is_reported_as_failed() -> None:
    made = connected()
    made.handle(reclaim(), 0)
    report = DrainReport("i", "m", DrainOutcome.FAILED, "evictions are forbidden")
    assert made.handle(EvictionEnded("m", "evictions are forbidden"), 1) == [Say(1, report)]


def test_a_cancelled_drain_is_undone() -> None:
    made = connected()
    made.handle(reclaim(), 0)
    assert made.handle(Received(frames.ReclaimCancel("i")), SECOND) == [
        StopEvicting("m"),
        Cordon("m", False),
        Say(1, DrainReport("i", "m", DrainOutcome.CANCELLED)),
    ]
    assert made.draining() == ()


def test_a_drain_survives_a_reconnect_and_is_reported_under_its_new_name() -> None:
    made = connected()
    made.handle(reclaim(), 0)
    made.handle(Disconnected(), SECOND)
    assert made.handle(EvictionEnded("m"), 2 * SECOND) == []
    hello = made.handle(Connected(2), 3 * SECOND)[0]
    assert hello == Say(2, frames.Hello("c", FULL, active_drains=("m",)))
    assert made.handle(reclaim("again"), 4 * SECOND)[-1] == Say(2, DrainReport("again", "m", DrainOutcome.DRAINED))


def test_a_drain_nobody_claims_after_a_reconnect_is_undone() -> None:
    made = connected()
    made.handle(reclaim(grace=600), 0)
    made.handle(Disconnected(), SECOND)
    made.handle(Connected(2), 2 * SECOND)
    assert Cordon("m", False) not in made.handle(TimerDue(), 31 * SECOND)
    assert Cordon("m", False) in made.handle(TimerDue(), 32 * SECOND)


def test_a_node_that_vanishes_ends_its_drain() -> None:
    made = connected()
    made.handle(reclaim(), 0)
    assert made.handle(NodeGone("m"), 1) == [Say(1, DrainReport("i", "m", DrainOutcome.DRAINED))]
    assert made.handle(EvictionEnded("m"), 2) == []


def test_a_restarted_operator_goes_on_with_its_drains_and_names_them() -> None:
    made = session(resumed=[ResumedDrain("m", "i", 9 * SECOND)])
    assert made.handle(Started(), 0) == [Evict("m", 9 * SECOND, DrainCause.RECLAIM)]
    assert made.handle(Started(), 0) == []
    hello = made.handle(Connected(1), SECOND)[0]
    assert hello == Say(1, frames.Hello("c", FULL, active_drains=("m",)))
    assert Cordon("m", False) in made.handle(TimerDue(), 31 * SECOND)


def test_a_voluntary_reclaim_without_room_elsewhere_is_refused_and_nothing_is_touched() -> None:
    made = connected(placement=Refuses())
    ack, report = made.handle(reclaim(voluntary=True), 0)
    assert ack == Say(1, frames.ReclaimAck("i", 0))
    refusal = DrainReport("i", "m", DrainOutcome.REFUSED, "the pods of m have no room elsewhere")
    assert report == Say(1, refusal)
    assert made.draining() == ()


def test_preemption_is_never_refused() -> None:
    refuses = Refuses()
    made = connected(placement=refuses)
    assert Cordon("m", True) in made.handle(reclaim(priority=9), 0)
    made.handle(Received(frames.ReclaimCancel("i")), 1)
    assert (refuses.begun, refuses.released) == (("m",), ("m",))


# -------------------------------------------------------------------------------------------------- room within a time


class Awaited(Refuses):
    """Room comes when it comes."""

    roomy = False

    def has_room(self, machine: str) -> bool:
        return self.roomy


def taken_soon(instruction: str = "i", room: int = 80) -> Received:
    return Received(frames.ReclaimInstruction(instruction, ("m",), 115, room_within_seconds=room))


EVICT = Evict("m", 115 * SECOND, DrainCause.NOTICE)


def test_pods_of_a_host_that_will_be_taken_run_on_until_they_have_room() -> None:
    awaited = Awaited()
    made = connected(placement=awaited)
    assert made.handle(taken_soon(), 0) == [Say(1, frames.ReclaimAck("i", 1)), Cordon("m", True)]
    assert awaited.begun == ("m",), "what they need is missing from now on"
    assert made.handle(NodesChanged(), 30 * SECOND) == []
    awaited.roomy = True
    assert made.handle(NodesChanged(), 60 * SECOND) == [EVICT]
    assert made.handle(NodesChanged(), 61 * SECOND) == []
    assert made.handle(EvictionEnded("m"), 70 * SECOND) == [Say(1, DrainReport("i", "m", DrainOutcome.DRAINED))]


def test_pods_without_room_leave_when_there_is_no_more_time() -> None:
    made = connected(placement=Awaited())
    made.handle(taken_soon(), 0)
    assert EVICT not in made.handle(TimerDue(), 80 * SECOND - 1)
    due = made.next_timer()
    assert due is not None and due <= 80 * SECOND
    assert EVICT in made.handle(TimerDue(), 80 * SECOND)
    over = made.handle(TimerDue(), 115 * SECOND + 1)
    assert any(isinstance(each, Say) and isinstance(each.frame, DrainReport) for each in over)


def test_a_host_that_stays_after_all_keeps_its_pods() -> None:
    awaited = Awaited()
    made = connected(placement=awaited)
    made.handle(taken_soon(), 0)
    out = made.handle(Received(frames.ReclaimCancel("i")), 20 * SECOND)
    assert Cordon("m", False) in out and not any(isinstance(each, Evict) for each in out)
    awaited.roomy = True
    assert EVICT not in made.handle(TimerDue(), 100 * SECOND)
    assert awaited.released == ("m",)


def test_a_shard_that_asks_again_may_shorten_the_wait_and_not_prolong_it() -> None:
    made = connected(placement=Awaited())
    made.handle(taken_soon(), 0)
    assert EVICT not in made.handle(taken_soon("j", room=500), 10 * SECOND)
    assert EVICT in made.handle(TimerDue(), 80 * SECOND)
    other = connected(placement=Awaited())
    other.handle(taken_soon(), 0)
    assert EVICT in other.handle(taken_soon("j", room=0), 10 * SECOND)


def test_the_wait_outlives_the_operator() -> None:
    awaited = Awaited()
    made = connected(placement=awaited)
    made.handle(taken_soon(), 0)
    kept = made.drain_of("m")
    assert kept is not None and kept.evict_by == 80 * SECOND
    reborn = session(placement=awaited, resumed=[kept])
    assert EVICT not in reborn.handle(Started(), 30 * SECOND)
    assert EVICT in reborn.handle(TimerDue(), 80 * SECOND)
    gone = reborn.drain_of("m")
    assert gone is not None and gone.evict_by == 0


def test_an_operator_that_knows_nothing_of_room_evicts_at_once() -> None:
    assert EVICT in connected().handle(taken_soon(), 0)


# -------------------------------------------------------------------------------------------- lost and closing nodes


def test_lost_and_closing_nodes_are_passed_on() -> None:
    made = connected()
    assert made.handle(Received(frames.NodeLost("m")), 0) == [LoseNode("m")]
    assert made.handle(Received(frames.NodeClosing("m", True)), 0) == [CloseNode("m", True)]


def test_closing_nodes_open_again_after_a_minute_without_the_shard() -> None:
    made = connected(can=FULL | {PLACEMENT})
    made.handle(Disconnected(), 0)
    made.handle(Connected(2), 20 * SECOND)  # connects, but is never greeted
    made.handle(Disconnected(), 21 * SECOND)
    assert ReopenNodes() not in made.handle(TimerDue(), 59 * SECOND)
    assert ReopenNodes() in made.handle(TimerDue(), 60 * SECOND)
    made.handle(Connected(3), 61 * SECOND)
    made.handle(Received(frames.HelloAck()), 61 * SECOND)
    made.handle(Disconnected(), 62 * SECOND)
    made.handle(Connected(4), 63 * SECOND)
    made.handle(Received(frames.HelloAck()), 63 * SECOND)
    assert ReopenNodes() not in made.handle(TimerDue(), 200 * SECOND)


# -------------------------------------------------------------------------------------------- back-off and referrals


def pauses(made: Told, count: int, now: int = 0) -> list[float]:
    """Seconds between failed attempts."""
    out = []
    for _ in range(count):
        made.handle(Disconnected(), now)
        due = made.next_timer()
        assert due is not None
        out.append((due - now) / SECOND)
        now = due
        assert any(isinstance(each, Dial) for each in made.handle(TimerDue(), now))
    return out


def test_pauses_double_up_to_half_a_minute_and_start_over_once_greeted() -> None:
    made = session()
    assert pauses(made, 9) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    made.handle(Connected(1), 0)
    made.handle(Disconnected(), 0)
    assert pauses(made, 1) == [30], "a stream that is opened and dropped is no success"
    made.handle(Connected(2), 0)
    made.handle(Received(frames.HelloAck()), 0)
    assert pauses(made, 2) == [0.5, 1]


def test_jitter_shortens_a_pause_by_at_most_half() -> None:
    assert doubling(lambda: 0.0)(2) == 2 * SECOND
    assert doubling(lambda: 0.5)(2) == 1.5 * SECOND
    assert SECOND <= doubling(lambda: 0.999)(2) < 1.1 * SECOND
    assert doubling(lambda: 0.0)(10_000) == 30 * SECOND


def test_a_replaced_stream_stays_away_for_at_least_half_a_minute() -> None:
    made = connected()
    made.handle(Disconnected(StreamEnd.REPLACED), SECOND)
    due = made.next_timer()
    assert due is not None and due >= 31 * SECOND


def test_a_start_dials_at_once() -> None:
    made = session()
    made.handle(Started(), 5)
    assert made.next_timer() == 5
    assert made.handle(TimerDue(), 5) == [Dial("shard:1")]
    assert made.next_timer() is None


def test_a_referral_is_followed_at_once_and_left_when_nobody_is_there() -> None:
    made = connected()
    made.handle(Disconnected(redirect="other:2"), SECOND)
    assert made.handle(TimerDue(), SECOND) == [Dial("other:2")]
    now, dialled = SECOND, []
    for _ in range(4):
        made.handle(Disconnected(), now)
        now = made.next_timer() or 0
        dialled += [each.address for each in made.handle(TimerDue(), now) if isinstance(each, Dial)]
    assert dialled == ["other:2", "other:2", "shard:1", "shard:1"]


def test_referrals_in_a_circle_are_followed_with_pauses() -> None:
    made, now, hops = session(), 0, 0
    made.handle(Started(), now)
    for _ in range(40):
        [dial] = made.handle(TimerDue(), now)
        assert isinstance(dial, Dial)
        made.handle(Disconnected(redirect="b:1" if dial.address != "b:1" else "a:1"), now)
        hops += 1
        now = made.next_timer() or 0
    assert now > 60 * SECOND, f"{hops} hops within {now / SECOND} s"
