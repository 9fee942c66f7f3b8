"""A scripted operator over a real socket, for tests: connects, tells demand, waits for what the shard says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.shard.rehearsal.synthetic import ALL_CAPABILITIES, REFERENCE, SESSION, Row, SyntheticOperator
from bigfleet.transport import PLAINTEXT, TlsFiles, channel

__all__ = ["ALL_CAPABILITIES", "REFERENCE", "Row", "SyntheticOperator", "operator", "raw_session"]


@asynccontextmanager
async def operator(
    address: str, cluster: str, *, tls: TlsFiles = PLAINTEXT, connect: bool = True, **options: Any
) -> AsyncIterator[SyntheticOperator]:
    """A connected operator that hangs up at the end of the block."""
    opened = channel(address, tls=tls)
    made = SyntheticOperator(cluster, opened, **options)
    try:
        if connect:
            await made.connect()
        yield made
    finally:
        await made.close()
        await opened.close()


@asynccontextmanager
async def raw_session(address: str, *, tls: TlsFiles = PLAINTEXT) -> AsyncIterator[grpc.aio.StreamStreamCall[Any, Any]]:
    """A session stream that carries whatever bytes a test writes."""
    opened = channel(address, tls=tls)
    call = opened.stream_stream(SESSION)()
    try:
        yield call
    finally:
        call.cancel()
        await opened.close()
