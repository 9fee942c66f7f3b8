"""Command line of the attacks: every one of them on this tree, and on an older one when it is given."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bigfleet  # noqa: F401  # before grpc: it fixes the TLS versions
from tools.attacks import availability, money, providers, truth
from tools.attacks.stage import Attack, Outcome, Stage

HERE = Path(__file__).resolve().parents[2]
ATTACKS: dict[str, Attack] = {
    f"{area}: {name}": attack
    for area, module in (("money", money), ("availability", availability), ("truth", truth), ("providers", providers))
    for name, attack in module.ATTACKS.items()
}
HEADING = "## Then and now\n"
LONGEST_SECONDS = 1200.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.attacks", description=__doc__)
    parser.add_argument("--old", type=Path, help="a source tree from before, attacked as well")
    parser.add_argument("--only", action="append", default=[], help="attacks whose name contains this")
    parser.add_argument("--document", type=Path, help="only write what --json keeps into this page's table")
    parser.add_argument("--json", type=Path, help="keep the outcomes here; others that are in it stay")
    options = parser.parse_args()
    kept: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        kept = json.loads(options.json.read_text())["attacks"]
    if options.document is not None:
        options.document.write_text(with_table(options.document.read_text(), kept))
        return 0
    chosen = [name for name in ATTACKS if not options.only or any(part in name for part in options.only)]
    for name in chosen:
        found = kept.setdefault(name, {})
        for when, tree in (("then", options.old), ("now", HERE)):
            if tree is not None:
                found[when] = _outcome(name, tree)
                print(f"{name} | {when} | {found[when]['withstood']} | {found[when]['told']}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(_report(kept), indent=1) + "\n")
    return 1 if _report({name: kept[name] for name in chosen})["not_withstood_now"] else 0


def with_table(page: str, attacks: dict[str, Any]) -> str:
    """The page with one line for every attack."""
    before, _, rest = page.partition(HEADING)
    introduction, _, _ = rest.partition("|")
    _, mark, after = rest.partition("\n## ")
    lines = ["| attack | on 7eab7f6 | now |", "|---|---|---|"]
    for name, each in attacks.items():
        then, now = (each.get(when, {}).get("told", "not tried").replace("|", "/") for when in ("then", "now"))
        lines.append(f"| {name} | {then} | {now} |")
    return f"{before}{HEADING}{introduction}" + "\n".join(lines) + "\n" + mark + after


def _outcome(name: str, tree: Path) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bigfleet-attack-") as folder:
        stage = Stage(tree.resolve(), Path(folder))
        try:
            ended = asyncio.run(asyncio.wait_for(ATTACKS[name](stage), LONGEST_SECONDS))
        except Exception as error:
            # Proves nothing, neither way.
            ended = Outcome(None, f"the attack could not be ended: {type(error).__name__}: {str(error)[:300]}")
        finally:
            stage.end()
    return {"withstood": ended.withstood, "told": ended.told, "seconds": round(time.monotonic() - began, 1)}


def _report(kept: dict[str, Any]) -> dict[str, Any]:
    attacks = {name: kept[name] for name in ATTACKS if name in kept}
    now = [name for name, each in attacks.items() if each.get("now", {}).get("withstood") is not True]
    then = [name for name, each in attacks.items() if each.get("then", {}).get("withstood") is not False]
    return {
        "old": "7eab7f6",
        "attacks": attacks,
        "not_withstood_now": now,
        "not_shown_to_succeed_then": then,
        "verdict": "FAILED" if now else "PASSED",
    }


if __name__ == "__main__":
    sys.exit(main())
