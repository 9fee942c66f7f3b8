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
CONFIGURED = provider_pb2.MACHINE_STATE_CONFIGURED
IDLE = provider_pb2.MACHINE_STATE_IDLE


class ScriptedShard:
    """Serves one operator at a time in a thread of its own. `nodes` are told on every new stream."""

    def __init__(self) -> None:
        self.heard: list[shard_pb2.OperatorMessage] = []
        self.streams = 0
        self.address = ""
        self.nodes: dict[str, shard_pb2.NodeStateUpdate] = {}
        self.answers_rollups = True
        self._loop = asyncio.new_event_loop()
        self._outgoing: asyncio.Queue[shard_pb2.ShardMessage | None] | None = None
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
        self._loop.call_soon_threadsafe(self._put, shard_pb2.ShardMessage(**payload))

    def hang_up(self) -> None:
        """End the present stream."""
        self._loop.call_soon_threadsafe(self._put, None)

    def has_node(self, machine: str, state: Any = CONFIGURED, **facts: Any) -> None:
        """The machine is so from now on, and the operator is told."""
        frame = shard_pb2.NodeStateUpdate(
            supersedes_key=f"node:{machine}", machine_id=machine, state=state, node_name=machine, **facts
        )
        self.nodes[machine] = frame
        self.say(node_state_update=frame)

    def reclaim(self, instruction: str, *machines: str, grace: int = 60, **more: Any) -> None:
        self.say(
            reclaim_instruction=shard_pb2.ReclaimInstruction(
                instruction_id=instruction, nodes=machines, grace_period_seconds=grace, **more
            )
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

    # ---------------------------------------------------------------------------------------------------------- server

    def _put(self, message: shard_pb2.ShardMessage | None) -> None:
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
            request_deserializer=shard_pb2.OperatorMessage.FromString,
            response_serializer=shard_pb2.ShardMessage.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("bigfleet.v1alpha1.Shard", {"Session": handler})
        self._server.add_generic_rpc_handlers((service,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        self._ready.set()

    async def _session(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[shard_pb2.ShardMessage]:
        outgoing: asyncio.Queue[shard_pb2.ShardMessage | None] = asyncio.Queue()
        self._outgoing = outgoing
        self.streams += 1
        reading = asyncio.get_running_loop().create_task(self._read(requests, outgoing))
        try:
            while (message := await outgoing.get()) is not None:
                yield message
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[Any], outgoing: asyncio.Queue[shard_pb2.ShardMessage | None]) -> None:
        async for message in requests:
            self.heard.append(message)
            kind = message.WhichOneof("payload")
            if kind == "hello":
                outgoing.put_nowait(shard_pb2.ShardMessage(ack=shard_pb2.Acknowledgement(echo="hello", shard_epoch=1)))
                for frame in self.nodes.values():
                    outgoing.put_nowait(shard_pb2.ShardMessage(node_state_update=frame))
                named = shard_pb2.ResyncEnd(machine_ids=sorted(self.nodes))
                outgoing.put_nowait(shard_pb2.ShardMessage(resync_end=named))
            elif kind == "rollup" and self.answers_rollups:
                ack = shard_pb2.Acknowledgement(
                    echo="rollup",
                    rollup_timestamp=message.rollup.timestamp_unix_nanos,
                    outcome=shard_pb2.Acknowledgement.OUTCOME_APPLIED,
                )
                outgoing.put_nowait(shard_pb2.ShardMessage(ack=ack))
        outgoing.put_nowait(None)
