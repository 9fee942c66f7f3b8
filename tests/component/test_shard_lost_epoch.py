"""A shard that lost its data directory where the clock is wrong: it stands off, says why, and a person ends it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import grpc
import yaml

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.provider.fake.control import send_command
from bigfleet.shard.rehearsal.synthetic import Row, SyntheticOperator
from tools.chaos import CATALOGUE, SETTINGS
from tools.processes import BIGFLEET, LocalFleet
from tools.waiting import until

UNIT = {"cpu": "2", "memory": "4Gi"}
KIND = (Requirement("node.kubernetes.io/instance-type", Operator.IN, ("pool",)),)


async def test_a_lower_epoch_is_told_in_readiness_metric_and_log_and_a_higher_one_ends_it(tmp_path: Path) -> None:
    fleet = LocalFleet(tmp_path, CATALOGUE, SETTINGS, "quick")
    fleet.shard.argv[: len(BIGFLEET)] = [sys.executable, "-m", "tools.shifted_clock", str(tmp_path / "clock")]
    try:
        fleet.start()
        await _serve(fleet, 4)
        fleet.shard.kill()
        shutil.rmtree(tmp_path / "data")
        (tmp_path / "clock").write_text("-86400")
        fleet.shard.start()
        await _serve(fleet, 2, stands_off=True)
        status, text = fleet.page("/readyz")
        assert status == 503 and "refuses epoch" in text and "--min-epoch" in text, text
        assert fleet.page("/healthz")[0] == 200
        assert fleet.metric("provider_fenced", "p1") == 1
        assert len(list(fleet.shard.lines("stopped acting on a provider that fences this shard"))) == 1
        told = await send_command(fleet.control, {"do": "status"})
        assert told["CONFIGURED"] == 4 and not told.get("FAILED") and not told.get("CREATING"), told
        fleet.shard.kill()
        settings = yaml.safe_load((tmp_path / "shard.yaml").read_text())
        seen = max(line["epoch"] for line in fleet.shard.lines("listening", every_life=True))
        (tmp_path / "shard.yaml").write_text(yaml.safe_dump({**settings, "min-epoch": seen + 1}))
        fleet.shard.start()
        fleet.wait_ready()
        await _serve(fleet, 2)
        assert fleet.metric("provider_fenced", "p1") == 0
    finally:
        fleet.stop()


async def _serve(fleet: LocalFleet, machines: int, *, stands_off: bool = False) -> None:
    """A cluster asks for so many machines, until it has exactly those or the shard says that it does nothing."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        operator = SyntheticOperator("c", channel)
        await until(lambda: _connected(operator), what="a session", seconds=60.0)
        operator.want([Row(pods=machines, unit=UNIT, priority=1, requirements=KIND)])
        await operator.send_rollup()
        if stands_off:
            await until(lambda: _fenced(fleet), what="a stand-off", seconds=60.0)
        else:
            await operator.until(lambda heard: len(heard.configured) == machines, 60.0, f"{machines} machines")
        await operator.close()


async def _connected(operator: SyntheticOperator) -> bool:
    try:
        await operator.connect()
    except (grpc.RpcError, ConnectionError):
        return False
    return True


async def _fenced(fleet: LocalFleet) -> bool:
    return fleet.metric("provider_fenced", "p1") == 1
