"""What a package index and pip see: the wheel, built as pip would build it, and what its metadata promises."""

from __future__ import annotations

import importlib
import re
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    backend = pytest.importorskip("hatchling.build", reason="needs the build backend: pip install 'bigfleet[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return ZipFile(folder / backend.build_wheel(str(folder)))


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    [name] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_it_says_who_for_whom_and_under_which_licence(metadata: Message) -> None:
    assert metadata["Name"] == "bigfleet" and metadata["Author"] == "The BigFleet maintainers"
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert any(each.startswith("Development Status ::") for each in classifiers)
    assert any(each.startswith("Intended Audience ::") for each in classifiers)
    assert {"kubernetes", "autoscaler", "fleet"} <= set(metadata["Keywords"].split(","))
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_every_python_it_names_is_one_it_accepts(metadata: Message) -> None:
    lowest = tuple(map(int, metadata["Requires-Python"].removeprefix(">=").split(".")))
    named = re.findall(r"Python :: (\d+)\.(\d+)", "\n".join(metadata.get_all("Classifier") or []))
    assert named and all((int(major), int(minor)) >= lowest for major, minor in named)


def test_no_address_is_invented(metadata: Message) -> None:
    """There is none of its own yet, only those of the reference; whoever adds one adds it here too."""
    addresses = [each.partition(", ")[2] for each in metadata.get_all("Project-URL") or []]
    addresses = ["https://" + each.partition("https://")[2] for each in addresses]
    assert addresses and all(each.startswith("https://github.com/intUnderflow/bigfleet") for each in addresses)
    assert metadata["Home-page"] is None


def test_types_styles_and_scenarios_are_in_it(wheel: ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"bigfleet/py.typed", "bigfleet/sim/report/report.css", "bigfleet/sim/report/plots.css"} <= names
    shipped = {f"bigfleet/{path.relative_to(ROOT / 'src/bigfleet')}" for path in (ROOT / "src").rglob("*.yaml")}
    assert shipped and shipped <= names
    assert [name for name in names if name.startswith(("tests/", "tools/", "bench/"))] == []


def test_the_commands_are_there_and_start(wheel: ZipFile) -> None:
    [name] = [each for each in wheel.namelist() if each.endswith("entry_points.txt")]
    parsed = ConfigParser()
    parsed.read_string(wheel.read(name).decode())
    scripts = dict(parsed["console_scripts"])
    assert set(scripts) == {
        "bigfleet",
        "bigfleetctl",
        "fauxctl",
        "bigfleet-conformance",
        "bigfleet-operator",
        "bigfleet-unschedulable-pod-controller",
    }
    for place in scripts.values():
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_extra_is_offered(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra") or []) == {"shard", "coordinator", "operator", "sim", "all", "dev"}
    base = [each for each in metadata.get_all("Requires-Dist") or [] if "extra ==" not in each]
    assert not [each for each in base if each.startswith(("numpy", "numba", "textual"))]
