"""Certify what we ship: the fake and the skeleton provider, each as a separate process, for every cloud profile.

    python tools/conformance_self.py [--out docs/evidence/conformance-self.json] [--scale-slots 10500] [--soak 5s]

Writes one small JSON file, prints timings and a verdict, and ends with code 1 unless both are CERTIFIED with nothing
skipped for lack of inventory and the fake's core, cloud and spot run stays within its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bigfleet.provider.conformance.config import Config, load_config
from bigfleet.provider.conformance.process import Launcher
from bigfleet.provider.conformance.registry import Behaviour
from bigfleet.provider.conformance.report import CERTIFIED, report
from bigfleet.provider.conformance.runner import run
from bigfleet.provider.conformance.verdicts import Result, Status

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ("core", "cloud", "spot", "fault", "durable", "scale")
SUITE_PROFILES = ("core", "cloud", "spot")
SUITE_LIMIT_SECONDS = 40.0
PYTHON = shlex.quote(sys.executable)
BIGFLEET = f"{PYTHON} -c 'from bigfleet.cli.bigfleet import main; main()'"

BIGFLEETCTL = [sys.executable, "-c", "from bigfleet.cli.bigfleetctl import main; main()"]

FAULTS: dict[str, Any] = {
    "timeout": "2s",
    "configure_error": {"cluster": "fault-error"},
    "create_error": {"label": "conformance.fault/create=error"},
    "configure_timeout": {"cluster": "fault-timeout"},
    "configure_slow_ok": {"cluster": "fault-slow-ok"},
    "drain_error": {"cluster": "fault-drain-error"},
    "readiness_block": {"cluster": "fault-readiness-block"},
}
FAKE: dict[str, Any] = {
    "provider": "fake",
    "start": f"{BIGFLEET} fake-provider --listen {{addr}} --state {{state}} --seed-count {{slots}} "
    "--control unix:{state}.ctl --reference-faults --log-level error",
    "faults": {
        **FAULTS,
        "host_loss": {
            "command": f"{BIGFLEET} fake-provider inject --control unix:{{state}}.ctl lose-hosts machine={{machine}}"
        },
    },
}
SKELETON: dict[str, Any] = {
    "provider": "skeleton",
    "start": f"{PYTHON} {shlex.quote(str(ROOT / 'examples' / 'skeleton_provider.py'))} --addr {{addr}} "
    "--state {state} --seed-count {slots} --metrics-addr '' --enable-faults --transition-timeout 2s --log-level error",
    "faults": {**FAULTS, "host_loss": {"cluster": "fault-host-loss"}},
}


class Timer:
    """Seconds per lane, and every failure as it happens."""

    def __init__(self) -> None:
        self.lanes: dict[str, float] = {}
        self._lane, self._begun = "", 0.0

    def lane_started(self, lane: str, count: int) -> None:
        self.stop()
        self._lane, self._begun = lane, time.monotonic()

    def behaviour_started(self, behaviour: Behaviour) -> None: ...

    def behaviour_finished(self, result: Result) -> None:
        if result.status is Status.FAILED:
            print(result.failure_text(), flush=True)

    def stop(self) -> None:
        if self._lane:
            self.lanes[self._lane] = round(time.monotonic() - self._begun, 1)
            self._lane = ""


async def certify(settings: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """Every lane on processes of its own, over mTLS with one certificate per shard the suite plays."""
    with tempfile.TemporaryDirectory() as folder:
        for words in (["init"], ["issue", "provider", settings["provider"], "--ip", "127.0.0.1"]):
            subprocess.run([*BIGFLEETCTL, "certs", *words], cwd=folder, check=True, capture_output=True)
        certs = Path(folder) / "certs"
        leaf, authority = certs / f"provider-{settings['provider']}", certs / "ca"
        tls_flags = f"--tls-cert {leaf}.crt --tls-key {leaf}.key --tls-ca {authority}.crt"
        config = load_config(
            None,
            {
                **settings,
                "start": f"{settings['start']} {tls_flags}",
                "tls": {
                    "ca": f"{authority}.crt",
                    "issuer_cert": f"{authority}.crt",
                    "issuer_key": f"{authority}.key",
                },
                "profiles": list(PROFILES),
                "scale": scale,
            },
        )
        timer, begun = Timer(), time.monotonic()
        results = await run(config, timer)
        timer.stop()
        return _evidence(config, results, time.monotonic() - begun, timer.lanes)


async def time_the_suite() -> dict[str, Any]:
    """core, cloud and spot against one running fake with its built-in catalogue, as an author would run them."""
    fake = load_config(None, {"start": f"{BIGFLEET} fake-provider --listen {{addr}} --log-level error"})
    launcher = Launcher(fake, fake.start, 0, 30.0)
    try:
        address = await launcher.boot()
        config = load_config(None, {"target": address, "provider": "fake", "profiles": list(SUITE_PROFILES)})
        timer, begun = Timer(), time.monotonic()
        results = await run(config, timer)
        return _evidence(config, results, time.monotonic() - begun, {})
    finally:
        await launcher.close()


def _evidence(config: Config, results: list[Result], took: float, lanes: dict[str, float]) -> dict[str, Any]:
    full = report(config, results, took)
    skipped = {b["id"]: b["note"] for b in full["behaviors"] if b["required"] and b["status"] == "skipped"}
    return {
        "verdict": full["verdict"],
        "profiles": full["profiles"],
        "baseline": full["baseline"],
        "required_behaviours": full["summary"]["required"],
        "passed": sum(b["required"] and b["status"] == "passed" for b in full["behaviors"]),
        "skipped_for_inventory": full["summary"]["required_skipped_for_inventory"],
        "not_applicable": skipped,
        "failed": [b["id"] for b in full["behaviors"] if b["status"] == "failed"],
        "seconds": round(took, 1),
        **({"seconds_by_lane": lanes} if lanes else {}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence" / "conformance-self.json")
    parser.add_argument("--scale-slots", type=int, default=10_500)
    parser.add_argument("--soak", default="5s")
    options = parser.parse_args()
    scale = {"slots": options.scale_slots, "soak": options.soak}
    suite = asyncio.run(time_the_suite())
    suite["limit_seconds"] = SUITE_LIMIT_SECONDS
    outcome: dict[str, Any] = {
        "command": "make conformance-self",
        "fake_core_cloud_spot": suite,
        "fake": asyncio.run(certify(FAKE, scale)),
        "skeleton": asyncio.run(certify(SKELETON, scale)),
    }
    good = suite["verdict"] == CERTIFIED and suite["seconds"] <= SUITE_LIMIT_SECONDS
    for name in ("fake", "skeleton"):
        good = good and outcome[name]["verdict"] == CERTIFIED and outcome[name]["skipped_for_inventory"] == 0
    outcome["verdict"] = "PASS" if good else "FAIL"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(outcome, indent=2))
    for name in ("fake_core_cloud_spot", "fake", "skeleton"):
        print(f"{name:<22} {outcome[name]['verdict']:<11} {outcome[name]['seconds']:6.1f} s")
    print(f"VERDICT: {outcome['verdict']}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
