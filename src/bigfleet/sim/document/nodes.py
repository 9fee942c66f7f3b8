"""YAML as nodes that remember where they stand, and complaints that say so. Knows nothing about documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bigfleet.refusal import RefusalError
from bigfleet.yaml_text import given_twice, told_twice

# A history of a day is megabytes of YAML: the C library reads it six times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Place = tuple[str | int, ...]
"""The keys and numbers that lead to a value in its document."""


class DocumentError(RefusalError, ValueError):
    """One sentence: file and line, the field, its value, what would be accepted."""


class MisfitError(ValueError):
    """A value that has its type but does not fit the rest of its document: where it is, and what is wrong with it."""

    def __init__(self, place: Place, problem: str) -> None:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        super().__init__(f"{at(text)}{problem if problem.startswith(':') else f' {problem}'}")
        self.place = place


_PACKED = frozenset({".gz", ".zip", ".bz2", ".xz", ".zst"})


def text_of(path: Path) -> str:
    """The text of a file somebody named."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        packed = path.suffix in _PACKED
        how = "unpack it first" if packed else "save it as UTF-8"
        raise DocumentError(f"{path}: is not text: byte {error.start} is not UTF-8; {how}") from error


def compose(text: str, where: str) -> yaml.Node:
    """The node tree of a YAML text, marks and all; no mapping in it has a key twice."""
    try:
        node: yaml.Node | None = yaml.compose(_Named(text, where), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{where}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise DocumentError(f"{where}:1: not YAML: {' '.join(str(error).split())}") from error
    if node is None:
        raise DocumentError(f"{where}:1: the file is empty; give a mapping of fields")
    if (found := given_twice(node)) is not None:
        raise complain(found[0], told_twice(*found))
    return node


def overlay(base: yaml.Node, over: yaml.Node) -> yaml.Node:
    """`over` on top of `base`: mappings are merged key by key, everything else is replaced."""
    if not isinstance(base, yaml.MappingNode) or not isinstance(over, yaml.MappingNode):
        return over
    merged = {key.value: (key, value) for key, value in base.value}
    for key, value in over.value:
        known = merged.get(key.value)
        merged[key.value] = (key, overlay(known[1], value) if known else value)
    return yaml.MappingNode(over.tag, list(merged.values()), over.start_mark, over.end_mark)


def take(node: yaml.Node, key: str) -> tuple[str | None, yaml.Node]:
    """The text under a top-level key, and the mapping without it."""
    if not isinstance(node, yaml.MappingNode):
        return None, node
    found = [value for name, value in node.value if name.value == key]
    rest = [(name, value) for name, value in node.value if name.value != key]
    return (found[0].value if found else None), yaml.MappingNode(node.tag, rest, node.start_mark, node.end_mark)


def entries(node: yaml.Node, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
    """Key, node of the key and node of the value, in the order of the text."""
    if not isinstance(node, yaml.MappingNode):
        raise refuse(node, path, "a mapping")
    return [(str(key.value), key, value) for key, value in node.value]


def at(path: str) -> str:
    """What to call a place in the document."""
    return path.lstrip(".") or "the document"


def refuse(node: yaml.Node, path: str, accepted: str) -> DocumentError:
    """The complaint about a value: what it is, and what would be accepted."""
    kinds: dict[type, str] = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
    value = kinds.get(type(node)) or repr(node.value if len(str(node.value)) <= 60 else str(node.value)[:57] + "...")
    return complain(node, f"{at(path)} is {value}; give {accepted}")


def complain(node: yaml.Node, sentence: str) -> DocumentError:
    """A complaint with file and line."""
    mark = node.start_mark
    return DocumentError(f"{mark.name}:{mark.line + 1}: {sentence}")


def placed(error: ValueError, node: yaml.Node) -> DocumentError:
    """The complaint about a document made of this node, at the line of the value it is about."""
    return complain(_found(node, error.place if isinstance(error, MisfitError) else ()), str(error))


def _found(node: yaml.Node, place: Place) -> yaml.Node:
    """The node at a place, or the nearest one above it: what is left out is complained about where it should be."""
    for part in place:
        below: dict[Any, yaml.Node] = {}
        if isinstance(node, yaml.MappingNode):
            below = {str(key.value): value for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            below = dict(enumerate(node.value))
        if part not in below:
            break
        node = below[part]
    return node


class _Named:
    """A text stream with a name, so that marks carry the file."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._text = text

    def read(self, size: int = -1) -> str:
        found, self._text = self._text[:size], self._text[size:]
        return found
