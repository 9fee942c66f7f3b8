"""Writes the pictures of docs/architecture.md from the tree: which rooms there are, what each owns, who imports whom.

    python tools/architecture.py docs/architecture.md

Only what stands between the `generated` marks is rewritten. A test compares the file with `page()`, so a room that
appears, or an import that turns an arrow round, shows in the document or fails the test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
_MARK = re.compile(r"(<!-- generated: (?P<what>[\w.]+) -->\n).*?(<!-- end -->)", re.S)


def page(text: str) -> str:
    """The document with every generated part made anew."""
    return _MARK.sub(lambda found: f"{found[1]}{_rooms(found['what'])}{found[3]}", text)


def _rooms(package: str) -> str:
    """A package's rooms: a picture of who imports whom, and what each says it owns."""
    folder = SOURCE.joinpath(*package.split("."))
    rooms = {name: _head(path) for name, path in sorted(_members(folder))}
    edges = {(a, b) for a, b in _imports(package, folder) if a in rooms and b in rooms and a != b}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {a} --> {b}" for a, b in sorted(_reduced(edges))]
    lines += [f"    {name}" for name in rooms if not any(name in edge for edge in edges)]
    lines += ["```", "", "| room | owns |", "|---|---|"]
    lines += [f"| `{name}` | {head} |" for name, head in rooms.items()]
    return "\n".join(lines) + "\n"


def _members(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            yield path.name, path / "__init__.py"
        elif path.suffix == ".py" and path.stem != "__init__":
            yield path.stem, path


def _head(path: Path) -> str:
    """The first sentence of a module's head."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


def _imports(package: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{package}."):
                named = node.module.removeprefix(package).lstrip(".").split(".")[0]
                for room in [named] if named else [alias.name for alias in node.names]:
                    yield inside[0], room


def _reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that no longer path says already."""
    below: dict[str, set[str]] = {}
    for a, b in edges:
        below.setdefault(a, set()).add(b)

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        steps = below.get(start, set()) - seen
        return goal in steps or any(reaches(step, goal, seen | steps) for step in steps)

    return {(a, b) for a, b in edges if not any(reaches(step, b, {a}) for step in below[a] - {b})}


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(page(document.read_text(encoding="utf-8")), encoding="utf-8")
