"""Amounts of resources as people write them: `4.5 vCPU, 16 GiB, 8 GPU`. Rounded, so never for programs.

Exact amounts stay Kubernetes quantities; this is only how they are spoken of on screens and in sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from bigfleet.model.quantity import QuantityError, parse_quantity

_NAMES = {"cpu": "vCPU", "nvidia.com/gpu": "GPU", "pods": "pods"}
_FIRST = {"cpu": 0, "memory": 1}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def spoken_amounts(resources: Mapping[str, str]) -> str:
    """Processors and memory first, then the rest by name; empty when there is nothing."""
    names = sorted(resources, key=lambda name: (_FIRST.get(name, 2), name))
    return ", ".join(spoken_amount(name, resources[name]) for name in names)


def spoken_name(name: str) -> str:
    """A resource by the word people use."""
    return _NAMES.get(name, name)


def spoken_amount(name: str, quantity: str) -> str:
    """One resource; text that is no quantity is repeated as it came."""
    try:
        parsed = parse_quantity(quantity)
    except QuantityError:
        return f"{quantity} {name}"
    exact = Fraction(parsed.mantissa) * Fraction(10) ** parsed.exponent
    if name == "memory":
        return _bytes(exact)
    if name == "ephemeral-storage" or name.startswith("hugepages-"):
        return f"{_bytes(exact)} {name}"
    return f"{_number(exact)} {spoken_name(name)}"


def _bytes(amount: Fraction) -> str:
    step = 0
    while abs(amount) >= 1024 and step < len(_BINARY) - 1:
        amount /= 1024
        step += 1
    return f"{_number(amount)} {_BINARY[step]}"


def _number(amount: Fraction) -> str:
    """At most three decimals below ten, two below a hundred thousand, and never a trailing zero."""
    places = 3 if abs(amount) < 10 else 2 if abs(amount) < 100_000 else 0
    text = f"{float(amount):,.{places}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if amount == 0 or text != "0" else f"{float(amount):.1g}"
