"""The frame of a process in a cluster: it works while it leads, says how it is, and ends in order."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry

from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.lease import Election
from bigfleet.transport.endpoints import HttpEndpoints


def own_name() -> str:
    """What a lease calls this process: no other one, not even the one before it in the same pod."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"


async def run_agent(
    work: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
    *,
    client: Client,
    election: Election | None,
    metrics_addr: str,
    registry: CollectorRegistry,
    missing: Callable[[], str | None],
) -> None:
    """Until `stop`; anything else that ends the work is raised, for a fresh process to begin. `missing` says what keeps
    a working agent from being ready."""

    def not_ready() -> str | None:
        # A replica in waiting is as ready as it can be.
        return None if election is not None and not election.leading else missing()

    pages = HttpEndpoints(metrics_addr, registry=registry, ready=[not_ready])
    await pages.start()
    working = asyncio.ensure_future(election.lead(work) if election is not None else work())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pages.begin_stop()
        stopping.cancel()
        ended = working.done()
        working.cancel()
        results = await asyncio.gather(working, return_exceptions=True)
        await client.close()
        await pages.stop()
    if ended:
        if isinstance(results[0], BaseException):
            raise results[0]
        raise RuntimeError("the lead was lost; start again")
