"""Laws of the values: canonical forms, round trips, vector arithmetic."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigfleet.model.penalty import bucket_dollars, bucket_for
from bigfleet.model.profile import Profile, ProfileError
from bigfleet.model.quantity import Quantity, QuantityError, QuantityFormat, from_units, parse_quantity, to_units
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import MAX_NEED_UNITS, Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration, tolerates

# A small alphabet makes collisions likely: that is where two profiles could come to share a text.
texts = st.text(st.sampled_from("ab/.- 1"), max_size=3)
keys = st.text(st.sampled_from("ab/.- 1"), min_size=1, max_size=3)
requirements = st.one_of(
    st.builds(
        Requirement, keys, st.sampled_from([Operator.IN, Operator.NOT_IN]), st.lists(texts, min_size=1).map(tuple)
    ),
    st.builds(
        Requirement,
        keys,
        st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST, Operator.UNSPECIFIED]),
        st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(Requirement, keys, st.just(Operator.SAME), st.lists(keys).map(tuple)),
)
spreads = st.builds(Spread, keys, st.integers(-1, 3), st.sampled_from(WhenUnsatisfiable))
effects = st.sampled_from(["", "NoSchedule", "PreferNoSchedule", "NoExecute"])
tolerations = st.one_of(
    st.builds(Toleration, keys, st.sampled_from(["Equal", ""]), texts, effects),
    st.builds(Toleration, texts, st.just("Exists"), texts, effects),
)
parts = st.tuples(
    st.lists(requirements, max_size=3),
    st.lists(spreads, max_size=2),
    st.integers(-2, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.lists(tolerations, max_size=2),
)


Parts = tuple[list[Requirement], list[Spread], int, int, int, list[Toleration]]
Item = TypeVar("Item")
VALUED = (Operator.IN, Operator.NOT_IN, Operator.SAME)


def _meaning(drawn: Parts) -> object:
    """What a profile says, told without its canonical form: sets instead of orders."""
    wanted, spread, priority, interruption, reclamation, tolerated = drawn
    return (
        frozenset((r.key, r.operator, frozenset(r.values if r.operator in VALUED else ())) for r in wanted),
        frozenset(spread),
        (priority, interruption, reclamation),
        frozenset(
            (t.key, t.operator or "Equal", "" if t.operator == "Exists" else t.value, t.effect) for t in tolerated
        ),
    )


def _shuffled(drawn: Parts, chance: random.Random) -> Parts:
    """The same meaning in another order, with some of it said twice."""
    wanted, spread, priority, interruption, reclamation, tolerated = drawn
    wanted = [Requirement(r.key, r.operator, tuple(_again(r.values, chance))) for r in wanted]
    return (
        _again(wanted, chance),
        _again(spread, chance),
        priority,
        interruption,
        reclamation,
        _again(tolerated, chance),
    )


def _again(items: Sequence[Item], chance: random.Random) -> list[Item]:
    repeated = [*items, *(item for item in items if chance.random() < 0.5)]
    chance.shuffle(repeated)
    return repeated


@given(parts, st.randoms(use_true_random=False))
def test_shuffled_and_repeated_input_gives_the_same_profile(drawn: Parts, chance: random.Random) -> None:
    assert Profile(*_shuffled(drawn, chance)) == Profile(*drawn)
    assert Profile(*_shuffled(drawn, chance)).fingerprint == Profile(*drawn).fingerprint


@given(parts, parts)
def test_fingerprints_are_equal_exactly_when_the_meanings_are(one: Parts, other: Parts) -> None:
    assert (Profile(*one).fingerprint == Profile(*other).fingerprint) == (_meaning(one) == _meaning(other))


@given(parts, parts, st.integers(0, 5))
def test_one_small_change_changes_the_fingerprint_with_the_meaning(drawn: Parts, other: Parts, place: int) -> None:
    changed = cast(Parts, (*drawn[:place], other[place], *drawn[place + 1 :]))
    assert (Profile(*drawn).fingerprint == Profile(*changed).fingerprint) == (_meaning(drawn) == _meaning(changed))


@given(parts)
def test_a_profile_rebuilt_from_its_parts_is_itself(drawn: Parts) -> None:
    profile = Profile(*drawn)
    again = Profile(
        profile.requirements,
        profile.spread,
        profile.priority,
        profile.interruption_bucket,
        profile.reclamation_bucket,
        profile.tolerations,
        profile.interruption_microdollars,
    )
    assert again.fingerprint == profile.fingerprint
    assert again.requirements == profile.requirements


@given(st.text(max_size=5), st.sampled_from(",;:|\x00\t\n\x1f\x7f"), st.text(max_size=5))
def test_separators_are_always_refused(before: str, bad: str, after: str) -> None:
    with pytest.raises(ProfileError):
        Profile([Requirement("k", Operator.IN, (before + bad + after,))], [], 0, 0, 0)
    with pytest.raises(ProfileError):
        Profile([Requirement(before + bad + after, Operator.EXISTS)], [], 0, 0, 0)


@given(st.lists(st.builds(Taint, keys, texts, effects)), st.lists(tolerations, max_size=3), tolerations)
def test_one_more_toleration_never_hurts(taints: list[Taint], tolerated: list[Toleration], extra: Toleration) -> None:
    assert tolerates([*tolerated, extra], taints) >= tolerates(tolerated, taints)


quantities = st.builds(Quantity, st.integers(-(10**30), 10**30), st.integers(-40, 30), st.sampled_from(QuantityFormat))


@given(quantities)
def test_canonical_text_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    assume(quantity.format is not QuantityFormat.BINARY_SI or abs(quantity.to_float()) < 2**62)
    again = parse_quantity(quantity.canonical())
    assert again == quantity
    # A binary amount without a factor of 1024 prints as plain digits, which nobody can tell from a decimal amount.
    assert again.canonical() == quantity.canonical() or quantity.format is QuantityFormat.BINARY_SI


@given(st.from_regex(r"[+-]?[0-9]{1,12}(\.[0-9]{0,9})?(n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_decimal_amounts_are_exact_down_to_nano_and_round_away_from_zero(text: str) -> None:
    match = re.fullmatch(r"([^a-zA-Z]*)(.*)", text)
    assert match
    number, suffix = match.groups()
    power = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.get(suffix)
    if power is None:
        power = int(suffix[1:])
    exact = Fraction(number) * Fraction(10) ** power
    quantity = parse_quantity(text)
    read = Fraction(quantity.mantissa) * Fraction(10) ** quantity.exponent
    assert abs(exact) <= abs(read) < abs(exact) + Fraction(1, 10**9)
    assert read == exact or (read * 10**9).denominator == 1
    assert (read > 0) == (exact > 0)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        parse_quantity(text)
    except QuantityError as error:
        assert repr(text) in str(error)


names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "nvidia.com/gpu"])


@given(names, st.integers(0, MAX_NEED_UNITS))
def test_units_survive_the_wire(name: str, units: int) -> None:
    assert to_units(name, from_units(name, units), round_up=True) == units
    assert to_units(name, from_units(name, units), round_up=False) == units


@given(names, st.integers(0, 10**15), st.integers(-9, 0))
def test_demand_never_gets_less_and_supply_never_more_than_written(name: str, digits: int, power: int) -> None:
    text = f"{digits}e{power}"
    up, down = to_units(name, text, round_up=True), to_units(name, text, round_up=False)
    scale = {"cpu": Fraction(1000), "pods": Fraction(1), "nvidia.com/gpu": Fraction(1)}.get(name, Fraction(1, 1024))
    exact = Fraction(digits) * Fraction(10) ** power * scale
    assert down <= exact <= up <= down + 1


vectors = st.dictionaries(names, st.integers(0, 2**40), max_size=4).map(Resources)


@given(vectors, vectors, vectors)
def test_vector_laws(a: Resources, b: Resources, c: Resources) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b).minus(b) == a
    assert (a + b).covers(a)
    assert a.max(b).covers(a)
    assert a.max(b) == b.max(a) == a.minus(b) + b
    assert a.covers(b) == b.minus(a).is_zero
    assert (a == b) == (a.canonical == b.canonical)
    assert Resources.parse(a.to_wire(), round_up=True) == a
    assert a.scale(3) == a + a + a
    for vector in (a + b, a.max(b), a.minus(b)):
        assert list(vector.names()) == sorted(vector.names())
        assert all(amount > 0 for _, amount in vector.items())


@given(st.floats(min_value=0, max_value=8_388_608))
def test_buckets_overestimate_by_less_than_double(dollars: float) -> None:
    bound = bucket_dollars(bucket_for(dollars))
    assert dollars <= bound
    assert bound <= 0.5 or bound < 2 * dollars
