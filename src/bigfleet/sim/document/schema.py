"""The JSON schema of a document kind, from the same description its reader uses."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from bigfleet.duration import PATTERN
from bigfleet.sim.document.document import (
    DISTRIBUTIONS,
    Amounts,
    Dollars,
    Labels,
    Nanoseconds,
    default_of,
    hints,
    required,
    spelt,
)
from bigfleet.sim.document.text import field_as_text
from bigfleet.virtual.kernel import Duration


def schema(kind: type, title: str, *, extends: str = "") -> dict[str, Any]:
    """The JSON schema of a document kind, every class once under `$defs`.

    `extends` is what that key means where a document may build on another one and leave out what that one has.
    """
    definitions: dict[str, Any] = {}
    root = _schema(kind, {}, definitions)
    if extends:
        whole = definitions[kind.__name__]
        whole["properties"]["extends"] = {"type": "string", "description": extends}
        whole["anyOf"] = [{"required": whole.pop("required")}, {"required": ["extends"]}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema(kind: Any, facts: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALAR_SCHEMAS:
        return {**_SCALAR_SCHEMAS[kind], **_constraints(kind, facts)}
    if origin in (types.UnionType, typing.Union):
        kinds = [each for each in arguments if each is not type(None)]
        inner = [_schema(each, facts, definitions) for each in kinds]
        choices = inner + ([{"type": "null"}] if type(None) in arguments else [])
        return choices[0] if len(choices) == 1 else {"anyOf" if len(inner) == 1 else "oneOf": choices}
    if origin is tuple and arguments[-1] is ...:
        return {"type": "array", "items": _schema(arguments[0], facts, definitions)}
    if origin is tuple:
        parts = [_schema(each, facts, definitions) for each in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], facts, definitions)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # reserved first: documents may contain themselves
        definitions[kind.__name__] = _record_schema(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _record_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    demanded = []
    if (tag := getattr(kind, "TAG", None)) is not None:
        properties[tag[0]] = {"const": tag[1]}
        demanded.append(tag[0])
    for each in dataclasses.fields(kind):
        name = spelt(each.name)
        described = _schema(hints(kind)[each.name], each.metadata, definitions)
        if each.metadata["words"]:
            described = {"anyOf": [described, {"enum": list(each.metadata["words"])}]}
        properties[name] = {**described, "description": each.metadata["meaning"]}
        if required(each):
            demanded.append(name)
        elif (default := field_as_text(hints(kind)[each.name], default_of(each))) not in (None, "", [], {}):
            properties[name]["default"] = default
    text = " ".join((kind.__doc__ or "").split())
    return {
        "type": "object",
        "description": text,
        "properties": properties,
        "required": demanded,
        "additionalProperties": False,
    }


def _constraints(kind: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if kind in (int, float):
        if facts.get("low") is not None:
            found["minimum"] = facts["low"]
        if facts.get("high") is not None:
            found["maximum"] = facts["high"]
    if kind is str and facts.get("pattern"):
        found["pattern"] = f"^({facts['pattern']})$"
    return found


_QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_DURATION_SCHEMA = {"type": ["string", "number"], "pattern": f"^{PATTERN}$"}
_SCALAR_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Nanoseconds: _DURATION_SCHEMA,
    Dollars: {"anyOf": [{"type": "number", "minimum": 0}, {"const": "pinned"}]},
    Duration: {
        "anyOf": [
            _DURATION_SCHEMA,
            {
                "type": "object",
                "properties": {
                    "distribution": {"enum": list(DISTRIBUTIONS)},
                    **{part: _DURATION_SCHEMA for parts in DISTRIBUTIONS.values() for part in parts},
                },
                "required": ["distribution"],
                "additionalProperties": False,
            },
        ]
    },
    Amounts: _QUANTITIES,
    Labels: _QUANTITIES,
}
