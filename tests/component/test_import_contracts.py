"""The layers and the purity of the cores are contracts in pyproject.toml; a violation must really fail them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"]
    env = {"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_its_contracts(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("model/quantity.py", "import asyncio", "Pure cores"),
        ("engine/policy.py", "import time", "Pure cores"),
        ("operator/core/session.py", "import time", "Pure cores"),
        ("operator/session_codec.py", "import numpy", "The operator runs without engine and NumPy"),
        ("coordinator/core/tables.py", "import bigfleet.wire.coordinator_pb2", "Pure cores"),
        ("model/penalty.py", "import bigfleet.engine.policy", "Layers"),
        ("transport/address.py", "import bigfleet.model.quantity", "Leaves"),
        ("virtual/kernel.py", "import bigfleet.provider.client", "Leaves"),
        ("shard/core/actions/drains.py", "import threading", "Pure cores"),
        ("shard/contract/events.py", "import bigfleet.wire.shard_pb2", "Pure cores"),
        ("provider/kit/core/fences.py", "import time", "Pure cores"),
        ("shard/core/state/fleet.py", "import bigfleet.shard.core.actions.drains", "Rooms of the shard's core"),
        ("shard/core/rails.py", "import bigfleet.shard.telemetry.metrics", "Rooms of the shard:"),
        ("engine/fleet/cells.py", "import bigfleet.engine.decide.assign", "Rooms of the engine"),
        ("sim/scenario/steps.py", "import bigfleet.sim.world.site", "Rooms of the simulator"),
        ("sim/world/scheduling.py", "import bigfleet.operator.core.mirror.filters", "The simulator's scheduler"),
    ],
)
def test_a_deliberate_violation_breaks_its_contract(copy: Path, module: str, line: str, contract: str) -> None:
    path = copy / "src" / "bigfleet" / module
    path.write_text(path.read_text() + f"\n{line}\n")
    result = lint(copy)
    assert result.returncode != 0
    assert any(contract in text and "BROKEN" in text for text in result.stdout.splitlines()), result.stdout
