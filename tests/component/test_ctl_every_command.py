"""No command of `bigfleetctl` goes untried: walked from the tool's own tree, each is typed as table, as JSON, wrongly.

What they say is judged where it belongs (`test_ctl_coordinator`, `test_ctl_shard`); here none may be missing.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from bigfleet.cli.bigfleetctl import SUBCOMMANDS, app
from bigfleet.cli.commands import CommandError
from bigfleet.refusal import exit_code
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import OURS, Peer, coordinator
from tests.strategies.operator_client import Row, operator
from tests.strategies.shard_process import small_fleet
from tools.processes import free_address

SHARDS = ("s0", "s1", "s2", "s3", "s4")
ZONE = "topology.kubernetes.io/zone"
PLACE = ("--key", ZONE, "--value", "z")
OTHER = ("--key", ZONE, "--value", "y")
OF_A_SHARD = {"needs", "explain", "machines", "story", "actions", "rails", "clusters forget"}
# They ask nobody.
ALONE = {"snapshot verify", "snapshot restore", "certs init", "certs issue"}
LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")
WRONG = "--no-such-flag"
Words = tuple[str, ...]
# What follows each command, typed first for people and then for programs, in an order in which both succeed.
TYPED: dict[str, tuple[Words, Words]] = {
    "status": ((), ()),
    "shards list": ((), ()),
    "list-shards": ((), ()),
    "domains assign": ((*PLACE, "--shard", "s0"), (*OTHER, "--shard", "s0")),
    "domains list": ((), ()),
    "list-domain-assignments": ((), ()),
    "domains move": ((*PLACE, "--to", "s1"), (*OTHER, "--to", "s1")),
    "domains unassign": (PLACE, OTHER),
    "assign-domain": ((*PLACE, "--shard", "s0"), (*OTHER, "--shard", "s0")),
    "unassign-domain": (PLACE, OTHER),
    "clusters list": ((), ()),
    "clusters move": (("c-s1", "--to", "s0"), ("c-s1", "--to", "s2")),
    "clusters forget": (("left", "--yes"), ("gone",)),
    "quotas set": (("--provider", "p", "s0=3"), ("--provider", "p", "s0=4")),
    "quotas list": ((), ()),
    "list-quotas": ((), ()),
    "providers set": (("gcp", "--address", "gcp.example:9000"), ("aws", "--address", "aws.example:9000")),
    "providers list": ((), ()),
    "providers remove": (("gcp",), ("aws",)),
    "reports list": ((), ()),
    "pause": ((), ()),
    "dry-run": ((), ()),
    "resume": ((), ()),
    "shards remove": (("s1",), ("s2",)),
    "remove-shard": (("--shard", "s3"), ("--shard", "s4")),
    "needs": ((), ()),
    "explain": (("c",), ("c",)),
    "machines": ((), ()),
    "story": (("MACHINE",), ("MACHINE",)),
    "actions": ((), ()),
    "rails": ((), ()),
    "snapshot save": (("FOLDER/a.snap",), ("FOLDER/b.snap",)),
    "snapshot verify": (("FOLDER/a.snap",), ("FOLDER/b.snap",)),
    "snapshot restore": (("FOLDER/a.snap", "--data-dir", "FOLDER/a"), ("FOLDER/b.snap", "--data-dir", "FOLDER/b")),
    "certs init": (("--dir", "FOLDER/ca"), ("--dir", "FOLDER/cb")),
    "certs issue": (("admin", "--dir", "FOLDER/ca"), ("admin", "--dir", "FOLDER/cb")),
}


def commands() -> Iterator[str]:
    """Everything one can type, hidden names too."""
    root: Any = typer.main.get_command(app)
    for row in SUBCOMMANDS:
        found = root.commands[row.name]._load()
        verbs = getattr(found, "commands", None)
        yield from [row.name] if verbs is None else [f"{row.name} {verb}" for verb in verbs]


def test_every_command_of_the_tool_is_typed_here() -> None:
    assert set(commands()) == set(TYPED)


async def test_every_command_speaks_to_people_and_programs_and_refuses_in_a_sentence(tmp_path: Path) -> None:
    async with coordinator(tmp_path / "coordinator") as asked, small_fleet(tmp_path / "shard") as running:
        for name in SHARDS:
            cluster = pb.ReportedCluster(cluster_id=f"c-{name}", connected=True)
            peer = Peer(asked.stub, name, f"{name}.example:7780", capabilities=OURS)
            await peer.report(summary=pb.ShardSummary(total_machines=1), clusters=[cluster])
        for name in ("left", "gone"):
            async with operator(running.address, name):
                pass
        async with operator(running.address, "c") as hungry:
            hungry.want([Row(pods=2, unit={"cpu": "1"}, priority=5)])
            await hungry.send_rollup()
            await hungry.until(lambda heard: bool(heard.configured), 60)
            machine = hungry.heard.configured[0]
            flags = ("--coordinator", asked.address, "--shard", running.address)
            for command, given in TYPED.items():
                words = [
                    [each.replace("MACHINE", machine).replace("FOLDER", str(tmp_path)) for each in typed]
                    for typed in given
                ]
                shown = await said([*flags, *command.split(), *words[0]])
                assert shown.strip(), f"{command} says nothing"
                found = await said([*flags, *command.split(), *words[1], "-o", "json"])
                assert isinstance(json.loads(found), dict | list), f"{command} does not speak JSON"
                refusal = await said([*flags, *command.split(), *words[0], WRONG], code=2)
                assert WRONG in refusal, f"{command} does not name what it refuses"


async def test_a_command_that_reaches_nobody_says_whom_and_has_a_code_for_it(tmp_path: Path) -> None:
    flags = ("--coordinator", free_address(), "--shard", free_address())
    for command in TYPED.keys() - ALONE:
        words = [each.replace("FOLDER", str(tmp_path)) for each in TYPED[command][0]]
        sentence = await said([*flags, *command.split(), *words], code=4)
        asked = flags[3] if command in OF_A_SHARD else flags[1]
        assert asked in sentence and "cannot be reached" in sentence, command
    for command in ("snapshot verify", "snapshot restore"):
        words = [each.replace("FOLDER", str(tmp_path)) for each in TYPED[command][0]]
        assert "a.snap cannot be read" in await said([*command.split(), *words], code=3)


async def said(words: list[str], code: int = 0) -> str:
    """What a command prints; of a refused one, the sentence."""
    ended = await asyncio.to_thread(CliRunner().invoke, app, words)
    refused = ended.exception if isinstance(ended.exception, CommandError) else None
    found = exit_code(refused) if refused is not None else ended.exit_code
    assert found == code, (words, found, ended.output, ended.exception)
    # Coordinator and shard live in this process and log to the same screen.
    shown = "".join(line for line in ended.output.splitlines(keepends=True) if not LOGGED.match(line))
    return str(refused) if refused is not None else shown
