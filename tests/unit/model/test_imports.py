"""The values need nothing but the standard library, so every install can use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import bigfleet.model

MODULES = sorted(path.stem for path in Path(bigfleet.model.__path__[0]).glob("*.py") if path.stem != "__init__")

# Runs without site-packages, so any foreign import fails outright.
PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module("bigfleet.model." + name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))))
"""


def test_every_module_imports_without_site_packages() -> None:
    source = str(Path(bigfleet.model.__path__[0]).parents[2])
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, source, *MODULES]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == ["__main__", "bigfleet"] or json.loads(answer.stdout) == ["bigfleet"]


def test_the_values_read_no_clock_and_open_nothing() -> None:
    forbidden = ("asyncio", "threading", "socket", "logging", "time", "grpc", "numpy")
    for module in MODULES:
        text = (Path(bigfleet.model.__path__[0]) / f"{module}.py").read_text(encoding="utf-8")
        for name in forbidden:
            assert f"import {name}\n" not in text, f"{module} imports {name}"
            assert f"from {name}" not in text, f"{module} imports {name}"
