"""Operator sessions: one live stream per cluster, what each peer announced, and waking their writers.

Opening a stream for a cluster that has one closes the old one at once. What a session still owes lives in its outbox;
which frames are true after a reconnect is decided by those who own the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bigfleet.engine.results import Confidence
from bigfleet.model.names import ACK_OUTCOMES, RESYNC_END
from bigfleet.model.session import AckOutcome
from bigfleet.shard.contract.events import CloseCode, CloseSession, SessionOpened, WakeSession
from bigfleet.shard.contract.frames import Acknowledgement
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.fencing import Fencing
from bigfleet.shard.core.state.outbox import Outbox
from bigfleet.shard.core.state.turn import Turn

LIFECYCLE = "bigfleet_shard_session_lifecycle_total"
REPLACED = "a newer stream of this cluster took over; wait at least 30 s before dialling again"


class Session:
    """One live stream."""

    __slots__ = ("awake", "bound_shard", "capabilities", "cluster", "hints", "hints_at", "id", "outbox")

    def __init__(self, opened: SessionOpened, outbox_limit: int) -> None:
        self.id = opened.session
        self.cluster = opened.cluster
        self.capabilities = opened.capabilities
        self.bound_shard = opened.bound_shard_id
        self.outbox = Outbox(outbox_limit, knows_end=RESYNC_END in opened.capabilities)
        self.awake = False
        # Capacity hints this stream has been sent: fingerprint → content.
        self.hints: dict[str, tuple[int, Confidence, float]] = {}
        self.hints_at = 0

    def can(self, capability: str) -> bool:
        return capability in self.capabilities


class Sessions:
    """Live sessions by id and by cluster, and what clusters could do when last seen."""

    def __init__(self, turn: Turn, fencing: Fencing, outbox_limit: int) -> None:
        self._turn = turn
        self._fencing = fencing
        self._limit = outbox_limit
        self._by_id: dict[int, Session] = {}
        self._by_cluster: dict[str, Session] = {}
        # The live session of a cluster, None if there is none.
        self.of: Callable[[str], Session | None] = self._by_cluster.get
        self._seen: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._by_cluster)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_cluster.values())

    def get(self, id: int) -> Session | None:
        """The live session with this id; None also for one that was replaced."""
        return self._by_id.get(id)

    def last_capabilities(self, cluster: str) -> frozenset[str] | None:
        """What the cluster's operator announced last; None if it was never here."""
        return self._seen.get(cluster)

    @property
    def seen(self) -> Iterable[str]:
        """Every cluster that was ever here."""
        return self._seen.keys()

    def forget(self, cluster: str) -> None:
        """The cluster left for good."""
        self._seen.pop(cluster, None)

    def open(self, opened: SessionOpened) -> Session:
        old = self._by_cluster.get(opened.cluster)
        if old is not None:
            del self._by_id[old.id]
            self._turn.emit(CloseSession(old.id, CloseCode.ABORTED, REPLACED))
        session = Session(opened, self._limit)
        self._by_id[session.id] = self._by_cluster[session.cluster] = session
        self._seen[session.cluster] = session.capabilities
        self._turn.count(LIFECYCLE, "replaced" if old is not None else "installed")
        self._turn.log(Level.INFO, "operator session opened", cluster=opened.cluster, protocol=opened.protocol_version)
        self.greet(session)
        return session

    def close(self, id: int, reason: str) -> Session | None:
        """The stream ended; None when it had been replaced before."""
        session = self._by_id.pop(id, None)
        if session is None:
            return None
        del self._by_cluster[session.cluster]
        self._turn.count(LIFECYCLE, "removed")
        message = "operator session recv error" if reason else "operator session closed"
        self._turn.log(Level.INFO, message, cluster=session.cluster, **({"err": reason} if reason else {}))
        return session

    def greet(self, session: Session) -> None:
        self._acknowledge(session, Acknowledgement("hello", self._fencing.term, self._fencing.epoch))

    def answer_rollup(self, session: Session, timestamp: int, outcome: AckOutcome, reason: str = "") -> None:
        """Acknowledge a roll-up. A peer that cannot read outcomes hears nothing of a rejected one, as the base says."""
        if outcome == AckOutcome.REJECTED and not session.can(ACK_OUTCOMES):
            return
        term, epoch = self._fencing.term, self._fencing.epoch
        self._acknowledge(session, Acknowledgement("rollup", term, epoch, timestamp, outcome, reason))

    def wake(self, session: Session) -> None:
        """Let the writer come for frames, once until it has come."""
        if not session.awake and len(session.outbox):
            session.awake = True
            self._turn.emit(WakeSession(session.id))

    def validate(self) -> None:
        assert set(self._by_id.values()) == set(self._by_cluster.values()), "session indexes disagree"
        for session in self._by_cluster.values():
            assert self._by_id[session.id] is session
            session.outbox.validate()
            assert session.awake or not len(session.outbox), f"session {session.id} has frames and was not woken"

    def _acknowledge(self, session: Session, ack: Acknowledgement) -> None:
        session.outbox.acknowledge(ack)
        self.wake(session)
