"""`docs/performance.md`: every engine shape measured in its own process, its JSON kept in `docs/evidence/engine/`, and
the limits of the processes around the engine.

The page is written from the JSON files alone, so `bench engine --page` rebuilds it without measuring.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.engine.shapes import SHAPES

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence" / "engine"
PAGE = ROOT / "docs" / "performance.md"
AROUND = (
    *("sim-soak", "provider-bench", "shard-load", "shard-load-10min", "shard-streams", "shard-rate", "shard-fleet"),
    "shard-burst",
)
# Written by hand: where the time goes in shapes that miss their figure.
PROFILES = Path(__file__).with_name("notes.md")

HEAD = """# How fast the engine is

<!-- run -->

    python -m bench engine --list

<!-- not run: needs minutes of a quiet machine -->

    python -m bench engine --shape steady-500k
    make bench    # all of this page

Each row is one process: kernels warmed, fleet loaded and settled, then 300 timed steps or 60 seconds of them. A timed
step includes applying its deltas. Times are raw samples in milliseconds, not histogram buckets. `calibration` is one
`numpy.bincount` of 5,000,000 int32 over 1,000 classes in the same run: compare machines by it.
"""

NOTES = """
## Reading it against the reference

- The reference's figures are quantiles of histograms with doubling buckets (up to 2× coarse), measured on 16 to 96
  cores or an 18-core laptop; ours are raw samples on the machine named above.
- Several of its published benchmarks ran on an empty inventory by accident (`22 ms`, `121 µs`); ours are populated.
- Its phase benchmarks time one phase; ours time a whole step that decides everything anew after an untimed one with all
  doors closed.
- `uber-50k` is built from the realistic catalogue: machines are pod shape × pods per node, gangs of 2 to 16 on racks,
  and the loop is closed: what the engine decides is in the next cycle's deltas.
"""


def evidence(names: list[str] | None = None, seconds: float = 60.0) -> int:
    """Measures shapes one after the other (all by default) and writes the page; non-zero if one did not run."""
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    chosen = names or list(SHAPES)
    failed = []
    for place, name in enumerate(chosen, 1):
        print(f"[{place}/{len(chosen)}] {name}", file=sys.stderr, flush=True)
        if not measure(name, seconds):
            failed.append(name)
    PAGE.write_text(page())
    if failed:
        print(f"these shapes did not run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def measure(name: str, seconds: float) -> bool:
    command = [sys.executable, "-m", "bench", "engine", "--shape", name, "--seconds", str(seconds)]
    command += ["--json", str(EVIDENCE / f"{name}.json")]
    if name == "fleet-5m":
        command.append("--ticker")
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode == 0


def page() -> str:
    reports: dict[str, dict[str, Any]] = {
        path.stem: json.loads(path.read_text()) for path in sorted(EVIDENCE.glob("*.json")) if path.stem in SHAPES
    }
    phases = list(dict.fromkeys(phase for report in reports.values() for phase in report["phases_ms"]))
    lines = [HEAD]
    if reports:
        machine = next(iter(reports.values()))["machine"]
        lines.append(f"Machine: {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}.\n")
    lines.append("| shape | workload | reference | p50 | p99 | max | limit | met | bytes/machine | calibration |")
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    lines += [_row(name, reports[name]) for name in SHAPES if name in reports]
    late = reports.get("fleet-5m", {}).get("ticker_max_late_ms")
    if late is not None:
        lines.append(
            f"\nWhile `fleet-5m` cycles ran in their thread, an asyncio ticker was {late:.1f} ms late at worst."
        )
    lines.append("\n## Where the time goes (median of each phase, ms)\n")
    lines.append("| shape | " + " | ".join(phases) + " |")
    lines.append("|---|" + "---|" * len(phases))
    for name in SHAPES:
        if name in reports:
            took = reports[name]["phases_ms"]
            lines.append(f"| `{name}` | " + " | ".join(f"{took.get(phase, 0):.2f}" for phase in phases) + " |")
    return "\n".join(lines) + "\n" + PROFILES.read_text() + NOTES + "\n".join(_around_the_engine()) + "\n"


def _around_the_engine() -> list[str]:
    """Figures of the processes around the engine that have a limit, from whatever reports were kept."""
    lines = ["", "## The processes around it", ""]
    lines += ["Every process of these runs, clients included, shares the two cores.", ""]
    lines += ["| report | figure | measured | limit | met | calibration |", "|---|---|---|---|---|---|"]
    for name in AROUND:
        path = EVIDENCE.parent / f"{name}.json"
        if path.exists():
            report = json.loads(path.read_text())
            for figure, limit in report["limits"].items():
                measured = report["figures"][figure]
                met = "yes" if measured <= limit else "no"
                calibration = f"{report['calibration_ms']:.1f}"
                lines.append(f"| `{name}` | {figure} | {measured:g} | {limit:g} | {met} | {calibration} |")
    return lines


def _row(name: str, report: dict[str, Any]) -> str:
    spec = SHAPES[name]
    met = "–"
    if spec.limit_ms:
        over = report["p99_ms"] / spec.limit_ms
        met = "yes" if over <= 1 else f"no ({over:.1f}×)"
    times = " | ".join(f"{report[key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms"))
    limit = f"{spec.limit_ms:g}" if spec.limit_ms else "–"
    memory = report["rss_bytes_per_machine"] or "–"
    about = f"`{name}` | {spec.about} | {spec.published}"
    return f"| {about} | {times} | {limit} | {met} | {memory} | {report['calibration_ms']:.1f} |"
