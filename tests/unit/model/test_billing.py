"""One rule for dollars: what the provider bills."""

import pytest

from bigfleet.model.billing import added_by_buying, billed_per_hour
from bigfleet.model.machine import CapacityType


@pytest.mark.parametrize("kind", [kind for kind in CapacityType if kind is not CapacityType.RESERVED])
def test_a_machine_is_billed_exactly_while_it_has_a_host(kind: CapacityType) -> None:
    assert billed_per_hour(kind, 2.0, has_host=True) == 2.0
    assert billed_per_hour(kind, 2.0, has_host=False) == 0.0
    assert added_by_buying(kind, 2.0) == 2.0


def test_a_reservation_is_billed_without_a_host_too_so_using_it_adds_nothing() -> None:
    assert billed_per_hour(CapacityType.RESERVED, 2.0, has_host=True) == 2.0
    assert billed_per_hour(CapacityType.RESERVED, 2.0, has_host=False) == 2.0
    assert added_by_buying(CapacityType.RESERVED, 2.0) == 0.0
