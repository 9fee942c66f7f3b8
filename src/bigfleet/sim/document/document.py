"""Typed documents: dataclasses read from YAML, with file and line in every complaint.

A document class is a frozen dataclass whose fields carry their meaning (`item`). The same description serves the reader
here, the schema (`document_schema`) and the writer (`document_text`), so they cannot drift apart. Unknown keys are
errors. Knows nothing about what the documents mean. Nodes and single values have modules of their own; who writes or
reads documents finds all of it here.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from bigfleet.sim.document.nodes import (
    DocumentError,
    MisfitError,
    Place,
    at,
    complain,
    compose,
    entries,
    overlay,
    placed,
    refuse,
    take,
    text_of,
)
from bigfleet.sim.document.values import DISTRIBUTIONS, READERS, Amounts, Dollars, Labels, Nanoseconds

__all__ = [
    "DISTRIBUTIONS",
    "Amounts",
    "DocumentError",
    "Dollars",
    "Labels",
    "MisfitError",
    "Nanoseconds",
    "Place",
    "compose",
    "default_of",
    "hints",
    "item",
    "load",
    "overlay",
    "placed",
    "read",
    "required",
    "spelt",
    "take",
    "text_of",
]

T = TypeVar("T")


def item(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,
    low: float | None = None,
    high: float | None = None,
    pattern: str = "",
    accepted: str = "",
    words: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """A field of a document: what it means, its default (none = required), what it takes, and single words that stand
    for a whole value."""
    facts = {"meaning": meaning, "low": low, "high": high, "pattern": pattern, "accepted": accepted, "words": words}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


def read(kind: type[T], node: yaml.Node) -> T:
    """A document of this kind; raises DocumentError at the first thing that does not fit."""
    value: T = _read(kind, node, "", {})
    return value


def load(kind: type[T], text: str, where: str) -> T:
    return read(kind, compose(text, where))


def _read(kind: Any, node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in READERS:
        return READERS[kind](node, path, facts)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, node, path, facts)
    if origin is tuple and arguments[-1] is ...:
        if not isinstance(node, yaml.SequenceNode):
            raise refuse(node, path, "a list")
        return tuple(_read(arguments[0], entry, f"{path}[{n}]", facts) for n, entry in enumerate(node.value))
    if origin is tuple:
        if not isinstance(node, yaml.SequenceNode) or len(node.value) != len(arguments):
            raise refuse(node, path, f"a list of {len(arguments)}")
        pairs = zip(arguments, node.value, strict=True)
        return tuple(_read(each, entry, f"{path}[{n}]", facts) for n, (each, entry) in enumerate(pairs))
    if origin in (dict, Mapping):
        return {key: _read(arguments[1], value, f"{path}.{key}", facts) for key, _, value in entries(node, path)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        text = node.value if isinstance(node, yaml.ScalarNode) else None
        if text not in {member.value for member in kind}:
            raise refuse(node, path, "one of " + ", ".join(member.value for member in kind))
        return kind(text)
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, node, path, None)
    raise TypeError(f"{path} has type {kind!r}, which no document may have")


def _read_record(kind: Any, node: yaml.Node, path: str, tag: str | None) -> Any:
    known = {spelt(each.name): each for each in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, key_node, value in entries(node, path):
        if key == tag:
            continue
        if key not in known:
            names = ", ".join(([tag] if tag else []) + list(known))
            raise complain(key_node, f"{at(path)} has an unknown key {key!r}; known are {names}")
        each = known[key]
        words = each.metadata["words"]
        if isinstance(value, yaml.ScalarNode) and value.value in words:
            values[each.name] = words[value.value]
            continue
        values[each.name] = _read(hints(kind)[each.name], value, f"{path}.{key}".lstrip("."), each.metadata)
    for key, each in known.items():
        if each.name not in values and required(each):
            raise complain(node, f"{at(path)} lacks {key!r}; give {each.metadata['meaning']}")
    try:
        return kind(**values)
    except MisfitError as error:
        raise placed(error, node) from error
    except ValueError as error:
        raise complain(node, f"{at(path)}: {error}") from error


def _read_union(kinds: tuple[Any, ...], node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Any:
    if type(None) in kinds:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
            return None
        kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) == 1:
        return _read(kinds[0], node, path, facts)
    tagged = {kind.TAG[1]: kind for kind in kinds}
    word = kinds[0].TAG[0]
    found = {key: value for key, _, value in entries(node, path)}
    if word not in found:
        raise complain(node, f"{at(path)} lacks {word!r}; give one of {', '.join(sorted(tagged))}")
    choice = found[word]
    if not isinstance(choice, yaml.ScalarNode) or choice.value not in tagged:
        raise refuse(choice, f"{path}.{word}", "one of " + ", ".join(sorted(tagged)))
    return _read_record(tagged[choice.value], node, path, word)


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
