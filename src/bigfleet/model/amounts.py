"""Amounts of resources as people write them: `409.5 vCPU, 1.2 TiB memory, 8 GPU`. For readers; never parsed back."""

from __future__ import annotations

from bigfleet.model.resources import Resources

_BYTES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FIRST = ("cpu", "memory", "nvidia.com/gpu")
_OTHERS = {"nvidia.com/gpu": "GPU", "amd.com/gpu": "GPU"}


def amounts(resources: Resources) -> str:
    """Everything in it, processors and memory first; empty when there is nothing."""
    ordered = sorted(resources.items(), key=lambda item: (item[0] not in _FIRST, item[0]))
    return ", ".join(amount(name, units) for name, units in ordered if units)


def amount(name: str, units: int) -> str:
    """One resource, given in the integer units it is counted in."""
    if name == "cpu":
        return f"{_number(units / 1000)} vCPU"
    if name == "memory" or name.endswith("storage") or name.startswith("hugepages-"):
        return f"{_size(units)} {name}"
    return f"{units:,} {_OTHERS.get(name, name)}"


def _size(kibibytes: int) -> str:
    value, step = float(kibibytes), 0
    while value >= 1024 and step + 1 < len(_BYTES):
        value, step = value / 1024, step + 1
    return f"{_number(value)} {_BYTES[step]}"


def _number(value: float) -> str:
    """At most one decimal, and none where it would be a nought; more only where one would hide a small amount."""
    if 0 < value < 0.1:
        return f"{value:.3f}".rstrip("0")
    return f"{value:,.1f}".removesuffix(".0")
