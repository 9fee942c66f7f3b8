"""The code blocks of our documents, and what each says about how it is to be run.

A comment before a block is its mark; blocks of shell commands without one are a defect of the document:

    <!-- run -->                                       typed as it stands, in the folder the block before left
    <!-- run: exit 1 -->                               typed; shows a refusal, so it must end with this code
    <!-- run: another terminal, until 127.0.0.1:8780/readyz -->   left running; the next block waits for the address
    <!-- run: another terminal, until "has 3" -->      left running; the next block waits for the text in its output
    <!-- run: needs provider at 10.0.0.5:9000 -->      typed while such a part runs there
    <!-- file: two-teams.yaml -->                      not a command: saved under this name in that folder
    <!-- not run: needs a real cloud -->               cannot be run here, and why
    <!-- not run: by tests/component/test_x.py -->     typed by another check, which must exist

In a `console` block a line that begins with `$ ` is typed and the lines below it are its output: each must be printed,
in this order; `...` stands for any lines, `…` for any part of a line. Every other shell block is typed as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SHELL = frozenset({"bash", "sh", "shell", "console"})
_MARK = re.compile(r"<!-- (run|not run|file)(?:: (.*?))? -->")
_FENCE = re.compile(r"```(\S*)")
_UNTIL = re.compile(r"another terminal, until (?:\"(?P<text>.+)\"|(?P<address>\S+/\S+))")
_EXIT = re.compile(r"exit (\d+)")
_NEEDS = re.compile(r"needs (\w+)(?: at (\S+))?")


@dataclass(frozen=True, slots=True)
class Command:
    """What one person types in one go, and what the document says it prints."""

    text: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """One code block. `mark` is run, not run, file or empty; `says` what follows it."""

    document: str
    line: int
    language: str
    text: str
    mark: str = ""
    says: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def shell(self) -> bool:
        return self.language in SHELL

    @property
    def exit_code(self) -> int:
        found = _EXIT.fullmatch(self.says)
        return int(found[1]) if found else 0

    @property
    def until(self) -> tuple[str, str] | None:
        """What shows that a block left running is ready: ("text", …) or ("address", …)."""
        found = _UNTIL.fullmatch(self.says)
        if found is None:
            return None
        return ("text", found["text"]) if found["text"] else ("address", found["address"])

    @property
    def needs(self) -> tuple[str, str] | None:
        """The part that must run, and where."""
        found = _NEEDS.fullmatch(self.says) if self.mark == "run" else None
        return (found[1], found[2] or "") if found else None

    @property
    def understood(self) -> bool:
        """Whether the mark is one of those above."""
        if self.mark == "run":
            return not self.says or any(each.fullmatch(self.says) for each in (_UNTIL, _EXIT, _NEEDS))
        return bool(self.mark and self.says)

    def commands(self) -> list[Command]:
        if self.language != "console":
            return [Command(self.text)]
        made: list[tuple[list[str], list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                made.append(([line[2:]], []))
            elif made and made[-1][0][-1].endswith("\\") and not made[-1][1]:
                made[-1][0].append(line)
            elif made:
                made[-1][1].append(line)
            else:
                raise ValueError(f"{self.place}: the block begins with output; begin with a line `$ command`")
        return [Command("\n".join(typed), tuple(shown)) for typed, shown in made]


def blocks(path: Path, name: str) -> list[Block]:
    """Fenced blocks, and indented ones, which are commands."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    mark = says = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.fullmatch(line):
            end = lines.index("```", at + 1)
            found.append(Block(name, at + 1, fence[1], _joined(lines[at + 1 : end]), mark, says))
            mark = says = ""
            at = end + 1
        elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = _joined([each[4:] for each in lines[at:end]]).rstrip() + "\n"
            found.append(Block(name, at + 1, "sh", text, mark, says))
            mark = says = ""
            at = end
        else:
            if noted := _MARK.fullmatch(line):
                mark, says = noted[1], noted[2] or ""
            elif line.strip():
                mark = says = ""
            at += 1
    return found


def missing_output(shown: tuple[str, ...], printed: str) -> str:
    """The first shown line that was not printed in its place; empty when all were."""
    lines = [line.rstrip() for line in printed.splitlines()]
    at, anywhere = 0, True
    for line in shown:
        if line.strip() == "...":
            anywhere = True
            continue
        wanted = re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))
        stop = len(lines) if anywhere else min(at + 1, len(lines))
        here = next((number for number in range(at, stop) if wanted.fullmatch(lines[number])), None)
        if here is None:
            return line
        at, anywhere = here + 1, False
    return ""


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
