"""`python -m bench NAME [arguments]`: runs one benchmark; `python -m bench all` runs each with its evidence settings.

A benchmark is a module or package `bench.NAME` with `main(argv) -> int`. It takes part in `all` if it also has
`evidence() -> int`, which runs what the documentation quotes. Only the chosen module is imported.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(argv: list[str]) -> int:
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: python -m bench NAME [arguments]\n\nbenchmarks: all, {', '.join(names)}")
        return 0 if argv else 2
    name, arguments = argv[0], argv[1:]
    if name == "all":
        return max((_evidence(each) for each in names), default=0)
    if name not in names:
        print(f"error: benchmark {name!r} does not exist; there are: all, {', '.join(names)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"bench.{name}").main(arguments)
    return code


def _evidence(name: str) -> int:
    run = getattr(importlib.import_module(f"bench.{name}"), "evidence", None)
    if run is None:
        return 0
    print(f"== bench {name}", file=sys.stderr)
    code: int = run()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
