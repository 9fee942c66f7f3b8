"""The table of ids: what is interned is found again, what is forgotten is not, slots come back, order is byte order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bigfleet.engine.kernels.ids import SKIP, Ids, IdStore, forget_id, hash_bytes, id_less, intern_id, prefix_key
from bigfleet.engine.kernels.jit import U1, kernel

NAMES = [f"{prefix}{n}" for prefix in ("m-", "machine-", "zone/a/", "é", "") for n in range(40)]


@kernel
def interned(ids: Ids, text: U1) -> int:
    key = prefix_key(text, 0, len(text), ids.meta[SKIP])
    return intern_id(ids, text, 0, len(text), hash_bytes(text, 0, len(text)), key)


@kernel
def interned_at(ids: Ids, text: U1, home: int) -> int:
    key = prefix_key(text, 0, len(text), ids.meta[SKIP])
    return intern_id(ids, text, 0, len(text), home, key)


@kernel
def forgotten(ids: Ids, slot: int) -> None:
    forget_id(ids, slot)


@kernel
def less(ids: Ids, a: int, b: int) -> bool:
    return id_less(ids, a, b)


def put(store: IdStore, name: str) -> int:
    text = np.frombuffer(name.encode(), np.uint8).copy()
    store.reserve(1, len(text))
    store.align(text, np.array([0, len(text)], np.int64))
    return int(interned(store.v, text))


@pytest.mark.parametrize("seed", range(5))
def test_the_table_is_a_dictionary(seed: int) -> None:
    """Through growth, graves and reuse, against a dictionary."""
    dice, store, known = random.Random(seed), IdStore(), {}
    for _ in range(600):
        name = dice.choice(NAMES)
        if name in known and dice.random() < 0.5:
            forgotten(store.v, known.pop(name))
        else:
            slot = put(store, name)
            assert known.setdefault(name, slot) == slot
        other = dice.choice(NAMES)
        assert store.find(other) == known.get(other, -1)
    assert {store.text(slot): slot for slot in known.values()} == known


def test_slots_of_forgotten_ids_are_handed_out_again() -> None:
    store = IdStore()
    slots = [put(store, f"m{n}") for n in range(10)]
    forgotten(store.v, slots[3])
    assert store.find("m3") == -1
    assert put(store, "another") == slots[3]
    assert store.text(slots[3]) == "another"


def test_ids_of_one_hash_are_told_apart() -> None:
    """The table passes over other hashes unseen; of one hash, ids decide."""
    store, texts, slots = IdStore(), [np.frombuffer(b"one-%d" % n, np.uint8).copy() for n in range(4)], []
    for text in texts:
        store.reserve(1, len(text))
        store.align(text, np.array([0, len(text)], np.int64))
        slots.append(int(interned_at(store.v, text, 7)))
    assert len(set(slots)) == 4
    assert [int(interned_at(store.v, text, 7)) for text in texts] == slots


@pytest.mark.parametrize(
    "names", [NAMES, [f"one-long-common-prefix/{n:03}" for n in range(60)], ["a", "ab", "abc", "b"]]
)
def test_order_is_the_order_of_bytes_whatever_ids_have_in_common(names: list[str]) -> None:
    store, dice = IdStore(), random.Random(1)
    slots = {name: put(store, name) for name in dice.sample(names, len(names))}
    for _ in range(300):
        a, b = dice.choice(names), dice.choice(names)
        assert less(store.v, slots[a], slots[b]) == (a.encode() < b.encode())
