"""All four command lines, as people type them: version, completion, output forms, closed pipes, the same flag names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from bigfleet.cli import bigfleet, bigfleetctl, conformance, fauxctl
from bigfleet.cli.serve.shard import FIRST, PANELS, panel
from bigfleet.shard.settings import known_settings

ENTRIES = {
    "bigfleet": bigfleet,
    "bigfleetctl": bigfleetctl,
    "fauxctl": fauxctl,
    "bigfleet-conformance": conformance,
}
# They serve until they are stopped, or print a file that is to be edited.
PRINT_NOTHING_TO_PARSE = {
    "bigfleet shard",
    "bigfleet coordinator",
    "bigfleet all-in-one",
    "bigfleet fake-provider",
    "bigfleet-conformance config",
}
# One name, two things, both documented: who is meant depends on who is asked.
KNOWN_HOMONYMS = {
    "--provider": "what a shard dials, what a fake is called, or a filter",
    "--state": "a provider's state file, or a filter",
    "--dry-run": "a setting that takes =false, or a command",
    "--insecure": "a setting that takes =false, or a switch",
    "--shard": "where a shard is asked, or its id where the coordinator is; the reference has both",
}


def call(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from {ENTRIES[name].__name__} import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be typed, loaded."""

    def below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        found = command._load() if hasattr(command, "_load") else command
        yield path, found
        for name, each in getattr(found, "commands", {}).items():
            yield from below(f"{path} {name}", each)

    for name, entry in ENTRIES.items():
        yield from below(name, typer.main.get_command(entry.app))


# Groups that only hold commands of their own.
_NOUNS = ("certs", "snapshot", "shards", "domains", "clusters", "quotas", "providers", "reports")
GROUPS = {*ENTRIES, *(f"bigfleetctl {noun}" for noun in _NOUNS)}
LEAVES = {path: command for path, command in commands() if path not in GROUPS}


def flags(command: Any) -> dict[str, Any]:
    return {flag: each for each in command.params for flag in each.opts if flag.startswith("--")}


@pytest.mark.parametrize("name", ENTRIES)
def test_version_is_the_installed_one(name: str) -> None:
    done = call(name, "--version")
    assert (done.returncode, done.stdout) == (0, f"{name} {version('bigfleet')}\n")


def test_version_is_for_programs_too() -> None:
    assert yaml.safe_load(call("bigfleet", "version", "-o", "yaml").stdout) == {"version": version("bigfleet")}


def completed(name: str, *words: str) -> list[str]:
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    line = " ".join([name, *words])
    done = call(name, **{variable: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_shell_can_be_taught_to_complete(name: str) -> None:
    assert {"--install-completion", "--show-completion"} <= set(flags(typer.main.get_command(ENTRIES[name].app)))
    done = call(name, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    assert f"complete -o default -F _{name.replace('-', '_')}_completion {name}" in done.stdout
    first = ENTRIES[name].SUBCOMMANDS[0].name
    assert first in completed(name, first[:2])


def test_completion_reaches_into_commands_that_are_loaded_late() -> None:
    assert completed("bigfleetctl", "machines", "--inst") == ["--instance-type"]
    assert completed("bigfleetctl", "needs", "-o", "") == ["table", "json", "yaml"]
    assert completed("bigfleetctl", "machines", "--state", "conf") == ["configuring", "configured"]
    assert completed("fauxctl", "run", "--wi") == ["--within"]
    assert completed("fauxctl", "run", "spot") == ["spot-crunch", "spot-returns"]
    assert "issue" in completed("bigfleetctl", "certs", "is")


@pytest.mark.parametrize("path", sorted(set(LEAVES) - PRINT_NOTHING_TO_PARSE))
def test_everything_that_prints_prints_for_programs_too(path: str) -> None:
    option = flags(LEAVES[path])["--output"]
    assert "-o" in option.opts
    assert [str(choice) for choice in option.type_descriptor.choices] == ["table", "json", "yaml"]


def test_one_flag_name_means_one_thing() -> None:
    forms: dict[str, dict[str | None, list[str]]] = {}
    for path, command in LEAVES.items():
        for flag, option in flags(command).items():
            forms.setdefault(flag, {}).setdefault(option.metavar, []).append(path)
    differing = {flag: found for flag, found in forms.items() if len(found) > 1}
    assert set(differing) == set(KNOWN_HOMONYMS), differing


def test_durations_are_typed_as_durations() -> None:
    for path, command in LEAVES.items():
        for flag, option in flags(command).items():
            if flag.endswith(("timeout", "within", "interval")):
                assert option.metavar == "DURATION", f"{path} {flag}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fauxctl", ("list",)),
        ("fauxctl", ("schema",)),
        ("bigfleet-conformance", ("list", "-o", "json")),
        ("bigfleet-conformance", ("list",)),
        ("bigfleet-conformance", ("config",)),
        ("bigfleet", ("shard", "--help")),
        ("bigfleetctl", ("--help",)),
    ],
)
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(name: str, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"from {ENTRIES[name].__name__} import main; main()", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode != 0


def test_the_flags_of_a_shard_that_matter_come_first() -> None:
    shown = call("bigfleet", "shard", "--help", COLUMNS="120").stdout
    boxes = [box.splitlines() for box in shown.split("╭─ ")[1:]]
    titles = [box[0].split(" ─")[0] for box in boxes]
    first = [line.split()[1] for line in boxes[0] if line.startswith("│ --")]
    assert first == [*(f"--{name}" for name in FIRST), "--help"] and len(FIRST) == 10
    assert titles == ["Options", *(title for title, _ in PANELS)]
    assert "[default: (" not in shown and "Default: . " not in shown


def test_every_setting_of_a_shard_has_a_subject() -> None:
    assert [name for name in known_settings() if panel(name) == "Other"] == []


def test_a_file_that_was_asked_for_is_named_when_it_is_written(tmp_path: Path) -> None:
    done = call("fauxctl", "run", "withdrawal", "--out", str(tmp_path / "run"), "--json", str(tmp_path / "s.json"))
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / 'run'}/ (open {tmp_path / 'run' / 'report.html'})" in done.stderr
    assert f"wrote {tmp_path / 's.json'}" in done.stderr
    compared = call(
        "fauxctl", "compare", *[str(tmp_path / "run")] * 2, "--html", str(tmp_path / "both.html"), "-o", "json"
    )
    assert compared.stderr == f"wrote {tmp_path / 'both.html'}\n"
    assert json.loads(compared.stdout)


def test_extras_that_add_nothing_yet_say_so() -> None:
    said = " ".join(call("bigfleet", "--help").stdout.split())
    sources = [path.read_text() for path in Path(bigfleet.__file__).parents[1].rglob("*.py")]
    for extra, brought in (("coordinator", ("aetcd",)), ("operator", ("jinja2",))):
        used = any(re.search(rf"^\s*(from|import) {name}\b", text, re.M) for text in sources for name in brought)
        idle = f"the extra bigfleet[{extra}] installs clients that nothing uses yet" in said
        assert used is not idle, f"{extra}: cli/bigfleet.py says ELSEWHERE"
