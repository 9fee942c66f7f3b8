"""The one sort of the kernels: by number (`sort_by_key`) and by any other order (`sorting` and `asks`), both stable.

Kernels cannot be handed a function, so the second kind asks: whoever sorts answers, in a loop, whether one element
comes before another, and everything else about sorting stays here:

    sort = sorting(first, count)
    while asks(sort, data):
        sort[ANSWER] = less(sort[LATER], sort[EARLIER])

What does not belong here: what comes before what. The heap of `decide/victims.py` is no sort: it yields the best
candidates one by one, and most are never looked at.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.kernels.jit import I4, I8, inner

# What a sort under way remembers: the question (whether LATER comes before EARLIER) and its answer; all there is to
# sort; the two neighbouring runs being merged; where the merge stands; and, behind these, the left run put aside.
LATER, EARLIER, ANSWER = 0, 1, 2
_FIRST, _END, _WIDTH = 3, 4, 5
_LEFT, _MIDDLE, _RIGHT_END = 6, 7, 8
_STAGE, _ASIDE, _ASIDE_END, _RIGHT, _OUT = 9, 10, 11, 12, 13
_PUT_ASIDE = 14
# Stages: nothing asked yet; whether the runs are out of order at all; which element comes next.
_BEGIN, _COMPARE, _MERGE = 0, 1, 2


@inner
def sorting(first: int, count: int) -> I8:
    """A sort of `count` elements from place `first` on."""
    sort = np.empty(_PUT_ASIDE + max(0, count), np.int64)
    sort[_FIRST] = first
    sort[_END] = first + count
    sort[_WIDTH] = 1
    sort[_LEFT] = first
    sort[_STAGE] = _BEGIN
    return sort


@inner
def asks(sort: I8, data: I4) -> bool:
    """Goes on by the last answer and asks the next question; False when all is in order. A merge sort, bottom up."""
    if sort[_STAGE] == _MERGE:
        if _merge_one(sort, data):
            return True
        sort[_LEFT] = sort[_RIGHT_END]
    elif sort[_STAGE] == _COMPARE:
        if sort[ANSWER] != 0 and _open_merge(sort, data):
            return True
        sort[_LEFT] = sort[_RIGHT_END]
    while True:
        middle = sort[_LEFT] + sort[_WIDTH]
        if middle < sort[_END]:
            sort[_MIDDLE] = middle
            sort[_RIGHT_END] = min(sort[_END], middle + sort[_WIDTH])
            sort[_STAGE] = _COMPARE
            sort[LATER] = data[middle]
            sort[EARLIER] = data[middle - 1]
            return True
        if sort[_FIRST] + sort[_WIDTH] >= sort[_END]:
            return False
        sort[_WIDTH] *= 2
        sort[_LEFT] = sort[_FIRST]


@inner
def _open_merge(sort: I8, data: I4) -> bool:
    """Begins to merge two runs that are out of order; False when that took no further question."""
    left = sort[_LEFT]
    middle = sort[_MIDDLE]
    if sort[_WIDTH] == 1:
        data[left] = sort[LATER]
        data[middle] = sort[EARLIER]
        return False
    for k in range(left, middle):
        sort[_PUT_ASIDE + k - left] = data[k]
    sort[_STAGE] = _MERGE
    sort[_ASIDE] = _PUT_ASIDE
    sort[_ASIDE_END] = _PUT_ASIDE + middle - left
    sort[_RIGHT] = middle
    sort[_OUT] = left
    sort[EARLIER] = sort[_PUT_ASIDE]
    return True


@inner
def _merge_one(sort: I8, data: I4) -> bool:
    """Puts the next element of a merge in its place; False when the runs are one."""
    out = sort[_OUT]
    sort[_OUT] = out + 1
    if sort[ANSWER] != 0:
        data[out] = sort[LATER]
        right = sort[_RIGHT] + 1
        sort[_RIGHT] = right
        if right < sort[_RIGHT_END]:
            sort[LATER] = data[right]
            return True
        for k in range(sort[_ASIDE], sort[_ASIDE_END]):
            out += 1
            data[out] = sort[k]
        return False
    data[out] = sort[EARLIER]
    aside = sort[_ASIDE] + 1
    sort[_ASIDE] = aside
    if aside < sort[_ASIDE_END]:
        sort[EARLIER] = sort[aside]
        return True
    return False


@inner
def sort_by_key(data: I4, keys: I8, count: int) -> None:
    """Sorts the first `count` elements by their keys, which are used up: radix over the bytes in which they differ."""
    if count < 2:
        return
    union = 0
    common = -1
    for i in range(count):
        union |= keys[i]
        common &= keys[i]
    differing = union & ~common
    if differing == 0:
        return
    other = np.empty(count, np.int32)
    other_keys = np.empty(count, np.int64)
    tally = np.empty(256, np.int64)
    flipped = False
    for byte in range(8):
        if ((differing >> byte * 8) & 0xFF) == 0:
            continue
        if flipped:
            _deal(other, other_keys, data, keys, count, byte, tally)
        else:
            _deal(data, keys, other, other_keys, count, byte, tally)
        flipped = not flipped
    if flipped:
        for i in range(count):
            data[i] = other[i]


@inner
def _deal(data: I4, keys: I8, into: I4, into_keys: I8, count: int, byte: int, tally: I8) -> None:
    """One pass: elements and keys in the order of one byte, equal ones as they were."""
    shift = byte * 8
    # The highest bit is the sign: keys that have it come first.
    sign = 0x80 if byte == 7 else 0
    tally[:] = 0
    for i in range(count):
        tally[((keys[i] >> shift) & 0xFF) ^ sign] += 1
    total = 0
    for digit in range(256):
        here = tally[digit]
        tally[digit] = total
        total += here
    for i in range(count):
        digit = ((keys[i] >> shift) & 0xFF) ^ sign
        place = tally[digit]
        tally[digit] = place + 1
        into[place] = data[i]
        into_keys[place] = keys[i]
