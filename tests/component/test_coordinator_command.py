"""`bigfleet coordinator` as users start it: flags, pages, metrics, and an orderly end."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tools.coordinators import Coordinators
from tools.processes import BIGFLEET, free_address


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_is_ready_tells_its_metrics_and_stops_with_zero(tmp_path: Path) -> None:
    http = free_address()
    flags = ("--metrics-addr", http, "--raft-bind", ":7791", "--bootstrap", "--join-addr", "elsewhere:7790")
    made = Coordinators(tmp_path, (), replicas=1, flags=flags)
    (program,) = made.programs
    try:
        made.start()
        program.told("leading")
        until = time.monotonic() + 30
        while page(http, "/readyz")[0] != 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert page(http, "/healthz")[0] == 200
        text = page(http, "/metrics")[1]
        while "bigfleet_coordinator_leader 1.0" not in text:
            assert time.monotonic() < until
            time.sleep(0.05)
            text = page(http, "/metrics")[1]
        assert "bigfleet_coordinator_raft_term 1.0" in text
        for outcome in ("success", "error", "fsm_error"):
            assert f'bigfleet_coordinator_apply_total{{outcome="{outcome}"}}' in text
        noticed = {line["flag"] for line in program.lines("flag is accepted and does nothing")}
        assert noticed == {"--raft-bind", "--bootstrap", "--join-addr"}
        assert program.stop() == 0
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("flags", "sentence", "code"),
    [
        (("--rebalance-interval", "soon"), "--rebalance-interval", 2),
        (("--tls-cert", "x"), "--tls-key, --tls-ca missing", 2),
        (("--listen", "nowhere"), "nowhere", 2),
        (("--listen", "0.0.0.0:0"), "in plaintext", 1),
        (("--lease", "1s"), "--lease", 2),
        (("--rebalance-margin", "7"), "--rebalance-margin is 7; it is a share", 2),
        (("--rebalance-margin", "nan"), "--rebalance-margin is nan; it is a share", 2),
        (("--etcd-endpoints", "127.0.0.1:1"), "--advertise-addr", 2),
        (("--data-dir", "/dev/null/x"), "cannot be used: Not a directory; give --data-dir a writable directory", 1),
    ],
)
def test_a_bad_flag_is_one_sentence_and_exit_code_two_a_risk_refused_one(
    tmp_path: Path, flags: tuple[str, str], sentence: str, code: int
) -> None:
    argv = [
        *BIGFLEET,
        "coordinator",
        "--data-dir",
        str(tmp_path),
        "--metrics-addr",
        "0",
        "--log-format",
        "json",
        *flags,
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code
    assert sentence in ended.stderr and "Traceback" not in ended.stderr
