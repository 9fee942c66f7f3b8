"""What may be asked of the coordinator's state, and the refusals it answers with.

Commands carry every instant they need: the state has no clock. Their outcomes are those of the published contract:
asserting the same owner again succeeds, asserting another one is refused and changes nothing.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bigfleet.coordinator.core.records import Provider, Rails, Transfer

MAX_SLOTS = 20_000
MAX_MACHINES = 64


class Code(StrEnum):
    """Why a command was refused; the server turns it into a status."""

    INVALID = "invalid"
    NOT_FOUND = "not-found"
    EXISTS = "exists"
    CONFLICT = "conflict"


class Refused(Exception):  # noqa: N818 - reads as what it is
    """The command changed nothing; the text is for the caller."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class AddShard(Struct, frozen=True):
    id: str
    address: str
    at: int
    tables: bool = False


class UpdateShard(Struct, frozen=True):
    """A registered shard has another address, or announces something else than it did."""

    id: str
    address: str
    tables: bool


class RemoveShard(Struct, frozen=True):
    id: str


class BindCluster(Struct, frozen=True):
    cluster: str
    shard: str
    at: int


class MoveCluster(Struct, frozen=True):
    """Unlike BindCluster this takes a cluster from its present shard."""

    cluster: str
    shard: str
    at: int


class AssignDomain(Struct, frozen=True):
    key: str
    value: str
    shard: str


class UnassignDomain(Struct, frozen=True):
    key: str
    value: str


class MoveDomain(Struct, frozen=True):
    """Unlike AssignDomain this takes a domain from its present owner, in one commit."""

    key: str
    value: str
    shard: str


class SettleDomains(Struct, frozen=True):
    """Everybody who was awaited for these (key, value, revision) has confirmed a table of that revision."""

    domains: tuple[tuple[str, str, int], ...]


class ForgetWithdrawn(Struct, frozen=True):
    """A shard without tables has acknowledged that it gave up a domain."""

    shard: str
    key: str
    value: str
    revision: int


class SetKeys(Struct, frozen=True):
    """The ordered topology keys that decide a machine's owner."""

    keys: tuple[str, ...]


class SetQuota(Struct, frozen=True):
    """Replace the division of one (provider, region): shard → (limit, slot ids)."""

    provider: str
    region: str
    shares: tuple[tuple[str, int, tuple[str, ...]], ...]


class UpsertProvider(Struct, frozen=True):
    provider: Provider


class RemoveProvider(Struct, frozen=True):
    name: str


class SetRails(Struct, frozen=True):
    rails: Rails


class Propose(Struct, frozen=True):
    """Ask a donor for machines; `transfer` names live generations."""

    transfer: Transfer


class Release(Struct, frozen=True):
    """The donor has durably let go of these machines."""

    transfer: str
    machines: tuple[str, ...]
    provider: str = ""


class Adopt(Struct, frozen=True):
    """The recipient has persisted a table that says they are its."""

    transfer: str
    at: int


class Pin(Struct, frozen=True):
    """Machines that stand elsewhere than they were first seen: (provider, id, owner's id), judged by this table."""

    machines: tuple[tuple[str, str, str], ...]
    fleet_version: int


class Vouch(Struct, frozen=True):
    """A shard needs a table of this moment: it was asked for whatever others remember of machines new to it."""

    shard: str


class CallOff(Struct, frozen=True):
    """Give a proposal up. A released transfer cannot be called off: the recipient may act by now."""

    transfer: str


class Sweep(Struct, frozen=True):
    """Erase up to so many rows that nothing alive points at."""

    limit: int = 100


Command = (
    AddShard
    | UpdateShard
    | RemoveShard
    | BindCluster
    | MoveCluster
    | AssignDomain
    | UnassignDomain
    | MoveDomain
    | SettleDomains
    | ForgetWithdrawn
    | SetKeys
    | SetQuota
    | UpsertProvider
    | RemoveProvider
    | SetRails
    | Propose
    | Release
    | Adopt
    | Pin
    | Vouch
    | CallOff
    | Sweep
)
