"""A shard process whose decisions are the oracle's: for rules of `docs/engine.md` the engine does not follow yet.

Everything else is the real thing: sockets, journal, threads. `python -m tests.strategies.oracle_shard CONFIG` serves
until it is told to stop, as `bigfleet shard` does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bigfleet.shard import process
from bigfleet.shard.contract.step_result import Listed
from bigfleet.shard.settings import read_config_file, settings_from
from tests.oracle.step import Oracle
from tests.strategies.shard_world import StepTables


class OracleEngine:
    """What the engine's thread asks of an engine."""

    def __init__(self) -> None:
        self._oracle = Oracle()
        self.latest: Any = None

    def step(self, *given: Any, probe: Any = None) -> Any:
        tables = StepTables.of(self._oracle.step(*given))
        self.latest = SimpleNamespace(result=tables)
        return tables

    def available_capacity(self, cluster: str) -> Any:
        return Listed(()).rows()


async def serve(config: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await process.run_shard(*settings_from(read_config_file(config)), stop)


if __name__ == "__main__":
    process.Engine = OracleEngine  # type: ignore[misc,assignment]
    asyncio.run(serve(Path(sys.argv[1])))
