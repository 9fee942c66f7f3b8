"""Somebody on the line: passes frames between operators and a shard, and calls between a shard and a provider.

While `trouble` is above zero it drops, repeats and delays what passes, by seeded dice: a frame that never arrives or
arrives twice or late, a call whose request or whose answer is lost, or that is made twice with the same fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

SESSION = "/bigfleet.v1alpha1.Shard/Session"
PROVIDER = "bigfleet.v1alpha1.CapacityProvider"
METHODS = ("Create", "Configure", "Drain", "Delete", "Get", "List")
LONGEST_DELAY = 0.5
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
_LIMITS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


class Meddler:
    """Two listeners, one line each. `done` counts what was done to whom."""

    def __init__(self, shard: str, provider: str, dice: random.Random) -> None:
        self.trouble = 0.0
        self.done: Counter[str] = Counter()
        self._dice = dice
        self._to_shard = grpc.aio.insecure_channel(shard, options=[*_LIMITS, *_QUICK])
        self._to_provider = grpc.aio.insecure_channel(provider, options=[*_LIMITS, *_QUICK])
        self._server = grpc.aio.server(options=_LIMITS)
        session = grpc.stream_stream_rpc_method_handler(self._session)
        calls = {name: grpc.unary_unary_rpc_method_handler(self._caller(name)) for name in METHODS}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("bigfleet.v1alpha1.Shard", {"Session": session}),
                grpc.method_handlers_generic_handler(PROVIDER, calls),
            )
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Meddler]:
        await self._server.start()
        try:
            yield self
        finally:
            await self._server.stop(0)
            await self._to_shard.close()
            await self._to_provider.close()

    async def _session(self, _: Any, context: Any) -> None:
        call: Any = self._to_shard.stream_stream(SESSION)()
        up = asyncio.create_task(self._pump(context.read, call.write, "operator frame"))
        down = asyncio.create_task(self._pump(call.read, context.write, "shard frame"))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down.done():
                code, details = await call.code(), await call.details()
                if code is not grpc.StatusCode.OK:
                    await context.abort(code, details)
        finally:
            for task in (up, down):
                task.cancel()
            call.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(self, read: Any, write: Any, what: str) -> None:
        """Until one side ends; the order of what passes is kept, as on any stream."""
        first = True
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while (frame := await read()) is not _EOF:
                # Without its Hello a stream does not exist, so there is nothing to meddle with.
                for _ in range(1 if first else await self._copies(what)):
                    await write(frame)
                first = False

    async def _copies(self, what: str) -> int:
        if self._dice.random() >= self.trouble:
            return 1
        fate = self._dice.choice(("dropped", "repeated", "delayed"))
        self.done[f"{what} {fate}"] += 1
        if fate == "delayed":
            await asyncio.sleep(self._dice.uniform(0, LONGEST_DELAY))
        return {"dropped": 0, "repeated": 2, "delayed": 1}[fate]

    def _caller(self, name: str) -> Any:
        remote = self._to_provider.unary_unary(f"/{PROVIDER}/{name}")

        async def passed(request: bytes, context: Any) -> bytes:
            fate = ""
            if self._dice.random() < self.trouble:
                fate = self._dice.choice(("lost", "answer lost", "repeated", "delayed"))
                self.done[f"{name} {fate}"] += 1
            if fate == "delayed":
                await asyncio.sleep(self._dice.uniform(0, LONGEST_DELAY))
            if fate == "lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the line was cut")
            try:
                answer: bytes = await remote(request, timeout=30)
                if fate == "repeated":
                    with contextlib.suppress(grpc.RpcError):
                        await remote(request, timeout=30)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
                raise AssertionError("abort does not return") from error
            if fate == "answer lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the line was cut")
            return answer

        return passed


# A peer that died and came back is dialled at once, not after gRPC's minutes.
_QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
