"""`bigfleetctl` asked about a running coordinator: every command as table, as JSON, and refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bigfleet.cli.bigfleetctl import SUBCOMMANDS, app
from bigfleet.cli.commands import CommandError
from bigfleet.transport import authority
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.identity import ADMIN, READONLY
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import OURS, Asked, Peer, coordinator

ZONE = "topology.kubernetes.io/zone"
WHO = ("admin", "readonly")


class Typed:
    """A person at a terminal, and the coordinator they ask."""

    def __init__(self, asked: Asked, *flags: str) -> None:
        self.asked = asked
        self.flags = ("--coordinator", asked.address, *flags)

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What a command prints; of one that ends with another code, the sentence."""
        ended = await asyncio.to_thread(CliRunner().invoke, app, [*self.flags, *words])
        refused = ended.exception if isinstance(ended.exception, CommandError) else None
        found = refused.code if refused is not None else ended.exit_code
        assert found == code, (found, ended.output, ended.exception)
        # The coordinator lives in this process and logs to the same screen.
        shown = "".join(line for line in ended.output.splitlines(keepends=True) if " [info " not in line)
        return str(refused) if refused is not None else shown

    async def json(self, *words: str) -> Any:
        found = json.loads(await self(*words, "-o", "json"))
        assert yaml.safe_load(await self(*words, "-o", "yaml")) == found
        return found


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Typed]:
    async with coordinator(folder) as asked:
        for name in ("s0", "s1"):
            peer = Peer(asked.stub, name, f"{name}.example:7780", capabilities=OURS)
            cluster = pb.ReportedCluster(
                cluster_id=f"c-{name}",
                connected=True,
                bound_machines=2,
                reports_placement=name == "s0",
                closing_nodes=3,
            )
            short = pb.Shortfall(fingerprint="fp", priority=5, age_seconds=70)
            summary = pb.ShardSummary(total_machines=10, free_machines=4)
            await peer.report(summary=summary, shortfalls=[short], clusters=[cluster])
        yield Typed(asked)


def columns(table: str) -> list[str]:
    return table.splitlines()[0].split()


async def test_shards_are_listed_and_removed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        table = await typed("shards", "list")
        assert columns(table) == ["SHARD", "ADDRESS", "REGISTERED", "LAST_HEARTBEAT"] and "s1.example:7780" in table
        assert [each["shard_id"] for each in await typed.json("shards", "list")] == ["s0", "s1"]
        assert columns(await typed("list-shards")) == columns(table)
        assert await typed("shards", "remove", "s1") == "removed shard s1\n"
        assert "s1" in await typed("remove-shard", "--shard", "s1", code=3)
        assert "give SHARD" in await typed("shards", "remove", code=2)


async def test_domains_are_assigned_moved_and_unassigned(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        where = ("--key", ZONE, "--value", "a")
        assert await typed("domains", "assign", *where, "--shard", "s0") == f"assigned {ZONE}=a → s0\n"
        flat = ("--topology-key", ZONE, "--topology-value", "b", "--shard-id", "s1")
        assert await typed("assign-domain", *flat) == f"assigned {ZONE}=b → s1\n"
        assert "already assigned" in await typed("domains", "assign", *where, "--shard", "s1", code=5)
        assert "not found" in await typed("domains", "assign", "--key", ZONE, "--value", "c", "--shard", "x", code=3)
        as_moved = ("--key", ZONE, "--value", "d", "--to", "s1")
        assert await typed("domains", "assign", *as_moved) == f"assigned {ZONE}=d → s1\n"
        assert await typed("domains", "unassign", *as_moved[:4]) == f"unassigned {ZONE}=d\n"
        table = await typed("domains", "list")
        assert columns(table) == ["TOPOLOGY_KEY", "TOPOLOGY_VALUE", "SHARD"] and len(table.splitlines()) == 3
        assert await typed("list-domain-assignments") == table
        assert [each["topology_value"] for each in await typed.json("domains", "list", "--shard", "s1")] == ["b"]
        moved = json.loads(await typed("domains", "move", *where, "--to", "s1", "-o", "json"))
        assert (moved["from"], moved["to"]) == ("s0", "s1")
        assert await typed("unassign-domain", *where) == f"unassigned {ZONE}=a\n"
        assert "Missing option" in await typed("domains", "unassign", "--key", ZONE, code=2)


async def test_clusters_are_listed_and_moved(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        table = await typed("clusters", "list")
        assert columns(table)[:2] == ["CLUSTER", "SHARD"] and "c-s1" in table
        first, second = table.splitlines()[1:]
        assert "none: nodes in use are not emptied" in first and "not emptied" not in second
        assert [each["binding"]["cluster_id"] for each in await typed.json("clusters", "list", "--shard", "s1")] == [
            "c-s1"
        ]
        assert await typed("clusters", "move", "c-s1", "--to", "s0") == "moved cluster c-s1 → s0\n"
        assert "not found" in await typed("clusters", "move", "c-s1", "--to", "nobody", code=3)


async def test_quotas_are_divided_and_listed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        divide = ("quotas", "set", "--provider", "p", "--region", "eu")
        assert await typed(*divide, "s0=100", "s1=50") == "divided p eu: s0 100, s1 50\n"
        table = await typed("quotas", "list")
        assert columns(table) == ["PROVIDER", "REGION", "SHARD", "SLICE"] and table == await typed("list-quotas")
        assert (await typed.json("quotas", "list"))[0]["per_shard"] == {"s0": 100, "s1": 50}
        assert "SHARD=SLOTS is accepted" in await typed(*divide, "s0", code=2)
        assert "not found" in await typed(*divide, "x=1", code=3)


async def test_providers_are_registered_and_removed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        assert "nothing to show" in await typed("providers", "list")
        told = await typed("providers", "set", "gcp", "--address", "gcp.example:9000", "--region", "eu")
        assert told == "provider gcp is dialled at gcp.example:9000\n"
        assert columns(await typed("providers", "list")) == ["PROVIDER", "ADDRESS", "REGION"]
        assert await typed.json("providers", "list") == [{"name": "gcp", "address": "gcp.example:9000", "region": "eu"}]
        assert await typed("providers", "remove", "gcp") == "removed provider gcp\n"
        assert await typed("providers", "set", "gcp", code=2)


async def test_reports_show_machines_and_shortfalls(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        table = await typed("reports", "list")
        assert columns(table)[:4] == ["SHARD", "MACHINES", "FREE", "SHORTFALLS"] and "70 s" in table
        (only,) = await typed.json("reports", "list", "--shard", "s1")
        assert only["summary"]["total_machines"] == 10
        assert await typed.json("reports", "list", "--shard", "nobody") == []


async def test_status_is_one_screen(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        screen = await typed("status")
        assert typed.asked.address in screen and "acting" in screen and "s1.example:7780" in screen
        facts = await typed.json("status")
        assert (facts["term"], facts["shards"], facts["machines"], facts["free"]) == ("1", 2, 20, 8)
        assert (facts["clusters"], facts["shortfalls"], facts["pending_instructions"]) == (2, 2, "0")


async def test_the_fleet_and_single_shards_are_paused_and_resumed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as typed:
        assert (await typed("pause", "--reason", "incident 4711")).startswith("the fleet: paused (incident 4711)")
        assert "paused (incident 4711)" in await typed("status")
        assert (await typed.json("dry-run", "--shard-id", "s0"))["dry_run"] is True
        assert (await typed("resume")).startswith("the fleet: acting")
        assert (await typed.json("resume", "--shard-id", "s0"))["paused"] is False
        assert await typed("pause", "--no-such-flag", code=2)


async def test_a_follower_is_asked_and_the_leader_answers(tmp_path: Path) -> None:
    async with fleet(tmp_path / "leader") as typed, coordinator(tmp_path / "other") as other:
        other.process.replica.store.leading = lambda: False  # type: ignore[method-assign]
        asking = Typed(other)
        other.process.replica.leader_elsewhere = lambda: typed.asked.address  # type: ignore[method-assign]
        assert "s1.example:7780" in await asking("shards", "list")
        other.process.replica.leader_elsewhere = lambda: ""  # type: ignore[method-assign]
        assert "knows nobody who does" in await asking("shards", "list", code=4)


async def test_nobody_there_and_nobody_allowed_have_codes_of_their_own(tmp_path: Path) -> None:
    nowhere = ["shards", "list", "--coordinator", "127.0.0.1:1", "--timeout", "5s"]
    ended = await asyncio.to_thread(CliRunner().invoke, app, nowhere)
    assert isinstance(ended.exception, CommandError) and ended.exception.code == 4
    pki = tmp_path / "pki"
    pki.mkdir()
    authority.create_authority(pki)
    for identity in (ADMIN, READONLY):
        authority.issue(pki, identity, addresses=["127.0.0.1"])
    serving, reader = (TlsFiles(*(str(pki / name) for name in (f"{who}.crt", f"{who}.key", "ca.crt"))) for who in WHO)
    async with coordinator(tmp_path / "data", tls=serving, caller=serving) as asked:
        flags = ("--tls-cert", reader.cert, "--tls-key", reader.key, "--tls-ca", reader.ca)
        typed = Typed(asked, *flags)
        assert "nothing to show" in await typed("shards", "list")
        assert "requires" in await typed("pause", code=6)


async def test_a_certificate_the_server_will_not_have_is_told_as_that_and_not_as_a_server_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server closes the connection without a word: what is wrong is only to be found in one's own files."""
    authority.create_authority(tmp_path)
    for name, days in (("admin", 1), ("old", -1)):
        authority.issue(tmp_path, ADMIN, addresses=["127.0.0.1"], days=days, file_name=name)
    clock_skew = authority._CLOCK_SKEW
    monkeypatch.setattr(authority, "_CLOCK_SKEW", -timedelta(hours=12))
    authority.issue(tmp_path, ADMIN, addresses=["127.0.0.1"], days=1, file_name="early")
    monkeypatch.setattr(authority, "_CLOCK_SKEW", clock_skew)
    ca = str(tmp_path / "ca.crt")
    serving = TlsFiles(str(tmp_path / "admin.crt"), str(tmp_path / "admin.key"), ca)
    async with coordinator(tmp_path / "data", tls=serving, caller=serving) as asked:
        for name, words in (("old", "expired on"), ("early", "is not valid before")):
            flags = ("--tls-cert", str(tmp_path / f"{name}.crt"), "--tls-key", str(tmp_path / f"{name}.key"))
            said = await Typed(asked, *flags, "--tls-ca", ca)("shards", "list", code=6)
            assert f"{tmp_path / name}.crt {words}" in said and "running" not in said
        said = await Typed(asked)("shards", "list", code=6)
        assert "--tls-cert" in said and "running" not in said
        as_shard = ["needs", "--shard", asked.address]
        ended = await asyncio.to_thread(CliRunner().invoke, app, as_shard)
        assert "wants certificates and none was given" in str(ended.exception)


async def test_whoever_is_asked_as_what_they_are_not_is_said_to_be_another(tmp_path: Path) -> None:
    async with coordinator(tmp_path / "data") as asked:
        ended = await asyncio.to_thread(CliRunner().invoke, app, ["needs", "--shard", asked.address])
        assert "it is no shard (a coordinator?)" in str(ended.exception)


async def test_watching_shows_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):  # noqa: N818
        pass

    def second(_: float, seen: list[int] = []) -> None:  # noqa: B006
        seen.append(1)
        if len(seen) == 2:
            raise Enough

    monkeypatch.setattr("bigfleet.cli.ctl.coordinator_calls.time.sleep", second)
    async with fleet(tmp_path) as typed:
        flags = [*typed.flags, "shards", "list", "--watch", "-o", "json"]
        ended = await asyncio.to_thread(CliRunner().invoke, app, flags)
        assert isinstance(ended.exception, Enough) and ended.output.count('"s1"') == 2


def test_every_row_of_the_table_can_be_loaded_and_says_what_it_does() -> None:
    for row in SUBCOMMANDS:
        ended = CliRunner().invoke(app, [row.name, "--help"])
        assert ended.exit_code == 0, (row.name, ended.output)
