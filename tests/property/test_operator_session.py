"""Whatever happens in whatever order: what a shard hears from one operator follows the protocol."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.names import ACK_OUTCOMES, DRAIN_REPORTS, NODE_REPORTS, PLACEMENT
from bigfleet.operator.core import events as op
from bigfleet.operator.core import frames
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.session import Session, SessionSettings

MACHINES = st.sampled_from(["m-1", "m-2", "m-3"])
INSTRUCTIONS = st.sampled_from(["i-1", "i-2", "i-3", "i-4"])
HAPPENINGS = st.one_of(
    st.just("connect"),
    st.just("disconnect"),
    st.just("ack"),
    st.just("hello-ack"),
    st.builds(op.CacheChanged, st.booleans()),
    st.just(op.DemandGrew()),
    st.just(op.NodesChanged()),
    st.just(op.Started()),
    st.just(op.TimerDue()),
    st.builds(op.EvictionEnded, MACHINES, st.sampled_from(["", "forbidden"])),
    st.builds(op.NodeGone, MACHINES),
    st.builds(
        lambda i, m, grace, voluntary, room: op.Received(
            frames.ReclaimInstruction(i, (m,), grace, 0, voluntary, room_within_seconds=room)
        ),
        INSTRUCTIONS,
        MACHINES,
        st.integers(0, 40),
        st.booleans(),
        st.sampled_from([0, 0, 1, 10, 30, 60]),
    ),
    st.builds(lambda i: op.Received(frames.ReclaimCancel(i)), INSTRUCTIONS),
)


class Fickle:
    """Refuses every other time, and has room every fifth."""

    def __init__(self) -> None:
        self.asked = 0

    def is_occupied(self, machine: str) -> bool:
        return True

    def refusal(self, machine: str) -> str:
        self.asked += 1
        return "no room" if self.asked % 2 else ""

    def has_room(self, machine: str) -> bool:
        self.asked += 1
        return self.asked % 5 == 0

    def begin(self, machine: str) -> None:
        pass

    def release(self, machine: str) -> None:
        pass


class Ear:
    """What the shard and the cluster see, and the rules it must follow."""

    def __init__(self) -> None:
        self.stream: int | None = None
        self.greeted = False
        self.complete = False
        self.unanswered: int | None = None
        self.last: int | None = None
        self.cordoned: set[str] = set()
        self.evicting: set[str] = set()

    def hears(self, out: list[op.Instruction], now: int) -> None:
        for each in out:
            match each:
                case op.Say(session, frame):
                    assert session == self.stream
                    assert isinstance(frame, frames.Hello) != self.greeted, "Hello is first, and only first"
                    self.greeted = True
                case op.SendRollup(session, timestamp):
                    assert (session, timestamp) == (self.stream, now) and self.greeted and self.complete
                    assert self.unanswered is None or now - self.unanswered >= 30 * op.SECOND
                    assert self.last is None or now - self.last >= op.SECOND
                    self.unanswered = self.last = now
                case op.ReportNodes(session, anew):
                    assert session == self.stream and anew == (self.last is None)
                case op.Cordon(machine, on):
                    (self.cordoned.add if on else self.cordoned.discard)(machine)
                    assert on or machine not in self.evicting, "a node that takes pods again is not being emptied"
                case op.Evict(machine, until):
                    assert machine in self.cordoned and until > now
                    self.evicting.add(machine)
                case op.StopEvicting(machine):
                    self.evicting.remove(machine)
                case op.Dial():
                    assert self.stream is None


@given(st.lists(st.tuples(HAPPENINGS, st.integers(0, 12 * op.SECOND)), max_size=60))
@settings(max_examples=300, deadline=None)
def test_a_shard_hears_the_protocol_whatever_happens(script: list[tuple[object, int]]) -> None:
    can = frozenset((DRAIN_REPORTS, ACK_OUTCOMES, NODE_REPORTS, PLACEMENT))
    session = Session(SessionSettings("c", can), doubling(lambda: 0.5), placement=Fickle())
    ear, now, streams = Ear(), 1, 0
    for happens, later in script:
        deadline = now + later
        while (due := session.next_timer()) is not None and due <= deadline:
            assert due >= 0
            now = max(now, due)
            ear.hears(session.handle(op.TimerDue(), now), now)
            session.validate()
            following = session.next_timer()
            assert following is None or following > now, "a timer that is due again at once never lets go"
        now = deadline
        match happens:
            case "connect":
                if ear.stream is not None:
                    continue
                streams += 1
                ear.stream, ear.greeted, ear.last, ear.unanswered = streams, False, None, None
                event: op.Event = op.Connected(streams)
            case "disconnect":
                ear.stream = None
                event = op.Disconnected()
            case "ack":
                event = op.Received(frames.RollupAck(ear.last or 0))
                ear.unanswered = None if ear.stream else ear.unanswered
            case "hello-ack":
                event = op.Received(frames.HelloAck())
            case op.CacheChanged(complete):
                ear.complete = complete
                event = happens
            case op.EvictionEnded(machine) | op.NodeGone(machine):
                ear.evicting.discard(machine)
                event = happens
            case _:
                event = happens  # type: ignore[assignment]
        ear.hears(session.handle(event, now), now)
        session.validate()
    assert set(session.draining()) <= {"m-1", "m-2", "m-3"}
