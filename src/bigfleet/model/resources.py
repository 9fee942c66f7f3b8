"""Resource vectors in whole engine units: cpu in milli, memory and storage in KiB, everything else counted.

Owns the arithmetic on them and their limits. Amounts are never negative and zero dimensions are dropped, so equal
vectors are equal values. Quantity text exists only in `parse` and `to_wire`.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, KeysView, Mapping
from functools import lru_cache
from typing import ClassVar

from bigfleet.model.quantity import from_units, to_units

# One machine, one row of demand. Int64 columns keep 23 and 11 bits to add up such amounts in.
MAX_MACHINE_UNITS = 2**40
MAX_NEED_UNITS = 2**52

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")
_MAX_NAME = 317  # a 253 character prefix, a slash, 63 characters of name


# What every machine has something of, whatever it is for.
ORDINARY = frozenset(("cpu", "memory", "ephemeral-storage", "pods"))


def is_device(name: str) -> bool:
    """Whether machines have the resource for those who name it only."""
    return name not in ORDINARY and not name.startswith("hugepages-")


class ResourceError(ValueError):
    """A resource name or amount outside what is accepted; the message names both."""


class Resources:
    """An immutable vector, name to units."""

    __slots__ = ("_canonical", "_hash", "_units")

    ZERO: ClassVar[Resources]

    def __init__(self, units: Mapping[str, int] | None = None, *, limit: int = MAX_NEED_UNITS) -> None:
        checked: dict[str, int] = {}
        for name, amount in sorted(units.items()) if units else ():
            if amount:
                _check_name(name)
                _check_amount(name, amount, limit)
                checked[name] = amount
        self._units = checked
        self._hash: int | None = None
        self._canonical: str | None = None

    @classmethod
    def of(cls, **units: int) -> Resources:
        """A vector written in code: `Resources.of(cpu=2000, memory=4 * 2**20)`."""
        return cls(units)

    @classmethod
    def parse(cls, quantities: Mapping[str, str], *, round_up: bool, limit: int = MAX_NEED_UNITS) -> Resources:
        """Reads quantity text: demand rounds up, supply down. QuantityError and ResourceError name the resource."""
        return cls({name: to_units(name, text, round_up=round_up) for name, text in quantities.items()}, limit=limit)

    def to_wire(self) -> dict[str, str]:
        """Canonical quantities in name order."""
        return {name: from_units(name, amount) for name, amount in self._units.items()}

    @property
    def canonical(self) -> str:
        """`cpu=1000,memory=1024`: equal exactly when the vectors are."""
        if self._canonical is None:
            self._canonical = ",".join(f"{name}={amount}" for name, amount in self._units.items())
        return self._canonical

    @property
    def is_zero(self) -> bool:
        return not self._units

    def get(self, name: str) -> int:
        """Units of one dimension; a dimension it does not name is zero."""
        return self._units.get(name, 0)

    def items(self) -> ItemsView[str, int]:
        """(name, units) of every positive dimension, in name order."""
        return self._units.items()

    def names(self) -> KeysView[str]:
        return self._units.keys()

    def __add__(self, other: Resources) -> Resources:
        if not self._units or not other._units:
            return self if self._units else other
        total = dict(self._units)
        for name, amount in other._units.items():
            total[name] = _check_amount(name, total.get(name, 0) + amount, MAX_NEED_UNITS)
        return _trusted(total)

    def max(self, other: Resources) -> Resources:
        """Per dimension the larger."""
        larger = dict(self._units)
        for name, amount in other._units.items():
            if amount > larger.get(name, 0):
                larger[name] = amount
        return _trusted(larger)

    def minus(self, other: Resources) -> Resources:
        """Per dimension what is left; never below zero."""
        taken = other._units
        return _trusted(
            {name: left for name, amount in self._units.items() if (left := amount - taken.get(name, 0)) > 0}
        )

    def covers(self, other: Resources) -> bool:
        """Whether every dimension the other names is at least as large here."""
        have = self._units
        return all(have.get(name, 0) >= amount for name, amount in other._units.items())

    def scale(self, count: int) -> Resources:
        """So many of these; zero or fewer is nothing."""
        if count <= 0:
            return Resources.ZERO
        return _trusted(
            {name: _check_amount(name, amount * count, MAX_NEED_UNITS) for name, amount in self._units.items()}
        )

    def __eq__(self, other: object) -> bool:
        return self._units == other._units if isinstance(other, Resources) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._units.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Resources({self.canonical})"


Resources.ZERO = Resources()


def _trusted(units: dict[str, int]) -> Resources:
    """Skips the checks for units that came out of checked vectors; only the name order may be lost."""
    made = Resources()
    names = list(units)
    ordered = sorted(names)
    made._units = units if names == ordered else {name: units[name] for name in ordered}
    return made


def _check_amount(name: str, amount: int, limit: int) -> int:
    if not 0 <= amount <= limit:
        raise ResourceError(f"resource {name!r} has {amount} units; 0 to {limit} are accepted")
    return amount


@lru_cache(maxsize=4096)
def _check_name(name: str) -> None:
    if len(name) > _MAX_NAME or _NAME.fullmatch(name) is None:
        raise ResourceError(f"resource name {name!r} is not a Kubernetes resource name such as cpu or nvidia.com/gpu")
