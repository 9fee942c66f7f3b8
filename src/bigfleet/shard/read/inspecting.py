"""The needs of the last step, for readers: rendered in the engine's thread, in pieces, all of the same step.

A reader that is overtaken by a new step begins again; one that keeps being overtaken is served in one piece, and the
next step waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bigfleet.engine.outcome.verdict import service_order

if TYPE_CHECKING:
    from bigfleet.engine.results import Verdict
    from bigfleet.shard.runtime.engine_thread import EngineThread, Latest

PIECE = 1000
TRIES = 3


@dataclass(frozen=True, slots=True)
class NeedsPage:
    """Needs in the order of service; `total` counts those of the cluster before any limit."""

    cycle: int = 0
    computed_at: int = 0
    total: int = 0
    verdicts: tuple[Verdict, ...] = ()


async def needs_of_last_step(engine: EngineThread, cluster: str = "", limit: int = 0) -> NeedsPage:
    """Every need, or the first `limit` of them, or those of one cluster; an empty page before the first step."""
    for _ in range(TRIES):
        page = await engine.ask(lambda latest: _piece(latest, cluster, 0, min(limit, PIECE) if limit > 0 else PIECE))
        if page is None:
            return NeedsPage()
        whole = await _completed(engine, page, cluster, limit)
        if whole is not None:
            return whole
    everything = await engine.ask(lambda latest: _piece(latest, cluster, 0, limit if limit > 0 else 2**31))
    return everything or NeedsPage()


async def _completed(engine: EngineThread, page: NeedsPage, cluster: str, limit: int) -> NeedsPage | None:
    """The page with the rest of its rows; None when another step came in between."""
    wanted = min(limit, page.total) if limit > 0 else page.total
    rows = list(page.verdicts)
    while len(rows) < wanted:
        begin = len(rows)
        count = min(PIECE, wanted - begin)
        more = await engine.ask(lambda latest, begin=begin, count=count: _piece(latest, cluster, begin, count))  # type: ignore[misc]
        if more is None or more.cycle != page.cycle or not more.verdicts:
            return None
        rows.extend(more.verdicts)
    return NeedsPage(page.cycle, page.computed_at, page.total, tuple(rows))


def _piece(latest: Latest, cluster: str, begin: int, count: int) -> NeedsPage:
    verdicts = latest.result.verdicts
    entries = service_order(verdicts.needs)
    if cluster:
        names = verdicts.needs.clusters
        number = names.index(cluster) if cluster in names else -1
        entries = entries[verdicts.needs.current.e.cluster[entries] == number]
    return NeedsPage(
        latest.step, latest.now, len(entries), tuple(verdicts.of(entries[begin : begin + count])) if count else ()
    )
