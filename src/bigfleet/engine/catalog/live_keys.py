"""Live keys: which label keys and which machine ids the demand in force names, counted by its profiles.

Classes are derived by these keys, so this also knows whether those they were derived by are still the right ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, itemgetter

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.profile import Profile

_spread, _requirements = attrgetter("spread"), attrgetter("requirements")


class LiveKeys:
    def __init__(self) -> None:
        # Those that classes are derived by, in order.
        self.keys: list[str] = []
        self._stale = False
        self._names: list[str] | None = []
        self._key_refs: dict[str, int] = {}
        self._named_refs: dict[str, int] = {}

    def count(self, came: Iterable[Profile], left: Iterable[Profile] = ()) -> None:
        """Counts profiles in and out of the demand in force."""
        keys: Counter[str] = Counter()
        named: Counter[str] = Counter()
        for profiles, count in ((list(came), Counter.update), (list(left), Counter.subtract)):
            asked = list(chain.from_iterable(map(_requirements, profiles)))
            count(keys, Counter(map(itemgetter(0), asked)))
            count(keys, Counter(map(itemgetter(0), chain.from_iterable(map(_spread, profiles)))))
            if HOSTNAME_LABEL in keys:
                count(named, (value for each in asked if each.key == HOSTNAME_LABEL for value in each.values))
        # A host is nobody's class.
        del keys[HOSTNAME_LABEL]
        self._change(self._key_refs, keys)
        self._change(self._named_refs, named)

    def _change(self, refs: dict[str, int], change: Counter[str]) -> None:
        for key, more in change.items():
            if more:
                left = refs.get(key, 0) + more
                if left == 0 or key not in refs:
                    self._stale, self._names = True, None
                if left:
                    refs[key] = left
                else:
                    refs.pop(key, None)

    @property
    def named_ids(self) -> list[str]:
        """Ids that live demand names; the same list as long as they are the same."""
        if self._names is None:
            self._names = sorted(self._named_refs)
        return self._names

    def are_current(self) -> bool:
        """Whether classes are derived by the keys that are live now."""
        if self._stale:
            self._stale = self.keys != sorted(self._key_refs)
        return not self._stale

    def renew(self) -> None:
        """Classes are about to be derived by the keys that are live now."""
        self.keys, self._stale = sorted(self._key_refs), False

    def validate(self, profiles: Iterable[Profile]) -> None:
        """Keys and names are counted by these profiles, those in force."""
        counted, twin = (self._key_refs, self._named_refs), LiveKeys()
        twin.count(profiles)
        assert counted == (twin._key_refs, twin._named_refs), f"live keys are counted {counted}, not by their profiles"
        assert self.keys == sorted(self._key_refs), f"classes know {self.keys}, rows name {sorted(self._key_refs)}"
