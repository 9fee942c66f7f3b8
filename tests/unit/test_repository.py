"""The front door: the README's first screen, the licence, and CI calling the command a newcomer types."""

import re
import runpy
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

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


def index_page(monkeypatch: pytest.MonkeyPatch, urls: dict[str, str]) -> str:
    """The README as the built package carries it. The build's own framework is not installed here, only its name."""
    framework = types.ModuleType("hatchling.metadata.plugin.interface")
    framework.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, framework.__name__, framework)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["ReadmeHook"]()
    hook.root = str(ROOT)
    metadata: dict[str, Any] = {"urls": urls}
    hook.update(metadata)
    return str(metadata["readme"]["text"])


def test_the_readme_of_a_package_index_has_no_broken_picture_or_link(monkeypatch: pytest.MonkeyPatch) -> None:
    page = index_page(monkeypatch, {})
    assert "](" not in page and "<!--" not in page
    assert "*a zone is down" in page and "gRPC :7780" in page
    screen = page.partition("```text\n")[2].partition("\n```")[0].splitlines()
    assert any("clusters" in line and "╭─" in line for line in screen)
    # Frames are closed at their right end: every column stands where it stands in the picture.
    assert len({len(line) for line in screen if line.endswith(("╮", "╯", "│"))}) == 1


def test_a_package_with_a_repository_shows_the_picture_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    page = index_page(monkeypatch, {"Repository": "https://git.example.org/bigfleet/"})
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert "https://git.example.org/bigfleet/raw/main/docs/images/demo.svg" in targets
    assert all(target.startswith("https://git.example.org/bigfleet/") for target in targets)
    assert all((ROOT / target.partition("/main/")[2]).exists() for target in targets)


def test_the_readme_says_what_works_who_talks_to_whom_and_what_its_words_mean() -> None:
    readme = (ROOT / "README.md").read_text()
    for port in (":7780", ":8780", ":9000", ":7790"):
        assert port in readme.partition("```text")[2].partition("```")[0]
    assert all(f"**{word}**" in readme for word in ("roll-up", "speculative", "shard", "coming"))
    assert all(f"## {title}" in readme for title in ("Beside Karpenter and Cluster Autoscaler", "When a shard dies"))


def test_the_licence_is_apache_2() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
