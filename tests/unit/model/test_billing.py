"""One rule for dollars: what the provider bills."""

import pytest

from bigfleet.model.amounts import amounts
from bigfleet.model.billing import added_by_buying, billed_per_hour
from bigfleet.model.machine import CapacityType
from bigfleet.model.resources import Resources


@pytest.mark.parametrize("kind", [kind for kind in CapacityType if kind is not CapacityType.RESERVED])
def test_a_machine_is_billed_exactly_while_it_has_a_host(kind: CapacityType) -> None:
    assert billed_per_hour(kind, 2.0, has_host=True) == 2.0
    assert billed_per_hour(kind, 2.0, has_host=False) == 0.0
    assert added_by_buying(kind, 2.0) == 2.0


def test_a_reservation_is_billed_without_a_host_too_so_using_it_adds_nothing() -> None:
    assert billed_per_hour(CapacityType.RESERVED, 2.0, has_host=True) == 2.0
    assert billed_per_hour(CapacityType.RESERVED, 2.0, has_host=False) == 2.0
    assert added_by_buying(CapacityType.RESERVED, 2.0) == 0.0


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"cpu": "409500m"}, "409.5 vCPU"),
        ({"cpu": "4", "memory": "1229Gi"}, "4 vCPU, 1.2 TiB memory"),
        ({"memory": "8Gi", "nvidia.com/gpu": "16", "cpu": "1024"}, "1,024 vCPU, 8 GiB memory, 16 GPU"),
        ({"memory": "512Mi", "ephemeral-storage": "10Gi"}, "512 MiB memory, 10 GiB ephemeral-storage"),
        ({"cpu": "50m", "example.com/fpga": "2"}, "0.05 vCPU, 2 example.com/fpga"),
        ({}, ""),
    ],
)
def test_amounts_read_as_people_write_them(resources: dict[str, str], text: str) -> None:
    assert amounts(Resources.parse(resources, round_up=True)) == text
