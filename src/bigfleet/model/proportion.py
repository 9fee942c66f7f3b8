"""Of which proportion a node is: how many GiB it has for each core, as machines are sold.

Pods that stand on nodes of another proportion fill one resource and leave the other idle. A scheduler knows no prices,
so nodes say their proportion in a label, and pods are given a preference for their own when they are created
(`deploy/admission/prefer-own-proportion.yaml`, which has the same bounds).
"""

from __future__ import annotations

from bisect import bisect_left

# Machines are sold with 2, 4, 8 or 16 GiB a core and more; a node has a little less to give away.
BOUNDS = (3.0, 6.0, 12.0)
PROPORTIONS = ("2", "4", "8", "16")


def proportion(cores: float, gib: float) -> str:
    """The nearest of those that are sold; empty where there is none of either."""
    return PROPORTIONS[bisect_left(BOUNDS, gib / cores)] if cores > 0 and gib > 0 else ""
