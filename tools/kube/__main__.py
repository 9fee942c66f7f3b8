"""python -m tools.kube build [PART ...] | missing"""

from __future__ import annotations

import argparse
from functools import partial

from tools.kube.build import BIN, PARTS, build, missing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build what is missing; helm only by name")
    building.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    commands.add_parser("missing", help="what a cluster needs and the cache does not hold")
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.parts, tell=partial(print, flush=True))
    else:
        print("\n".join(missing()) or f"nothing: all in {BIN}")


if __name__ == "__main__":
    main()
