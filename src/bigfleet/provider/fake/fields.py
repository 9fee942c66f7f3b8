"""Reads a mapping from a file field by field; every complaint names the field, its value and what would be accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bigfleet.duration import ACCEPTED, nanoseconds
from bigfleet.model.quantity import QuantityError, parse_quantity
from bigfleet.virtual.kernel import SECOND, Duration, KernelError

T = TypeVar("T")

_SHAPES = {
    "fixed": ("value",),
    "uniform": ("from", "to"),
    "exponential": ("mean",),
    "lognormal": ("median", "p99"),
}


class CatalogueError(ValueError):
    """A catalogue, rule or command cannot be used; the message says which field, what it holds, what it takes."""


class Fields:
    """One mapping of a file. Ask for each known field, then call `done`, which refuses the rest."""

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise CatalogueError(f"{where} is {_shown(value)}; give a mapping of fields")
        self.where = where
        self._values: dict[str, Any] = {str(key): item for key, item in value.items()}
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def done(self) -> None:
        """Refuse every field nobody asked for."""
        for name in self._values:
            if name not in self._asked:
                raise CatalogueError(f"{self.where} has an unknown field {name!r}; known are {', '.join(self._asked)}")

    def text(self, name: str, default: str | None = None, *, pattern: str = "", accepted: str = "a text") -> str:
        value = self._take(name, default, accepted)
        if not isinstance(value, str) or (pattern and not re.fullmatch(pattern, value)):
            raise self.refuse(name, value, accepted)
        return value

    def choice(self, name: str, options: Mapping[str, T], default: str | None = None) -> T:
        accepted = "one of " + ", ".join(options)
        value = self._take(name, default, accepted)
        if not isinstance(value, str) or value not in options:
            raise self.refuse(name, value, accepted)
        return options[value]

    def number(self, name: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12) -> float:
        accepted = f"a number from {low:g} to {high:g}"
        value = self._take(name, default, accepted)
        # `not in-range` written this way round refuses NaN as well.
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.refuse(name, value, accepted)
        return float(value)

    def whole(self, name: str, default: int | None = None, *, low: int = 0, high: int = 10_000_000) -> int:
        accepted = f"a whole number from {low} to {high}"
        value = self._take(name, default, accepted)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(name, value, accepted)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default, "true or false")
        if not isinstance(value, bool):
            raise self.refuse(name, value, "true or false")
        return value

    def seconds(self, name: str, default: float | None = None) -> float:
        return self._nanoseconds(name, default) / SECOND

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._take(name, default, "a list of texts")
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
            raise self.refuse(name, value, "a list of texts")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, str]:
        """A map of texts; numbers are taken as their text, because `cpu: 4` is what people write."""
        value = self._take(name, {}, "a mapping of texts")
        if not isinstance(value, Mapping):
            raise self.refuse(name, value, "a mapping of texts")
        found: dict[str, str] = {}
        for key, item in value.items():
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                raise self.refuse(f"{name}.{key}", item, "a text")
            found[str(key)] = str(item)
        return found

    def quantities(self, name: str) -> dict[str, str]:
        """Amounts of resources, as texts."""
        amounts = self.mapping(name)
        for resource, amount in amounts.items():
            try:
                parse_quantity(amount)
            except QuantityError as error:
                accepted = "a Kubernetes quantity such as 4, 500m or 16Gi"
                raise self.refuse(f"{name}.{resource}", amount, accepted) from error
        return amounts

    def section(self, name: str) -> Fields:
        return Fields(f"{self.where}.{name}", self._take(name, {}, "a mapping"))

    def items(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        value = self._take(name, [], "a list")
        if not isinstance(value, list):
            raise self.refuse(name, value, "a list of mappings")
        return tuple(read(Fields(f"{self.where}.{name}[{number}]", item)) for number, item in enumerate(value))

    def duration(self, name: str, default: Duration) -> Duration:
        """A distribution: `200ms`, or `{distribution: lognormal, median: 40s, p99: 90s}` and its like."""
        self._note(name)
        if name not in self._values:
            return default
        value = self._values[name]
        if not isinstance(value, Mapping):
            return Duration.fixed(self._nanoseconds(name, None))
        inner = Fields(f"{self.where}.{name}", value)
        shape = inner.choice("distribution", {kind: kind for kind in _SHAPES}, "fixed")
        numbers = [inner._nanoseconds(part, None) for part in _SHAPES[shape]]
        inner.done()
        try:
            return Duration(shape, *numbers)
        except KernelError as error:
            raise CatalogueError(f"{inner.where}: {error}") from error

    def refuse(self, name: str, value: object, accepted: str) -> CatalogueError:
        return CatalogueError(f"{self.where}.{name} is {_shown(value)}; give {accepted}")

    def _nanoseconds(self, name: str, default: float | None) -> int:
        value = self._take(name, default, ACCEPTED)
        found = nanoseconds(str(value), bare="s") if not isinstance(value, bool) else None
        if found is None:
            raise self.refuse(name, value, ACCEPTED)
        return found

    def _take(self, name: str, default: Any, accepted: str) -> Any:
        self._note(name)
        if name in self._values:
            return self._values[name]
        if default is None:
            raise CatalogueError(f"{self.where}.{name} is missing; give {accepted}")
        return default

    def _note(self, name: str) -> None:
        if name not in self._asked:
            self._asked.append(name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
