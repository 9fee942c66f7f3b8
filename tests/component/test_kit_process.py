"""A provider as an operating system sees it: signals, exit codes, TLS with identities, what it imports."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.provider import kit
from bigfleet.transport import TlsFiles, channel
from bigfleet.transport.authority import create_authority, issue
from bigfleet.transport.identity import ADMIN, READONLY, Identity, provider, shard
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc
from tests.kit.world import MemoryProvider, code_of

SKELETON = str(Path(__file__).resolve().parents[2] / "examples" / "skeleton_provider.py")
Code = grpc.StatusCode


async def boot(*flags: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start the skeleton and return it with its address, taken from its log."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, SKELETON, *flags, "--log-format", "json", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            if b'"provider serving"' in line:
                return process, line.split(b'"addr": "')[1].split(b'"')[0].decode()
    raise AssertionError("the provider ended before it served")


async def test_sigterm_ends_the_process_cleanly_and_keeps_the_state(tmp_path: Path) -> None:
    flags = ["--listen", "127.0.0.1:0", "--state", str(tmp_path / "s.db"), "--metrics-addr", ""]
    process, address = await boot(*flags, "--seed-count", "4")
    async with channel(address) as connection:
        stub: Any = rpc.CapacityProviderStub(connection)
        await stub.Create(pb.CreateRequest(machine_id="skeleton/Spot/box.small/zone-b/000"))
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    process, address = await boot(*flags)
    async with channel(address) as connection:
        stub = rpc.CapacityProviderStub(connection)
        listed = await stub.List(pb.ListFilter())
        assert len(listed.machines) == 4
        states = {machine.id: machine.state for machine in listed.machines}
        assert states["skeleton/Spot/box.small/zone-b/000"] != pb.MACHINE_STATE_SPECULATIVE
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--tls-cert", "x"], "--tls-key"),
        (["--addr", "0.0.0.0:0"], "--insecure"),
        (["--addr", "nonsense"], "nonsense"),
        (["--addr", "127.0.0.1:0", "--state", "{junk}"], "state file"),
        (["--enable-faults", "--addr", "0.0.0.0:0", "--insecure"], "loopback"),
    ],
)
def test_a_start_that_cannot_work_says_why(flags: list[str], word: str, tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"not a database" * 100)
    flags = [flag.format(junk=tmp_path / "junk.db") for flag in flags]
    ended = subprocess.run(
        [sys.executable, SKELETON, "--metrics-addr", "", *flags], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2 and word in ended.stderr and "Traceback" not in ended.stderr


def test_the_kit_needs_neither_numpy_nor_numba() -> None:
    check = (
        "import sys; import bigfleet.provider.kit; print(sorted({'numpy', 'numba', 'lightkube'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"


def certificate(folder: Path, identity: Identity) -> TlsFiles:
    issued = issue(folder, identity, addresses=["127.0.0.1"], force=True)
    return TlsFiles(str(issued.certificate), str(issued.key), str(folder / "ca.crt"))


async def test_over_tls_a_shard_speaks_only_for_itself(tmp_path: Path) -> None:
    create_authority(tmp_path)
    flags = kit.Flags(
        addr="127.0.0.1:0", metrics_addr="", reconcile_interval=0, tls=certificate(tmp_path, provider("example"))
    )
    async with kit.ProviderProcess(MemoryProvider(), flags, kit.Options()) as process:

        async def ask(identity: Identity, method: str, request: Any) -> grpc.StatusCode:
            tls = certificate(tmp_path, identity)
            async with channel(process.address, tls=tls) as connection:
                return await code_of(getattr(rpc.CapacityProviderStub(connection), method)(request))

        def create(shard_id: str, sequence: int) -> pb.CreateRequest:
            return pb.CreateRequest(machine_id="m000", shard_id=shard_id, shard_epoch=1, sequence_number=sequence)

        assert await ask(shard("a"), "Create", create("a", 1)) == Code.OK
        assert await ask(shard("b"), "Create", create("a", 99)) == Code.PERMISSION_DENIED
        assert await ask(shard("a"), "Create", create("a", 2)) == Code.OK, "the refused call left no mark"
        assert await ask(ADMIN, "Create", create("a", 3)) == Code.OK
        assert await ask(READONLY, "Create", create("a", 4)) == Code.PERMISSION_DENIED
        assert await ask(READONLY, "List", pb.ListFilter()) == Code.OK
        assert await ask(provider("other"), "Get", pb.MachineRef(id="m000")) == Code.PERMISSION_DENIED
