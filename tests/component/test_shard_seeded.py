"""A shard process on a seeded pretend fleet: bound machines are there from the start, and the probe tells of cycles."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tools.processes import BIGFLEET, INTERPRETED, Program, free_address


def test_a_seeded_shard_starts_with_bound_machines_and_its_probe_tells_of_every_twentieth_cycle(tmp_path: Path) -> None:
    http = free_address()
    flags = {
        "id": "shard-1",
        "data-dir": str(tmp_path),
        "listen": "127.0.0.1:0",
        "metrics-addr": http,
        "fake-provider": "true",
        "seed-machines": "3",
        "seed-configured-per-cluster": "2",
        "seed-cluster-total": "5",
        "seed-cluster-stride": "2",
        "cycle-interval": "50ms",
        "early-cycle-interval": "50ms",
        "phase-attribution-log": "true",
    }
    argv = [*BIGFLEET, "shard", "--log-format", "json", *(f"--{name}={value}" for name, value in flags.items())]
    shard = Program("shard", argv, tmp_path, INTERPRETED)
    shard.start()
    try:
        seeded = shard.told("seeded bindings")
        assert (seeded["machines"], seeded["clusters"]) == (4, 2)
        line = shard.told("phase attribution")
        assert line["cycle"] % 20 == 0 and (line["needs_total"], line["p3_reclaim"]) == (0, 0)
        text = urllib.request.urlopen(f"http://{http}/metrics", timeout=30).read().decode()
        bound = [line for line in text.splitlines() if "inventory_machines" in line and 'state="Configured"' in line]
        assert [line.rpartition(" ")[2] for line in bound] == ["4.0"]
    finally:
        shard.stop()


def test_a_seed_of_bound_machines_wants_a_numbered_shard(tmp_path: Path) -> None:
    argv = [*BIGFLEET, "shard", "--id=shard", f"--data-dir={tmp_path}", "--listen=127.0.0.1:0", "--metrics-addr=0"]
    argv += ["--fake-provider", "--seed-configured-per-cluster=1", "--seed-cluster-total=1"]
    shard = Program("shard", argv, tmp_path, INTERPRETED)
    shard.start()
    assert shard.wait(120) == 2
    assert "must end in -NUMBER" in " ".join(shard.tail().replace("│", " ").split())
