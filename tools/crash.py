"""Kill a kit provider with SIGKILL at random moments under load, again and again, and check what it promised.

    python tools/crash.py --kills 200 --json docs/evidence/provider-crash.json

The provider is the skeleton with a slow backend, as a process of its own on a SQLite state file. After every restart:
every acknowledged transition is still there (done, under way, or FAILED with a diagnosis) under its operation id, no
machine has two hosts, no fence lets an old token pass, and a client that only read deltas holds the full list.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

import bigfleet  # noqa: F401  # before grpc: it fixes the TLS versions
from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.records import TRANSITIONS, Kind
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 8
CYCLE = (Kind.CREATE, Kind.CONFIGURE, Kind.DRAIN, Kind.CONFIGURE, Kind.DRAIN, Kind.DELETE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="", help="also write the report here")
    arguments = parser.parse_args()
    report = asyncio.run(crash(arguments.kills, arguments.seed))
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.json:
        Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 0 if report["verdict"] == "PASSED" else 1


async def crash(kills: int, seed: int) -> dict[str, Any]:
    """Run the whole exercise and report on it."""
    with tempfile.TemporaryDirectory(prefix="bigfleet-crash-") as folder:
        run = _Run(Path(folder), random.Random(seed), slots=WORKERS * (kills + 4))
        started = time.monotonic()
        for _ in range(kills):
            await run.one_kill()
        await run.finish()
        broken = {name: found for name, found in run.broken.items() if found}
        return {
            "kills": kills,
            "seed": seed,
            "seconds": round(time.monotonic() - started, 1),
            "acknowledged": dict(run.acknowledged),
            "interrupted_calls": run.interrupted,
            "failed_visibly": run.failed,
            "lost_transitions": run.broken["lost"][:10],
            "duplicate_hosts": run.broken["hosts"][:10],
            "fences_moved_back": run.broken["fences"][:10],
            "deltas_wrong": run.broken["deltas"][:10],
            "verdict": "FAILED" if broken else "PASSED",
        }


@dataclass
class _Promise:
    """What a worker knows about its machine: the last acknowledgement, and a request that may have been accepted."""

    machine_id: str
    kind: Kind | None = None
    operation_id: str = ""
    sequence: int = 0
    asked: Kind | None = None
    asked_sequence: int = 0
    step: int = 0

    def resolve(self, state: int) -> None:
        """A request nobody answered either happened or did not; what the next life shows is the truth from then on."""
        if self.asked is not None and state in TRANSITIONS[self.asked][1:]:
            self.kind, self.operation_id, self.sequence = self.asked, "", self.asked_sequence
        self.asked = None


@dataclass
class _Run:
    """One provider over all its lives, and everything it ever promised."""

    folder: Path
    random: random.Random
    slots: int
    sequence: int = 0
    interrupted: int = 0
    failed: int = 0
    acknowledged: Counter[str] = field(default_factory=Counter)
    broken: dict[str, list[str]] = field(default_factory=lambda: {"lost": [], "hosts": [], "fences": [], "deltas": []})
    promises: list[_Promise] = field(default_factory=list)
    mirror: dict[str, bytes] = field(default_factory=dict)
    cursor: bytes = b""
    unused: list[str] = field(default_factory=list)

    async def one_kill(self) -> None:
        """Boot, check the promises of the former life, load, kill."""
        address = _free_address()
        process = await self._boot(address)
        async with channel(address) as connection:
            stub: Any = rpc.CapacityProviderStub(connection)
            await self._check(stub)
            workers = [asyncio.create_task(self._work(stub, promise)) for promise in self.promises]
            reader = asyncio.create_task(self._read(stub))
            await asyncio.sleep(self.random.uniform(0.01, 0.5))
            process.send_signal(signal.SIGKILL)
            await process.wait()
            for task in (*workers, reader):
                task.cancel()
            await asyncio.gather(*workers, reader, return_exceptions=True)

    async def finish(self) -> None:
        """One last life, only to check."""
        address = _free_address()
        process = await self._boot(address)
        async with channel(address) as connection:
            await self._check(rpc.CapacityProviderStub(connection))
        process.send_signal(signal.SIGTERM)
        await process.wait()

    async def _boot(self, address: str) -> asyncio.subprocess.Process:
        command = [sys.executable, __file__, "--serve", "--addr", address, "--state", str(self.folder / "state.db")]
        command += ["--seed-count", str(self.slots), "--metrics-addr", "", "--log-level", "error"]
        process = await asyncio.create_subprocess_exec(*command)
        await asyncio.wait_for(_listening(address), 60)
        return process

    # ── load ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, stub: Any, promise: _Promise) -> None:
        """Walk one machine round its cycle until the provider dies."""
        while True:
            machine = await self._settled(stub, promise.machine_id)
            if machine is None:
                return
            if machine.state == pb.MACHINE_STATE_FAILED:
                self.failed += 1
                promise.__init__(self.unused.pop())  # type: ignore[misc]
                continue
            kind = _next_step(promise, MachineState(machine.state))
            if not await self._ask(stub, promise, kind):
                return

    async def _settled(self, stub: Any, machine_id: str) -> pb.Machine | None:
        resting = (1, 3, 5, 8)
        while True:
            try:
                machine: pb.Machine = await stub.Get(pb.MachineRef(id=machine_id))
            except grpc.aio.AioRpcError:
                return None
            if machine.state in resting:
                return machine
            await asyncio.sleep(0.005)

    async def _ask(self, stub: Any, promise: _Promise, kind: Kind) -> bool:
        self.sequence += 1
        sequence = self.sequence
        promise.asked, promise.asked_sequence = kind, sequence
        try:
            ack = await _send(stub, kind, promise.machine_id, sequence)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self.broken["lost"].append(f"{promise.machine_id}: {kind} answered {error.code().name}")
            self.interrupted += 1
            return False
        promise.kind, promise.operation_id, promise.sequence = kind, ack.operation_id, sequence
        promise.asked = None
        promise.step += 1
        self.acknowledged[kind.value] += 1
        return True

    async def _read(self, stub: Any) -> None:
        """A client that only ever reads what changed."""
        while True:
            try:
                await self._read_once(stub)
            except grpc.aio.AioRpcError:
                return
            await asyncio.sleep(0.02)

    async def _read_once(self, stub: Any) -> None:
        page = await stub.List(pb.ListFilter(since_revision=self.cursor))
        self.mirror |= {machine.id: machine.SerializeToString(deterministic=True) for machine in page.machines}
        for machine_id in page.removed_ids:
            self.mirror.pop(machine_id, None)
        self.cursor = page.revision

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _check(self, stub: Any) -> None:
        if not self.promises:
            listed = await stub.List(pb.ListFilter())
            self.unused = sorted((machine.id for machine in listed.machines), reverse=True)
            self.promises = [_Promise(self.unused.pop()) for _ in range(WORKERS)]
            return
        for promise in self.promises:
            await self._check_promise(stub, promise)
        # Two reads at one revision must agree; work picked up again may move the head in between.
        for _ in range(50):
            await self._read_once(stub)
            full = await stub.List(pb.ListFilter())
            if full.revision == self.cursor:
                break
        listed = {machine.id: machine.SerializeToString(deterministic=True) for machine in full.machines}
        if full.revision == self.cursor and listed != self.mirror:
            wrong = [i for i in listed.keys() | self.mirror.keys() if listed.get(i) != self.mirror.get(i)]
            self.broken["deltas"].append(f"{len(wrong)} machines differ, first {wrong[0]}")
        self._check_hosts(full.machines)

    async def _check_promise(self, stub: Any, promise: _Promise) -> None:
        machine = await stub.Get(pb.MachineRef(id=promise.machine_id))
        allowed = {MachineState.FAILED}
        for kind in (promise.kind, promise.asked):
            if kind is not None:
                allowed |= {TRANSITIONS[kind].via, TRANSITIONS[kind].target}
        if promise.kind is None:
            allowed.add(MachineState.SPECULATIVE)
        if machine.state not in allowed or (machine.state == MachineState.FAILED and not machine.last_error):
            self.broken["lost"].append(f"{promise.machine_id}: {promise.kind} acknowledged, now {machine.state}")
        promise.resolve(machine.state)
        if promise.kind is None:
            return
        try:
            await _send(stub, promise.kind, promise.machine_id, promise.sequence)
            self.broken["fences"].append(f"{promise.machine_id}: sequence {promise.sequence} passed twice")
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                self.broken["fences"].append(f"{promise.machine_id}: a stale token was answered {error.code().name}")
        if machine.state in TRANSITIONS[promise.kind][1:]:
            await self._check_repeat(stub, promise)

    async def _check_repeat(self, stub: Any, promise: _Promise) -> None:
        assert promise.kind is not None
        self.sequence += 1
        try:
            ack = await _send(stub, promise.kind, promise.machine_id, self.sequence)
        except grpc.aio.AioRpcError:
            return  # it failed visibly in between, which the next look judges
        promise.sequence = self.sequence
        if promise.operation_id not in ("", ack.operation_id):
            self.broken["lost"].append(f"{promise.machine_id}: {promise.operation_id} became {ack.operation_id}")
        promise.operation_id = ack.operation_id

    def _check_hosts(self, machines: Any) -> None:
        refs = Counter(machine.host.ref for machine in machines if machine.HasField("host"))
        self.broken["hosts"] += [f"host {ref} serves {count} machines" for ref, count in refs.items() if count > 1]
        files = Counter(
            json.loads(path.read_text())["machine"]
            for path in (self.folder / "state.db.hosts").glob("*.json")
            if ".draft" not in path.name
        )
        self.broken["hosts"] += [f"{machine} has {count} hosts" for machine, count in files.items() if count > 1]


def _next_step(promise: _Promise, state: MachineState) -> Kind:
    """The next request that is legal here; Idle offers three, and the cycle decides."""
    if state is MachineState.SPECULATIVE:
        return Kind.CREATE
    if state is MachineState.CONFIGURED:
        return Kind.DRAIN
    return Kind.DELETE if promise.step % len(CYCLE) == len(CYCLE) - 1 else Kind.CONFIGURE


async def _send(stub: Any, kind: Kind, machine_id: str, sequence: int) -> Any:
    fields: dict[str, Any] = {
        "machine_id": machine_id,
        "shard_id": "crash",
        "shard_epoch": 1,
        "sequence_number": sequence,
    }
    match kind:
        case Kind.CREATE:
            return await stub.Create(pb.CreateRequest(**fields))
        case Kind.CONFIGURE:
            request = pb.ConfigureRequest(**fields, cluster_id="c1", bootstrap_blob=b"blob", shard_metadata={"k": "v"})
            return await stub.Configure(request)
        case Kind.DRAIN:
            return await stub.Drain(pb.DrainRequest(**fields))
        case Kind.DELETE:
            return await stub.Delete(pb.DeleteRequest(**fields))


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def _listening(address: str) -> None:
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


def _serve() -> int:
    """The skeleton provider with a backend that takes its time, so that kills hit work under way."""
    from bigfleet.provider import kit

    location = importlib.util.spec_from_file_location("skeleton", ROOT / "examples" / "skeleton_provider.py")
    assert location is not None and location.loader is not None
    skeleton = importlib.util.module_from_spec(location)
    location.loader.exec_module(skeleton)

    class Slow(skeleton.FolderProvider):  # type: ignore[name-defined,misc]
        def _write(self, host: str, facts: dict[str, str]) -> None:
            time.sleep(random.uniform(0, 0.02))
            super()._write(host, facts)
            time.sleep(random.uniform(0, 0.02))

    def flags(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--serve", action="store_true")

    return kit.serve(Slow, name="skeleton", add_flags=flags)


if __name__ == "__main__":
    raise SystemExit(_serve() if "--serve" in sys.argv else main())
