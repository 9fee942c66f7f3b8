"""One pass over everything that waits: who finds room, who has none, which closing nodes must open again.

Order: pods the scheduler makes room for, then priority, devices, those that want a node each, larger first, then age;
gangs whole or not at all, or what is left of one in the domain where it runs; placeholders last. Leaves its guests in
place for whoever looks next.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.books import Books
from bigfleet.operator.core.mirror.kinds import Kind
from bigfleet.operator.core.mirror.nodes import Node
from bigfleet.operator.core.mirror.placing import Placing, allows
from bigfleet.operator.core.mirror.pods import Pod, Request
from bigfleet.operator.core.mirror.reserving import is_choosy, reserve

# Room that the scheduler has not used for so long is no room.
STUCK_AFTER = 5 * 60 * SECOND
# Whoever has waited for so long takes a closing node, whatever the shard had in mind: it may be paused, or gone.
PATIENCE = 3 * 60 * SECOND


class Outcome:
    """What a pass found. `roomy` pods have room, `stranded` ones do not, `stuck` ones had it for too long."""

    __slots__ = ("hopeful", "let_go", "placeholders", "reopened", "reserved", "roomy", "stranded", "stuck")

    def __init__(self) -> None:
        self.roomy: list[Pod] = []
        self.stranded: list[Pod] = []
        self.stuck: list[Pod] = []
        # Units without a pod that have no room, by request.
        self.placeholders: list[tuple[Request, int]] = []
        self.reopened: list[Node] = []
        # Some of those without room may take a closing node later.
        self.hopeful = False
        # Nodes that were kept for somebody and are for all from now on.
        self.let_go: list[Node] = []
        # New nodes, each with the pods that may come before it is for all.
        self.reserved: dict[Node, list[Pod]] = {}


def place_waiting(books: Books, placing: Placing, now: int, patience: int = 0) -> Outcome:
    """Seat everything that waits as a guest; whoever calls takes the guests away again. Closing nodes are for whoever
    has waited for `patience`."""
    outcome = Outcome()
    seated = _nominated(books, placing, outcome)
    gangs: dict[str, list[tuple[Kind, list[Pod]]]] = {}
    jobs: list[tuple[tuple[object, ...], str, Kind, list[Pod]]] = []
    for kind in books.waitlist.kinds:
        pods = _movers(kind, seated, outcome, now)
        if not pods:
            continue
        if kind.same is not None:
            gangs.setdefault(kind.shape.group, []).append((kind, pods))
        else:
            jobs.append((kind.order, "", kind, pods))
    for group, members in gangs.items():
        members.sort(key=lambda each: each[0].order)
        jobs.append((members[0][0].order, group, members[0][0], []))
    jobs.sort(key=lambda job: job[:2])
    short: list[tuple[Kind, list[Pod]]] = []
    whole: set[str] = set()
    for _, group, kind, pods in jobs:
        if group:
            used = _place_gang(books, placing, gangs, group, outcome)
            if used is not None:
                whole.add(group)
                if books.keeping.reserves:
                    mine = [pod for _, pods in gangs[group] for pod in pods if pod.row is not None]
                    outcome.reserved |= dict.fromkeys(used, mine)
            continue
        placed = placing.place(kind, len(pods))
        outcome.roomy += pods[:placed]
        if placed < len(pods):
            short.append((kind, pods[placed:]))
    _reopen(books, placing, short, outcome, now - patience if patience else None)
    lacking = [pod for pod in outcome.stranded if pod.kind.same is None]
    choosy = any(is_choosy(pod.kind) for pod in lacking if pod.row is not None)
    if choosy and books.keeping.reserves and (here := books.keeping.here()):
        outcome.reserved |= reserve(placing, lacking, here, books.keeping.coming())
    outcome.let_go = books.keeping.let_go(gangs, whole, outcome.reserved, choosy, now)
    _place_placeholders(books, placing, outcome)
    return outcome


def _movers(kind: Kind, seated: set[Pod], outcome: Outcome, now: int) -> list[Pod]:
    """Pods of a kind that look for room, oldest first."""
    found = []
    for pod in kind.waiting:
        if pod.room_since is not None and now - pod.room_since >= STUCK_AFTER:
            outcome.stuck.append(pod)
        elif pod not in seated:
            found.append(pod)
    return found


def _nominated(books: Books, placing: Placing, outcome: Outcome) -> set[Pod]:
    """The scheduler has cleared a node for these, though its old pods may still be leaving."""
    seated: set[Pod] = set()
    for pod in sorted(books.waitlist.nominated, key=lambda pod: (pod.kind.order, pod.age_key)):
        node = books.nodes.get(pod.nominated)
        if node is not None and node.open:
            placing.put(pod.kind, node, 1)
            seated.add(pod)
            outcome.roomy.append(pod)
    return seated


def _place_gang(
    books: Books, placing: Placing, gangs: dict[str, list[tuple[Kind, list[Pod]]]], group: str, outcome: Outcome
) -> set[Node] | None:
    """None unless all of the gang has room; else the kept nodes that it needs for that."""
    members = gangs[group]
    first = members[0][0]
    assert first.same is not None
    home = home_of(books, first.shape.group)
    counts = [(kind, len(pods)) for kind, pods in members]
    fits = placing.place_gang(counts, first.same, home)
    for _, pods in members:
        (outcome.roomy if fits else outcome.stranded).extend(pods)
    if fits:
        return set()
    kept = books.keeping.for_gang(group, gangs)
    mark = placing.mark()
    if not kept or not placing.place_gang(counts, first.same, home, kept=kept):
        return None
    # The room is there and not yet open: for the rows it is still to come, until its nodes are let go.
    used = placing.used(mark).intersection(kept)
    placing.undo(mark)
    return used


def home_of(books: Books, group: str) -> str | None:
    """The domain where most of a gang runs."""
    domains = books.gangs.get(group)
    return min(domains, key=lambda domain: (-domains[domain], domain)) if domains else None


def _reopen(
    books: Books, placing: Placing, short: Iterable[tuple[Kind, list[Pod]]], outcome: Outcome, before: int | None
) -> None:
    """Closing nodes take what has room nowhere else, if it came `before` then."""
    closing: list[Node] | None = None
    for kind, pods in short:
        if closing is None:
            closing = _closing(books)
        # Whoever no row counts is nobody's to serve but ours.
        patient = [pod for pod in pods if before is not None and pod.row is not None and pod.since > before]
        left = [pod for pod in pods if before is None or pod.row is None or pod.since <= before]
        outcome.stranded += patient
        outcome.hopeful |= bool(patient and closing)
        for node in closing:
            while left and node.room(kind.need) and kind.fit.filter.suits(node) and allows(kind, node):
                placing.put(kind, node, 1)
                outcome.roomy.append(left.pop(0))
                if node not in outcome.reopened:
                    outcome.reopened.append(node)
        outcome.stranded += left


def _closing(books: Books) -> list[Node]:
    return sorted(
        (
            node
            for node in books.nodes.values()
            if node.facts.closing_since and node.facts.ready and not (node.draining or node.lost or node.away)
        ),
        key=lambda node: node.name,
    )


def _place_placeholders(books: Books, placing: Placing, outcome: Outcome) -> None:
    for kind in sorted((kind for kind in books.waitlist.kinds if kind.placeholders), key=lambda kind: kind.order):
        requests = [request for _, request in sorted(kind.placeholders.items())]
        wanted = sum(request.placeholders for request in requests)
        if kind.same is None:
            placed = placing.place(kind, wanted)
        else:
            home = home_of(books, kind.shape.group)
            placed = wanted if placing.place_gang([(kind, wanted)], kind.same, home) else 0
        for request in requests:
            served = min(placed, request.placeholders)
            placed -= served
            if served < request.placeholders:
                outcome.placeholders.append((request, request.placeholders - served))
