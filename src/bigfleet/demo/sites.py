"""The demonstration's shards as one fleet: what each sees and did, put together, and machines that change shards.

Every shard lists every machine and says which are its own, so a machine is shown by its owner, or while it is on its
way between two by whoever lists it. Shards count their decisions apart, so each tells its own story, on one page.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from bigfleet.demo.narrate import KINDS, Line, Story, listed
from bigfleet.demo.watching import SeenMachine, Sight, Watcher
from bigfleet.shard.process import ShardProcess


@dataclass
class Site:
    """One shard, and what was last seen of it: its own machines and its clusters' needs."""

    name: str
    shard: ShardProcess
    watcher: Watcher
    story: Story
    sight: Sight = field(default_factory=Sight)
    loss_seen_in: int = -1

    @property
    def noticed(self) -> bool:
        """Whether it has decided since machines were last lost."""
        return self.sight.cycle > self.loss_seen_in


class Sites:
    """All of them; the first is the one that owns what nobody else does."""

    def __init__(self, sites: tuple[Site, ...]) -> None:
        self.all = sites
        self.sight = Sight()
        self.begun = False
        self._owners: dict[str, str] = {}

    def begin(self) -> None:
        """Each has what is its own to begin with; whatever changes shards from now on has moved."""
        self.begun = True
        self._owners.clear()

    async def look(self) -> Sight:
        """One look at everybody."""
        before, unowned = self.sight, dict[str, SeenMachine]()
        owned: dict[str, SeenMachine] = {}
        for site in self.all:
            seen = await site.watcher.look()
            mine = tuple(machine for machine in seen.machines if machine.owned)
            unowned.update(seen.by_id)
            owned.update({machine.id: machine for machine in mine})
            site.sight = replace(seen, machines=mine)
        machines = tuple({**unowned, **owned}.values())
        needs = tuple(need for site in self.all for need in site.sight.needs)
        self.sight = replace(self.all[0].sight, machines=machines, needs=needs)
        lost = any(each.id not in self.sight.by_id for each in before.serving())
        for site in self.all:
            if lost:
                site.loss_seen_in = site.sight.cycle
            site.story.follow(site.sight)
        self._note_moves()
        return self.sight

    @property
    def met(self) -> bool:
        return all(site.sight.met and site.noticed for site in self.all) and self.sight.met

    # ---------------------------------------------------------------------------------------------------------- telling

    @property
    def lines(self) -> list[Line]:
        """Everybody's, newest first."""
        return self.all[0].story.lines

    def say(self, text: str, *, good: bool = True) -> None:
        """The audience did something."""
        first, *others = self.all
        first.story.say(time.time_ns(), text, good=good)
        for site in others:
            site.story.begin_chapter()

    def forget(self) -> None:
        """An empty page."""
        self.all[0].story.forget()

    def _note_moves(self) -> None:
        """Machines that another shard has now than the one that had them."""
        owners = {machine: site.name for site in self.all for machine in site.sight.by_id}
        moved: dict[tuple[str, str, str], list[SeenMachine]] = {}
        for machine, owner in owners.items():
            had = self._owners.get(machine, owner)
            if had != owner and self.begun:
                seen = self.sight.by_id[machine]
                moved.setdefault((had, owner, f"{KINDS[seen.kind]} {seen.instance_type}"), []).append(seen)
        self._owners.update(owners)
        for (donor, recipient, kind), machines in moved.items():
            story = next(site.story for site in self.all if site.name == recipient)
            story.note(Line(time.time_ns(), _moved(donor, recipient, kind, machines)))


def _moved(donor: str, recipient: str, kind: str, machines: list[SeenMachine]) -> str:
    hosts = Counter(machine.has_host for machine in machines)
    what = f"{len(machines)} {kind} in {listed({machine.zone for machine in machines})}"
    free = "for sale" if not hosts[True] else "idle"
    return f"the coordinator moved {what} from shard {donor} to shard {recipient}: {free} there, missing here"
