"""A kit provider whose every backend call blocks its thread: what `bench provider` measures acknowledgements on."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bigfleet.provider import kit


class SlowProvider:
    """Hosts in memory; every backend call blocks its thread for a while."""

    def __init__(self, flags: Any) -> None:
        self.seconds = float(flags.extra["backend_seconds"])
        market = [
            kit.Offering(
                f"box.{size}",
                f"zone-{zone}",
                1,
                price_per_hour=0.1 * size,
                resources={"cpu": str(size), "memory": f"{4 * size}Gi"},
                labels={"topology.bigfleet/rack": f"{zone}-{rack}"},
            )
            for size in (2, 4, 8)
            for zone in "abc"
            for rack in range(4)
        ]
        offered = kit.spread(market, flags.seed_count)
        self.slots = [slot for number, o in enumerate(offered) for slot in o.slots(f"bench-{number}")]

    def describe(self) -> Any:
        return self.slots

    def create_instance(self, machine: Any, operation_id: str) -> str:
        time.sleep(self.seconds)
        return operation_id

    def configure_instance(self, machine: Any, cluster_id: str, bootstrap_blob: bytes, operation_id: str) -> None:
        time.sleep(self.seconds)

    def drain_instance(self, machine: Any, grace_period_seconds: int, operation_id: str) -> None:
        time.sleep(self.seconds)


def main() -> int:
    return kit.serve(SlowProvider, add_flags=_flags)


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend-seconds", default="0", help="how long each backend call takes")


if __name__ == "__main__":
    raise SystemExit(main())
