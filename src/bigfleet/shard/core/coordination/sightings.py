"""Machines whose labels say too little about their owner: never seen before, or seen elsewhere before.

A machine that is new to this disk may be an old acquaintance of another shard, under other labels. So it is nobody's
here until every shard has listed its providers since and named what it remembers otherwise: this shard asks (`unsure`),
the coordinator has everybody look, pins what they name in the table, and answers (`sure`). A machine that stands
elsewhere than it was first seen is named in every report until the table pins it to its owner.
"""

from __future__ import annotations

from collections.abc import Iterable

Name = tuple[str, str]
_LIVES = 21


class Sightings:
    """What is unsure, what strayed, and the looks this shard was asked for."""

    def __init__(self, epoch: int, providers: Iterable[str]) -> None:
        # Numbers of two lives differ: an answer to an earlier one makes nobody sure.
        self._number = epoch << _LIVES
        self._announced = self._number
        self._unsure: dict[Name, int] = {}
        self.strayed: dict[Name, None] = {}
        # Look → when it was heard of; provider → when the last List that ended began.
        self._looks: dict[int, int] = {}
        self._listed = dict.fromkeys(providers, 0)
        self.looked = 0

    def __bool__(self) -> bool:
        return bool(self._unsure)

    def __contains__(self, name: Name) -> bool:
        return name in self._unsure

    def doubt(self, name: Name) -> None:
        """Seen for the first time, or under other labels while it was still unsure."""
        self._number += 1
        self._unsure[name] = self._number

    def forget(self, name: Name) -> None:
        """It is gone from the provider."""
        self._unsure.pop(name, None)
        self.strayed.pop(name, None)

    @property
    def asking(self) -> int:
        """What the report asks with; 0 when nothing is unsure, or not everything was seen yet."""
        return self._number if self._unsure and all(self._listed.values()) else 0

    @property
    def news(self) -> bool:
        """Whether there is more to ask for than when this was looked at last."""
        before, self._announced = self._announced, max(self._announced, self.asking)
        return self._announced > before

    def settle(self, number: int | None = None) -> list[Name]:
        """The coordinator's word: these are sure from now on; without a number all of them."""
        sure = [name for name, asked in self._unsure.items() if number is None or asked <= number]
        for name in sure:
            del self._unsure[name]
        return sure

    def look(self, look: int, now: int) -> bool:
        """Asked for a look; whether it is a new one."""
        if look <= self.looked or look in self._looks:
            return False
        self._looks[look] = now
        return True

    def listed(self, provider: str, began: int) -> bool:
        """A List ended; whether that finished a look."""
        if provider in self._listed:
            self._listed[provider] = max(began, self._listed[provider])
        since = min(self._listed.values(), default=began)
        over = [look for look, heard in self._looks.items() if heard <= since]
        for look in over:
            del self._looks[look]
        self.looked = max([self.looked, *over])
        return bool(over)

    def wanted(self, provider: str) -> bool:
        """Whether a look waits for a List of this provider."""
        return any(heard > self._listed.get(provider, heard) for heard in self._looks.values())
