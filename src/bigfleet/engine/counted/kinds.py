"""What the rules ask of classes beside price and room: whether the fleet has any, devices, `pods`, owners (P8, P9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.catalog.published import Published
from bigfleet.engine.counted.book import Kinds
from bigfleet.engine.decide.world import World
from bigfleet.model.resources import is_device

if TYPE_CHECKING:
    from bigfleet.engine.catalog.catalog import Catalog


def device_columns(catalog: Catalog) -> NDArray[np.bool_]:
    """Which resources are devices."""
    return np.array([is_device(name) for name in catalog.resources] or [False])


def kinds_of(catalog: Catalog, w: World, published: Published, descending: NDArray[np.int64]) -> Kinds:
    """By class; those nobody has a machine of are not of the fleet."""
    n = catalog.class_count
    alive = np.zeros(max(1, n), np.uint8)
    alive[:n] = w.k.count[:n, 1:].sum(axis=1) > 0
    return Kinds(alive, published.device, published.pods, published.owned, descending)
