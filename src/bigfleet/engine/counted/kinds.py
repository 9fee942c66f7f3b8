"""What the rules ask of classes beside price and room: devices, `pods`, ownership (P8, P9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.counted.book import Kinds
from bigfleet.engine.decide.world import World

if TYPE_CHECKING:
    from bigfleet.engine.catalog.catalog import Catalog

_ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")
_ON_DEMAND, _SPOT = 3, 4


def is_device(name: str) -> bool:
    return name not in _ORDINARY and not name.startswith("hugepages-")


def device_columns(catalog: Catalog) -> NDArray[np.bool_]:
    found = np.zeros(catalog.width, bool)
    for column, name in enumerate(catalog.resources):
        found[column] = is_device(name)
    return found


def kinds_of(catalog: Catalog, w: World, descending: NDArray[np.int64]) -> Kinds:
    """By class; those nobody has a machine of are not of the fleet."""
    n = catalog.class_count
    size = max(1, n)
    alive, device, pods, owned = (np.zeros(size, np.uint8) for _ in range(4))
    alloc = w.k.alloc[:n]
    alive[:n] = w.k.count[:n, 1:].sum(axis=1) > 0
    device[:n] = (alloc[:, device_columns(catalog)] > 0).any(axis=1)
    column = catalog.resource("pods")
    if column >= 0:
        pods[:n] = alloc[:, column] > 0
    bought = np.array([offer[3] in (_ON_DEMAND, _SPOT) for offer in catalog.offers] or [True])
    owned[:n] = ~bought[w.k.offer[:n]]
    return Kinds(alive, device, pods, owned, descending)
