"""Quantities against Go's verdicts, the documented differences, and the engine's units."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bigfleet.model.quantity import Quantity, QuantityError, QuantityFormat, from_units, parse_quantity, to_units

VECTORS = Path(__file__).parents[2] / "data" / "quantity_vectors.jsonl.gz"


def _vectors() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _difference(vector: dict[str, Any]) -> str | None:
    """What our reading of the text says differently from Go's; None when they agree."""
    text = vector["in"]
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        if vector["ok"]:
            return "refused"
        return None if repr(text) in str(error) else "refusal does not name the input"
    if not vector["ok"]:
        return "accepted"
    if vector.get("lossy"):
        return None if parse_quantity(quantity.canonical()) == quantity else "canonical loses the amount"
    if quantity.canonical() != vector["canonical"]:
        return f"canonical {quantity.canonical()}"
    if quantity.format.value != vector["format"]:
        return f"format {quantity.format.value}"
    if (quantity.mantissa > 0) - (quantity.mantissa < 0) != vector.get("sign", 0):
        return "sign"
    if "value" in vector and quantity.scaled(0, round_up=True) != vector["value"]:
        return f"value {quantity.scaled(0, round_up=True)}"
    if "milli" in vector and quantity.scaled(-3, round_up=True) != vector["milli"]:
        return f"milli {quantity.scaled(-3, round_up=True)}"
    if "float" in vector and not math.isclose(quantity.to_float(), vector["float"], rel_tol=1e-15):
        return f"float {quantity.to_float()}"
    # Go's String() repeats some inputs unchanged; that text must mean the same amount to us.
    if parse_quantity(vector["text"]) != quantity:
        return "text of another amount"
    return None


def test_agrees_with_go_on_every_vector() -> None:
    vectors = _vectors()
    verdicts = Counter(vector["ok"] for vector in vectors)
    assert verdicts[True] >= 15_000
    assert verdicts[False] >= 5_000
    assert len({vector["in"] for vector in vectors}) == len(vectors) >= 20_000
    differences = {vector["in"]: found for vector in vectors if (found := _difference(vector))}
    assert differences == {}


def test_vectors_where_go_loses_the_magnitude_are_few_and_all_beyond_exa() -> None:
    lossy = [vector for vector in _vectors() if vector.get("lossy")]
    assert lossy
    assert all(abs(parse_quantity(vector["in"]).to_float()) >= 1e21 for vector in lossy)
    assert parse_quantity("1000E").canonical() == "1e21"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("1.5", "1500m"),
        ("5.500", "5500m"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1023Ki", "1023Ki"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("100Ei", "9223372036854775807"),
        ("-100Ei", "-9223372036854775807"),
        ("1e-999999999", "1e-9"),
        ("1e2000000000", "100e1999999998"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert parse_quantity(text).canonical() == canonical


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "4GB", "1e", "١", "1e2147483648", "1e-2147483649", "1e99999999999999999999"]
)
def test_refusal_names_the_input(text: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        parse_quantity(text)
    assert repr(text) in str(refusal.value)


def test_overlong_text_is_refused_and_named_by_its_beginning() -> None:
    with pytest.raises(QuantityError, match=r"'1{200}'… has 1025 characters; at most 1024 are read"):
        parse_quantity("1" * 1025)
    assert parse_quantity("1" * 1024).digits() == 1024


def test_equal_amounts_are_equal_values_whatever_their_format() -> None:
    assert parse_quantity("1Gi") == parse_quantity("1073741824")
    assert hash(parse_quantity("1Gi")) == hash(parse_quantity("1073741824"))
    assert parse_quantity("1Gi").format is QuantityFormat.BINARY_SI
    assert parse_quantity("1") != parse_quantity("1n")
    assert str(Quantity(1500, -3)) == "1500m"


def test_float_is_the_nearest_one_and_infinite_beyond_the_range() -> None:
    assert parse_quantity("500m").to_float() == 0.5
    assert parse_quantity("64k").to_float() == 64_000
    assert parse_quantity("1e400").to_float() == math.inf
    assert parse_quantity("-1e2000000000").to_float() == -math.inf
    assert parse_quantity("9" * 400).to_float() == math.inf


@pytest.mark.parametrize(
    ("name", "text", "demand", "supply"),
    [
        ("cpu", "2", 2000, 2000),
        ("cpu", "0.1m", 1, 0),
        ("cpu", "1500m", 1500, 1500),
        ("memory", "4Gi", 4 * 2**20, 4 * 2**20),
        ("memory", "1", 1, 0),
        ("memory", "1024.000000001", 2, 1),
        ("memory", "1G", 976563, 976562),
        ("ephemeral-storage", "1Mi", 1024, 1024),
        ("hugepages-2Mi", "4Mi", 4096, 4096),
        ("requests.storage", "1Ki", 1, 1),
        ("example.com/faststorage", "3", 3, 3),
        ("nvidia.com/gpu", "8", 8, 8),
        ("nvidia.com/gpu", "0.5", 1, 0),
        ("pods", "1.1k", 1100, 1100),
    ],
)
def test_units_round_up_for_demand_and_down_for_supply(name: str, text: str, demand: int, supply: int) -> None:
    assert to_units(name, text, round_up=True) == demand
    assert to_units(name, text, round_up=False) == supply


@pytest.mark.parametrize(
    ("name", "units", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 4 * 2**20, "4Gi"),
        ("memory", 1, "1Ki"),
        ("ephemeral-storage", 1536, "1536Ki"),
        ("nvidia.com/gpu", 8, "8"),
        ("pods", 1000, "1k"),
    ],
)
def test_units_print_as_canonical_quantities(name: str, units: int, text: str) -> None:
    assert from_units(name, units) == text
    assert to_units(name, text, round_up=False) == units


@pytest.mark.parametrize("text", ["-1", "-1n", "1e41", "1e2000000000", "many"])
def test_units_refuse_negative_endless_and_malformed_amounts_naming_resource_and_text(text: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        to_units("cpu", text, round_up=True)
    assert "'cpu'" in str(refusal.value)
    assert repr(text) in str(refusal.value)
