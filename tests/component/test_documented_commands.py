"""Every command of our documents and of `--help` is typed here as it stands, and what the text shows is what comes out.

How blocks say what they need is told in tests/strategies/documents.py.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.strategies.documents import SHELL, Block, blocks, missing_output
from tests.strategies.terminal import Terminal, own_network

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
BLOCKS = {name: blocks(ROOT / name, name) for name in DOCUMENTS}
TYPED = [name for name, found in BLOCKS.items() if any(block.mark == "run" for block in found)]
OTHER_LANGUAGES = {"yaml", "csv", "json", "text", "python", "mermaid"}
PROGRAMS = (
    *("bigfleet", "bigfleetctl", "fauxctl", "bigfleet-conformance"),
    *("bigfleet-operator", "bigfleet-unschedulable-pod-controller"),
)


@contextmanager
def clone(folder: Path, addresses: tuple[str, ...] = ()) -> Iterator[Terminal]:
    """A terminal in what looks like a fresh clone after `make run`: the tree, its environment, nothing built."""
    folder.mkdir()
    for name in ("docs", "examples", "bench"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "COLUMNS": "200",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    terminal = Terminal(folder, addresses=addresses, environment=environment)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize("document", TYPED)
def test_every_command_of_a_document_does_what_it_says(document: str, tmp_path: Path) -> None:
    chosen = [block for block in BLOCKS[document] if block.mark in ("run", "file")]
    addresses = tuple(block.needs[1].partition(":")[0] for block in chosen if block.needs)
    if addresses and not own_network():
        pytest.skip("this machine allows no network of one's own (unshare --net), which the addresses here need")
    with clone(tmp_path / "clone", addresses) as terminal:
        for block in chosen:
            type_block(terminal, block)


def type_block(terminal: Terminal, block: Block) -> None:
    if block.mark == "file":
        code, said = terminal.type(f"cat > {block.says} <<'END OF FILE'\n{block.text}END OF FILE\n")
        assert code == 0, f"{block.place}: {said}"
        return
    if block.needs is not None:
        NEEDED[block.needs[0]](terminal, block.needs[1])
    for command in block.commands():
        if block.until is not None:
            code, said = terminal.leave_running(command.text, block.until)
        else:
            code, said = terminal.type(command.text, fails=bool(block.exit_code))
        assert code == block.exit_code, f"{block.place}: `{command.text}` ended with {code}:\n{said[-3000:]}"
        lacking = missing_output(command.shown, said)
        assert not lacking, f"{block.place}: `{command.text}` did not print\n{lacking}\nbut\n{said[-3000:]}"


def provider(terminal: Terminal, address: str) -> None:
    """A provider that shows a certificate of the authority in certs/."""
    host, _, _ = address.partition(":")
    code, said = terminal.type(f"bigfleetctl certs issue provider aws-eu --ip {host} --force")
    assert code == 0, said
    tls = "--tls-cert certs/provider-aws-eu.crt --tls-key certs/provider-aws-eu.key --tls-ca certs/ca.crt"
    command = (
        f"python examples/skeleton_provider.py --addr {address} --state aws-eu.db --metrics-addr 127.0.0.1:9099 {tls}"
    )
    code, said = terminal.leave_running(command, ("address", "127.0.0.1:9099/readyz"))
    assert code == 0, said


NEEDED = {"provider": provider}


# ------------------------------------------------------------------------------------------------- what blocks must say


def test_every_block_of_commands_says_how_it_is_run() -> None:
    """A block without a mark would be a promise that nobody keeps."""
    every = [block for found in BLOCKS.values() for block in found]
    assert [block.place for block in every if not block.shell and block.language not in OTHER_LANGUAGES] == []
    assert [
        f"{block.place} {block.mark}: {block.says}" for block in every if block.shell and not block.understood
    ] == []
    assert {block.mark for block in every if not block.shell} <= {"", "file"}


def test_what_another_check_types_is_typed_there() -> None:
    reasons = {block.place: block.says for found in BLOCKS.values() for block in found if block.mark == "not run"}
    for place, says in reasons.items():
        if says.startswith("by "):
            assert (ROOT / says.removeprefix("by ")).exists(), f"{place}: {says}"
        else:
            assert says.startswith("needs "), f"{place}: {says}"


def test_the_documents_a_newcomer_reads_are_typed() -> None:
    assert {"README.md", "docs/first-hour.md", "docs/simulation.md", "docs/provider-author-guide.md"} <= set(TYPED)


@pytest.mark.parametrize(
    ("shown", "printed", "lacking"),
    [
        (("a", "b"), "a\nb\n", ""),
        (("b",), "a\nb\n", ""),
        (("a", "c"), "a\nb\nc\n", "c"),
        (("a", "...", "c"), "a\nb\nc\n", ""),
        (("a … c",), "a 17 c\n", ""),
        (("a", "...", "b", "...", "a"), "a\nb\n", "a"),
        ((), "anything", ""),
    ],
)
def test_shown_output_is_compared_line_by_line(shown: tuple[str, ...], printed: str, lacking: str) -> None:
    assert missing_output(shown, printed) == lacking


def test_a_console_block_is_commands_and_their_output() -> None:
    block = Block("x.md", 1, "console", "$ one \\\n  two\nout\n$ three\n", "run")
    assert [(each.text, each.shown) for each in block.commands()] == [("one \\\n  two", ("out",)), ("three", ())]
    assert "console" in SHELL


def test_a_failure_half_way_through_a_block_is_seen(tmp_path: Path) -> None:
    with clone(tmp_path / "clone") as terminal:
        assert terminal.type("x=7")[0] == 0
        assert terminal.type("echo $x") == (0, "7\n")
        assert terminal.type("exit 3", fails=True)[0] == 3
        assert terminal.leave_running("bash -c 'echo up; sleep 60'", ("text", "up"))[0] == 0
        code, said = terminal.type("echo before\nfalse\necho after")
        assert code == 1 and said.startswith("before\n") and "after" not in said


# ----------------------------------------------------------------------------------------------------- examples in help


@functools.cache
def commands() -> dict[str, Any]:
    """Every command and group of commands, by what is typed: `bigfleetctl certs issue`."""
    found: dict[str, Any] = {}
    for program, target in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].items():
        module = importlib.import_module(target.partition(":")[0])
        if hasattr(module, "app"):
            gather(found, program, module.app)
        for row in getattr(module, "SUBCOMMANDS", ()):
            path, _, name = row.module.partition(":")
            gather(found, f"{program} {row.name}", getattr(importlib.import_module(path), name or "app"))
    return found


def gather(found: dict[str, Any], typed: str, app: Any) -> None:
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer()
        app.command()(function)
    add(found, typed, typer.main.get_command(app))


def add(found: dict[str, Any], typed: str, command: Any) -> None:
    found[typed] = command
    for name, inner in getattr(command, "commands", {}).items():
        add(found, f"{typed} {name}", inner)


def examples() -> list[str]:
    """Lines of help that begin with one of our programs, with what a backslash continues."""
    begins = re.compile(rf"^ *(?:\$ )?((?:{'|'.join(PROGRAMS)}) (?:[^\n]*\\\n)*[^\n]*)$", re.M)
    texts = [text or "" for command in commands().values() for text in (command.help, command.epilog)]
    return list(dict.fromkeys(found.strip() for text in texts for found in begins.findall(text)))


def test_commands_named_in_a_sentence_exist_with_their_flags() -> None:
    """`bigfleet shard --help` in the middle of a paragraph is typed by readers too."""
    found = commands()
    wrong = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        for span in re.findall(rf"(?<!`)`((?:{'|'.join(PROGRAMS)}) [^`\n]+)`(?!`)", text):
            if unknown := unknown_words(found, span.split()):
                wrong.append(f"{name}: `{span}`: {unknown}")
    assert wrong == []
    assert unknown_words(found, ["fauxctl", "rnu", "spot-crunch"]) == ["rnu"]
    assert unknown_words(found, ["bigfleet", "shard", "--fake-providers", "--dry-run=true"]) == ["--fake-providers"]


def unknown_words(found: dict[str, Any], words: list[str]) -> list[str]:
    """Subcommands and flags that do not exist."""
    at = max(length for length in range(1, len(words) + 1) if " ".join(words[:length]) in found)
    typed = " ".join(words[:at])
    if any(other.startswith(f"{typed} ") for other in found) and at < len(words) and not words[at].startswith("-"):
        return [words[at]]
    flags = {"--help", *(flag for each in found[typed].params for flag in each.opts)}
    return [word for word in words[at:] if word.startswith("-") and word.partition("=")[0] not in flags]


SERVING = ("bigfleet shard ", "bigfleet all-in-one", "bigfleet fake-provider", "bigfleet coordinator ")
IN_A_CLUSTER = ("bigfleet-operator", "bigfleet-unschedulable-pod-controller")
READY = ("address", "127.0.0.1:8780/readyz")
COORDINATING = ("address", "127.0.0.1:8790/healthz")
BEFORE = """\
cp docs/examples/jobs.csv docs/examples/jobs-map.yaml .
printf 'extends: withdrawal\\nname: mine\\n' > mine.yaml
fauxctl run spot-crunch --record shard.rec --out build/before
fauxctl run spot-crunch --seed 2 --out build/after
"""


def test_every_example_of_help_works(tmp_path: Path) -> None:
    if not own_network():
        pytest.skip("this machine allows no network of one's own (unshare --net), which the addresses here need")
    found = examples()
    certificates = [line for line in found if line.startswith("bigfleetctl certs ")]
    serving = [line for line in found if line.startswith(SERVING)]
    asking = [line for line in found if line.startswith("bigfleetctl ") and line not in certificates]
    deleted = [line for line in asking if line.startswith("bigfleetctl clusters forget ")]
    clustered = [line for line in found if line.startswith(IN_A_CLUSTER)]
    others = [line for line in found if line not in {*certificates, *serving, *asking, *clustered}]
    assert len(certificates) >= 4 and len(serving) >= 3 and len(asking) >= 2 and len(others) >= 6
    with clone(tmp_path / "clone", ("10.0.0.5",)) as terminal:

        def typed(line: str) -> None:
            code, said = terminal.type(line)
            assert code == 0, f"`{line}` ended with {code}:\n{said[-3000:]}"

        def left_running(line: str, until: tuple[str, str]) -> None:
            code, said = terminal.leave_running(line, until)
            assert code == 0, f"`{line}` ended with {code}:\n{said[-3000:]}"

        # tests/kube types them beside a real API server; here there is none, and they say so.
        for line in clustered:
            code, said = terminal.type(line, fails=True)
            assert code == 1 and "no cluster to talk to: give --kubeconfig" in said and "Traceback" not in said, said
        typed(BEFORE)
        for line in [*certificates, *others]:
            typed(line)
        provider(terminal, "10.0.0.5:9000")
        left_running("bigfleet fake-provider", ("text", "provider serving"))
        for number, line in enumerate(serving):
            left_running(line, COORDINATING if line.startswith("bigfleet coordinator") else READY)
            if number == 0:
                for question in asking:
                    if question not in deleted:
                        typed(question)
                # No cluster ever came here, and none is forgotten by mistake.
                for line in deleted:
                    code, said = terminal.type(line, fails=True)
                    assert code == 3 and "is not known to this shard" in said, said
            terminal.stop()
