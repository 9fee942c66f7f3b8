"""What the coordinator says in the answer to a report, and how a shard answers its instructions.

Values only, in model units; the link translates them from and to the wire, the simulator makes them itself. Machines
are named by the provider's own id here, because a shard's key of a machine may mean nothing to its peers.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from bigfleet.model.requirement import Requirement
from bigfleet.model.resources import Resources


class Phase(IntEnum):
    """Of a transfer; numbers are those of `OwnershipTransfer.Phase`."""

    UNSPECIFIED = 0
    PROPOSED = 1
    RELEASED = 2
    ADOPTED = 3


class TableTransfer(Struct, frozen=True):
    """Machines that change shards. From RELEASED on they are the recipient's, whatever their domain.

    An empty provider means whichever has a machine of that id.
    """

    id: str
    phase: Phase
    donor: str = ""
    recipient: str = ""
    provider: str = ""
    machines: tuple[str, ...] = ()


class OwnershipTable(Struct, frozen=True):
    """The coordinator's full table: who owns which domain, the default owner, and the transfers.

    A domain of the empty shard is nobody's for now. `vouches`: machines never seen before wait for `sure`. Another
    `generation` than before says that this shard was removed meanwhile.
    """

    term: int
    version: int
    default: str = ""
    keys: tuple[str, ...] = ()
    domains: tuple[tuple[str, str, str], ...] = ()
    transfers: tuple[TableTransfer, ...] = ()
    vouches: bool = False
    generation: int = 0


class ClusterBinding(Struct, frozen=True):
    """The shard a cluster belongs to, and where that one is reached."""

    cluster: str
    shard: str
    address: str = ""


class Switches(Struct, frozen=True):
    """What the coordinator's rails say for this shard."""

    paused: bool
    dry_run: bool
    who: str = ""
    reason: str = ""


class Selector(Struct, frozen=True):
    """So many machines of a kind, each of which matches the requirements and holds the unit."""

    count: int = 0
    instance_type: str = ""
    zone: str = ""
    provider: str = ""
    requirements: tuple[Requirement, ...] = ()
    min_unit: Resources = Resources.ZERO


class AssignDomain(Struct, frozen=True):
    """One domain for a shard, from a coordinator that knows no tables."""

    key: str
    value: str


class UnassignDomain(Struct, frozen=True):
    key: str
    value: str


class LetGo(Struct, frozen=True):
    """Free machines for another shard, by name or chosen here by `selector`; Speculative ones or Idle ones."""

    transfer: str
    machines: tuple[str, ...] = ()
    selector: Selector = Selector()
    speculative: bool = False
    donor: str = ""


class DrainFor(Struct, frozen=True):
    """Machines to drain for demand of another shard; `bucket` is what interrupting the preemptor costs.

    No more of them than hold `units` of the selector's unit, or without units than the sum that is `missing` needs.
    """

    transfer: str
    priority: int
    bucket: int = 0
    machines: tuple[str, ...] = ()
    selector: Selector = Selector()
    units: int = 0
    missing: Resources = Resources.ZERO


Payload = AssignDomain | UnassignDomain | LetGo | DrainFor


class CoordinatorInstruction(Struct, frozen=True):
    """One instruction; without a payload it is of a kind this version does not know."""

    id: str
    term: int
    payload: Payload | None = None


class CoordinatorAnswered(Struct, frozen=True):
    """A report got through and this is its answer; `told` are the instructions whose outcome the report carried.

    `look`: list every provider anew and say so. `sure`: nobody remembers otherwise the machines asked about with this.
    """

    term: int = 0
    told: tuple[str, ...] = ()
    table: OwnershipTable | None = None
    bindings: tuple[ClusterBinding, ...] = ()
    switches: Switches | None = None
    instructions: tuple[CoordinatorInstruction, ...] = ()
    look: int = 0
    sure: int = 0


class AckOutcome(IntEnum):
    """Numbers are those of `InstructAck.Outcome`."""

    ACCEPTED = 1
    REJECTED_STALE = 2
    REJECTED_INVALID = 3
    FAILED = 4


class Ack(Struct, frozen=True):
    """What became of an instruction, told with every report until one got through; machines are of one provider."""

    instruction: str
    outcome: AckOutcome
    reason: str = ""
    machines: tuple[str, ...] = ()
    provider: str = ""


class VictimQuestion(Struct, frozen=True):
    """Whom would the engine drain for a preemptor of this priority? `size` is the largest machine that counts."""

    transfer: str
    priority: int
    selector: Selector
    count: int
    size: Resources


# Machines in the order in which the engine would drain them, each with its grace in seconds.
Ranking = tuple[tuple[str, int], ...]
