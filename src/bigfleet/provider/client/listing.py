"""Runs one listing of a provider to its end: asks page after page, hashes records, hands out what changed in batches.

Between two slices the event loop gets its turn, so a List of half a million machines never holds up a stream for more
than one slice. The index and its cursor move only after the consumer came back for the next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bigfleet.provider.client.errors import FrameTooLarge, Malformed
from bigfleet.provider.client.frames import FrameError, MachineFrame
from bigfleet.provider.client.inventory import Batch, FrameScan, InventoryIndex
from bigfleet.provider.client.plan import ListPlan, ListQuery, Paging, PlanError

T = TypeVar("T")

Fetch = Callable[[ListQuery], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ListSummary:
    """What one finished listing did. `complete` says that unlisted machines are not there."""

    pages: int
    listed: int
    changed: int
    bytes: int
    complete: bool
    paging: Paging


class Listing(Generic[T]):
    """One listing: iterate it to the end with `async for`; `summary` is set once it ended."""

    def __init__(
        self,
        provider: str,
        fetch: Fetch,
        decode: Callable[[bytes], T],
        index: InventoryIndex,
        plan: ListPlan,
        *,
        slice_records: int,
        clock_ns: Callable[[], int],
    ) -> None:
        self.summary: ListSummary | None = None
        self._provider = provider
        self._fetch = fetch
        self._decode = decode
        self._index = index
        self._plan = plan
        self._slice = slice_records
        self._clock_ns = clock_ns
        # Listing some states only says nothing about the rest: neither the cursor nor absences may come of it.
        self._inventory_wide = plan.inventory_wide
        self._pages = self._listed = self._changed = self._bytes = 0

    async def __aiter__(self) -> AsyncIterator[Batch[T]]:
        seen: set[bytes] = set()
        while (query := self._plan.query) is not None:
            began = self._clock_ns()
            try:
                data = await self._fetch(query)
            except FrameTooLarge:
                self._too_large()
                continue
            self._pages += 1
            self._bytes += len(data)
            async for batch in self._page(data, seen, began):
                yield batch
        if self._plan.covers_everything and (absent := self._index.absent_from(seen)):
            yield Batch(absent=absent, began_ns=self._clock_ns())
        if self._inventory_wide:
            self._index.cursor = self._plan.cursor
            self._index.paging = self._plan.paging
        self.summary = ListSummary(
            self._pages,
            self._listed,
            self._changed,
            self._bytes,
            self._plan.covers_everything,
            self._plan.paging,
        )

    async def _page(self, data: bytes, seen: set[bytes], began: int) -> AsyncIterator[Batch[T]]:
        frame = MachineFrame(data)
        scan = FrameScan(frame, self._index, seen, began)
        try:
            for records, unchanged in scan.slices(self._slice):
                if records:
                    self._changed += len(records)
                    changed = tuple(self._decode(record) for record in records)
                    yield Batch(changed=changed, unchanged=unchanged, began_ns=began)
                scan.commit()
                await asyncio.sleep(0)
        except FrameError as error:
            raise Malformed(self._provider, "List", "OK", str(error)) from error
        if frame.removed_ids:
            yield Batch(removed=tuple(frame.removed_ids), began_ns=began)
            for machine_id in frame.removed_ids:
                self._index.forget(machine_id)
                seen.discard(machine_id.encode())
        self._listed += scan.listed
        self._advance(scan.listed, frame)

    def _advance(self, listed: int, frame: MachineFrame) -> None:
        try:
            self._plan.page(listed, frame.revision, frame.more)
        except PlanError as error:
            raise Malformed(self._provider, "List", "OK", str(error)) from error

    def _too_large(self) -> None:
        try:
            self._plan.too_large()
        except PlanError as error:
            raise FrameTooLarge(self._provider, "List", "RESOURCE_EXHAUSTED", str(error)) from error
