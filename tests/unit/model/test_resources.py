"""Resource vectors: arithmetic, limits, wire form."""

from __future__ import annotations

import copy
import pickle

import pytest

from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import MAX_MACHINE_UNITS, MAX_NEED_UNITS, ResourceError, Resources


def test_parses_demand_up_and_supply_down() -> None:
    text = {"memory": "1500", "cpu": "1.0005", "nvidia.com/gpu": "1500m"}
    assert Resources.parse(text, round_up=True) == Resources({"cpu": 1001, "memory": 2, "nvidia.com/gpu": 2})
    assert Resources.parse(text, round_up=False) == Resources({"cpu": 1000, "memory": 1, "nvidia.com/gpu": 1})


def test_wire_form_is_canonical_and_in_name_order() -> None:
    vector = Resources.parse({"nvidia.com/gpu": "8", "memory": "786432Mi", "cpu": "96000m"}, round_up=True)
    assert list(vector.to_wire().items()) == [("cpu", "96"), ("memory", "768Gi"), ("nvidia.com/gpu", "8")]
    assert vector.canonical == "cpu=96000,memory=805306368,nvidia.com/gpu=8"
    assert [name for name, _ in vector.items()] == list(vector.names()) == ["cpu", "memory", "nvidia.com/gpu"]


def test_zero_dimensions_do_not_distinguish_vectors() -> None:
    assert Resources.of(cpu=1, memory=0) == Resources.of(cpu=1)
    assert hash(Resources.of(cpu=1, memory=0)) == hash(Resources.of(cpu=1))
    assert Resources.of(cpu=0).is_zero
    assert Resources() == Resources.ZERO == Resources({})
    assert Resources.ZERO.canonical == ""


def test_arithmetic() -> None:
    a, b = Resources.of(cpu=3, memory=5), Resources.of(memory=7, gpu=1)
    assert a + b == Resources.of(cpu=3, memory=12, gpu=1)
    assert a.max(b) == Resources.of(cpu=3, memory=7, gpu=1)
    assert a.minus(b) == Resources.of(cpu=3)
    assert a.scale(2) == Resources.of(cpu=6, memory=10)
    assert a.scale(0) == a.scale(-1) == Resources.ZERO
    assert (a.get("cpu"), a.get("gpu")) == (3, 0)
    assert list((b + a).names()) == ["cpu", "gpu", "memory"]


def test_covers_asks_only_for_what_the_other_names() -> None:
    have = Resources.of(cpu=4, memory=8)
    assert have.covers(Resources.of(cpu=4))
    assert have.covers(Resources.ZERO)
    assert not have.covers(Resources.of(cpu=4, gpu=1))
    assert not have.covers(Resources.of(cpu=5))


@pytest.mark.parametrize("amount", [-1, MAX_NEED_UNITS + 1])
def test_amount_out_of_range_names_resource_and_value(amount: int) -> None:
    with pytest.raises(ResourceError, match=rf"resource 'cpu' has {amount} units; 0 to {MAX_NEED_UNITS} are accepted"):
        Resources.of(cpu=amount)


def test_machines_have_their_own_limit() -> None:
    largest = {"cpu": f"{MAX_MACHINE_UNITS}m"}
    assert Resources.parse(largest, round_up=False, limit=MAX_MACHINE_UNITS).get("cpu") == MAX_MACHINE_UNITS
    with pytest.raises(ResourceError, match=r"resource 'cpu' has 1099511627777 units; 0 to 1099511627776"):
        Resources.parse({"cpu": f"{MAX_MACHINE_UNITS + 1}m"}, round_up=False, limit=MAX_MACHINE_UNITS)


def test_sums_and_multiples_are_range_checked() -> None:
    half = Resources.of(memory=MAX_NEED_UNITS // 2 + 1)
    with pytest.raises(ResourceError, match="'memory'"):
        half + half
    with pytest.raises(ResourceError, match="'memory'"):
        half.scale(2)


@pytest.mark.parametrize("name", ["", "cpu=", "a,b", "a b", "-x", "x" * 318, "gpu\n"])
def test_impossible_resource_names_are_refused(name: str) -> None:
    with pytest.raises(ResourceError) as refusal:
        Resources({name: 1})
    assert repr(name) in str(refusal.value)


def test_unreadable_quantity_names_resource_and_text() -> None:
    with pytest.raises(QuantityError, match="resource 'memory': quantity '4KB' is not a number"):
        Resources.parse({"memory": "4KB"}, round_up=True)


def test_vectors_survive_copying_and_pickling() -> None:
    vector = Resources.of(cpu=1, memory=2)
    assert pickle.loads(pickle.dumps(vector)) == vector == copy.deepcopy(vector)
