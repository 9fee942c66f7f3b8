"""The single values of documents: texts, numbers, durations, dollars, quantities, and how each is read from a node."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NewType

import yaml

from bigfleet.duration import ACCEPTED, nanoseconds
from bigfleet.model.quantity import QuantityError, parse_quantity
from bigfleet.sim.document.nodes import at, complain, entries, refuse
from bigfleet.virtual.kernel import Duration, KernelError

Nanoseconds = NewType("Nanoseconds", int)
Dollars = NewType("Dollars", float)
Amounts = NewType("Amounts", dict)  # type: ignore[type-arg]
"""Resource name to Kubernetes quantity text, checked."""
Labels = NewType("Labels", dict)  # type: ignore[type-arg]

DISTRIBUTIONS = {
    "fixed": ("value",),
    "uniform": ("from", "to"),
    "exponential": ("mean",),
    "lognormal": ("median", "p99"),
}


def _scalar(node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (ValueError, yaml.YAMLError):
        return node  # looks like a date or a number and is none; whoever asked complains


def _text(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> str:
    accepted = facts.get("accepted") or "a text"
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        raise refuse(node, path, accepted)
    if facts.get("pattern") and not re.fullmatch(facts["pattern"], node.value):
        raise refuse(node, path, accepted)
    return str(node.value)


def _whole(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> int:
    value = _scalar(node)
    low, high = facts.get("low"), facts.get("high")
    accepted = facts.get("accepted") or "a whole number" + _limits(low, high)
    if isinstance(value, bool) or not isinstance(value, int) or not _within(value, low, high):
        raise refuse(node, path, accepted)
    return value


def _number(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> float:
    value = _scalar(node)
    low, high = facts.get("low"), facts.get("high")
    accepted = facts.get("accepted") or "a number" + _limits(low, high)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refuse(node, path, accepted)
    if not _within(value, low, high):
        raise refuse(node, path, accepted)
    return float(value)


def _flag(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> bool:
    value = _scalar(node)
    if not isinstance(value, bool):
        raise refuse(node, path, "true or false")
    return value


def _nanoseconds(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Nanoseconds:
    value = nanoseconds(node.value, bare="s") if isinstance(node, yaml.ScalarNode) else None
    if value is None:
        raise refuse(node, path, ACCEPTED)
    if not _within(value, facts.get("low"), None):
        raise refuse(node, path, f"more than 0, {ACCEPTED}")
    return Nanoseconds(value)


def _dollars(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Dollars:
    if isinstance(node, yaml.ScalarNode) and node.value == "pinned":
        return Dollars(math.inf)
    value = _scalar(node)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise refuse(node, path, "dollars, 0 or more, or pinned")
    return Dollars(float(value))


def _distribution(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Duration:
    if isinstance(node, yaml.ScalarNode):
        return Duration.fixed(_nanoseconds(node, path, facts))
    found = {key: value for key, _, value in entries(node, path)}
    shape = found.pop("distribution", None)
    name = shape.value if isinstance(shape, yaml.ScalarNode) else None
    if name not in DISTRIBUTIONS:
        raise complain(node, f"{at(path)} needs a distribution; give one of {', '.join(DISTRIBUTIONS)}")
    parts = DISTRIBUTIONS[name]
    if set(found) != set(parts):
        raise complain(node, f"{at(path)} has {sorted(found)}; a {name} distribution takes {', '.join(parts)}")
    try:
        return Duration(name, *(_nanoseconds(found[part], f"{path}.{part}", facts) for part in parts))
    except KernelError as error:
        raise complain(node, f"{at(path)}: {error}") from error


def _amounts(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Amounts:
    found: dict[str, str] = {}
    for key, _, value in entries(node, path):
        try:
            if not isinstance(value, yaml.ScalarNode):
                raise QuantityError("not a scalar")
            parse_quantity(value.value)
        except QuantityError as error:
            raise refuse(value, f"{path}.{key}", "a Kubernetes quantity such as 4, 500m or 16Gi") from error
        found[key] = value.value
    return Amounts(found)


def _labels(node: yaml.Node, path: str, facts: Mapping[str, Any]) -> Labels:
    return Labels({key: _text(value, f"{path}.{key}", {}) for key, _, value in entries(node, path)})


READERS: dict[Any, Callable[[yaml.Node, str, Mapping[str, Any]], Any]] = {
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
"""Kind of value to what reads it: a node, its path in the document, and what the field accepts."""


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _limits(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if low is not None:
        return f" of at least {low:g}"
    return "" if high is None else f" of at most {high:g}"
