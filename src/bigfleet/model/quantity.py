"""Kubernetes quantities: exact decimals with a format, and the integer units the engine counts in.

Accepts and rounds as apimachinery's `resource.ParseQuantity` does (tests/data holds its verdicts): sub-nano amounts
round away from zero, binary amounts stop at 2^63-1, the canonical form keeps the family of the suffix. Two defects are
not copied: exponents outside int32 are refused instead of wrapped, and 10^21 upwards keeps its magnitude when printed.
Parsing happens here, at the edge, and nowhere else; floats never take part except in `to_float`.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

# Text that Go would accept at any length; nobody writes it, and converting it costs quadratic time.
MAX_TEXT = 1024
MAX_BINARY = 2**63 - 1
CACHED_TEXTS = 16_384

_NANO = -9
_EXPONENT_LIMIT = 2**31
# A positive number of more digits than this exceeds every limit on units, so it is refused before it is expanded.
_WIDEST_UNITS = 40

_PATTERN = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[+-]?[0-9]*)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")


class QuantityError(ValueError):
    """Text that is not a usable Kubernetes quantity; the message names it."""


class QuantityFormat(Enum):
    """The family of suffixes a quantity was written in, kept by its canonical form."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_BY_STEP = ("", *_BINARY_SUFFIXES)


class Quantity:
    """`mantissa * 10**exponent`, reduced, so equal amounts compare and hash equal whatever they were written as."""

    __slots__ = ("_exponent", "_format", "_mantissa")

    def __init__(self, mantissa: int, exponent: int = 0, format: QuantityFormat = QuantityFormat.DECIMAL_SI) -> None:
        if mantissa == 0:
            exponent = 0
        else:
            if exponent < _NANO:
                mantissa, exponent = _round_away(mantissa, exponent), _NANO
            while mantissa % 10 == 0:
                mantissa //= 10
                exponent += 1
        self._mantissa = mantissa
        self._exponent = exponent
        self._format = format

    @property
    def mantissa(self) -> int:
        return self._mantissa

    @property
    def exponent(self) -> int:
        return self._exponent

    @property
    def format(self) -> QuantityFormat:
        return self._format

    def canonical(self) -> str:
        """The shortest text of its family: no fraction, exponent a multiple of three, or whole powers of 1024."""
        if self._mantissa == 0:
            return "0"
        if self._format is QuantityFormat.BINARY_SI and self._exponent >= 0:
            amount = self._mantissa * _ten_to(self._exponent)
            if abs(amount) >= 1024:
                step = 0
                while amount % 1024 == 0 and step < len(_BINARY_SUFFIXES):
                    amount //= 1024
                    step += 1
                return f"{amount}{_BINARY_BY_STEP[step]}"
        surplus = self._exponent % 3
        number, exponent = self._mantissa * _ten_to(surplus), self._exponent - surplus
        if exponent == 0:
            return str(number)
        if self._format is not QuantityFormat.DECIMAL_EXPONENT and exponent in _DECIMAL_BY_EXPONENT:
            return f"{number}{_DECIMAL_BY_EXPONENT[exponent]}"
        return f"{number}e{exponent}"

    def scaled(self, exponent: int, *, round_up: bool) -> int:
        """How many `10**exponent` it holds; a remainder counts as one more when `round_up` (towards +infinity).

        The number is written out, so a caller with foreign input looks at `digits()` first.
        """
        shift = self._exponent - exponent
        if shift >= 0:
            return self._mantissa * _ten_to(shift)
        return _divide(self._mantissa, _ten_to(-shift), round_up)

    def to_float(self) -> float:
        """The nearest float; infinity beyond the range of floats."""
        try:
            if self._exponent < 0:
                return self._mantissa / _ten_to(-self._exponent)
            if self._exponent > 400:
                raise OverflowError
            return float(self._mantissa * _ten_to(self._exponent))
        except OverflowError:
            return float("inf") if self._mantissa > 0 else float("-inf")

    def digits(self) -> int:
        """Decimal digits left of the point, without computing the number itself."""
        return max(0, len(str(abs(self._mantissa))) + self._exponent) if self._mantissa else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._mantissa == other._mantissa and self._exponent == other._exponent

    def __hash__(self) -> int:
        return hash((self._mantissa, self._exponent))

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"


@lru_cache(maxsize=CACHED_TEXTS)
def parse_quantity(text: str) -> Quantity:
    """Reads one quantity such as `500m`, `1.5Gi`, `12e6`; raises QuantityError naming the text."""
    if not text:
        raise QuantityError("quantity '' is empty; write a number with an optional suffix such as 500m or 4Gi")
    if len(text) > MAX_TEXT:
        raise QuantityError(f"quantity {_shown(text)} has {len(text)} characters; at most {MAX_TEXT} are read")
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(f"quantity {_shown(text)} is not a number with an optional suffix such as 500m or 4Gi")
    sign, whole, fraction, suffix = match.groups("")
    fraction = fraction[1:]
    exponent, binary, format = _read_suffix(text, suffix)
    # Go takes a bare suffix for zero, but not one so large or so small that it would have to read the number itself.
    if not whole and not fraction and (binary > 40 or exponent < _NANO):
        raise QuantityError(f"quantity {_shown(text)} has no digits; write a number before the suffix")
    mantissa = int(whole + fraction or "0")
    if sign == "-":
        mantissa = -mantissa
    if format is not QuantityFormat.BINARY_SI:
        return Quantity(mantissa, exponent - len(fraction), format)
    return _binary(mantissa << binary, len(fraction))


def to_units(resource_name: str, text: str, *, round_up: bool) -> int:
    """Whole engine units of one amount: demand rounds up, supply rounds down; negative amounts are refused."""
    try:
        return _to_units(_unit_of(resource_name), text, round_up)
    except QuantityError as error:
        raise QuantityError(f"resource {resource_name!r}: {error}") from None


def from_units(resource_name: str, units: int) -> str:
    """The canonical quantity of so many engine units."""
    return _from_units(_unit_of(resource_name), units)


class _Unit(Enum):
    MILLI = "milli"
    KIBI = "KiB"
    WHOLE = "whole"


@lru_cache(maxsize=1024)
def _unit_of(resource_name: str) -> _Unit:
    if resource_name == "cpu":
        return _Unit.MILLI
    # Kubernetes' own names have no domain: a device called `example.com/faststorage` is counted like any other.
    storage = resource_name.endswith("storage") and "/" not in resource_name
    if storage or resource_name == "memory" or resource_name.startswith("hugepages-"):
        return _Unit.KIBI
    return _Unit.WHOLE


@lru_cache(maxsize=CACHED_TEXTS)
def _to_units(unit: _Unit, text: str, round_up: bool) -> int:
    quantity = parse_quantity(text)
    if quantity.mantissa < 0:
        raise QuantityError(f"quantity {_shown(text)} is negative; zero or more is accepted")
    if quantity.digits() > _WIDEST_UNITS:
        raise QuantityError(f"quantity {_shown(text)} is too large; at most {_WIDEST_UNITS} digits are accepted")
    if unit is _Unit.MILLI:
        return quantity.scaled(-3, round_up=round_up)
    if unit is _Unit.WHOLE:
        return quantity.scaled(0, round_up=round_up)
    # Nano-bytes first: rounding to bytes before dividing by 1024 would round twice.
    return _divide(quantity.scaled(_NANO, round_up=True), 1024 * 10**9, round_up)


@lru_cache(maxsize=CACHED_TEXTS)
def _from_units(unit: _Unit, units: int) -> str:
    if unit is _Unit.MILLI:
        return Quantity(units, -3).canonical()
    if unit is _Unit.KIBI:
        return Quantity(units * 1024, 0, QuantityFormat.BINARY_SI).canonical()
    return Quantity(units).canonical()


def _read_suffix(text: str, suffix: str) -> tuple[int, int, QuantityFormat]:
    """(power of ten, power of two, family) of a suffix."""
    decimal = _DECIMAL_SUFFIXES.get(suffix)
    if decimal is not None:
        return decimal, 0, QuantityFormat.DECIMAL_SI
    binary = _BINARY_SUFFIXES.get(suffix)
    if binary is not None:
        return 0, binary, QuantityFormat.BINARY_SI
    if _EXPONENT.fullmatch(suffix) is None:
        raise QuantityError(
            f"quantity {_shown(text)} has the unknown suffix {suffix!r}; "
            "n u m k M G T P E, Ki Mi Gi Ti Pi Ei or an exponent such as e3 is accepted"
        )
    exponent = int(suffix[1:])
    if not -_EXPONENT_LIMIT <= exponent < _EXPONENT_LIMIT:
        raise QuantityError(f"quantity {_shown(text)} has an exponent outside -2147483648..2147483647")
    return exponent, 0, QuantityFormat.DECIMAL_EXPONENT


def _binary(mantissa: int, fraction_digits: int) -> Quantity:
    magnitude, one = abs(mantissa), _ten_to(fraction_digits)
    if magnitude > MAX_BINARY * one:
        return Quantity(MAX_BINARY if mantissa > 0 else -MAX_BINARY, 0, QuantityFormat.BINARY_SI)
    # A fraction of one unit cannot be written in powers of 1024.
    format = QuantityFormat.DECIMAL_SI if 0 < magnitude < one else QuantityFormat.BINARY_SI
    return Quantity(mantissa, -fraction_digits, format)


def _round_away(mantissa: int, exponent: int) -> int:
    """The number in whole nano, away from zero: whoever asked for something gets something."""
    drop = _NANO - exponent
    if drop > len(str(abs(mantissa))):
        return 1 if mantissa > 0 else -1
    return _divide(mantissa, _ten_to(drop), True) if mantissa > 0 else -_divide(-mantissa, _ten_to(drop), True)


def _ten_to(power: int) -> int:
    # Typed here once: with an exponent of unknown sign `**` may be a float, which no power in this module is.
    result: int = 10**power
    return result


def _divide(number: int, divisor: int, round_up: bool) -> int:
    return -(-number // divisor) if round_up else number // divisor


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}…"
