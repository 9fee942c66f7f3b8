"""Somebody on the line: passes frames between operators and a shard, and calls between a shard and a provider.

While `trouble` is above zero it drops, repeats and delays what passes, by seeded dice: a frame that never arrives or
arrives twice or late, a call whose request or whose answer is lost, or that is made twice with the same fence. While
`hidden_seconds` is above zero, machines cannot be found for so long after their purchase was acknowledged; while
`sold_out` names a kind, its purchases are refused, in words (`says_why`) or without.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bigfleet.model.names import REASON
from bigfleet.wire import provider_pb2

SESSION = "/bigfleet.v1alpha1.Shard/Session"
PROVIDER = "bigfleet.v1alpha1.CapacityProvider"
METHODS = ("Create", "Configure", "Drain", "Delete", "Get", "List")
LONGEST_DELAY = 0.5
_MACHINE_OF: dict[str, Any] = {
    "Create": provider_pb2.CreateRequest,
    "Configure": provider_pb2.ConfigureRequest,
    "Drain": provider_pb2.DrainRequest,
    "Delete": provider_pb2.DeleteRequest,
    "Get": provider_pb2.MachineRef,
}
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
_LIMITS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


class Meddler:
    """Two listeners, one line each. `done` counts what was done to whom."""

    def __init__(self, shard: str, provider: str, dice: random.Random) -> None:
        self.trouble = 0.0
        self.hidden_seconds = 0.0
        self.sold_out = ""
        self.says_why = True
        self._hidden: dict[str, float] = {}
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
            await self._refuse(name, request, context)
            try:
                answer: bytes = await remote(request, timeout=30)
                if fate == "repeated":
                    with contextlib.suppress(grpc.RpcError):
                        await remote(request, timeout=30)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details())
                raise AssertionError("abort does not return") from error
            answer = self._hide(name, request, answer)
            if fate == "answer lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the line was cut")
            return answer

        return passed

    async def _refuse(self, name: str, request: bytes, context: Any) -> None:
        """What is sold out cannot be bought, and what cannot be found cannot be acted on."""
        if name == "List" or not (self.sold_out or self._hidden):
            return
        said = _MACHINE_OF[name].FromString(request)
        machine = said.id if name == "Get" else said.machine_id
        if name == "Create" and self.sold_out and machine.startswith(f"{self.sold_out}-"):
            self.done["Create sold out"] += 1
            trailer = ((REASON, "sold-out"),) if self.says_why else ()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "none left", trailer)
        if name != "Create" and self._is_hidden(machine):
            self.done[f"{name} hidden"] += 1
            await context.abort(grpc.StatusCode.NOT_FOUND, f"machine {machine} is unknown")

    def _hide(self, name: str, request: bytes, answer: bytes) -> bytes:
        """A purchase begins to hide; a listing leaves out what hides."""
        if name == "Create" and self.hidden_seconds:
            machine = provider_pb2.CreateRequest.FromString(request).machine_id
            self._hidden.setdefault(machine, time.monotonic() + self.hidden_seconds)
        if name != "List" or not self._hidden:
            return answer
        listed = provider_pb2.MachineList.FromString(answer)
        seen = [machine for machine in listed.machines if not self._is_hidden(machine.id)]
        self.done["List hidden"] += len(listed.machines) - len(seen)
        del listed.machines[:]
        listed.machines.extend(seen)
        return listed.SerializeToString()

    @property
    def times_hidden(self) -> int:
        """How often somebody looked for a machine and did not find it."""
        return sum(count for what, count in self.done.items() if what.endswith(" hidden"))

    def show_all(self) -> None:
        """Everything can be found again."""
        self._hidden.clear()

    def _is_hidden(self, machine: str) -> bool:
        until = self._hidden.get(machine)
        if until is None or time.monotonic() < until:
            return until is not None
        del self._hidden[machine]
        return False


# A peer that died and came back is dialled at once, not after gRPC's minutes.
_QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
