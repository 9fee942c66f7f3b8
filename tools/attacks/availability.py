"""Attacks on being there: one peer, one certificate, one file too many must not take a shard from everybody else."""

from __future__ import annotations

import asyncio
import datetime
import json
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bigfleet.wire import capacity_pb2 as cap
from tools.attacks.cloud import IDLE, Cloud, cloud
from tools.attacks.cluster import clusters, row
from tools.attacks.stage import Outcome, Shard, Stage, came, limit_files, limit_memory, running

HERE = Path(__file__).resolve().parents[2]
MIB = 1 << 20
# One cycle of ten seconds and two more.
ANOTHERS_SECONDS = 12.0


async def _anothers_binding(shard: Shard, before: float = 60.0, name: str = "other") -> float | None:
    """How long a cluster that has nothing to do with it waits for one machine; None: too long."""
    async with clusters(shard.address, [name]) as (other,):
        began = time.monotonic()
        await other.want(row(1))
        return time.monotonic() - began if await came(lambda: other.configured, before) else None


async def many_resource_names(stage: Stage) -> Outcome:
    """One roll-up of 300 KB names 5,000 resources, over and over as operators repeat themselves."""
    async with cloud() as made:
        made.offer("m", 10, state=IDLE)
        async with running(stage, made, compiled=True) as shard:
            limit_memory(shard.program.pid, 6000 * MIB)
            before = shard.program.peak()
            names = [{f"example.com/r{number}": "1"} for number in range(5000)]
            rows = [cap.CapacityNeed(aggregate_resources=each, min_unit=each) for each in names]
            waits: list[float | None] = []
            async with clusters(shard.address, ["poison"]) as (poison,):
                await poison.want(*rows)
                for _ in range(2):
                    await asyncio.sleep(20.0)
                    waits.append(await _anothers_binding(shard) if shard.program.alive else None)
                alive = shard.program.alive
                grown = (shard.program.peak() - before) // MIB if alive else 0
                said = sorted({ack.reason for ack in poison.acks if ack.reason} | ({poison.ended} - {""}))
    took = None if None in waits else max(each for each in waits if each is not None)
    how = "the shard died" if not alive else f"others waited {'over 60' if took is None else f'{took:.1f}'} s"
    return Outcome(
        alive and took is not None and took < ANOTHERS_SECONDS and grown < 100,
        f"{how}, {grown} MiB more at most, it was told {said[:1]}",
    )


async def a_crowd_of_rows(stage: Stage) -> Outcome:
    """One cluster sends 100,000 rows that differ in everything, and others in every turn; compiled kernels."""
    async with cloud() as made:
        made.offer("m", 20, state=IDLE)
        async with running(stage, made, compiled=True, cycle_interval="10s", early_cycle_interval="1s") as shard:
            limit_memory(shard.program.pid, 12_000 * MIB)
            waits: list[float | None] = []
            async with clusters(shard.address, ["crowd"]) as (crowd,):
                for turn in range(4):
                    await crowd.want(*_crowd(turn))
                    await asyncio.sleep(turn)
                    waits.append(await _anothers_binding(shard, 180.0, f"other-{turn}"))
                alive = shard.program.alive
    took = None if None in waits else max(each for each in waits if each is not None)
    how = "the shard died" if not alive else f"others waited {'over 180' if took is None else f'{took:.1f}'} s"
    return Outcome(alive and took is not None and took <= ANOTHERS_SECONDS, how)


def _crowd(turn: int) -> list[cap.CapacityNeed]:
    rows = []
    for number in range(100_000):
        each = row(1, priority=number % 1000)
        where = each.requirements.add(key="example.com/crowd", operator=cap.NodeSelectorRequirement.OPERATOR_IN)
        where.values.append(f"v{number}-{turn}")
        rows.append(each)
    return rows


async def large_exponents(stage: Stage) -> Outcome:
    """A CapacityRequest for 1e9999999 cores, judged by the API server's own validators with the tree's definitions."""
    source = HERE / "tools" / "crdcheck"
    binary = stage.folder / "crdcheck"
    built = await asyncio.create_subprocess_exec("go", "build", "-o", str(binary), ".", cwd=source)
    assert await built.wait() == 0, "go build"
    request = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": "large", "namespace": "shop"},
        "spec": {"priority": 0, "resources": {"cpu": "1e9999999"}},
    }
    refusal = {"refusedBy": "rule", "errors": ["spec.resources[cpu]: Invalid value"]}
    cases = stage.folder / "cases.json"
    cases.write_text(json.dumps([{"name": "large", "object": request, **refusal}]))
    began = time.monotonic()
    check = await asyncio.create_subprocess_exec(
        str(binary), str(stage.tree / "deploy" / "crds"), str(cases), stdout=asyncio.subprocess.PIPE
    )
    try:
        said = (await asyncio.wait_for(check.communicate(), 60))[0].decode()
    except TimeoutError:
        check.kill()
        return Outcome(False, "not judged within 60 s")
    took = time.monotonic() - began
    refused = "FAIL" not in said
    return Outcome(refused and took < 1.5, f"{'refused' if refused else 'accepted'} after {took:.1f} s, start included")


async def large_rollups(stage: Stage) -> Outcome:
    """Ten roll-ups of 51 MiB, each with other texts, and then nothing any more: what stays in memory?"""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        async with running(stage, made) as shard:
            limit_memory(shard.program.pid, 12_000 * MIB)
            before = shard.program.resident()
            async with clusters(shard.address, ["large"]) as (large,):
                for turn in range(10):
                    rows = []
                    for number in range(800):
                        each = row(1, group=f"{turn}-{number}-" + "g" * 65_000)
                        rows.append(each)
                    heard = len(large.acks)
                    await large.want(*rows)
                    await came(
                        lambda heard=heard: len(large.acks) > heard or large.ended or not shard.program.alive, 30
                    )
                await large.want()
                await asyncio.sleep(5)
            alive = shard.program.alive
            grown = (shard.program.resident() - before) // MIB if alive else 0
    return Outcome(alive and grown < 300, f"{grown} MiB more than before" if alive else "the shard died")


async def no_files_left(stage: Stage) -> Outcome:
    """More connections than the shard has file descriptors for."""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        async with running(stage, made) as shard:
            limit_files(shard.program.pid, shard.program.files() + 20)
            host, _, port = shard.http.partition(":")
            with ExitStack() as held:
                for _ in range(200):
                    held.enter_context(_connected(host, int(port)))
                size, began = shard.program.log.stat().st_size, time.monotonic()
                await asyncio.sleep(5)
                written = shard.program.log.read_bytes()[size:]
                lines = len(written.splitlines()) / (time.monotonic() - began)
                tracebacks = written.count(b"Traceback")
                answered = (await asyncio.to_thread(shard.page, "/healthz"))[0] == 200
    return Outcome(
        answered and lines <= 5 and not tracebacks,
        f"{lines:.0f} lines a second, {tracebacks} tracebacks, probe {'answered' if answered else 'not answered'}",
    )


async def slow_clients(stage: Stage) -> Outcome:
    """A hundred clients of the metrics port say half a word and wait."""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        async with running(stage, made) as shard:
            host, _, port = shard.http.partition(":")
            with ExitStack() as held:
                for _ in range(100):
                    held.enter_context(_connected(host, int(port)))
                probes = [await asyncio.to_thread(_probed, host, int(port)) for _ in range(10)]
    return Outcome(all(probes), f"{sum(probes)} of 10 probes answered")


def _connected(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.settimeout(2)
    try:
        made.connect((host, port))
        made.send(b"GET /metrics HTTP/1.1\r\n")
    except OSError:
        pass
    return made


def _probed(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=3) as probe:
            probe.settimeout(3)
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b" 200 " in probe.recv(200)
    except OSError:
        return False


async def certificates(stage: Stage) -> Outcome:
    """A leaf that ends in 25 seconds, with a key everybody can read."""
    authority = _issued(stage.folder / "ca", None, seconds=86_400)
    _issued(stage.folder / "leaf", authority, seconds=25)
    (stage.folder / "leaf.key").chmod(0o644)
    async with cloud() as made:
        shard, up = await _started_with_leaf(stage, made)
        metric = await asyncio.to_thread(shard.page, "/metrics")
        has = "certificate_expiry_seconds" in metric[1]
        await asyncio.sleep(30)
        ready, why = await asyncio.to_thread(shard.page, "/readyz")
        log = shard.program.tail(1_000_000)
        readable = [line for line in log.splitlines() if "leaf.key" in line and "read" in line]
    told = "certificate" in why or "expire" in why
    return Outcome(
        up and has and told and ready != 200 and len(readable) == 1,
        f"metric {'there' if has else 'missing'}, /readyz {ready}{' says why' if told else ''} after the end, "
        f"{len(readable)} lines about the key",
    )


async def certificates_of_garbage(stage: Stage) -> Outcome:
    """While it serves its certificate becomes garbage, and then goes: is each told once, and does it serve on?"""
    authority = _issued(stage.folder / "ca", None, seconds=86_400)
    _issued(stage.folder / "leaf", authority, seconds=86_400)
    leaf = stage.folder / "leaf.pem"
    async with cloud() as made:
        shard, up = await _started_with_leaf(stage, made)
        told = []
        for spoil in (lambda: leaf.write_text("this is no certificate"), leaf.unlink):
            before = len(_lines_about(shard, leaf.name))
            spoil()
            # Twice as long as anybody looks, and somebody tries to connect all the time.
            for _ in range(14):
                await asyncio.to_thread(_shake_hands, shard.address)
                await asyncio.sleep(5)
            told.append(len(_lines_about(shard, leaf.name)) - before)
        served = shard.program.alive and await asyncio.to_thread(_shake_hands, shard.address)
    return Outcome(
        up and served and told == [1, 1],
        f"{told[0]} lines about the garbage, {told[1]} about the missing file, "
        f"{'still served' if served else 'nobody can connect any more'}",
    )


async def _started_with_leaf(stage: Stage, made: Cloud) -> tuple[Shard, bool]:
    """A shard that shows the stage's leaf, and whether it came up."""
    made.offer("m", 2, state=IDLE)
    files = {f"tls_{name}": str(stage.folder / file) for name, file in (("cert", "leaf.pem"), ("key", "leaf.key"))}
    shard = stage.shard({"p1": made.address}, **files, tls_ca=str(stage.folder / "ca.pem"))
    shard.program.start()
    return shard, await came(lambda: asyncio.to_thread(lambda: shard.page("/healthz")[0] == 200), 60)


def _lines_about(shard: Shard, file: str) -> list[str]:
    return [line for line in shard.program.tail(10_000_000).splitlines() if file in line]


def _shake_hands(address: str) -> bool:
    """Whether the other side still shows a certificate."""
    host, _, port = address.rpartition(":")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    asking.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host, int(port)), timeout=5) as plain, asking.wrap_socket(plain) as secret:
            return bool(secret.getpeercert(binary_form=True))
    except OSError:
        return False


def _issued(stem: Path, signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None, seconds: float) -> tuple:  # type: ignore[type-arg]
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem.name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(signer[0].subject if signer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
    )
    if signer is not None:
        uri = x509.UniformResourceIdentifier("bigfleet://shard/shard-0")
        built = built.add_extension(x509.SubjectAlternativeName([uri, x509.DNSName("localhost")]), critical=False)
    made = built.sign(signer[1] if signer else key, hashes.SHA256())
    stem.with_suffix(".pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    stem.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made, key


async def a_provider_goes_away(stage: Stage) -> Outcome:
    """A provider that was listed stops answering: does a gauge say for how long?"""
    async with cloud() as made:
        made.offer("m", 2, state=IDLE)
        async with running(stage, made) as shard:
            await made.server.stop(0)
            await asyncio.sleep(8)
            age = await asyncio.to_thread(shard.metric, "provider_list_age_seconds")
    return Outcome(age is not None and age > 4, "no gauge" if age is None else f"the last good List is {age:.0f} s old")


ATTACKS = {
    "5,000 resource names": many_resource_names,
    "100,000 rows of one cluster": a_crowd_of_rows,
    "ten roll-ups of 51 MiB": large_rollups,
    "1e9999999 cores in a CapacityRequest": large_exponents,
    "no file descriptors left": no_files_left,
    "slow clients on the metrics port": slow_clients,
    "certificates that end": certificates,
    "certificates of garbage": certificates_of_garbage,
    "a provider goes away": a_provider_goes_away,
}
