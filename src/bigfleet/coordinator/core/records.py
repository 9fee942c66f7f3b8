"""What the coordinator keeps, one frozen record per row of its store, and how rows are written and read.

A shard's `generation` is the revision of its registration: unique for ever, so whatever points at a generation that no
registered shard has is dead without being touched. That is how removing a shard is one row, however much it owned.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, ClassVar

import msgspec
from msgspec import Struct


class Table(StrEnum):
    """The kinds of rows; the text is part of the stored key."""

    META = "meta"
    SHARD = "shard"
    CLUSTER = "cluster"
    DOMAIN = "domain"
    WITHDRAWN = "withdrawn"
    QUOTA = "quota"
    PROVIDER = "provider"
    TRANSFER = "transfer"
    RAILS = "rails"


class Phase(IntEnum):
    """Of a transfer; numbers are those of `OwnershipTransfer.Phase`."""

    PROPOSED = 1
    RELEASED = 2
    ADOPTED = 3


class Meta(Struct, frozen=True, gc=False):
    """One row: how far the state has come. `fleet_version` is the last revision that changed every shard's table.

    `emptied` is the last at which the last shard was removed: nobody inherited what was named before.
    """

    table: ClassVar[Table] = Table.META
    revision: int = 0
    fleet_version: int = 0
    keys: tuple[str, ...] = ()
    emptied: int = 0

    @property
    def key(self) -> str:
        return "meta"


class Shard(Struct, frozen=True, gc=False):
    """A registered shard. `tables`: it announced that it obeys ownership tables."""

    table: ClassVar[Table] = Table.SHARD
    id: str
    generation: int
    address: str = ""
    registered_at: int = 0
    tables: bool = False
    version: int = 0

    @property
    def key(self) -> str:
        return self.id


class Binding(Struct, frozen=True, gc=False):
    """A cluster and the shard it belongs to."""

    table: ClassVar[Table] = Table.CLUSTER
    cluster: str
    holder: int
    bound_at: int = 0

    @property
    def key(self) -> str:
        return self.cluster


class Domain(Struct, frozen=True, gc=False):
    """A topology domain and its owner, 0 for nobody.

    While shards that may still act on it are awaited, nobody new may: it is everybody's "elsewhere" until they have all
    confirmed a table of this revision. `kept`: the owner was itself one of those that could act before.
    """

    table: ClassVar[Table] = Table.DOMAIN
    topology_key: str
    value: str
    holder: int
    revision: int
    awaiting: tuple[int, ...] = ()
    kept: bool = False

    @property
    def key(self) -> str:
        return key_of(self.topology_key, self.value)

    @property
    def text(self) -> str:
        return f"{self.topology_key}={self.value}"


class Withdrawn(Struct, frozen=True, gc=False):
    """A domain that a shard without tables must still be told to give up."""

    table: ClassVar[Table] = Table.WITHDRAWN
    holder: int
    topology_key: str
    value: str
    revision: int

    @property
    def key(self) -> str:
        return key_of(str(self.holder), self.topology_key, self.value)


class Share(Struct, frozen=True, gc=False):
    """A shard's part of a quota: how many slots it may draw, and which are its by name."""

    holder: int
    limit: int
    slots: tuple[str, ...] = ()


class Division(Struct, frozen=True, gc=False):
    """How the slots of one (provider, region) are divided; one row, so that it changes in one commit."""

    table: ClassVar[Table] = Table.QUOTA
    provider: str
    region: str
    shares: tuple[Share, ...] = ()

    @property
    def key(self) -> str:
        return key_of(self.provider, self.region)


class Provider(Struct, frozen=True, gc=False):
    """How a provider is dialled."""

    table: ClassVar[Table] = Table.PROVIDER
    name: str
    address: str = ""
    region: str = ""

    @property
    def key(self) -> str:
        return self.name


class Shape(Struct, frozen=True, gc=False):
    """What machines are wanted for: units of one size under one profile. The donor judges its machines by it."""

    fingerprint: str = ""
    min_unit: tuple[tuple[str, int], ...] = ()
    requirements: tuple[tuple[str, int, tuple[str, ...]], ...] = ()


class Selector(Struct, frozen=True, gc=False):
    """So many machines of this kind, while the donor has not chosen yet."""

    instance_type: str = ""
    zone: str = ""
    count: int = 0


class Transfer(Struct, frozen=True, gc=False):
    """Machines on their way to, or at, a shard that their domain does not give them to.

    PROPOSED: still the donor's. RELEASED: the record's own. ADOPTED: the recipient's, for as long as it exists, and the
    default owner's from then on. Without a donor: pinned, because their labels changed.
    `withheld` are the generations that held them before. Every shard but the recipient keeps its hands off them.
    """

    table: ClassVar[Table] = Table.TRANSFER
    id: str
    phase: Phase
    donor: int
    recipient: int
    provider: str = ""
    region: str = ""
    speculative: bool = False
    selector: Selector = Selector()
    machines: tuple[str, ...] = ()
    shape: Shape = Shape()
    priority: int = 0
    units: int = 0
    drained: bool = False
    proposed_at: int = 0
    deadline: int = 0
    adopted_at: int = 0
    revision: int = 0
    withheld: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return self.id


class Rails(Struct, frozen=True, gc=False):
    """Switches for one shard, or for the fleet under the empty id. They stay when the shard is removed."""

    table: ClassVar[Table] = Table.RAILS
    shard: str
    paused: bool = False
    dry_run: bool = False
    reason: str = ""
    set_by: str = ""
    set_at: int = 0

    @property
    def key(self) -> str:
        return self.shard


Record = Meta | Shard | Binding | Domain | Withdrawn | Division | Provider | Transfer | Rails
KINDS: dict[Table, type[Any]] = {
    kind.table: kind for kind in (Meta, Shard, Binding, Domain, Withdrawn, Division, Provider, Transfer, Rails)
}


class Row(Struct, frozen=True, array_like=True, gc=False):
    """One write: keep (value) or erase (None)."""

    table: str
    key: str
    value: bytes | None = None


class BadRow(ValueError):  # noqa: N818 - reads as what it is
    """A stored row that this version cannot read; the message names it."""


def kept(record: Record) -> Row:
    return Row(record.table.value, record.key, msgspec.json.encode(record))


def erased(record: Record) -> Row:
    return Row(record.table.value, record.key)


def read(table: str, value: bytes) -> Record | None:
    """The record in a row; None for a table of a later version, which an older replica leaves alone."""
    if table not in KINDS:
        return None
    try:
        record: Record = msgspec.json.decode(value, type=KINDS[Table(table)])
    except msgspec.MsgspecError as error:
        raise BadRow(f"a row of {table} cannot be read: {error}; rows written by this version are accepted") from error
    return record


def key_of(*parts: str) -> str:
    """Several texts as one key that no other texts give."""
    return msgspec.json.encode(parts).decode()
