"""What the coordinator asks of a store: one leader at a time, terms that only rise, and rows committed whole or not.

A commit that returns is durable and was made by the leader of its term. One that raises may or may not have happened:
the tenure ends and the next one begins with what the store holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bigfleet.coordinator.core.records import Row
from bigfleet.refusal import RefusalError

# A restored state may be older than terms and table versions that shards have seen; this lifts it past all of them.
RESTORE_STEP = 1_000_000


class StoreError(RefusalError):
    """The store cannot be used; one sentence says which and why."""


class NotLeader(StoreError):  # noqa: N818 - reads as what it is
    """This replica does not lead, or no longer did when it tried to write."""


class Leadership(NamedTuple):
    """A tenure begins: its term, and every row there is."""

    term: int
    rows: list[Row]


class Store(Protocol):
    """One replica's access to the shared rows."""

    # The most rows that one commit can hold.
    most_rows: int

    async def campaign(self) -> Leadership:
        """Wait until this replica leads."""
        ...

    async def commit(self, rows: Sequence[Row]) -> None:
        """Write all rows or none; raises when they may not have been written by the leader."""
        ...

    async def raise_term(self, above: int) -> int:
        """Lift the leader's own term above a mark that shards hold; the new term."""
        ...

    def leading(self) -> bool:
        """Whether nobody else can lead at this instant."""
        ...

    def leader(self) -> str:
        """Address of the leader as far as known; empty when nobody is."""
        ...

    def known_term(self) -> int:
        """The term of whoever leads, as far as known."""
        ...

    async def lost(self) -> None:
        """Return when this replica no longer leads."""
        ...

    async def resign(self) -> None:
        """Let another lead at once."""
        ...

    async def restore(self, rows: Sequence[Row], term: int) -> int:
        """Fill an empty store that no replica uses; the first term after it is above `term`. How many rows it took."""
        ...

    async def close(self) -> None: ...
