"""A shard that says what a test wants and keeps what it hears, over the real protocol on a real socket.

For what our own shard would only do after long waiting, or must never do: an operator has to bear it all the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

import bigfleet  # noqa: F401  # before grpc is used: it fixes the TLS versions
from bigfleet.wire import provider_pb2, shard_pb2
from tools.waiting import wait_until

SESSION = "/bigfleet.v1alpha1.Shard/Session"
CONFIGURING = provider_pb2.MACHINE_STATE_CONFIGURING
CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
DRAINING = provider_pb2.MACHINE_STATE_DRAINING
IDLE = provider_pb2.MACHINE_STATE_IDLE


class ScriptedShard:
    """Serves one operator at a time in a thread of its own. `nodes` are told on every new stream."""

    # What it understands and speaks; a shard of the base contract knows less (`reference_shard.py`).
    hears: Any = shard_pb2.OperatorMessage
    says: Any = shard_pb2.ShardMessage

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.streams = 0
        self.address = ""
        self.nodes: dict[str, dict[str, Any]] = {}
        self.answers_rollups = True
        self._loop = asyncio.new_event_loop()
        self._outgoing: asyncio.Queue[Any] | None = None
        self._server: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> ScriptedShard:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(0), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # ---------------------------------------------------------------------------------------------------------- script

    def say(self, **payload: Any) -> None:
        self._loop.call_soon_threadsafe(self._put, self.says(**payload))

    def hang_up(self) -> None:
        """End the present stream."""
        self._loop.call_soon_threadsafe(self._put, None)

    def has_node(self, machine: str, state: Any = CONFIGURED, **facts: Any) -> None:
        """The machine is so from now on, and the operator is told."""
        frame = {"supersedes_key": f"node:{machine}", "machine_id": machine, "state": state, **facts}
        self.nodes[machine] = self.told_of(frame)
        self.say(node_state_update=self.nodes[machine])

    def told_of(self, frame: dict[str, Any]) -> dict[str, Any]:
        """A machine's frame as it is filled."""
        return {"node_name": frame["machine_id"], **frame}

    def reclaim(self, instruction: str, *machines: str, grace: int = 60, **more: Any) -> None:
        self.say(
            reclaim_instruction={
                "instruction_id": instruction,
                "nodes": machines,
                "grace_period_seconds": grace,
                **more,
            }
        )

    def all(self, kind: str) -> list[Any]:
        return [getattr(each, kind) for each in list(self.heard) if each.WhichOneof("payload") == kind]

    def wait_for(self, kind: str, met: Callable[[Any], bool] = lambda frame: True, seconds: float = 60.0) -> Any:
        """The first frame of this kind that is as wanted."""

        def found() -> Any:
            return next((frame for frame in self.all(kind) if met(frame)), None)

        def evidence() -> object:
            return [str(each)[:200] for each in self.heard[-10:]]

        return wait_until(found, seconds=seconds, what=f"the operator says {kind}", evidence=evidence)

    def greeting(self) -> list[Any]:
        """The answer to a Hello, and every machine of the cluster."""
        told = [self.says(node_state_update=frame) for frame in self.nodes.values()]
        named = self.says(resync_end={"machine_ids": sorted(self.nodes)})
        return [self.says(ack={"echo": "hello", "shard_epoch": 1}), *told, named]

    def answer(self, rollup: Any) -> dict[str, Any]:
        return {
            "echo": "rollup",
            "rollup_timestamp": rollup.timestamp_unix_nanos,
            "outcome": shard_pb2.Acknowledgement.OUTCOME_APPLIED,
        }

    # ---------------------------------------------------------------------------------------------------------- server

    def _put(self, message: Any) -> None:
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()

    async def _start(self) -> None:
        self._server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._session,
            request_deserializer=self.hears.FromString,
            response_serializer=self.says.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("bigfleet.v1alpha1.Shard", {"Session": handler})
        self._server.add_generic_rpc_handlers((service,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        self._ready.set()

    async def _session(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._outgoing = outgoing
        self.streams += 1
        reading = asyncio.get_running_loop().create_task(self._read(requests, outgoing))
        try:
            while (message := await outgoing.get()) is not None:
                yield message
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[Any], outgoing: asyncio.Queue[Any]) -> None:
        async for message in requests:
            self.heard.append(message)
            kind = message.WhichOneof("payload")
            if kind == "hello":
                for frame in self.greeting():
                    outgoing.put_nowait(frame)
            elif kind == "rollup" and self.answers_rollups:
                outgoing.put_nowait(self.says(ack=self.answer(message.rollup)))
        outgoing.put_nowait(None)
