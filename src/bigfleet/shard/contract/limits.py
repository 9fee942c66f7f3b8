"""How much one cluster may ask for: the limits of a roll-up (`docs/robustness.md`), and the sentence that refuses it.

They are far above what a cluster of today's size sends, and low enough that no roll-up can take the memory or the time
that belongs to the others: amounts are columns as wide as there are resource names, so names are what is dear.
"""

from __future__ import annotations

from typing import Final

ROWS: Final = 200_000
RESOURCES: Final = 64
"""Different resource names in one roll-up."""
RESOURCES_OF_ALL: Final = 256
"""Different resource names in the roll-ups of all clusters of a shard."""
REQUIREMENTS: Final = 64
VALUES: Final = 4_096
"""Values of all requirements of one row."""
SPREADS: Final = 16
TOLERATIONS: Final = 64
TEXT_BYTES: Final = 1_024
"""Of a key, a value, a resource name or a quantity; as UTF-8."""
GROUP_BYTES: Final = 4_096
AMOUNTS: Final = 10_000_000
"""Rows times resource names: the cells of an amounts matrix."""

DOCUMENTED: Final = {
    "rows of a roll-up": ROWS,
    "resource names of a roll-up": RESOURCES,
    "resource names of all roll-ups of a shard": RESOURCES_OF_ALL,
    "requirements of a row": REQUIREMENTS,
    "values of the requirements of a row": VALUES,
    "topology spreads of a row": SPREADS,
    "tolerations of a row": TOLERATIONS,
    "bytes of a key, a value, a resource name or a quantity": TEXT_BYTES,
    "bytes of a group": GROUP_BYTES,
    "rows times resource names of a roll-up": AMOUNTS,
}


def over(what: str, found: int, limit: int) -> str:
    return f"{what} {found}; at most {limit} are accepted"
