"""What a provider bills for a machine: the one rule behind every amount of dollars per hour that anybody is shown.

A host is billed from when the provider names it until it no longer does, whatever state the machine is in: a Failed
machine whose host still exists is billed, a slot, a purchase that has no host yet and a host known dead are not.
Reserved capacity is the exception: its provider bills the reservation for as long as it lists it, used or not.
"""

from __future__ import annotations

from bigfleet.model.machine import CapacityType

# Paid for whether used or not: using one of these costs nothing more.
ALREADY_PAID = frozenset({CapacityType.BARE_METAL, CapacityType.RESERVED})


def is_billed(capacity_type: int, *, has_host: bool) -> bool:
    """Whether the provider charges the machine's price now."""
    return has_host or capacity_type == CapacityType.RESERVED


def billed_per_hour(capacity_type: int, price: float, *, has_host: bool) -> float:
    """Dollars per hour the machine costs now."""
    return price if is_billed(capacity_type, has_host=has_host) else 0.0


def added_by_buying(capacity_type: int, price: float) -> float:
    """Dollars per hour that a host in this slot adds to the bill, and that giving it back saves."""
    with_host = billed_per_hour(capacity_type, price, has_host=True)
    return with_host - billed_per_hour(capacity_type, price, has_host=False)
