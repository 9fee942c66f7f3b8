"""`bigfleet fake-provider` as a real process, seen through the client: contract, injection, restart, identity."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bigfleet.provider.client import (
    Fence,
    Fenced,
    NotFound,
    ProviderClient,
    ProviderEndpoint,
    ProviderRegistry,
    Refused,
    RetryPolicy,
    Unavailable,
    Unimplemented,
)
from bigfleet.transport import TlsFiles, authority, identity
from bigfleet.transport.errors import TransportError
from bigfleet.wire import provider_pb2 as pb
from tools.waiting import until

MAIN = [sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()", "fake-provider"]
SPOT = "spot-m6i-large-eu-west-1a-0000"
METAL = "onprem-general-dc1-hall-a-0000"


class Fake:
    """A running fake and where it listens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.address = self.control = ""

    async def read_until(self, event: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        seen = []
        while line := await asyncio.wait_for(self.process.stderr.readline(), 30):
            seen.append(line.decode())
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("msg") == event:
                return dict(entry)
        raise AssertionError(f"the fake ended before {event!r}: {''.join(seen)}")

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        if self.process.returncode is None:
            self.process.send_signal(how)
        return await asyncio.wait_for(self.process.wait(), 30)


Start = Callable[..., Awaitable[Fake]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Fake] = []

    async def start_fake(*flags: str) -> Fake:
        command = [*MAIN, "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--log-format", "json", *flags]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        fake = Fake(process)
        running.append(fake)
        fake.address = (await fake.read_until("provider serving"))["addr"]
        fake.control = (await fake.read_until("control socket open"))["addr"]
        return fake

    yield start_fake
    for fake in running:
        await fake.kill()


@pytest.fixture
async def registry() -> AsyncIterator[ProviderRegistry]:
    made = ProviderRegistry(tokens=Fence("shard-a", 1))
    yield made
    await made.close()


async def inject(fake: Fake, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *MAIN, "inject", "--control", fake.control, *words, "-o", "json", stdout=-1, stderr=-1
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def settled(client: ProviderClient, machine_id: str, state: int) -> pb.Machine:
    return await until(lambda: client.get(machine_id), lambda machine: machine.state == state)


async def hear(listing: Any) -> tuple[list[str], list[str], list[str]]:
    changed: list[str] = []
    removed: list[str] = []
    absent: list[str] = []
    async for batch in listing:
        changed += [machine.id for machine in batch.changed]
        removed += batch.removed
        absent += batch.absent
    return changed, removed, absent


async def test_a_fake_without_a_file_sells_a_labelled_fleet_and_keeps_the_contract(
    start: Start, registry: ProviderRegistry
) -> None:
    fake = await start()
    client = registry.add(ProviderEndpoint("fake", fake.address))
    machines = [machine async for batch in client.full() for machine in batch.changed]
    assert sum(1 for machine in machines if machine.state == pb.MACHINE_STATE_SPECULATIVE) >= 256
    assert all(machine.labels["bigfleet.lucy.sh/simulated"] == "true" for machine in machines)
    assert (await client.create(SPOT)).operation_id
    await settled(client, SPOT, pb.MACHINE_STATE_IDLE)
    await client.configure(SPOT, "prod", b"secret-blob", {"k": "v"})
    bound = await settled(client, SPOT, pb.MACHINE_STATE_CONFIGURED)
    assert (bound.cluster, dict(bound.shard_metadata)) == ("prod", {"k": "v"})
    with pytest.raises(Refused):
        await client.configure(SPOT, "other", b"secret-blob")
    await client.drain(SPOT, 0)
    await settled(client, SPOT, pb.MACHINE_STATE_IDLE)
    await client.delete(SPOT)
    assert not (await settled(client, SPOT, pb.MACHINE_STATE_SPECULATIVE)).host.ref
    with pytest.raises(NotFound):
        await client.get("ghost")
    assert (await hear(client.incremental()))[0] == [SPOT]
    assert await fake.kill(signal.SIGTERM) == 0


async def test_injected_misfortune_shows_on_the_wire(start: Start, registry: ProviderRegistry) -> None:
    fake = await start("--durations", "instant")
    client = registry.add(ProviderEndpoint("fake", fake.address))
    await hear(client.full())
    code, out, _ = await inject(fake, "lose-hosts", "zone=dc1-hall-a", "count=1")
    assert (code, json.loads(out)) == (0, {"machines": [METAL]})
    assert (await hear(client.incremental()))[1] == [METAL]

    await inject(fake, "fault-next", "transition=create", "effect=fail", "error=no stock", f"machine={SPOT}")
    await client.create(SPOT)
    assert "no stock" in (await settled(client, SPOT, pb.MACHINE_STATE_FAILED)).last_error

    code, out, _ = await inject(fake, "shrink-quota", "offering=spot-m6i-xlarge")
    assert len(json.loads(out)["machines"]) == 48
    assert len((await hear(client.full()))[2]) == 48

    code, _, err = await inject(fake, "lose-hosts", "zone=moon")
    assert (code, err) == (1, "error: no machine fits zone moon; give machines that have a host\n")
    code, out, _ = await inject(fake, "status")
    assert json.loads(out)["FAILED"] == 1


async def test_a_spot_notice_tells_on_the_wire_when_the_host_goes(start: Start, registry: ProviderRegistry) -> None:
    fake = await start("--durations", "instant")
    client = registry.add(ProviderEndpoint("fake", fake.address))
    await client.create(SPOT)
    await settled(client, SPOT, pb.MACHINE_STATE_IDLE)
    code, out, _ = await inject(fake, "interrupt", f"machine={SPOT}")
    assert (code, json.loads(out)) == (0, {"machines": [SPOT]})
    noticed = await client.get(SPOT)
    assert 60e9 < noticed.interruption_at_unix_nanos - time.time_ns() <= 120e9
    assert noticed.interruption_probability == 0.99


async def test_what_was_acknowledged_survives_a_kill(start: Start, registry: ProviderRegistry, tmp_path: Path) -> None:
    flags = ("--durations", "quick", "--state", str(tmp_path / "fake.db"), "--seed-count", "64")
    fake = await start(*flags)
    client = registry.add(ProviderEndpoint("before", fake.address))
    await client.create(SPOT)
    await settled(client, SPOT, pb.MACHINE_STATE_IDLE)
    operation = (await client.configure(SPOT, "prod", b"secret-blob", {"k": "v"})).operation_id
    await settled(client, SPOT, pb.MACHINE_STATE_CONFIGURED)
    states = {m.id: m.state async for batch in client.full() for m in batch.changed}
    await fake.kill()

    again = await start(*flags)
    after = registry.add(ProviderEndpoint("after", again.address))
    assert {m.id: m.state async for batch in after.full() for m in batch.changed} == states
    assert (await after.configure(SPOT, "prod", b"secret-blob", {"k": "v"})).operation_id == operation
    assert b"secret-blob" not in (tmp_path / "fake.db").read_bytes()
    zombies = ProviderRegistry(tokens=Fence("shard-a", 1))
    zombie = zombies.add(ProviderEndpoint("zombie", again.address))
    with pytest.raises(Fenced):
        await zombie.drain(SPOT, 0)
    await zombies.close()


async def test_a_catalogue_file_replaces_the_built_in_fleet(
    start: Start, registry: ProviderRegistry, tmp_path: Path
) -> None:
    path = tmp_path / "catalogue.yaml"
    path.write_text(
        "{provider: acme, can_delete: false, durations: instant, offerings: [{name: metal, capacity_type: bare-metal,"
        " instance_type: m6i.large, count: 2, hosts: 2, zones: [hall-a]}]}"
    )
    fake = await start("--catalogue", str(path))
    client = registry.add(ProviderEndpoint("acme", fake.address))
    machines = [machine async for batch in client.full() for machine in batch.changed]
    assert [(m.id, m.host.provider) for m in machines] == [("metal-hall-a-0000", "acme"), ("metal-hall-a-0001", "acme")]
    with pytest.raises(Unimplemented):
        await client.delete("metal-hall-a-0000")


@pytest.mark.parametrize(
    ("flags", "message", "code"),
    [
        (["--listen", "0.0.0.0:9000"], "--listen 0.0.0.0:9000 can be reached from elsewhere; give 127.0.0.1:PORT", 1),
        (["--listen", ":9000"], "can be reached from elsewhere", 1),
        (["--control", "10.0.0.1:9"], "--control 10.0.0.1:9 can be reached from elsewhere", 1),
        (["--catalogue", "/nowhere.yaml"], "catalogue /nowhere.yaml cannot be read: No such file or directory", 3),
    ],
)
async def test_a_fake_that_cannot_be_run_says_why_and_exits_with_its_code(
    flags: list[str], message: str, code: int
) -> None:
    listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(*MAIN, *listen, *flags, stderr=asyncio.subprocess.PIPE)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == code
    assert message in err.decode()


async def test_a_duration_that_is_none_is_a_mistake_in_the_command_line() -> None:
    flags = ("--transition-timeout", "soon")
    process = await asyncio.create_subprocess_exec(*MAIN, *flags, stderr=asyncio.subprocess.PIPE)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert "'soon' is not a duration" in err.decode()


async def test_the_client_refuses_a_provider_with_another_name(start: Start, tmp_path: Path) -> None:
    authority.create_authority(tmp_path)
    served = authority.issue(tmp_path, identity.provider("fake-eu"), addresses=["127.0.0.1"])
    own = authority.issue(tmp_path, identity.shard("shard-a"), addresses=["127.0.0.1"])
    ca = str(tmp_path / authority.CA_CERTIFICATE)
    fake = await start("--tls-cert", str(served.certificate), "--tls-key", str(served.key), "--tls-ca", ca)
    tls = TlsFiles(str(own.certificate), str(own.key), ca)
    registry = ProviderRegistry(tokens=Fence("shard-a", 1), retry=RetryPolicy(attempts=8, first_pause=0.1))
    right = registry.add(ProviderEndpoint("right", fake.address, tls=tls, identity="fake-eu"))
    assert (await right.get(METAL)).id == METAL
    assert (await right.create(SPOT)).operation_id
    wrong = registry.add(ProviderEndpoint("wrong", fake.address, tls=tls, identity="fake-us"))
    with pytest.raises(Unavailable, match="fake-us"):
        await wrong.get(METAL)
    with pytest.raises(TransportError, match="cannot be checked in plaintext"):
        ProviderEndpoint("plain", fake.address, identity="fake-eu")
    await registry.close()


def test_the_fake_runs_without_numpy() -> None:
    code = (
        "import sys; sys.modules.update(numpy=None, numba=None)\n"
        "import bigfleet.provider.client, bigfleet.provider.fake.virtual, bigfleet.cli.serve.fake_provider"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
