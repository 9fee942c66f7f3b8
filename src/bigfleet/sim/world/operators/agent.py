"""A simulated cluster's operator: the operator's own session core, in the words of the shard core's events.

Nothing is decided here. Frames of the shard become what the session hears, what it says becomes events of the shard,
and user data is rendered on the spot; the site carries out the rest. Instants are the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bigfleet.model.names import ACK_OUTCOMES, DRAIN_REPORTS, NODE_REPORTS, PLACEMENT, RECLAIM_CANCEL, RESYNC_END
from bigfleet.operator.core import events as op
from bigfleet.operator.core import frames
from bigfleet.operator.core.drains import Placement
from bigfleet.operator.core.session import Session, SessionSettings
from bigfleet.shard.contract import events as ev
from bigfleet.sim.world.host import EPOCH

_CAPABILITIES = frozenset((DRAIN_REPORTS, RECLAIM_CANCEL, RESYNC_END, ACK_OUTCOMES, NODE_REPORTS))
_TTL_SECONDS = 3600


class Say(Struct, frozen=True):
    """Send this to the shard."""

    event: ev.Event


Output = (
    Say
    | op.Dial
    | op.ReportNodes
    | op.SendRollup
    | op.Cordon
    | op.Evict
    | op.StopEvicting
    | op.LoseNode
    | op.CloseNode
    | op.ReopenNodes
)


class Agent:
    """One cluster's operator; `pause` draws how long it waits before it dials again."""

    def __init__(
        self,
        cluster: str,
        *,
        rollup_interval: int,
        pause: Callable[[], int],
        drain_reports: bool = True,
        placement: Placement | None = None,
    ) -> None:
        """With somebody who knows what room there is, it reports placement."""
        can = _CAPABILITIES if drain_reports else frozenset()
        settings = SessionSettings(
            cluster,
            capabilities=can | {PLACEMENT} if placement is not None else can,
            rollup_interval=rollup_interval,
            complete=True,
        )
        self.session = Session(settings, lambda attempt: pause(), placement=placement)

    def handle(self, given: op.Event, now: int) -> list[Output]:
        out: list[Output] = []
        for asked in self.session.handle(given, EPOCH + now):
            match asked:
                case op.Say(session, frame):
                    out.append(Say(_said(session, frame)))
                case op.RenderBootstrap(request):
                    blob = f"# sim bootstrap for {self.session.cluster}\n".encode()
                    answer = frames.BootstrapAnswer(request.request_id, blob, _TTL_SECONDS)
                    out += self.handle(op.BootstrapRendered(answer), now)
                case op.RollupAnswered() | op.KeepShard():
                    pass  # nothing in a simulated cluster depends on it
                case _:
                    out.append(asked)
        return out

    def next_timer(self) -> int | None:
        due = self.session.next_timer()
        return None if due is None else due - EPOCH


def heard(frame: ev.Frame) -> op.Received | None:
    """What the session makes of a shard's frame; None when it only shows something."""
    match frame:
        case ev.Acknowledgement(echo="hello"):
            return op.Received(frames.HelloAck())
        case ev.Acknowledgement():
            return op.Received(frames.RollupAck(frame.rollup_timestamp, frame.outcome, frame.reason))
        case ev.BootstrapRequest():
            return op.Received(
                frames.BootstrapRequest(
                    frame.request_id, frame.machine, frame.node_name, frame.requirements, tuple(frame.labels)
                )
            )
        case ev.ReclaimInstruction():
            return op.Received(
                frames.ReclaimInstruction(
                    frame.instruction_id,
                    frame.nodes,
                    frame.grace_seconds,
                    frame.preemptor_priority,
                    frame.voluntary,
                    frame.empty,
                    frame.room_within_seconds,
                )
            )
        case ev.NodeLost(machine):
            return op.Received(frames.NodeLost(machine))
        case ev.NodeClosing(machine, closing):
            return op.Received(frames.NodeClosing(machine, closing))
        case ev.ReclaimCancel(instruction):
            return op.Received(frames.ReclaimCancel(instruction))
        case _:
            return None


def _said(session: int, frame: frames.ToShard) -> ev.Event:
    match frame:
        case frames.Hello():
            return ev.SessionOpened(
                session=session,
                cluster=frame.cluster,
                protocol_version=frame.protocol_version,
                capabilities=frame.capabilities,
                bound_shard_id=frame.bound_shard_id,
                active_drains=frame.active_drains,
            )
        case frames.BootstrapAnswer():
            return ev.BootstrapAnswered(session, frame.request_id, frame.user_data, frame.ttl_seconds, frame.error)
        case frames.ReclaimAck():
            return ev.ReclaimAcked(session, frame.instruction_id, frame.nodes_started)
        case frames.DrainReport():
            return ev.DrainReported(session, frame.instruction_id, frame.machine, frame.outcome, frame.error)
