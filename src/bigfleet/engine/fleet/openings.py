"""Openings: how long classes may stay idle, which offers are closed by breakers, and when the first opens again."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.batches import Conditions
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.fleet.fleet import NEVER
from bigfleet.engine.policy import Policy


class Openings:
    """Writes the classes' `hold` and `broken`."""

    def __init__(self) -> None:
        self._holds: tuple[Policy | None, int] = (None, 0)
        self._broken = False
        self.next = NEVER

    def set_holds(self, catalog: Catalog, policy: Policy, *, anew: bool) -> None:
        """Idle holds by class, when policy or classes changed; `anew` if classes were derived anew."""
        known, count = self._holds
        if known is not policy or anew:
            count = 0
        elif count == catalog.class_count:
            return
        for number in range(count, catalog.class_count):
            shape = catalog.class_shape(number)
            catalog.classes.hold[number] = policy.idle_hold_ns(shape.provider, shape.capacity_type)
        self._holds = (policy, catalog.class_count)

    def set_breakers(self, catalog: Catalog, conditions: Conditions, now: int) -> None:
        """Which offers are closed, and when the first of them opens again."""
        self.next = NEVER
        if not conditions.breakers and not self._broken:
            return
        closed = {
            (each.provider, each.instance_type, each.zone, each.capacity_type)
            for each in conditions.breakers
            if now < each.until
        }
        self.next = min((each.until for each in conditions.breakers if now < each.until), default=NEVER)
        offers = np.array([offer in closed for offer in catalog.offers], np.uint8)
        count = catalog.class_count
        if count:
            catalog.classes.broken[:count] = offers[catalog.classes.offer[:count]]
        self._broken = bool(closed)
