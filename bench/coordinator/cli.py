"""Command line of the coordinator benchmarks: one figure of the issue each, with its limit and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench._report import conclude
from bench.coordinator import away, domains, endurance, failover, rebalance, reports, swing, zone

EVIDENCE = Path("docs/evidence")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench coordinator", description="Times coordinator processes under load.")
    modes = parser.add_subparsers(dest="mode", required=True)

    made = modes.add_parser("reports", help="many shards reporting: the leader's processor time, report times")
    made.add_argument("--shards", type=int, default=4000, help="(4000)")
    made.add_argument("--interval", type=float, default=10.0, help="seconds between two reports of a shard (10)")
    made.add_argument("--shortfalls", type=int, default=10, help="of each report (10)")
    made.add_argument("--types", type=int, default=20, help="instance types in each report (20)")
    made.add_argument("--seconds", type=float, default=60.0, help="how long it is timed (60)")
    made.set_defaults(run=reports.run)

    made = modes.add_parser("domains", help="many domains assigned, listed, and removed with their shard at once")
    made.add_argument("--domains", type=int, default=100_000, help="(100000)")
    made.add_argument("--store", choices=("sqlite", "etcd"), default="sqlite", help="(sqlite)")
    made.set_defaults(run=domains.run)

    made = modes.add_parser("failover", help="three etcd members, three coordinators: leaders killed and frozen")
    made.add_argument("--kills", type=int, default=30, help="(30)")
    made.add_argument("--freezes", type=int, default=3, help="(3)")
    made.add_argument("--cuts", type=int, default=3, help="leaders cut off from etcd (3)")
    made.add_argument("--members", type=int, default=3, help="etcd members (3)")
    made.add_argument("--member-kills", type=int, default=6, help="of etcd, where `make kube` has built one (6)")
    made.set_defaults(run=failover.run)

    made = modes.add_parser("rebalance", help="three shards, ten clusters: a shortfall filled from another's idle")
    made.add_argument("--machines", type=int, default=100_000, help="(100000)")
    made.add_argument("--interval", type=int, default=200, help="of reports and planning, in milliseconds (200)")
    made.add_argument("--trials", type=int, default=20, help="(20)")
    made.add_argument("--defaults", type=int, default=3, help="trials at the default intervals (3)")
    made.add_argument(
        "--kinds", nargs="+", choices=rebalance.KINDS, default=rebalance.KINDS, help="what fills the shortfall (all)"
    )
    made.set_defaults(run=rebalance.run)

    made = modes.add_parser(
        "zone", help="a zone fails under half of fifty shards: reports while everybody asks and gives"
    )
    made.add_argument("--shards", type=int, default=50, help="(50)")
    made.add_argument("--interval", type=float, default=1.0, help="seconds between two reports of a shard (1)")
    made.add_argument("--seconds", type=float, default=60.0, help="how long it is timed after the failure (60)")
    made.set_defaults(run=zone.run)

    made = modes.add_parser("away", help="load on three shards while no coordinator runs; then one comes back")
    made.add_argument("--machines", type=int, default=30_000, help="(30000)")
    made.add_argument("--seconds", type=float, default=120.0, help="of load (120)")
    made.add_argument("--seed", type=int, default=1, help="of the demand (1)")
    made.set_defaults(run=away.run)

    made = modes.add_parser("swing", help="a simulated day of demand that swings across five shards: how much moves")
    made.add_argument("--hours", type=int, default=24, help="(24)")
    made.set_defaults(run=swing.run)

    made = modes.add_parser("endurance", help="load and faults for an hour: memory and descriptors stay what they were")
    made.add_argument("--minutes", type=float, default=60.0, help="(60)")
    made.add_argument("--seed", type=int, default=1, help="of the faults (1)")
    made.set_defaults(run=endurance.run)

    for each in modes.choices.values():
        each.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    options = parser.parse_args(argv)
    load_before = os.getloadavg()[0]
    figures = asyncio.run(options.run(options))
    return conclude(figures, figures.pop("limits"), options.json, load_before)


def evidence() -> int:
    """Everything the documentation quotes, one after the other."""
    code = 0
    runs = (
        *(["reports"], ["domains"], ["domains", "--store", "etcd"], ["failover"]),
        *(["rebalance"], ["zone"], ["away"], ["swing"]),
    )
    for arguments in runs:
        print(f"-- coordinator {' '.join(arguments)}", file=sys.stderr)
        name = "-".join(part for part in arguments if not part.startswith("--"))
        code = max(code, main([*arguments, "--json", str(EVIDENCE / f"coordinator-{name}.json")]))
    return code
