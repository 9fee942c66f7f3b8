"""`bigfleet shard` as people run it: flags, refusals, signals, and a kill in the middle of everything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bigfleet.cli.commands import CommandError
from bigfleet.cli.serve.shard import app
from bigfleet.shard.contract.config import ConfigError
from bigfleet.shard.settings import known_settings, settings_from
from bigfleet.transport import TransportError
from tests.strategies.operator_client import Row, SyntheticOperator, operator
from tools.waiting import until

UNIT = {"cpu": "2", "memory": "4Gi"}
FAST = {
    "cycle-interval": "200ms",
    "early-cycle-interval": "20ms",
    "reconcile-interval": "100ms",
    "reclaim-hold": "0",
    "shutdown-grace": "2s",
}
BIGFLEET = (sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()")


def refused(*arguments: str) -> str:
    """What a shard with settings that cannot work says."""
    result = CliRunner().invoke(app, [*arguments])
    assert isinstance(result.exception, CommandError | TransportError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "no provider is set"),
        (("--fake-provider", "--provider", "a=127.0.0.1:1"), "fake-provider and a real provider"),
        (("--provider", "a"), "'a' is not name=host:port"),
        (("--fake-provider", "--listen", ""), "listen is empty"),
        (("--fake-provider", "--tls-cert", "x.pem"), "--tls-key"),
        (("--provider", "a=127.0.0.1:1", "--seed-machines", "3"), "seed-machines is set without fake-provider"),
        (("--fake-provider", "--cycle-interval", "soon"), "cycle-interval is 'soon'"),
        (("--fake-provider", "--reclaim-cap-fraction", "2"), "reclaim-cap-fraction is 2"),
        (("--fake-provider", "--config", "/no/such/file.yaml"), "/no/such/file.yaml"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    assert named in refused("--data-dir", str(tmp_path), "--metrics-addr", "0", *arguments)


def test_plaintext_beyond_this_machine_is_refused_and_the_exit_code_says_so(tmp_path: Path) -> None:
    arguments = ("shard", "--fake-provider", "--listen", "0.0.0.0:0", "--data-dir", str(tmp_path))
    done = subprocess.run([*BIGFLEET, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "--insecure" in done.stderr and "Traceback" not in done.stderr


def test_a_shard_told_neither_where_nor_with_what_listens_on_this_machine_only() -> None:
    provider = {"provider": ["aws-eu=127.0.0.1:9000"]}
    certificates = {"tls-cert": "a", "tls-key": "b", "tls-ca": "c"}
    assert settings_from(provider)[0].listen == "127.0.0.1:7780"
    assert settings_from({**provider, **certificates})[0].listen == ":7780"
    assert settings_from({**provider, "insecure": True})[0].listen == ":7780"
    assert settings_from({**provider, "listen": ":7780"})[0].listen == ":7780"


def test_an_unknown_key_in_the_config_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "shard.yaml"
    config.write_text("fake-provider: true\ncycle-intervall: 5s\n")
    said = refused("--config", str(config))
    assert "setting 'cycle-intervall' is unknown; did you mean cycle-interval" in said and "tls-cert" not in said
    config.write_text("fake_provider: true\n")
    assert "did you mean fake-provider" in refused("--config", str(config))
    config.write_text("xyzzy: 1\n")
    assert "accepted are" in refused("--config", str(config))


def test_every_setting_is_a_flag_and_a_file_key_with_help() -> None:
    done = subprocess.run(
        [*BIGFLEET, "shard", "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "250"}
    )
    for name, entry in known_settings().items():
        assert f"--{name} " in done.stdout, name
        assert entry.metadata["help"]


def test_file_and_flags_have_the_same_names_and_flags_win() -> None:
    process, core = settings_from({"fake-provider": True, "cycle-interval": "5s", "domain": ["zone=a", "zone=b"]})
    assert process.fake_provider and core.cycle_interval == 5_000_000_000
    assert core.domain == (("zone", "a"), ("zone", "b"))
    assert core.providers == ("fake",) and not core.with_coordinator
    _, core = settings_from({"provider": ["a=x:1", "b@eu=y:2"], "coordinator-addr": "c:1"})
    assert core.providers == ("a", "b") and core.with_coordinator
    with pytest.raises(ConfigError, match="'providers' is unknown"):
        settings_from({"provider-addr": "x:1", "providers": ["a"]})


@asynccontextmanager
async def command(tmp_path: Path, name: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of ours; killed at the end of the block if it still runs."""
    log = (tmp_path / f"{name}.log").open("ab")
    process = await asyncio.create_subprocess_exec(*BIGFLEET, *arguments, stdout=log, stderr=log)
    log.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def shard_arguments(tmp_path: Path, provider: str) -> list[str]:
    config = tmp_path / "shard.yaml"
    config.write_text(yaml.safe_dump({**FAST, "provider": [f"p1={provider}"], "metrics-addr": "0"}))
    return [
        *("shard", "--config", str(config), "--data-dir", str(tmp_path / "data")),
        *("--listen", "127.0.0.1:0", "--log-format", "json", "--audit-log", str(tmp_path / "audit.jsonl")),
    ]


async def told(tmp_path: Path, name: str, message: str, *, after: int = 0, seconds: float = 300.0) -> dict[str, object]:
    """The first log line with this message beyond so many bytes of the log."""
    path = tmp_path / f"{name}.log"

    def found() -> dict[str, object] | None:
        # A line that is still being written has no end yet.
        lines = path.read_bytes()[after:].split(b"\n")[:-1] if path.exists() else ()
        entries = (json.loads(line) for line in lines if line.startswith(b"{"))
        return next((entry for entry in entries if entry.get("msg") == message), None)

    entry = await until(found, seconds=seconds, what=f"{message!r} of {name}")
    assert entry is not None
    return entry


CATALOGUE = {
    "provider": "fake",
    "offerings": [
        {
            "name": "m",
            "instance_type": "m6i.large",
            "capacity_type": "reserved",
            "count": 4,
            "hosts": 4,
            "zones": ["zone-a"],
            "price_per_hour": 0.1,
            "resources": {"cpu": "2", "memory": "8Gi"},
        }
    ],
}


async def test_a_signal_ends_the_process_in_order_although_a_session_is_open(tmp_path: Path) -> None:
    (tmp_path / "catalogue.yaml").write_text(yaml.safe_dump(CATALOGUE))
    arguments = [
        *("shard", "--fake-provider", "--catalogue", str(tmp_path / "catalogue.yaml"), "--listen", "127.0.0.1:0"),
        *(
            "--metrics-addr",
            "0",
            "--data-dir",
            str(tmp_path / "data"),
            "--log-format",
            "json",
            "--shutdown-grace",
            "2s",
        ),
    ]
    async with command(tmp_path, "shard", *arguments) as process:
        address = str((await told(tmp_path, "shard", "listening"))["addr"])
        async with operator(address, "c-1") as cluster:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                await cluster.ended()
                assert await process.wait() == 0
    await told(tmp_path, "shard", "shard stopped", seconds=5)


async def test_a_killed_shard_comes_back_with_everything_it_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "catalogue.yaml").write_text(yaml.safe_dump(CATALOGUE))
    fake = ("fake-provider", "--catalogue", str(tmp_path / "catalogue.yaml"), "--durations", "instant")
    async with command(tmp_path, "fake", *fake, "--listen", "127.0.0.1:0", "--log-format", "json"):
        provider = str((await told(tmp_path, "fake", "provider serving"))["addr"])
        arguments = shard_arguments(tmp_path, provider)
        async with command(tmp_path, "shard", *arguments) as process:
            first = await told(tmp_path, "shard", "listening")
            await told(tmp_path, "shard", "engine warm")
            async with operator(str(first["addr"]), "c-1") as cluster:
                cluster.want([Row(pods=4, unit=UNIT, priority=100)])
                await cluster.send_rollup()
                await cluster.until(lambda heard: len(heard.configured) == 4, 60)
                process.kill()
                await process.wait()
        before = (tmp_path / "shard.log").stat().st_size
        async with command(tmp_path, "shard", *arguments):
            started = await told(tmp_path, "shard", "listening", after=before)
            assert started["epoch"] > first["epoch"]
            await told(tmp_path, "shard", "engine warm", after=before)
            async with operator(str(started["addr"]), "c-1") as again:
                again.want([Row(pods=4, unit=UNIT, priority=100)])
                await again.send_rollup()
                await again.until(lambda heard: len(heard.acks) == 2, 60)
                await again.until(lambda heard: len(heard.configured) == 4, 60)
                await settled(again)
                assert not again.heard.bootstrap_requests and not again.heard.reclaims
    machines = [json.loads(line)["machine"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert sorted(machines) == [f"m-zone-a-{number:04}" for number in range(4)], "a machine was acquired twice"


async def settled(cluster: SyntheticOperator) -> None:
    """Give the shard a few cycles to do something it should not."""
    for _ in range(3):
        acks = len(cluster.heard.acks)
        await cluster.send_rollup()
        await cluster.until(lambda heard, acks=acks: len(heard.acks) > acks, 60)  # type: ignore[misc]
