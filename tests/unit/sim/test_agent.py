"""A simulated operator is the real session core in the shard's words: nothing is lost in translation."""

from __future__ import annotations

from bigfleet.operator.core import events as op
from bigfleet.shard.contract import events as ev
from bigfleet.sim.world.host import EPOCH
from bigfleet.sim.world.operators.agent import Agent, Output, Say, heard
from bigfleet.virtual.kernel import SECOND


def agent(*, drain_reports: bool = True) -> Agent:
    return Agent("c", rollup_interval=10 * SECOND, pause=lambda: 3 * SECOND, drain_reports=drain_reports)


def connected() -> Agent:
    made = agent()
    made.handle(op.Connected(1), 0)
    hears(made, ev.Acknowledgement("hello", 0, 0))
    hears(made, ev.Acknowledgement("rollup", 0, 0, EPOCH, "applied"))
    return made


def hears(made: Agent, frame: ev.Frame, now: int = 0) -> list[Output]:
    given = heard(frame)
    assert given is not None
    return made.handle(given, now)


def test_hello_comes_first_and_demand_right_after() -> None:
    hello, nodes, rollup = agent().handle(op.Connected(7), now=0)
    assert isinstance(hello, Say)
    assert isinstance(hello.event, ev.SessionOpened)
    assert hello.event.capabilities >= {"drain-reports", "reclaim-cancel"}
    assert (nodes, rollup) == (op.ReportNodes(7, anew=True), op.SendRollup(7, EPOCH))


def test_timers_are_the_kernels() -> None:
    assert connected().next_timer() == 10 * SECOND


def test_the_scenario_draws_the_pauses() -> None:
    made = connected()
    made.handle(op.Disconnected(), 5 * SECOND)
    assert made.next_timer() == 8 * SECOND


def test_bootstrap_requests_are_answered_on_the_spot() -> None:
    [answer] = hears(connected(), ev.BootstrapRequest("r", "c", (), "m", "m"))
    assert isinstance(answer, Say)
    assert isinstance(answer.event, ev.BootstrapAnswered)
    assert (answer.event.request_id, answer.event.error) == ("r", "")


def test_a_drain_is_reported_in_the_shards_words() -> None:
    made = connected()
    ack, cordon, evict = hears(made, ev.ReclaimInstruction("i", ("m",), 30, 5))
    assert ack == Say(ev.ReclaimAcked(1, "i", 1))
    assert (cordon, evict) == (op.Cordon("m", True), op.Evict("m", EPOCH + 30 * SECOND, op.DrainCause.PREEMPTION))
    assert made.handle(op.EvictionEnded("m"), SECOND) == [Say(ev.DrainReported(1, "i", "m", "drained", ""))]


def test_a_cancelled_drain_is_undone() -> None:
    made = connected()
    hears(made, ev.ReclaimInstruction("i", ("m",), 30, 0))
    stop, uncordon, report = hears(made, ev.ReclaimCancel("i"), SECOND)
    assert (stop, uncordon) == (op.StopEvicting("m"), op.Cordon("m", False))
    assert report == Say(ev.DrainReported(1, "i", "m", "cancelled"))


def test_an_old_operator_announces_nothing_and_reports_nothing() -> None:
    made = agent(drain_reports=False)
    hello, _ = made.handle(op.Connected(1), now=0)
    assert isinstance(hello, Say)
    assert isinstance(hello.event, ev.SessionOpened)
    assert hello.event.capabilities == frozenset()
    hears(made, ev.ReclaimInstruction("i", ("m",), 30, 0))
    assert made.handle(op.EvictionEnded("m"), SECOND) == []
