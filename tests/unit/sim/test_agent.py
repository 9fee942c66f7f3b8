"""The operator's side of the session: what it announces, when it reports, how it drains."""

from bigfleet.shard.contract import events as ev
from bigfleet.sim.world.agent import (
    Agent,
    Connected,
    Cordon,
    DemandGrew,
    Disconnected,
    Evict,
    EvictionEnded,
    NodeGone,
    Received,
    ReportDemand,
    Say,
    TimerDue,
)
from bigfleet.virtual.kernel import SECOND


def connected(**facts: bool) -> Agent:
    agent = Agent("c", rollup_interval=10 * SECOND, **facts)
    agent.handle(Connected(1), now=0)
    return agent


def reclaim(instruction: str = "i", priority: int = 0) -> Received:
    return Received(ev.ReclaimInstruction(instruction, ("m",), 30, priority))


def test_hello_comes_first_and_demand_right_after() -> None:
    hello, report = Agent("c", rollup_interval=SECOND).handle(Connected(7), now=0)
    assert isinstance(hello, Say)
    assert isinstance(hello.event, ev.SessionOpened)
    assert hello.event.capabilities >= {"drain-reports", "reclaim-cancel"}
    assert report == ReportDemand(7)


def test_demand_is_reported_at_every_interval() -> None:
    agent = connected()
    assert agent.next_timer() == 10 * SECOND
    assert agent.handle(TimerDue(), now=10 * SECOND) == [ReportDemand(1)]
    assert agent.next_timer() == 20 * SECOND


def test_growing_demand_is_reported_early_but_not_more_than_once_a_second() -> None:
    agent = connected()
    agent.handle(DemandGrew(), now=SECOND // 2)
    assert agent.next_timer() == SECOND
    agent.handle(TimerDue(), now=SECOND)
    agent.handle(DemandGrew(), now=5 * SECOND)
    assert agent.next_timer() == 5 * SECOND


def test_bootstrap_requests_are_answered() -> None:
    agent = connected()
    [answer] = agent.handle(Received(ev.BootstrapRequest("r", "c", (), "m", "m", {})), now=0)
    assert isinstance(answer, Say)
    assert isinstance(answer.event, ev.BootstrapAnswered)
    assert (answer.event.request_id, answer.event.error) == ("r", "")


def test_a_reclaim_cordons_evicts_and_is_reported_when_the_pods_are_gone() -> None:
    agent = connected()
    ack, cordon, evict = agent.handle(reclaim(priority=5), now=0)
    assert isinstance(ack, Say)
    assert (cordon, evict) == (Cordon("m", True), Evict("m", 30 * SECOND, "preemption"))
    [report] = agent.handle(EvictionEnded("m", True), now=SECOND)
    assert report == Say(ev.DrainReported(1, "i", "m", "drained", ""))


def test_another_instruction_after_an_expired_grace_starts_another_eviction() -> None:
    agent = connected()
    agent.handle(reclaim("first"), now=0)
    agent.handle(EvictionEnded("m", False), now=30 * SECOND)
    [_, again] = agent.handle(reclaim("first"), now=31 * SECOND)
    assert isinstance(again, Say)  # asked again for the same drain: the same answer
    _, cordon, evict = agent.handle(reclaim("second"), now=40 * SECOND)
    assert (cordon, evict) == (Cordon("m", True), Evict("m", 30 * SECOND, "reclaim"))


def test_pods_that_stay_beyond_the_grace_are_reported_too() -> None:
    agent = connected()
    agent.handle(reclaim(), now=0)
    [report] = agent.handle(EvictionEnded("m", False), now=30 * SECOND)
    assert isinstance(report, Say)
    assert isinstance(report.event, ev.DrainReported)
    assert report.event.outcome == "grace_expired"


def test_a_cancelled_drain_is_undone() -> None:
    agent = connected()
    agent.handle(reclaim(), now=0)
    uncordon, report = agent.handle(Received(ev.ReclaimCancel("i")), now=SECOND)
    assert uncordon == Cordon("m", False)
    assert report == Say(ev.DrainReported(1, "i", "m", "cancelled"))
    assert not agent.draining("m")


def test_a_drain_survives_a_reconnect_and_is_reported_under_its_new_name() -> None:
    agent = connected()
    agent.handle(reclaim(), now=0)
    agent.handle(Disconnected(), now=SECOND)
    assert agent.handle(EvictionEnded("m", True), now=2 * SECOND) == []
    hello, _ = agent.handle(Connected(2), now=3 * SECOND)
    assert isinstance(hello, Say)
    assert isinstance(hello.event, ev.SessionOpened)
    assert hello.event.active_drains == ("m",)
    assert agent.handle(reclaim("again"), now=4 * SECOND)[-1] == Say(ev.DrainReported(2, "again", "m", "drained", ""))


def test_a_drain_nobody_claims_after_a_reconnect_is_undone() -> None:
    agent = connected()
    agent.handle(reclaim(), now=0)
    agent.handle(Disconnected(), now=SECOND)
    agent.handle(Connected(2), now=2 * SECOND)
    assert Cordon("m", False) in agent.handle(TimerDue(), now=32 * SECOND)


def test_a_node_that_vanishes_ends_its_drain() -> None:
    agent = connected()
    agent.handle(reclaim(), now=0)
    assert agent.handle(NodeGone("m"), now=1) == [Say(ev.DrainReported(1, "i", "m", "drained", ""))]
    assert agent.handle(EvictionEnded("m", True), now=2) == []


def test_an_old_operator_announces_nothing_and_reports_nothing() -> None:
    agent = Agent("c", rollup_interval=SECOND, drain_reports=False)
    hello, _ = agent.handle(Connected(1), now=0)
    assert isinstance(hello, Say)
    assert isinstance(hello.event, ev.SessionOpened)
    assert hello.event.capabilities == frozenset()
    agent.handle(reclaim(), now=0)
    assert agent.handle(EvictionEnded("m", True), now=SECOND) == []
