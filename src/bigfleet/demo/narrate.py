"""Decisions in plain words: what was done, to how many machines of what kind, for whom, and why that and not another.

Pure: what was seen goes in, sentences come out. Equal things that happen close together are one sentence, and no
machine is counted twice in one. Sentences are made when they are read: who was displaced is often known only later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from bigfleet.demo.reasons import Market, cents, priority_word, why_bought
from bigfleet.demo.watching import SeenAction, SeenMachine, SeenNeed, Sight
from bigfleet.engine.results import ActionKind
from bigfleet.model.billing import ALREADY_PAID, added_by_buying
from bigfleet.model.machine import CapacityType

NANOSECONDS = 1_000_000_000
# Actions of one kind that end within so long of each other are told together.
TOGETHER = 4 * NANOSECONDS
KEPT_LINES = 200
KEPT_MARKETS = 300

KINDS = {
    CapacityType.BARE_METAL: "on-prem",
    CapacityType.RESERVED: "reserved",
    CapacityType.ON_DEMAND: "on-demand",
    CapacityType.SPOT: "spot",
    CapacityType.UNSPECIFIED: "unpriced",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of the story. `who` is "you" for what the audience did and "fleet" for what the shard did."""

    at: int
    text: str
    who: str = "fleet"
    good: bool = True
    times: int = 1
    number: int = 0
    """Its place in the order told; a sentence that grows keeps it."""


@dataclass(frozen=True, slots=True)
class Deed:
    """The same done to several machines, for the same need and the same reason, last of all at `at`."""

    at: int
    chapter: int
    kind: ActionKind
    cluster: str
    need: SeenNeed | None
    """Whom it serves; of a preemption the one who takes."""
    loser: SeenNeed | None
    """Who had the machine until it was taken for `need`."""
    machine: SeenMachine
    """One of them."""
    why: str
    error: str
    machines: frozenset[str]
    zones: frozenset[str]
    dollars: float

    def joins(self, other: Deed) -> bool:
        """Whether the two make one sentence."""
        near = abs(other.at - self.at) <= TOGETHER and self.chapter == other.chapter
        return near and self._key() == other._key() and not self.machines & other.machines

    def _key(self) -> tuple[object, ...]:
        parties = [(need.cluster, need.fingerprint) if need else None for need in (self.need, self.loser)]
        kind = (self.machine.kind, self.machine.instance_type)
        return (self.kind, self.cluster, *parties, kind, self.why, self.error)

    def __add__(self, other: Deed) -> Deed:
        return replace(
            self,
            at=max(self.at, other.at),
            machines=self.machines | other.machines,
            zones=self.zones | other.zones,
            dollars=self.dollars + other.dollars,
        )


class Story:
    """What one shard did. Remembers needs and machines, because actions may outlive both.

    Several may write on one page, each in its own words: the last lines, newest first.
    """

    def __init__(self, page: Page | None = None) -> None:
        self._page = Page() if page is None else page
        self._needs: dict[tuple[str, str], SeenNeed] = {}
        self._machines: dict[str, SeenMachine] = {}
        self._served: dict[tuple[str, str], str] = {}
        self._taken: dict[str, tuple[SeenNeed | None, SeenNeed | None]] = {}
        self._markets: deque[tuple[int, Market]] = deque(maxlen=KEPT_MARKETS)
        self._cycle = 0
        self._chapters: list[int] = []
        self._displaced: dict[tuple[int, str, str], str] = {}

    def say(self, at: int, text: str, *, good: bool = True) -> None:
        """The audience did something: what follows is another chapter."""
        self.begin_chapter()
        newest = self._page.told[0][2] if self._page.told else None
        times = 1
        if isinstance(newest, Line) and newest.text == text:
            self._page.told.popleft()
            times += newest.times
        self.note(Line(at, text, "you", good, times))

    def begin_chapter(self) -> None:
        self._chapters.append(self._cycle)

    def note(self, line: Line) -> None:
        """Something happened that is no action of the shard."""
        self._page.add(self, line)

    def forget(self) -> None:
        """Begin again with an empty page."""
        self._page.told.clear()

    def follow(self, sight: Sight) -> None:
        """Take in what the shard did since the last look."""
        self._cycle = sight.cycle
        self._note_takeovers(sight)
        self._needs.update({(need.cluster, need.fingerprint): need for need in sight.needs})
        self._machines.update(sight.by_id)
        for machine in sight.machines:
            if machine.cluster and machine.serves:
                self._served[machine.id, machine.cluster] = machine.serves
        if not self._markets or self._markets[-1][0] < sight.cycle:
            self._markets.append((sight.cycle, Market.of(sight.machines)))
        for action in sight.actions:
            deed = self._deed(action)
            if deed is not None:
                self._tell(deed)

    @property
    def lines(self) -> list[Line]:
        """The whole page."""
        return [replace(teller._line(each), number=number) for teller, number, each in self._page.told]

    def _line(self, told: Deed | Line) -> Line:
        return _counted(told) if isinstance(told, Line) else Line(told.at, self._sentence(told), good=not told.error)

    def _tell(self, deed: Deed) -> None:
        """The sentence that grew is the newest again, but never newer than what the audience did after it."""
        for place, (teller, number, earlier) in enumerate(self._page.told):
            if isinstance(earlier, Line) and earlier.who == "you":
                break
            if teller is self and isinstance(earlier, Deed) and earlier.joins(deed):
                del self._page.told[place]
                self._page.told.appendleft((self, number, earlier + deed))
                return
        self._page.add(self, deed)

    def _deed(self, action: SeenAction) -> Deed | None:
        machine = self._machines.get(action.machine)
        if machine is None or action.outcome in ("cancelled", "suppressed", "dryrun"):
            return None
        kind, error = ActionKind(action.kind), "" if action.outcome == "success" else action.error or action.outcome
        need, loser, why = self._need(action.cluster, action.fingerprint), None, ""
        if kind is ActionKind.PREEMPT:
            loser = self._needs.get((action.cluster, self._served.get((action.machine, action.cluster), "")))
            if loser is not None and need is not None and not error:
                self._displaced[self._chapter(action.cycle), loser.cluster, loser.fingerprint] = need.name
                self._taken[machine.id] = (need, loser)
        elif kind is ActionKind.BOOTSTRAP:
            taker, had = self._taken.pop(machine.id, (None, None))
            loser = had if taker is not None and need is not None and taker.fingerprint == need.fingerprint else None
        elif kind is ActionKind.PROVISION:
            why = why_bought(machine, need.interruption if need else 0.0, self._market(action.cycle))
        return Deed(
            at=action.at,
            chapter=self._chapter(action.cycle),
            kind=kind,
            cluster=action.cluster,
            need=need,
            loser=loser,
            machine=machine,
            why=why,
            error=error,
            machines=frozenset({machine.id}),
            zones=frozenset({machine.zone}),
            dollars=added_by_buying(machine.kind, machine.price),
        )

    def _need(self, cluster: str, fingerprint: str) -> SeenNeed | None:
        """The need of this cluster, or the newest of another: a preemption names the victim's cluster."""
        others = (need for (_, print_), need in reversed(self._needs.items()) if print_ == fingerprint)
        return self._needs.get((cluster, fingerprint)) or next(others, None)

    def _market(self, cycle: int) -> Market:
        """What was left after this decision."""
        after = (market for seen, market in self._markets if seen >= cycle)
        return next(after, self._markets[-1][1] if self._markets else Market())

    def _chapter(self, cycle: int) -> int:
        """What the audience had done when this was decided: an action may end long after the next key."""
        return bisect_left(self._chapters, cycle)

    def _note_takeovers(self, sight: Sight) -> None:
        """Machines that change hands inside a cluster: no action shows it, the counts do."""
        for winner in sight.needs:
            gained = winner.credited - self._claimed(winner)
            for loser in sight.needs:
                lost = self._claimed(loser) - loser.credited
                if loser.cluster != winner.cluster or loser.priority >= winner.priority or min(gained, lost) <= 0:
                    continue
                before = self._needs[loser.cluster, loser.fingerprint]
                if loser.wanted.covers(before.wanted):  # it did not simply ask for less
                    self._displaced[self._chapter(sight.cycle), loser.cluster, loser.fingerprint] = winner.name
                    self.note(Line(sight.decided_at, _takeover(winner, loser, min(gained, lost))))

    def _claimed(self, need: SeenNeed) -> int:
        before = self._needs.get((need.cluster, need.fingerprint))
        return before.claimed if before is not None else 0

    def _sentence(self, deed: Deed) -> str:
        displacer = ""
        if deed.need is not None:
            displacer = self._displaced.get((deed.chapter, deed.need.cluster, deed.need.fingerprint), "")
        return sentence(deed, displacer)


class Page:
    """What was told last, newest first: by whom, its place in the order told, and what."""

    def __init__(self) -> None:
        self.told: deque[tuple[Story, int, Deed | Line]] = deque(maxlen=KEPT_LINES)
        self._numbers = count(1)

    def add(self, teller: Story, what: Deed | Line) -> None:
        self.told.appendleft((teller, next(self._numbers), what))


def sentence(deed: Deed, displacer: str = "") -> str:
    """The deed as one sentence, with its reason; `displacer` took machines from the need it serves."""
    what = f"{len(deed.machines)} {KINDS[deed.machine.kind]} {deed.machine.instance_type} in {listed(deed.zones)}"
    whom = deed.need.name if deed.need is not None else deed.cluster
    if deed.error:
        return f"failed to {_INFINITIVES[deed.kind]} {what}: {_ERRORS.get(deed.error, deed.error)}"
    if displacer:
        whom = f"{whom}, which lost machines to {displacer}"
    match deed.kind:
        case ActionKind.BOOTSTRAP:
            return f"gave {what} to {whom}: {_why_given(deed)}"
        case ActionKind.PROVISION:
            comma = "," if displacer else ""
            return f"bought {what} for {whom}{comma} at {cents(deed.dollars)}/h: nothing idle fits; {deed.why}"
        case ActionKind.PREEMPT:
            had = f"{deed.loser.name} ({priority_word(deed.loser.priority)})" if deed.loser else deed.cluster
            taker = f"{whom} ({priority_word(deed.need.priority)})" if deed.need else "a more urgent job"
            return f"took {what} from {had} for {taker}: nothing idle or for sale fits that"
        case ActionKind.RECLAIM:
            pronoun = "it" if len(deed.machines) == 1 else "them"
            return f"took back {what}: {deed.cluster} no longer needs {pronoun}"
    return f"released {what}, unused for a while: saves {cents(deed.dollars)}/h"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    ordered: Sequence[str] = sorted(names)
    return " and ".join(part for part in (", ".join(ordered[:-1]), *ordered[-1:]) if part)


def _counted(line: Line) -> Line:
    return replace(line, text=f"{line.text} ({line.times} times)") if line.times > 1 else line


_INFINITIVES = {
    ActionKind.BOOTSTRAP: "bind",
    ActionKind.PROVISION: "buy",
    ActionKind.PREEMPT: "drain",
    ActionKind.RECLAIM: "drain",
    ActionKind.DELETE: "release",
}


_ERRORS = {"the provider does not know it": "the provider no longer has them"}


def _why_given(deed: Deed) -> str:
    if deed.loser is not None:
        return f"just taken from {deed.loser.name}"
    if deed.machine.kind in ALREADY_PAID:
        return "idle and already paid"
    return "idle and still rented, so nothing new is bought"


def _takeover(winner: SeenNeed, loser: SeenNeed, machines: int) -> str:
    had = f"{loser.name} ({priority_word(loser.priority)})"
    return f"{winner.name} ({priority_word(winner.priority)}) takes over {machines} nodes of {had} in its own cluster"
