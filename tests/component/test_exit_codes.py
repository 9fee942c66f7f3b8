"""What `--help` says of exit codes is what a shell gets: of lines typed wrongly, of names nobody has, of nobody there.

Everything runs as its own process, through the same entry points as the scripts that are installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.strategies.fleet_process import Asking
from tools.processes import free_address

ENTRY = {
    "bigfleet": "bigfleet.cli.bigfleet",
    "bigfleetctl": "bigfleet.cli.bigfleetctl",
    "fauxctl": "bigfleet.cli.fauxctl",
    "bigfleet-operator": "bigfleet.cli.operator",
    "bigfleet-unschedulable-pod-controller": "bigfleet.cli.pod_controller",
}
MISTAKE, NOT_FOUND, AWAY = 2, 3, 4


def typed(line: str, folder: Path) -> tuple[int, str]:
    program, *words = line.split()
    code = f"from {ENTRY[program]} import main; main()"
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", ENTRY)
def test_the_help_of_every_program_says_which_codes_there_are(program: str, tmp_path: Path) -> None:
    code = f"from {ENTRY[program]} import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.split())
    assert "2 a mistake in the command line; 3 what was named does not exist" in said
    assert ("4 away" in said) == (program == "bigfleetctl")


@pytest.mark.parametrize(
    "line",
    [
        "bigfleetctl needs --shard nonsense",
        "bigfleetctl status --coordinator nonsense",
        "bigfleetctl machines --state bogus",
        "bigfleetctl machines --no-such-flag",
        "bigfleetctl actions --kind bogus",
        "bigfleetctl explain a --cluster b",
        "bigfleetctl rails --pause --resume",
        "bigfleetctl rails --reason because",
        "bigfleetctl quotas set --provider p s0",
        "bigfleetctl certs issue shard a --dir . --ip not-an-address",
        "bigfleetctl snapshot restore file.snap",
        "fauxctl run withdrawal --seed much",
        "fauxctl replay here.csv --price nothing",
        "fauxctl replay here.csv --policy nothing",
        "fauxctl replay here.csv",
        "fauxctl schema -o table",
        "bigfleet shard --data-dir d --metrics-addr 0",
        "bigfleet shard --data-dir d --metrics-addr 0 --provider nonsense",
        "bigfleet shard --data-dir d --fake-provider --reclaim-cap-fraction 2",
        "bigfleet shard --data-dir d --fake-provider --listen nonsense",
        "bigfleet coordinator --data-dir d --listen nonsense",
        "bigfleet coordinator --data-dir d --snapshot-export-keep 0",
        "bigfleet-operator --shard-addr 127.0.0.1:1",
        "bigfleet-operator --cluster-id c --shard-addr 127.0.0.1:1 --fill-levels 9",
        "bigfleet-unschedulable-pod-controller --mode bogus",
    ],
)
def test_a_mistake_in_the_command_line_is_2_wherever_it_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("a,b\n")
    typed("bigfleetctl certs init --dir .", tmp_path)
    code, said = typed(line, tmp_path)
    assert code == MISTAKE, said


@pytest.mark.parametrize(
    "line",
    [
        "fauxctl run nosuch",
        "fauxctl check nosuch",
        "fauxctl bless nosuch",
        "fauxctl compare nosuch withdrawal",
        "fauxctl run ./no-such-file.yaml",
        "fauxctl replay no-such-file.csv --map m.yaml",
        "fauxctl compare nowhere.json nowhere.json",
        "bigfleetctl snapshot verify no-such-file.snap",
        "bigfleetctl certs issue shard a --dir no-such-folder",
        "bigfleet shard --data-dir d --fake-provider --config no-such-file.yaml",
        "bigfleet fake-provider --listen 127.0.0.1:0 --catalogue no-such-file.yaml",
        "bigfleet all-in-one --catalogue no-such-file.yaml",
        "bigfleet-unschedulable-pod-controller --priority-class-defaults no-such-file.yaml",
    ],
)
def test_what_does_not_exist_is_3_whether_a_scenario_or_a_file(line: str, tmp_path: Path) -> None:
    code, said = typed(line, tmp_path)
    assert code == NOT_FOUND, said
    assert "no-such" in said or "nosuch" in said or "nowhere" in said


@pytest.mark.parametrize(
    "line",
    [
        "bigfleetctl needs --shard {address}",
        "bigfleetctl story a --shard {address}",
        "bigfleetctl rails --shard {address}",
        "bigfleetctl status --coordinator {address}",
        "bigfleetctl snapshot save file.snap --coordinator {address}",
        "bigfleet fake-provider inject --control {address} status",
    ],
)
def test_a_process_that_is_not_there_is_4(line: str, tmp_path: Path) -> None:
    code, said = typed(line.format(address=free_address()), tmp_path)
    assert code == AWAY, said


@pytest.mark.parametrize(
    "line",
    [
        "bigfleetctl story nosuch",
        "bigfleetctl machines --machine nosuch",
        "bigfleetctl machines --cluster nosuch",
        "bigfleetctl needs --cluster nosuch",
        "bigfleetctl explain nosuch",
    ],
)
async def test_of_a_shard_what_does_not_exist_is_3_and_names_it(line: str, fleet: Asking, tmp_path: Path) -> None:
    code, said = typed(f"{line} --shard {fleet.address}", tmp_path)
    assert code == NOT_FOUND and "'nosuch' is not known to this shard" in said, said
