"""python -m tools.kube build [--within MINUTES] [PART ...] | missing | skipped"""

from __future__ import annotations

import argparse
from functools import partial

from tools.kube.build import BIN, PARTS, build, missing, skipped


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build what is missing; helm only by name")
    building.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    building.add_argument("--within", type=float, metavar="MINUTES", default=float("inf"), help="give up after so long")
    commands.add_parser("missing", help="what a cluster needs and the cache does not hold")
    commands.add_parser("skipped", help="one line when tests on a real control plane cannot run here")
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.parts, tell=partial(print, flush=True), within_seconds=60 * arguments.within)
    elif arguments.command == "skipped":
        if why := skipped():
            print(why)
    else:
        print("\n".join(missing()) or f"nothing: all in {BIN}")


if __name__ == "__main__":
    main()
