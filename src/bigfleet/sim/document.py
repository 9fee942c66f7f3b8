"""Typed documents: dataclasses read from YAML, with file and line in every complaint.

A document class is a frozen dataclass whose fields carry their meaning (`item`). The same description serves the reader
here, the schema (`document_schema`) and the writer (`document_text`), so they cannot drift apart. Unknown keys are
errors. Knows nothing about what the documents mean.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NewType, TypeVar

import yaml

from bigfleet.model.quantity import QuantityError, parse_quantity
from bigfleet.sim.kernel import HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration, KernelError

T = TypeVar("T")

Nanoseconds = NewType("Nanoseconds", int)
Dollars = NewType("Dollars", float)
Amounts = NewType("Amounts", dict)  # type: ignore[type-arg]
"""Resource name to Kubernetes quantity text, checked."""
Labels = NewType("Labels", dict)  # type: ignore[type-arg]

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ns|us|ms|s|m|h|d)?")
_UNITS: dict[str | None, int] = {
    "ns": 1,
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": 24 * HOUR,
    None: SECOND,
}
DISTRIBUTIONS = {
    "fixed": ("value",),
    "uniform": ("from", "to"),
    "exponential": ("mean",),
    "lognormal": ("median", "p99"),
}
_DURATION_ACCEPTED = "a duration such as 150ms, 40s, 5m, 2h or 7d"


class DocumentError(ValueError):
    """One sentence: file and line, the field, its value, what would be accepted."""


Place = tuple[str | int, ...]
"""The keys and numbers that lead to a value in its document."""


class MisfitError(ValueError):
    """A value that has its type but does not fit the rest of its document: where it is, and what is wrong with it."""

    def __init__(self, place: Place, problem: str) -> None:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        super().__init__(f"{_at(text)}{problem if problem.startswith(':') else f' {problem}'}")
        self.place = place


def item(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,
    low: float | None = None,
    high: float | None = None,
    pattern: str = "",
    accepted: str = "",
) -> Any:
    """A field of a document: what it means, its default (none = required) and what it takes."""
    facts = {"meaning": meaning, "low": low, "high": high, "pattern": pattern, "accepted": accepted}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


# ------------------------------------------------------------------------------------------------------------- reading


def text_of(path: pathlib.Path) -> str:
    """The text of a file somebody named."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: is not text: byte {error.start} is not UTF-8; save it as UTF-8") from error


def compose(text: str, where: str) -> yaml.Node:
    """The node tree of a YAML text, marks and all."""
    try:
        node: yaml.Node | None = yaml.compose(_Named(text, where), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{where}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise DocumentError(f"{where}:1: not YAML: {' '.join(str(error).split())}") from error
    if node is None:
        raise DocumentError(f"{where}:1: the file is empty; give a mapping of fields")
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


def placed(error: ValueError, node: yaml.Node) -> DocumentError:
    """The complaint about a document made of this node, at the line of the value it is about."""
    return _complain(_found(node, error.place if isinstance(error, MisfitError) else ()), str(error))


def read(kind: type[T], node: yaml.Node) -> T:
    """A document of this kind; raises DocumentError at the first thing that does not fit."""
    value: T = _read(kind, node, "", {})
    return value


def load(kind: type[T], text: str, where: str) -> T:
    return read(kind, compose(text, where))


def _read(kind: Any, node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind](node, path, facts)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, node, path, facts)
    if origin is tuple and arguments[-1] is ...:
        if not isinstance(node, yaml.SequenceNode):
            raise _refuse(node, path, "a list")
        return tuple(_read(arguments[0], entry, f"{path}[{n}]", facts) for n, entry in enumerate(node.value))
    if origin is tuple:
        if not isinstance(node, yaml.SequenceNode) or len(node.value) != len(arguments):
            raise _refuse(node, path, f"a list of {len(arguments)}")
        pairs = zip(arguments, node.value, strict=True)
        return tuple(_read(each, entry, f"{path}[{n}]", facts) for n, (each, entry) in enumerate(pairs))
    if origin in (dict, Mapping):
        return {key: _read(arguments[1], value, f"{path}.{key}", facts) for key, _, value in _entries(node, path)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        text = node.value if isinstance(node, yaml.ScalarNode) else None
        if text not in {member.value for member in kind}:
            raise _refuse(node, path, "one of " + ", ".join(member.value for member in kind))
        return kind(text)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, node, path, None)
    raise TypeError(f"{path} has type {kind!r}, which no document may have")


def _read_record(kind: Any, node: yaml.Node, path: str, tag: str | None) -> Any:
    known = {spelt(each.name): each for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, key_node, value in _entries(node, path):
        if key == tag:
            continue
        if key not in known:
            names = ", ".join(([tag] if tag else []) + list(known))
            raise _complain(key_node, f"{_at(path)} has an unknown key {key!r}; known are {names}")
        each = known[key]
        if each.name in values:
            raise _complain(key_node, f"{_at(path)} has {key!r} twice; give it once")
        values[each.name] = _read(hints(kind)[each.name], value, f"{path}.{key}".lstrip("."), each.metadata)
    for key, each in known.items():
        if each.name not in values and required(each):
            raise _complain(node, f"{_at(path)} lacks {key!r}; give {each.metadata['meaning']}")
    try:
        return kind(**values)
    except MisfitError as error:
        raise placed(error, node) from error
    except ValueError as error:
        raise _complain(node, f"{_at(path)}: {error}") from error


def _read_union(kinds: tuple[Any, ...], node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Any:
    if type(None) in kinds:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
            return None
        kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) == 1:
        return _read(kinds[0], node, path, facts)
    tagged = {kind.TAG[1]: kind for kind in kinds}
    word = kinds[0].TAG[0]
    found = {key: value for key, _, value in _entries(node, path)}
    if word not in found:
        raise _complain(node, f"{_at(path)} lacks {word!r}; give one of {', '.join(sorted(tagged))}")
    choice = found[word]
    if not isinstance(choice, yaml.ScalarNode) or choice.value not in tagged:
        raise _refuse(choice, f"{path}.{word}", "one of " + ", ".join(sorted(tagged)))
    return _read_record(tagged[choice.value], node, path, word)


def _entries(node: yaml.Node, path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _refuse(node, path, "a mapping")
    return [(str(key.value), key, value) for key, value in node.value]


def _scalar(node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError):
        return node  # looks like a date or a number and is none; whoever asked complains


def _text(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> str:
    accepted = facts.get("accepted") or "a text"
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        raise _refuse(node, path, accepted)
    if facts.get("pattern") and not re.fullmatch(facts["pattern"], node.value):
        raise _refuse(node, path, accepted)
    return str(node.value)


def _whole(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> int:
    value = _scalar(node)
    low, high = facts.get("low"), facts.get("high")
    accepted = facts.get("accepted") or "a whole number" + _limits(low, high)
    if isinstance(value, bool) or not isinstance(value, int) or not _within(value, low, high):
        raise _refuse(node, path, accepted)
    return value


def _number(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> float:
    value = _scalar(node)
    low, high = facts.get("low"), facts.get("high")
    accepted = facts.get("accepted") or "a number" + _limits(low, high)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refuse(node, path, accepted)
    if not _within(value, low, high):
        raise _refuse(node, path, accepted)
    return float(value)


def _flag(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> bool:
    value = _scalar(node)
    if not isinstance(value, bool):
        raise _refuse(node, path, "true or false")
    return value


def _nanoseconds(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Nanoseconds:
    found = DURATION.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    if found is None:
        raise _refuse(node, path, _DURATION_ACCEPTED)
    value = round(float(found[1]) * _UNITS[found[2]])
    if not _within(value, facts.get("low"), None):
        raise _refuse(node, path, f"more than 0, {_DURATION_ACCEPTED}")
    return Nanoseconds(value)


def _dollars(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Dollars:
    if isinstance(node, yaml.ScalarNode) and node.value == "pinned":
        return Dollars(math.inf)
    value = _scalar(node)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _refuse(node, path, "dollars, 0 or more, or pinned")
    return Dollars(float(value))


def _distribution(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Duration:
    if isinstance(node, yaml.ScalarNode):
        return Duration.fixed(_nanoseconds(node, path, facts))
    entries = {key: value for key, _, value in _entries(node, path)}
    shape = entries.pop("distribution", None)
    name = shape.value if isinstance(shape, yaml.ScalarNode) else None
    if name not in DISTRIBUTIONS:
        raise _complain(node, f"{_at(path)} needs a distribution; give one of {', '.join(DISTRIBUTIONS)}")
    parts = DISTRIBUTIONS[name]
    if set(entries) != set(parts):
        raise _complain(node, f"{_at(path)} has {sorted(entries)}; a {name} distribution takes {', '.join(parts)}")
    try:
        return Duration(name, *(_nanoseconds(entries[part], f"{path}.{part}", facts) for part in parts))
    except KernelError as error:
        raise _complain(node, f"{_at(path)}: {error}") from error


def _amounts(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Amounts:
    found: dict[str, str] = {}
    for key, _, value in _entries(node, path):
        try:
            if not isinstance(value, yaml.ScalarNode):
                raise QuantityError("not a scalar")
            parse_quantity(value.value)
        except QuantityError as error:
            raise _refuse(value, f"{path}.{key}", "a Kubernetes quantity such as 4, 500m or 16Gi") from error
        found[key] = value.value
    return Amounts(found)


def _labels(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Labels:
    return Labels({key: _text(value, f"{path}.{key}", {}) for key, _, value in _entries(node, path)})


_SCALARS: dict[Any, Callable[[yaml.Node, str, Mapping[str, Any]], Any]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    Nanoseconds: _nanoseconds,
    Dollars: _dollars,
    Duration: _distribution,
    Amounts: _amounts,
    Labels: _labels,
}


# --------------------------------------------------------------------------------------------------------------- parts


class _Named:
    """A text stream with a name, so that marks carry the file."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._text = text

    def read(self, size: int = -1) -> str:
        found, self._text = self._text[:size], self._text[size:]
        return found


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def default_of(each: dataclasses.Field[Any]) -> Any:
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def spelt(name: str) -> str:
    """`from_` in code is `from` in the document."""
    return name.rstrip("_")


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _limits(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if low is not None:
        return f" of at least {low:g}"
    return "" if high is None else f" of at most {high:g}"


def _at(path: str) -> str:
    return path.lstrip(".") or "the document"


def _found(node: yaml.Node, place: Place) -> yaml.Node:
    """The node at a path, or the nearest one above it: what is left out is complained about where it should be."""
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


def _refuse(node: yaml.Node, path: str, accepted: str) -> DocumentError:
    kinds: dict[type, str] = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
    value = kinds.get(type(node)) or repr(node.value if len(str(node.value)) <= 60 else str(node.value)[:57] + "...")
    return _complain(node, f"{_at(path)} is {value}; give {accepted}")


def _complain(node: yaml.Node, sentence: str) -> DocumentError:
    mark = node.start_mark
    return DocumentError(f"{mark.name}:{mark.line + 1}: {sentence}")
