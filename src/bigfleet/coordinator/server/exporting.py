"""Scheduled snapshots into a directory: leader only, checksummed, the newest kept, every outcome counted."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from bigfleet.coordinator.snapshots.files import write_export
from bigfleet.coordinator.stores.store import StoreError

if TYPE_CHECKING:
    from bigfleet.coordinator.server.replica import Replica

log = structlog.get_logger(__name__)


async def export_regularly(replica: Replica, folder: Path, seconds: float, keep: int) -> None:
    """One export per interval, for ever."""
    last = time.monotonic()
    while True:
        await asyncio.sleep(seconds)
        try:
            if await export_once(replica, folder, keep):
                last = time.monotonic()
        except (OSError, StoreError) as error:
            replica.metrics.count("snapshot_export_total", "failed")
            log.warning("snapshot export failed", dir=str(folder), err=str(error))
        replica.metrics.publish("snapshot_export_age_seconds", time.monotonic() - last)


async def export_once(replica: Replica, folder: Path, keep: int) -> bool:
    """Export if this replica leads."""
    tenure = replica.tenure
    if tenure is None:
        return False
    snapshot, now = await tenure.snapshot(), time.time_ns()
    stamp = datetime.fromtimestamp(now // 10**9, UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{tenure.term}-{tenure.state.revision}-{now // 1_000_000}"
    made = await asyncio.to_thread(write_export, snapshot, folder, name, keep)
    replica.metrics.count("snapshot_export_total", "ok")
    log.info("snapshot exported", path=str(made), bytes=len(snapshot.data))
    return True
