"""How much one cluster may ask for: the limits of a roll-up (`docs/robustness.md`), and the sentence that refuses it.

They are far above what a cluster of today's size sends, and low enough that no roll-up can take the memory or the time
that belongs to the others. No limit is shared: what one cluster sends never makes another's roll-up refused.
"""

from __future__ import annotations

from typing import Final

from bigfleet.engine.nodes.nodes import NAMES_OF_ALL, NAMES_OF_CLUSTER

ROWS: Final = 200_000
RESOURCES: Final = 256
"""Different resource names in one roll-up, or in a node report."""
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
    "resource names of a roll-up or of a node report": RESOURCES,
    "requirements of a row": REQUIREMENTS,
    "values of the requirements of a row": VALUES,
    "topology spreads of a row": SPREADS,
    "tolerations of a row": TOLERATIONS,
    "bytes of a key, a value, a resource name or a quantity": TEXT_BYTES,
    "bytes of a group": GROUP_BYTES,
    "rows times resource names of a roll-up": AMOUNTS,
    "columns for names that a cluster's nodes have and no machine publishes": NAMES_OF_CLUSTER,
    "columns for such names of all clusters": NAMES_OF_ALL,
}


def over(what: str, found: int, limit: int) -> str:
    return f"{what} {found}; at most {limit} are accepted"
