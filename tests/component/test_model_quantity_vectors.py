"""The checked-in quantity vectors are what the Go generator writes today."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "tools" / "quantity_vectors"


@pytest.mark.needs_go
def test_vectors_are_fresh() -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("the Go toolchain is not installed")
    if subprocess.run([go, "mod", "download"], cwd=GENERATOR, capture_output=True, check=False).returncode != 0:
        pytest.skip("the Go modules of tools/quantity_vectors cannot be downloaded here")
    written = subprocess.run([go, "run", "."], cwd=GENERATOR, capture_output=True, check=False)
    assert written.returncode == 0, written.stderr.decode()
    stored = gzip.decompress((ROOT / "tests" / "data" / "quantity_vectors.jsonl.gz").read_bytes())
    assert stored == written.stdout, "run `make generate`"
