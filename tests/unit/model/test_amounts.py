"""Amounts as people write them: the same size, in words nobody has to convert."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.amounts import spoken_amount, spoken_amounts
from bigfleet.model.quantity import parse_quantity

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}


@pytest.mark.parametrize(
    ("name", "quantity", "said"),
    [
        ("cpu", "4500m", "4.5 vCPU"),
        ("cpu", "409500m", "409.5 vCPU"),
        ("cpu", "12800", "12,800 vCPU"),
        ("cpu", "250m", "0.25 vCPU"),
        ("cpu", "100u", "0.0001 vCPU"),
        ("cpu", "0", "0 vCPU"),
        ("memory", "16Gi", "16 GiB"),
        ("memory", "16384Mi", "16 GiB"),
        ("memory", "1536Mi", "1.5 GiB"),
        ("memory", "52608Gi", "51.38 TiB"),
        ("memory", "8k", "7.812 KiB"),
        ("memory", "512", "512 B"),
        ("nvidia.com/gpu", "8", "8 GPU"),
        ("amd.com/gpu", "2", "2 amd.com/gpu"),
        ("ephemeral-storage", "100Gi", "100 GiB ephemeral-storage"),
        ("cpu", "many", "many cpu"),
    ],
)
def test_one_amount(name: str, quantity: str, said: str) -> None:
    assert spoken_amount(name, quantity) == said


def test_processors_and_memory_come_first() -> None:
    wanted = {"nvidia.com/gpu": "8", "example.com/fpga": "1", "memory": "16Gi", "cpu": "4500m"}
    assert spoken_amounts(wanted) == "4.5 vCPU, 16 GiB, 1 example.com/fpga, 8 GPU"
    assert spoken_amounts({}) == ""


@given(
    st.integers(min_value=1, max_value=10**15),
    st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]),
    st.sampled_from(["cpu", "memory"]),
)
def test_what_is_said_is_the_amount_to_two_digits_and_never_a_suffix(number: int, suffix: str, name: str) -> None:
    quantity = f"{number}{suffix}"
    figure, unit = spoken_amount(name, quantity).split()
    said = float(figure.replace(",", "")) * UNITS.get(unit, 1)
    exact = parse_quantity(quantity).to_float()
    assert said == pytest.approx(exact, rel=0.06 if exact < 0.01 else 0.006)
    assert unit in (UNITS if name == "memory" else {"vCPU"})
