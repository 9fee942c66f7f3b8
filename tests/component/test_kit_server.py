"""A kit provider over real gRPC: the life of a machine, refusals, timing, secrets, host loss, health, stopping."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bigfleet.provider import kit
from bigfleet.provider.client import ProviderEndpoint, ProviderRegistry, SoldOut, Unfenced
from bigfleet.provider.kit.store import MemoryStore, StoreError
from bigfleet.transport import channel
from bigfleet.wire import provider_pb2 as pb
from tests.kit.world import MemoryProvider, code_of, failure, running
from tools.waiting import until

Code = grpc.StatusCode


async def test_a_machine_lives_its_whole_life_over_the_wire() -> None:
    provider = MemoryProvider()
    async with running(provider) as world:
        gate = provider.hold("create")
        ack = await world.stub.Create(pb.CreateRequest(machine_id="m000"))
        assert ack.machine.state == pb.MACHINE_STATE_CREATING and not ack.machine.HasField("host")
        gate.set()
        idle = await world.settle("m000", pb.MACHINE_STATE_IDLE)
        assert (idle.host.provider, idle.host.ref) == ("example", f"host-{ack.operation_id}")
        metadata = {"bigfleet.lucy.sh/assigned-group": "zone\0gang", "empty": "", "": "no key", "ключ": "\x01\t "}
        await world.to_configured("m000", cluster_id="c1", shard_metadata=metadata)
        bound = await world.get("m000")
        assert bound.cluster == "c1" and dict(bound.shard_metadata) == metadata
        await world.stub.Drain(pb.DrainRequest(machine_id="m000", grace_period_seconds=5))
        drained = await world.settle("m000", pb.MACHINE_STATE_IDLE)
        assert not drained.cluster and not drained.shard_metadata and drained.host == idle.host
        await world.stub.Delete(pb.DeleteRequest(machine_id="m000"))
        slot = await world.settle("m000", pb.MACHINE_STATE_SPECULATIVE)
        assert not slot.HasField("host") and slot.labels["rack"] == "r0"
        assert [kind for kind, _, _ in provider.calls] == ["create", "configure", "drain", "delete"]


async def test_get_list_and_ack_show_the_same_record() -> None:
    async with running(MemoryProvider()) as world:
        await world.to_idle("m001")
        await world.to_configured("m001", shard_metadata={"k": "v"})
        got = await world.get("m001")
        ack = await world.stub.Configure(pb.ConfigureRequest(machine_id="m001", cluster_id="c1"))
        listed = {m.id: m for m in (await world.stub.List(pb.ListFilter())).machines}
        assert got == ack.machine == listed["m001"]
        assert got.instance_type == "box" and got.capacity_type == pb.CAPACITY_TYPE_ON_DEMAND


async def test_list_pages_deltas_and_removals_over_the_wire() -> None:
    provider = MemoryProvider()
    async with running(provider) as world:
        page = await world.stub.List(pb.ListFilter(max_results=5))
        assert len(page.machines) == 5 and page.more
        rest = await world.stub.List(pb.ListFilter(max_results=5, since_revision=page.revision))
        assert len(rest.machines) == 3 and not rest.more
        await world.to_idle("m003")
        assert provider.handle is not None
        provider.handle.host_lost("m003", "spot reclaim")
        await until(lambda: code_of(world.stub.Get(pb.MachineRef(id="m003"))), lambda code: code == Code.NOT_FOUND)
        delta = await world.stub.List(pb.ListFilter(since_revision=rest.revision))
        assert not delta.machines and list(delta.removed_ids) == ["m003"]
        assert len((await world.stub.List(pb.ListFilter())).machines) == 7


async def test_each_refusal_has_its_code_and_names_no_blob() -> None:
    stub_calls: list[tuple[Any, Code]] = []
    async with running(MemoryProvider()) as world:
        stub, token = world.stub, {"shard_id": "s", "shard_epoch": 5, "sequence_number": 5}
        secret = b"join-secret"
        await stub.Create(pb.CreateRequest(machine_id="m000", **token))
        stub_calls = [
            (stub.Create(pb.CreateRequest(machine_id="m000", **token)), Code.FAILED_PRECONDITION),
            (stub.Create(pb.CreateRequest(machine_id="ghost", **token)), Code.NOT_FOUND),
            (stub.Create(pb.CreateRequest()), Code.INVALID_ARGUMENT),
            (stub.Get(pb.MachineRef()), Code.INVALID_ARGUMENT),
            (stub.Get(pb.MachineRef(id="ghost")), Code.NOT_FOUND),
            (stub.Drain(pb.DrainRequest(machine_id="m001")), Code.INTERNAL),
            (stub.List(pb.ListFilter(max_results=-1)), Code.INVALID_ARGUMENT),
            (
                stub.Configure(pb.ConfigureRequest(machine_id="m001", cluster_id="c", bootstrap_blob=secret)),
                Code.INTERNAL,
            ),
        ]
        for call, expected in stub_calls:
            error = await failure(call)
            assert error.code() == expected, error
            assert "join-secret" not in error.details()


async def test_without_delete_instance_delete_is_unimplemented_before_the_fence() -> None:
    class Metal:
        def __init__(self) -> None:
            self._inner = MemoryProvider()
            for name in ("describe", "create_instance", "configure_instance", "drain_instance"):
                setattr(self, name, getattr(self._inner, name))

    async with running(Metal()) as world:
        token = {"shard_id": "s", "shard_epoch": 5, "sequence_number": 5}
        assert await code_of(world.stub.Delete(pb.DeleteRequest(machine_id="m000", **token))) == Code.UNIMPLEMENTED
        low = {"shard_id": "s", "shard_epoch": 1, "sequence_number": 1}
        assert await code_of(world.stub.Create(pb.CreateRequest(machine_id="m000", **low))) == Code.OK


async def test_plain_methods_may_block_and_acks_do_not_wait_for_them() -> None:
    release = threading.Event()

    class Blocking(MemoryProvider):
        def create_instance(self, machine: kit.Machine, operation_id: str) -> str:  # type: ignore[override]
            release.wait(30)
            return operation_id

    async with running(Blocking(300)) as world:
        requests = [pb.CreateRequest(machine_id=f"m{n:03d}") for n in range(300)]
        acks = await asyncio.gather(*(world.stub.Create(request) for request in requests))
        assert len({ack.operation_id for ack in acks}) == 300
        creating = await world.stub.List(pb.ListFilter(states=[pb.MACHINE_STATE_CREATING]))
        assert len(creating.machines) == 300
        release.set()
        for request in requests:
            await world.settle(request.machine_id, pb.MACHINE_STATE_IDLE)


async def test_one_thousand_lifecycle_calls_at_once_all_settle(tmp_path: Path) -> None:
    async with running(MemoryProvider(1000), state=str(tmp_path / "s.db")) as world:
        ids = [f"m{n:03d}" for n in range(1000)]
        acks = await asyncio.gather(*(world.stub.Create(pb.CreateRequest(machine_id=i)) for i in ids))
        assert len({ack.operation_id for ack in acks}) == 1000
        for machine_id in ids:
            await world.settle(machine_id, pb.MACHINE_STATE_IDLE)
        assert world.process.runtime.journal.commits < 1000, "commits are shared"


async def test_a_timeout_fails_the_machine_and_stops_the_work() -> None:
    class Stuck(MemoryProvider):
        told_to_stop = threading.Event()

        def configure_instance(self, *_: Any) -> None:  # type: ignore[override]
            while not kit.stop_requested():
                self.told_to_stop.wait(0.01)
            self.told_to_stop.set()

    options = kit.Options(timeouts=kit.Timeouts(configure=0.2))
    async with running(Stuck(), options=options) as world:
        await world.to_idle("m000")
        await world.stub.Configure(pb.ConfigureRequest(machine_id="m000", cluster_id="c1"))
        failed = await world.settle("m000", pb.MACHINE_STATE_FAILED)
        assert "timed out" in failed.last_error
        assert await asyncio.to_thread(Stuck.told_to_stop.wait, 10)
        assert (await world.get("m000")).last_error == failed.last_error


async def test_configured_waits_for_confirm_node_ready() -> None:
    asked = 0

    class Gated(MemoryProvider):
        ready = False

        def confirm_node_ready(self, machine: kit.Machine, cluster_id: str, operation_id: str) -> bool:
            nonlocal asked
            asked += 1
            return self.ready

    provider = Gated()
    async with running(provider, options=kit.Options(readiness_poll=0.01)) as world:
        await world.to_idle("m000")
        await world.stub.Configure(pb.ConfigureRequest(machine_id="m000", cluster_id="c1"))
        await until(lambda: asked >= 3)
        assert (await world.get("m000")).state == pb.MACHINE_STATE_CONFIGURING
        provider.ready = True
        await world.settle("m000", pb.MACHINE_STATE_CONFIGURED)


async def test_the_blob_appears_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    blob = b"#cloud-config\nruncmd: join --token=abcdef.0123456789abcdef --ca-hash 9f8e7d6c5b4a\n"

    class Leaky(MemoryProvider):
        async def configure_instance(
            self, machine: kit.Machine, cluster_id: str, bootstrap_blob: bytes, operation_id: str
        ) -> None:
            raise RuntimeError(f"ssh failed for {bootstrap_blob!r}: ran {bootstrap_blob.decode().splitlines()[1]}")

    caplog.set_level(logging.DEBUG)
    async with running(Leaky()) as world:
        await world.to_idle("m000")
        await world.stub.Configure(pb.ConfigureRequest(machine_id="m000", cluster_id="c1", bootstrap_blob=blob))
        failed = await world.settle("m000", pb.MACHINE_STATE_FAILED)
        for trace in ("abcdef", "9f8e7d6c5b4a", "cloud-config"):
            assert trace not in failed.last_error and trace not in caplog.text
        assert "ssh failed" in failed.last_error


async def test_health_and_readiness_follow_the_process(tmp_path: Path) -> None:
    provider = MemoryProvider()
    flags = kit.Flags(addr="127.0.0.1:0", metrics_addr="127.0.0.1:0", reconcile_interval=0.0)
    process = kit.ProviderProcess(provider, flags, kit.Options())
    await process.start()
    try:
        assert (await _http(process.pages.port, "/readyz")).startswith("HTTP/1.1 200")
        assert (await _http(process.pages.port, "/healthz")).startswith("HTTP/1.1 200")
        metrics = await _http(process.pages.port, "/metrics")
        assert 'bigfleet_provider_machines{state="Speculative"} 8.0' in metrics
        async with channel(process.address) as connection:
            health: Any = health_pb2_grpc.HealthStub(connection)
            for service in ("", "bigfleet.v1alpha1.CapacityProvider"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
        process.pages.begin_stop()
        assert (await _http(process.pages.port, "/readyz")).startswith("HTTP/1.1 503")
    finally:
        await process.stop(0)


async def test_a_store_that_fails_answers_no_more_and_says_so() -> None:
    class Broken(MemoryStore):
        durable = True
        broken = False

        def write(self, rows: Any) -> None:
            if self.broken:
                raise OSError("disk full")
            super().write(rows)

    store = Broken()
    async with running(MemoryProvider(), store) as world:
        store.broken = True
        assert await code_of(world.stub.Create(pb.CreateRequest(machine_id="m000"))) == Code.INTERNAL
        assert world.process.runtime.journal.failed.is_set()
        assert await code_of(world.stub.Get(pb.MachineRef(id="m000"))) == Code.INTERNAL
        with pytest.raises(StoreError):
            await world.process.runtime.settled()


async def test_reconcile_publishes_what_changed_and_survives_a_failing_describe() -> None:
    provider = MemoryProvider()
    async with running(provider, options=kit.Options(describe_is_complete=True)) as world:
        before = await world.stub.List(pb.ListFilter())
        runtime = world.process.runtime
        await runtime.reconcile()
        assert (await world.stub.List(pb.ListFilter())).revision == before.revision
        provider.instances = [*provider.instances[1:], kit.Instance("new", "box", zone="b", price_per_hour=2)]
        await runtime.reconcile()
        await runtime.reconcile()
        delta = await world.stub.List(pb.ListFilter(since_revision=before.revision))
        assert [m.id for m in delta.machines] == ["new"] and list(delta.removed_ids) == ["m000"]

        async def fail() -> list[kit.Instance]:
            raise ConnectionError("api down")

        provider.describe = fail  # type: ignore[method-assign]
        await runtime.reconcile()
        assert len((await world.stub.List(pb.ListFilter())).machines) == 8


async def test_an_unpublishable_inventory_stops_the_start() -> None:
    provider = MemoryProvider()
    provider.instances = [kit.Instance("m", "box", price_per_hour=-1)]
    with pytest.raises(ValueError, match="price_per_hour"):
        async with running(provider):
            pass


async def test_a_describe_that_never_answers_stops_the_start() -> None:
    release = threading.Event()

    class Silent(MemoryProvider):
        def describe(self) -> list[kit.Instance]:  # type: ignore[override]
            release.wait(30)
            return []

    with pytest.raises(ValueError, match="describe gave no answer"):
        async with running(Silent(), options=kit.Options(reconcile_timeout=0.05)):
            pass
    release.set()


def test_faults_are_refused_beyond_loopback() -> None:
    async def boot() -> None:
        flags = kit.Flags(addr="0.0.0.0:0", insecure=True, enable_faults=True)
        kit.ProviderProcess(MemoryProvider(), flags, kit.Options())

    with pytest.raises(ValueError, match="loopback"):
        asyncio.run(boot())


def test_a_provider_that_lacks_a_method_is_told_which() -> None:
    async def boot() -> None:
        kit.ProviderProcess(object(), kit.Flags(addr="127.0.0.1:0"), kit.Options())  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="describe"):
        asyncio.run(boot())


async def _http(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


async def test_sold_out_is_said_in_the_trailer_and_understood_by_the_client() -> None:
    provider = MemoryProvider()
    provider.errors["create"] = kit.SoldOut("no box left in a", retry_after=300)
    async with running(provider) as world:
        await world.stub.Create(pb.CreateRequest(machine_id="m000"))
        failed = await world.settle("m000", pb.MACHINE_STATE_FAILED)
        assert "sold out, try again in 300 s: no box left in a" in failed.last_error
        refusal = await failure(world.stub.Create(pb.CreateRequest(machine_id="m001")))
        assert refusal.code() is Code.RESOURCE_EXHAUSTED
        assert ("bigfleet-reason", "sold-out") in [tuple(each) for each in refusal.trailing_metadata()]
        registry = ProviderRegistry(tokens=Unfenced())
        client = registry.add(ProviderEndpoint("example", world.process.address))
        with pytest.raises(SoldOut):
            await client.create("m001")
        await registry.close()


async def test_a_notice_of_interruption_is_seen_in_list_and_get() -> None:
    provider = MemoryProvider()
    async with running(provider) as world:
        await world.to_idle("m000")
        assert provider.handle is not None
        provider.handle.interruption_notice("m000", 2_000_000_000.5)
        await until(lambda: _notice(world))
        listed = {m.id: m for m in (await world.stub.List(pb.ListFilter())).machines}
        assert listed["m000"].interruption_at_unix_nanos == 2_000_000_000_500_000_000


async def _notice(world: Any) -> bool:
    return bool((await world.get("m000")).interruption_at_unix_nanos)


async def test_the_fault_lane_fails_inside_the_authors_own_code() -> None:
    class Careful(MemoryProvider):
        """Cleans up after itself when its backend fails, and can be made to."""

        def __init__(self) -> None:
            super().__init__()
            self.cleaned: list[str] = []
            self.fails: set[str] = set()

        def inject_fault(self, kind: str, machine: kit.Machine) -> None:
            self.fails.add(kind)

        async def configure_instance(
            self, machine: kit.Machine, cluster_id: str, bootstrap_blob: bytes, operation_id: str
        ) -> None:
            if "configure" in self.fails:
                self.fails.discard("configure")
                self.cleaned.append(machine.id)
                raise RuntimeError("ssh: connection refused")

    provider = Careful()
    async with running(provider, enable_faults=True) as world:
        await world.to_idle("m000")
        await world.stub.Configure(pb.ConfigureRequest(machine_id="m000", cluster_id="fault-error"))
        failed = await world.settle("m000", pb.MACHINE_STATE_FAILED)
        assert provider.cleaned == ["m000"] and "ssh: connection refused" in failed.last_error


async def test_tools_can_ask_what_is_served_and_call_it_by_what_they_hear() -> None:
    """As a tool does that has no contract of ours: bytes by the public protocol, then a call built from the answers."""
    for version in ("v1", "v1alpha"):
        async with running(MemoryProvider()) as world:
            tool = world.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")()
            name = b"bigfleet.v1alpha1.CapacityProvider"
            await tool.write(b"\x3a\x01*")
            services = await tool.read()
            assert name in services and b"grpc.health.v1.Health" in services
            await tool.write(b"\x22" + bytes([len(name)]) + name)
            files = _fields(_fields(await tool.read())[4][0])[1]
            await tool.write(b"\x22\x04none")
            assert _fields(_fields(await tool.read())[7][0])[1] == [5], "NOT_FOUND"
            await tool.done_writing()
        pool = descriptor_pool.DescriptorPool()
        for file in reversed(files):
            pool.AddSerializedFile(file)
        method = pool.FindServiceByName(name.decode()).methods_by_name["Get"]
        assert method.input_type.fields_by_name["id"].number == 1


def _fields(message: bytes) -> dict[int, list[Any]]:
    """A message read without its description: field number to values."""
    found: dict[int, list[Any]] = {}
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = varint()
        value: Any = varint()
        if key & 7 == 2:
            value, place = message[place : place + value], place + value
        found.setdefault(key >> 3, []).append(value)
    return found


async def test_reflection_can_be_switched_off() -> None:
    async with running(MemoryProvider(), reflection=False) as world:
        tool = world.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await tool.write(b"\x3a\x01*")
            await tool.read()
        assert refused.value.code() == Code.UNIMPLEMENTED
