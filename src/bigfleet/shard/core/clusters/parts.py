"""Rows of a roll-up as a question finds them: what one unit takes, how many have no room, all of it together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from bigfleet.engine.batches import NONE, Rollup
from bigfleet.engine.results import NeedKey
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources


class Part(Struct, frozen=True):
    """One row; `stranded` is 0 for a row that is a sum. Units with a token of `exclusive` share no node."""

    unit: Resources
    aggregate: Resources
    stranded: int
    exclusive: tuple[str, ...] = ()

    @property
    def wanted(self) -> Resources:
        """What has no room yet; of a sum nobody knows, so all of it."""
        return self.unit.scale(self.stranded) if self.stranded else self.aggregate

    def fits(self, room: Resources) -> int:
        """How many of its units this room holds."""
        return min((room.get(name) // amount for name, amount in self.unit.items()), default=self.stranded)


class Parts:
    """The rows of one roll-up by profile and group; the places are worked out when the first question comes."""

    def __init__(self, rollup: Rollup) -> None:
        self._rollup = rollup
        self._profiles: dict[str, int] | None = None
        self._groups: dict[str, int] = {}

    def of(self, key: NeedKey) -> Sequence[Part]:
        """The row of this key; of a key without a unit, which is a gang's, all its rows, the largest units first."""
        rollup = self._rollup
        if self._profiles is None:
            self._profiles = {profile.fingerprint: place for place, profile in enumerate(rollup.profiles)}
            self._groups = {group: place for place, group in enumerate(rollup.groups)}
        profile, group = self._profiles.get(key.fingerprint), self._groups.get(key.group, NONE)
        if profile is None:
            return []
        rows = np.flatnonzero((rollup.profile == profile) & (rollup.group == group)).tolist()
        found = [self._part(row) for row in rows]
        if key.min_unit:
            return [part for part in found if part.unit.canonical == key.min_unit]
        return sorted(found, key=lambda part: sorted(part.unit.items(), reverse=True), reverse=True)

    def stranded(self) -> Iterator[tuple[NeedKey, Profile, Resources]]:
        """Rows of single units some of which have no room: key, profile and what one unit takes."""
        rollup = self._rollup
        waiting = () if rollup.counted is None else np.flatnonzero(rollup.counted.stranded).tolist()
        for row in waiting:
            profile = rollup.profiles[rollup.profile[row]]
            if profile.same is None:
                group = "" if rollup.group[row] == NONE else rollup.groups[rollup.group[row]]
                unit = self._amounts(rollup.min_unit[row].tolist())
                yield NeedKey(rollup.cluster, profile.fingerprint, group, unit.canonical), profile, unit

    def _part(self, row: int) -> Part:
        rollup = self._rollup
        stranded = 0 if rollup.counted is None else int(rollup.counted.stranded[row])
        unit, aggregate = (self._amounts(each[row].tolist()) for each in (rollup.min_unit, rollup.aggregate))
        tokens = () if rollup.counted is None else rollup.counted.exclusive.get(row, ())
        return Part(unit, aggregate, stranded, tokens)

    def _amounts(self, amounts: Iterable[int]) -> Resources:
        return Resources({name: amount for name, amount in zip(self._rollup.resources, amounts, strict=True) if amount})
