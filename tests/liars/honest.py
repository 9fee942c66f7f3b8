"""A small compliant provider in memory, run as a process: the truth from which every liar departs in one place.

    python tests/liars/honest.py --listen 127.0.0.1:9001 [--state FILE] [--slots N] [--liar NAME]

Deliberately independent of the kit: the suite must tell right from wrong on code it has never seen. State, when kept,
is one JSON file rewritten before each ack. The fault selectors are those of the reference fault provider.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc

SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(1, 9)
EDGES = {
    "create": (SPECULATIVE, CREATING, IDLE),
    "configure": (IDLE, CONFIGURING, CONFIGURED),
    "drain": (CONFIGURED, DRAINING, IDLE),
    "delete": (IDLE, DELETING, SPECULATIVE),
}


class Refused(Exception):  # noqa: N818
    """An answer that is not OK."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Memory:
    """Everything the provider must not forget."""

    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    fences: dict[str, list[int]] = field(default_factory=dict)
    ops: dict[str, str] = field(default_factory=dict)
    revision: int = 0
    next_op: int = 0


class HonestProvider:
    """Six RPCs over a dictionary; overridable piece by piece."""

    has_delete = True
    transition_seconds = 0.004
    timeout_seconds = 2.0

    def __init__(self, slots: int, state: Path | None, bait: int = 8) -> None:
        self.state = state
        self.memory = Memory()
        if state is not None and state.exists():
            self.memory = Memory(**json.loads(state.read_text()))
            self.recover()
        else:
            for i in range(slots):
                self.seed(i)
            for i in range(bait):
                self.seed(i, bait=True)
            self.save()

    def seed(self, i: int, bait: bool = False) -> None:
        spot = i % 3 == 2
        machine_id = f"faultcreate-{i}" if bait else f"slot-{i:05d}"
        self.memory.revision += 1
        self.memory.machines[machine_id] = {
            "state": SPECULATIVE,
            "spot": spot,
            "zone": f"zone-{'ab'[i % 2]}",
            "labels": {"rack": f"r{i % 4}"} | ({"conformance.fault/create": "error"} if bait else {}),
            "host": "",
            "cluster": "",
            "metadata": {},
            "error": "",
            "revision": self.memory.revision,
        }

    def recover(self) -> None:
        for machine_id, machine in self.memory.machines.items():
            if machine["state"] in (CREATING, CONFIGURING, DRAINING, DELETING):
                self.fail(machine_id, "transition interrupted by a provider restart")

    def save(self) -> None:
        if self.state is None:
            return
        handle, name = tempfile.mkstemp(dir=self.state.parent)
        with os.fdopen(handle, "w") as out:
            json.dump(self.memory.__dict__, out)
        Path(name).replace(self.state)

    # --- reading -----------------------------------------------------------------------------------------------

    def record(self, machine_id: str) -> pb.Machine:
        m = self.memory.machines[machine_id]
        return pb.Machine(
            id=machine_id,
            state=m["state"],
            host=pb.HostRef(provider="honest", ref=m["host"]) if m["host"] else None,
            instance_type="h.large",
            zone=m["zone"],
            capacity_type=4 if m["spot"] else 3,
            price_per_hour=0.1 if m["spot"] else 0.4,
            interruption_probability=self.spot_risk() if m["spot"] else 0.0,
            resources=pb.Resources(resources={"cpu": "1", "memory": "4Gi"}),
            allocatable=pb.Resources(resources={"cpu": "16", "memory": "64Gi"}),
            labels=m["labels"],
            last_error=m["error"],
            cluster=m["cluster"],
            shard_metadata=m["metadata"],
        )

    def spot_risk(self) -> float:
        return 0.05

    def get(self, machine_id: str) -> pb.Machine:
        if not machine_id:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "machine id is empty")
        if machine_id not in self.memory.machines:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no machine {machine_id!r}")
        return self.record(machine_id)

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        since = self.parse_cursor(request.since_revision)
        changed = [
            (m["revision"], machine_id)
            for machine_id, m in self.memory.machines.items()
            if m["revision"] > since and (not request.states or m["state"] in request.states)
        ]
        changed.sort()
        page = changed[: request.max_results] if request.max_results > 0 else changed
        capped = len(page) < len(changed)
        return pb.MachineList(
            revision=self.cursor(page, capped), more=capped, machines=[self.record(i) for _, i in page]
        )

    def cursor(self, page: list[tuple[int, str]], capped: bool) -> bytes:
        return str(page[-1][0] if capped else self.memory.revision).encode()

    def parse_cursor(self, cursor: bytes) -> int:
        text = cursor.decode("latin-1")
        if not text.isascii() or not text.isdigit() or len(text) > 18 or text != str(int(text)):
            return 0
        return int(text) if int(text) <= self.memory.revision else 0

    # --- mutating ----------------------------------------------------------------------------------------------

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        """The acceptance order of the contract."""
        if not request.machine_id:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "machine_id is empty")
        if kind == "delete" and not self.has_delete:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, "hosts cannot be deleted")
        self.check_fence(request)
        self.save()
        if request.machine_id not in self.memory.machines:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"no machine {request.machine_id!r}")
        repeated = self.repeated(kind, request)
        if repeated is not None:
            return repeated
        self.check_position(kind, request)
        return self.accept(kind, request)

    def check_fence(self, request: Any) -> None:
        token = (request.shard_epoch, request.sequence_number)
        if not request.shard_id and token == (0, 0):
            return
        key = self.fence_key(request)
        mark = self.memory.fences.get(key)
        if mark is not None and not self.newer(token, (mark[0], mark[1])):
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "stale token")
        self.memory.fences[key] = list(token)

    def fence_key(self, request: Any) -> str:
        return f"{request.shard_id}\x00{request.machine_id}"

    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token > mark

    def repeated(self, kind: str, request: Any) -> pb.TransitionAck | None:
        m, op = self.memory.machines[request.machine_id], self.memory.ops.get(f"{request.machine_id}\x00{kind}")
        if op is None or m["state"] not in EDGES[kind][1:]:
            return None
        if kind == "configure" and request.cluster_id != m["cluster"]:
            raise Refused(grpc.StatusCode.INTERNAL, f"machine is bound to {m['cluster']!r}")
        return pb.TransitionAck(operation_id=op, machine=self.record(request.machine_id))

    def check_position(self, kind: str, request: Any) -> None:
        m = self.memory.machines[request.machine_id]
        if m["state"] != EDGES[kind][0]:
            raise Refused(grpc.StatusCode.INTERNAL, f"{kind} is out of position in state {m['state']}")

    def accept(self, kind: str, request: Any) -> pb.TransitionAck:
        machine_id = request.machine_id
        m = self.memory.machines[machine_id]
        op = self.mint(kind, machine_id)
        m["state"] = EDGES[kind][1]
        if kind == "configure":
            m["cluster"], m["metadata"] = request.cluster_id, self.keep_metadata(dict(request.shard_metadata))
        self.bump(machine_id)
        self.save()
        ack = pb.TransitionAck(operation_id=op, machine=self.record(machine_id))
        task = asyncio.ensure_future(self.work(kind, machine_id))
        BACKGROUND.add(task)
        task.add_done_callback(BACKGROUND.discard)
        return ack

    def keep_metadata(self, metadata: dict[str, str]) -> dict[str, str]:
        return metadata

    def mint(self, kind: str, machine_id: str) -> str:
        self.memory.next_op += 1
        op = f"op-{self.memory.next_op}"
        self.memory.ops[f"{machine_id}\x00{kind}"] = op
        return op

    def bump(self, machine_id: str) -> None:
        self.memory.revision += 1
        self.memory.machines[machine_id]["revision"] = self.memory.revision

    async def work(self, kind: str, machine_id: str) -> None:
        """The backend: quick, except where a fault selector says otherwise."""
        m = self.memory.machines[machine_id]
        cluster = m["cluster"]
        await asyncio.sleep(self.transition_seconds)
        if kind == "configure" and cluster in ("fault-timeout", "fault-slow-ok", "fault-readiness-block"):
            await self.never_ready(cluster)
            self.fail(machine_id, f"configure timed out after {self.timeout_seconds} s")
        elif (
            (kind == "configure" and cluster == "fault-error")
            or (kind == "drain" and cluster == "fault-drain-error")
            or (kind == "create" and m["labels"].get("conformance.fault/create") == "error")
        ):
            self.fail(machine_id, f"{kind}: the backend refused")
        else:
            self.finish(kind, machine_id)
        self.save()

    async def never_ready(self, cluster: str) -> None:
        await asyncio.sleep(self.timeout_seconds)

    def finish(self, kind: str, machine_id: str) -> None:
        m = self.memory.machines[machine_id]
        m["state"] = EDGES[kind][2]
        if kind == "create":
            m["host"] = f"host-{machine_id}"
        elif kind == "drain":
            m["cluster"], m["metadata"] = "", {}
        elif kind == "delete":
            m["host"] = ""
        self.bump(machine_id)

    def fail(self, machine_id: str, why: str) -> None:
        m = self.memory.machines[machine_id]
        m["state"], m["error"] = FAILED, why
        self.bump(machine_id)


BACKGROUND: set[asyncio.Future[None]] = set()


class Service(rpc.CapacityProviderServicer):
    """The RPC surface over a provider."""

    def __init__(self, provider: HonestProvider) -> None:
        self.provider = provider

    async def _answer(self, context: Any, act: Any) -> Any:
        try:
            return act()
        except Refused as refused:
            await context.abort(refused.code, str(refused))

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.mutate("create", request))

    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.mutate("configure", request))

    async def Drain(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.mutate("drain", request))

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.mutate("delete", request))

    async def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.get(request.id))

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer(context, lambda: self.provider.list(request))


async def serve(provider: HonestProvider, address: str) -> None:
    limits = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 256 << 20)]
    server = grpc.aio.server(options=limits)
    rpc.add_CapacityProviderServicer_to_server(Service(provider), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--state", type=Path, default=None)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--liar", default="")
    parser.add_argument("--bait", type=int, default=8, help="slots whose creation fails")
    parser.add_argument("--no-delete", action="store_true")
    parser.add_argument("--transition-seconds", type=float, default=None)
    parser.add_argument("--timeout-seconds", type=float, default=HonestProvider.timeout_seconds)
    options = parser.parse_args()
    kind = HonestProvider
    if options.liar:
        sys.path.insert(0, str(Path(__file__).parent))
        import liars

        kind = liars.LIARS[options.liar]
    provider = kind(options.slots, options.state, options.bait)
    provider.has_delete = not options.no_delete
    provider.timeout_seconds = options.timeout_seconds
    if options.transition_seconds is not None:
        provider.transition_seconds = options.transition_seconds
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(provider, options.listen))


if __name__ == "__main__":
    sys.modules["honest"] = sys.modules["__main__"]
    main()
