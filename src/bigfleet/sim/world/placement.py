"""Where waiting pods go: how many fit a node, the emptiest node first, spreads evened out over domains."""

from __future__ import annotations

from bigfleet.sim.world.pods import Node, Vector


def room(free: list[int], want: Vector) -> int:
    """How many such pods fit."""
    fits = 1 << 30
    for have, need in zip(free, want, strict=True):
        if need and have < fits * need:
            fits = have // need
    return fits


def emptiest_first(slots: list[tuple[int, Node]], wanted: int) -> list[tuple[Node, int]]:
    """Pods one by one onto the node with the most room, ties by id, worked out as a water level."""
    total = sum(room for room, _ in slots)
    if total <= wanted:
        return [(node, room) for room, node in slots]
    low, high = 0, max(room for room, _ in slots)
    while low < high:  # the highest level above which at least `wanted` slots lie
        middle = (low + high + 1) // 2
        if sum(room - middle for room, _ in slots if room > middle) >= wanted:
            low = middle
        else:
            high = middle - 1
    above = sorted(((node.id, room, node) for room, node in slots if room > low), key=lambda each: each[0])
    surplus = sum(room - low for _, room, _ in above) - wanted
    placed = []
    for place, (_, room, node) in enumerate(above):
        count = room - low - (1 if place >= len(above) - surplus else 0)
        if count:
            placed.append((node, count))
    return placed


def spread_out(slots: list[tuple[int, Node]], wanted: int, held: dict[str, int], key: str) -> list[tuple[Node, int]]:
    """Domain by domain towards equal numbers, inside a domain the emptiest node first."""
    domains: dict[str, list[tuple[int, Node]]] = {}
    for room, node in slots:
        domains.setdefault(node.attributes.get(key) or "", []).append((room, node))
    rooms = {domain: sum(room for room, _ in found) for domain, found in domains.items()}
    counts = {domain: held.get(domain, 0) for domain in domains}
    share = dict.fromkeys(domains, 0)
    left = min(wanted, sum(rooms.values()))
    while left:
        open_domains = sorted((d for d in domains if share[d] < rooms[d]), key=lambda d: (counts[d] + share[d], d))
        lowest = counts[open_domains[0]] + share[open_domains[0]]
        level = [d for d in open_domains if counts[d] + share[d] == lowest]
        higher = [counts[d] + share[d] for d in open_domains if counts[d] + share[d] > lowest]
        step = min(
            [*(rooms[d] - share[d] for d in level), *(h - lowest for h in higher[:1]), max(1, left // len(level))]
        )
        for domain in level:
            taken = min(step, left)
            share[domain] += taken
            left -= taken
    return [each for domain in sorted(domains) for each in emptiest_first(domains[domain], share[domain])]
