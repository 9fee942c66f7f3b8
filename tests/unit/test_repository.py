"""The front door: the README's first screen, the licence, and CI calling the command a newcomer types."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_first_screen_says_what_for_whom_and_the_two_commands() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:25]
    text = "\n".join(screen)
    assert "platform engineers" in text
    assert re.search(r"^ {4}make run\b", text, re.M)
    assert re.search(r"^ {4}make test\b", text, re.M)


def test_ci_calls_make_test() -> None:
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[-1] == "exec make test"


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {name for path in documents for name in re.findall(r"(?:`| {4})make ([a-z0-9-]+)", path.read_text())}
    assert named - targets == set()
    assert {"run", "test", "lint", "generate", "build", "bench", "e2e", "clean"} <= targets


def test_every_extra_is_documented_and_all_contains_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"shard", "coordinator", "operator", "sim", "all", "dev"} <= set(extras)
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{name}`" in readme or f"[{name}]" in readme for name in extras if name != "dev")


def test_the_licence_is_apache_2() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
