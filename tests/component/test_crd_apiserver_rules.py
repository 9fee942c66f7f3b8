"""The API server's own validators accept the CRDs and judge every case as written (tools/crdcheck, needs Go)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tools" / "crdcheck"
CRDS = ROOT / "deploy" / "crds"
CASES = ROOT / "tests" / "data" / "crd_cases.json"

pytestmark = pytest.mark.needs_go


@pytest.fixture(scope="module")
def crdcheck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed; the CEL rules of deploy/crds are not checked")
    binary = tmp_path_factory.mktemp("crdcheck") / "crdcheck"
    fetched = subprocess.run([go, "mod", "download"], cwd=SOURCES, capture_output=True, text=True)
    if fetched.returncode != 0:
        pytest.skip(f"the Go modules of tools/crdcheck cannot be fetched here: {fetched.stderr.strip()[-300:]}")
    built = subprocess.run([go, "build", "-o", binary, "."], cwd=SOURCES, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return binary


def judge(binary: Path, crds: Path, cases: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary, crds, cases], capture_output=True, text=True)


def test_definitions_are_valid_and_cases_are_judged_as_written(crdcheck: Path) -> None:
    verdict = judge(crdcheck, CRDS, CASES)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert f"3 definitions, {len(json.loads(CASES.read_text()))} cases, 0 failed" in verdict.stdout


def test_a_wrong_expectation_fails(crdcheck: Path, tmp_path: Path) -> None:
    cases = {case["name"]: case for case in json.loads(CASES.read_text())}
    negative = cases["negative interruption penalty"]
    unknown = json.loads(json.dumps(cases["smallest request"]))
    unknown["object"]["spec"]["count"] = 3
    wrong = [
        negative | {"name": "a", "errors": []},
        cases["smallest request"] | {"name": "b", "errors": ["anything"]},
        negative | {"name": "c", "errors": ["must be positive"]},
        unknown | {"name": "d"},
    ]
    (tmp_path / "cases.json").write_text(json.dumps(wrong))
    verdict = judge(crdcheck, CRDS, tmp_path / "cases.json")
    assert verdict.returncode == 1
    for line in ("FAIL a: refused", "FAIL b: accepted", "FAIL c: no message", "FAIL d: the server would drop fields"):
        assert line in verdict.stdout


def test_a_rule_the_server_would_not_compile_fails(crdcheck: Path, tmp_path: Path) -> None:
    source = CRDS / "bigfleet.lucy.sh_capacityrequests.yaml"
    (tmp_path / source.name).write_text(source.read_text().replace("isQuantity(self)", "isQuantum(self)"))
    verdict = judge(crdcheck, tmp_path, CASES)
    assert verdict.returncode == 1
    assert "undeclared reference to 'isQuantum'" in verdict.stderr
