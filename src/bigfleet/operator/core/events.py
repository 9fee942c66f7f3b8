"""What the session hears and what it asks for: the whole contract between session and shell.

Immutable values. Instants are Unix nanoseconds of one steady clock. The shell carries out the instructions of one
`handle` call in list order, drops what belongs to a stream that is no longer the present one, and gives `TimerDue` when
`next_timer` has come.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bigfleet.model.session import AckOutcome
from bigfleet.operator.core.frames import BootstrapAnswer, BootstrapRequest, FromShard, ToShard

SECOND = 1_000_000_000


class StreamEnd(StrEnum):
    """How a stream, or the attempt to open one, ended."""

    LOST = "lost"
    # Another stream of this cluster took over: two that take turns would starve each other.
    REPLACED = "replaced"


class DrainCause(StrEnum):
    PREEMPTION = "preemption"
    RECLAIM = "reclaim"
    # The provider has said that it takes the host.
    NOTICE = "notice"


# --------------------------------------------------------------------------------------------------------------- events


class Started(Struct, frozen=True):
    """Begin, or try again at once: there is news that makes a pause pointless."""


class Connected(Struct, frozen=True):
    """A stream is open. `session` differs from every earlier one; `shard_id` is the peer's identity, if it has one."""

    session: int
    shard_id: str = ""


class Disconnected(Struct, frozen=True):
    """The stream ended or could not be opened; `redirect` is where the peer said to go instead."""

    end: StreamEnd = StreamEnd.LOST
    redirect: str = ""


class Received(Struct, frozen=True):
    frame: FromShard


class CacheChanged(Struct, frozen=True):
    """The view of the cluster is complete, or (a list that has to begin anew) no longer is."""

    complete: bool


class DemandGrew(Struct, frozen=True):
    """More units are wanted, or more of them have no room."""


class NodesChanged(Struct, frozen=True):
    """A node report differs from the last one in a way the shard waits for."""


class BootstrapRendered(Struct, frozen=True):
    answer: BootstrapAnswer


class EvictionEnded(Struct, frozen=True):
    """No pod that can be evicted is left on the node, or `error` says why evicting cannot go on."""

    machine: str
    error: str = ""


class NodeGone(Struct, frozen=True):
    machine: str


class TimerDue(Struct, frozen=True):
    """The instant of `next_timer()` has come, or any later one."""


Event = (
    Started
    | Connected
    | Disconnected
    | Received
    | CacheChanged
    | DemandGrew
    | NodesChanged
    | BootstrapRendered
    | EvictionEnded
    | NodeGone
    | TimerDue
)


# --------------------------------------------------------------------------------------------------------- instructions


class Dial(Struct, frozen=True):
    """Open a stream; answered by `Connected` or `Disconnected`. Without an address: the configured one."""

    address: str


class Say(Struct, frozen=True):
    session: int
    frame: ToShard


class SendRollup(Struct, frozen=True):
    """Send the present demand, stamped so."""

    session: int
    timestamp: int


class ReportNodes(Struct, frozen=True):
    """Send the reports of nodes that changed, or of all of them to a shard that knows none yet."""

    session: int
    anew: bool


class RollupAnswered(Struct, frozen=True):
    """The shard has this roll-up: what was in it may now be called acknowledged, unless it was rejected."""

    timestamp: int
    outcome: AckOutcome
    reason: str


class RenderBootstrap(Struct, frozen=True):
    """Make the node's user data; answer with `BootstrapRendered`."""

    request: BootstrapRequest


class Cordon(Struct, frozen=True):
    machine: str
    on: bool


class Evict(Struct, frozen=True):
    """Make the pods leave, within their budgets, until this instant; answer with `EvictionEnded`."""

    machine: str
    until: int
    cause: DrainCause


class StopEvicting(Struct, frozen=True):
    machine: str


class LoseNode(Struct, frozen=True):
    """Its pods wait for another node from now on."""

    machine: str


class CloseNode(Struct, frozen=True):
    machine: str
    closing: bool


class ReopenNodes(Struct, frozen=True):
    """The shard has been away too long to be heard saying so: every closing node takes pods again."""


class KeepShard(Struct, frozen=True):
    """Remember in the cluster which shard it is bound to."""

    shard_id: str


Instruction = (
    Dial
    | Say
    | SendRollup
    | ReportNodes
    | RollupAnswered
    | RenderBootstrap
    | Cordon
    | Evict
    | StopEvicting
    | LoseNode
    | CloseNode
    | ReopenNodes
    | KeepShard
)
