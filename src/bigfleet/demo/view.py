"""How the demonstration looks: one moment and the size of a terminal in, something rich can print out. Pure.

Every machine is one character, coloured by the cluster it serves, so that a whole fleet is read at a glance. A small
terminal gets rules instead of frames and fewer words; whatever the size, nothing is cut in the middle: decisions are
shown whole or not at all, and the keys have the last line to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bigfleet.demo.feed import Feed
from bigfleet.demo.narrate import KINDS, NANOSECONDS, Line
from bigfleet.demo.paper import apart, whole, wrapped
from bigfleet.demo.reasons import cents, shortfall
from bigfleet.demo.watching import ARRIVING, SeenMachine, Sight
from bigfleet.model.billing import ALREADY_PAID
from bigfleet.model.machine import CapacityType, MachineState

# From this size on there is room for frames, zone names and numbers in the legend.
ROOMY = (112, 34)
PICTURE = (118, 44)
# Lines kept for decisions, however much is short: enough for a long one.
LEAST_FEED = 4
CLUSTER_COLOURS = ("bright_cyan", "bright_magenta", "bright_yellow", "bright_blue")
ORDER = (CapacityType.BARE_METAL, CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)
DIM = "bright_black"

_S = MachineState
# What one machine looks like; a machine of a cluster has the cluster's colour.
GLYPHS = {
    _S.SPECULATIVE: ("·", DIM),
    _S.CREATING: ("◔", "white"),
    _S.IDLE: ("□", "white"),
    _S.CONFIGURING: ("◐", "white"),
    _S.CONFIGURED: ("■", "white"),
    _S.DRAINING: ("◌", "white"),
    _S.DELETING: ("○", DIM),
    _S.FAILED: ("✕", "bright_red"),
}
LEGEND = (
    (_S.CONFIGURED, "node"),
    (_S.CONFIGURING, "joining"),
    (_S.CREATING, "buying"),
    (_S.DRAINING, "leaving"),
    (_S.IDLE, "idle"),
    (_S.SPECULATIVE, "for sale"),
    (_S.DELETING, "releasing"),
    (_S.FAILED, "gone"),
)
# What the audience can press: key, action of the app, words, and words for a small terminal.
KEYS = (
    ("1", "burst('payments')", "burst payments", "payments"),
    ("2", "burst('web')", "web", "web"),
    ("3", "burst('research')", "research", "research"),
    ("4", "burst('stores')", "stores", "stores"),
    ("c", "critical", "critical job", "job"),
    ("z", "fail_zone", "fail a zone", "zone"),
    ("d", "drain", "drain demand", "drain"),
    ("r", "reset", "reset", "reset"),
    ("q", "quit", "quit", "quit"),
)


@dataclass(frozen=True, slots=True)
class ClusterMoment:
    """One cluster as it describes itself."""

    name: str
    connected: bool
    pods: tuple[tuple[str, int], ...]
    shard: str = ""
    """Where its operator is connected, if that is not where most are."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything a picture shows."""

    now: int
    sight: Sight
    met: bool
    clusters: tuple[ClusterMoment, ...]
    lines: tuple[Line, ...]
    down: tuple[str, ...] = ()
    gone: tuple[SeenMachine, ...] = ()
    """Machines of zones that are down, as they were last seen; the shard no longer has them."""
    resetting: bool = False
    shards: tuple[tuple[str, str], ...] = ()
    """(name, address), the one that shows its metrics first."""
    metrics: str = ""
    coordinator: str = ""


def screen(moment: Moment, width: int, height: int, feed: Feed) -> RenderableType:
    """The whole picture but the keys: at most `height` lines, none longer than `width`."""
    roomy = width >= ROOMY[0] and height >= ROOMY[1]
    inner, frame = (width - 4, 2) if roomy else (width, 1)
    head, machines = header(moment, width, roomy=roomy), fleet(moment, inner, roomy=roomy)
    # On a small terminal the table's own head is title enough for the clusters.
    left = height - len(head) - (1 + len(moment.clusters) + (frame if roomy else 0)) - (len(machines) + frame) - frame
    blocks: list[tuple[str, list[Text] | Table]] = [
        ("clusters", clusters(moment, roomy=roomy)),
        ("machines" if roomy else _by_zone(moment), machines),
    ]
    if moment.sight.unmet or roomy:
        missing = short(moment.sight, inner, left - frame - LEAST_FEED)
        blocks.append(("short", missing))
        left -= len(missing) + frame
    blocks.append(("last decisions", decisions(moment, inner, left, feed)))
    parts: list[RenderableType] = [*head]
    for title, content in blocks:
        body = Group(*content) if isinstance(content, list) else content
        if roomy:
            parts.append(Panel(body, title=title, title_align="left", border_style=DIM))
        else:
            parts += [body] if title == "clusters" else [Rule(title, align="left", style=DIM), body]
    return Group(*parts)


def picture(moment: Moment) -> RenderableType:
    """The screen with its keys, for those who cannot press them."""
    width, height = PICTURE
    all_drawn = Feed(max((line.number for line in moment.lines), default=0))
    return Group(screen(moment, width, height - 1, all_drawn), keys(width))


def keys(width: int) -> Text:
    """What can be pressed, in one line."""
    for chip in (" {} ", "{}"):
        parts = (Text.assemble((chip.format(key), "bold reverse"), f" {words}") for key, _, words, _ in KEYS)
        line = Text("  ").join(parts)
        if line.cell_len <= width:
            return line
    brief = Text(" ").join(Text.assemble((key, "bold reverse"), f" {words}") for key, _, _, words in KEYS)
    brief = Text("burst ").append_text(brief)
    return brief if brief.cell_len <= width else Text(f"{' '.join(key for key, _, _, _ in KEYS)} quit")


def header(moment: Moment, width: int, *, roomy: bool) -> list[Text]:
    sight = moment.sight
    if moment.resetting:
        standing = Text("● starting again", "bold bright_yellow")
    elif moment.met:
        standing = Text("● all demand met", "bold bright_green")
    elif sight.unmet and not sight.moving:
        standing = Text("● not all can be met", "bold bright_red")
    else:
        standing = Text("● working on it", "bold bright_yellow")
    if moment.down:
        standing.append(f"  {_zones(moment.down)} down", "bold bright_red")
    total = len(sight.machines) + len(moment.gone)
    left = Text.assemble((" BigFleet ", "bold reverse"), f" {total} pretend machines")
    if roomy:
        left.append(f", {len(moment.clusters)} clusters, {len(moment.shards)} shards")
    right = Text.assemble((f"{cents(sight.dollars)}/h", "bold"), "  ", standing)
    lines = [apart(left, right, width)]
    if roomy:
        dialled = "".join(f" {name} {address} ·" for name, address in moment.shards)
        where = f"{dialled} coordinator {moment.coordinator} · http://{moment.metrics}/metrics"
        lines.append(Text(where, DIM, no_wrap=True, overflow="ellipsis"))
    return lines


def clusters(moment: Moment, *, roomy: bool) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1), header_style=DIM)
    table.add_column("cluster", no_wrap=True)
    table.add_column("wants pods", ratio=1, no_wrap=True)
    for name in ("vCPU", "nodes", "coming", "going", "$/h") if roomy else ("vCPU", "nodes", "in", "out", "$/h"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True, min_width=5)
    colours = _colours(moment)
    for cluster in moment.clusters:
        mine = [machine for machine in moment.sight.machines if machine.cluster == cluster.name]
        needs = moment.sight.of(cluster.name)
        table.add_row(
            Text(f"■ {cluster.name}", colours[cluster.name]).append(
                f" on {cluster.shard}" if cluster.shard else "", DIM
            ),
            ", ".join(f"{pods} {name}" for name, pods in cluster.pods if pods) or "none",
            f"{sum(need.wanted.get('cpu') for need in needs) / 1000:,.0f}",
            str(_count(mine, _S.CONFIGURED)),
            str(sum(map(_coming, mine)) or "–"),
            str(_count(mine, _S.DRAINING) or "–"),
            f"{sum(machine.dollars for machine in mine):.2f}",
            _standing(cluster, satisfied=all(need.satisfied for need in needs), coming=any(map(_coming, mine))),
        )
    return table


def fleet(moment: Moment, width: int, *, roomy: bool) -> list[Text]:
    """One line for each way machines are paid for, and what the signs mean."""
    colours = _colours(moment)
    lines = []
    every = [*moment.sight.machines, *moment.gone]
    lost = frozenset(machine.id for machine in moment.gone)
    for kind in ORDER:
        machines = [machine for machine in every if machine.kind is kind]
        if not machines:
            continue
        there = [machine for machine in machines if machine.id not in lost]
        used = f"{_count(there, _S.CONFIGURED)}/{len(machines)}"
        left = Text(f"{KINDS[kind]:<10}").append_text(_cells(machines, lost, colours, named=roomy))
        right = f"{used} nodes  {_cost(kind, there, roomy=True)}" if roomy else f"{used} {_cost(kind, there)}"
        lines.append(apart(left, Text(right), width))
    counts = {state: _count(moment.sight.machines, state) for state, _ in LEGEND}
    counts[_S.FAILED] += len(lost)
    legend = Text("  ").join(
        Text.assemble(GLYPHS[state], f" {counts[state]} " if roomy else " ", (word, DIM)) for state, word in LEGEND
    )
    return [*lines, Text(), legend] if roomy else [*lines, legend]


def short(sight: Sight, width: int, height: int) -> list[Text]:
    """What is missing, the most important first; what there is no room for is counted."""
    if not sight.unmet:
        return [Text("nothing", DIM)]
    entries = [wrapped(Text("• "), Text(shortfall(need), "bright_yellow"), width) for need in sight.unmet]
    if sum(map(len, entries)) <= height:
        return [line for entry in entries for line in entry]
    shown = whole(entries, height - 1)
    rest = len(entries) - sum(line.plain.startswith("•") for line in shown)
    return [*shown, Text(f"• and {rest} more", "bright_yellow")]


def decisions(moment: Moment, width: int, height: int, feed: Feed) -> list[Text]:
    """What was decided last, each whole, as many as there is room for."""
    return feed.choose([(line.number, _told(line, moment.now, width)) for line in moment.lines], height)


def _told(line: Line, now: int, width: int) -> list[Text]:
    age = Text(f"{max(0, now - line.at) // NANOSECONDS:>3} s ", DIM)
    if line.who == "you":
        return wrapped(age, Text(f"▶ {line.text}", "bold bright_green" if line.good else "bold bright_red"), width)
    return wrapped(age, Text(line.text, "" if line.good else "bright_red"), width)


def _cells(machines: Iterable[SeenMachine], lost: frozenset[str], colours: dict[str, str], *, named: bool) -> Text:
    """One character each, zone by zone."""
    text = Text()
    zone = ""
    for machine in sorted(machines, key=lambda each: (each.zone, each.id)):
        if machine.zone != zone:
            text.append("  " if zone and named else " " if zone else "")
            text.append(f"{_short(machine.zone)} " if named else "", DIM)
        zone = machine.zone
        glyph, style = GLYPHS[_S.FAILED if machine.id in lost else machine.state]
        text.append(glyph, style if glyph == GLYPHS[_S.FAILED][0] else colours.get(machine.cluster, style))
    return text


def _cost(kind: CapacityType, machines: Iterable[SeenMachine], *, roomy: bool = False) -> str:
    dollars = sum(machine.dollars for machine in machines)
    if kind not in ALREADY_PAID:
        return f"{cents(dollars)}/h"
    return f"{cents(dollars)}/h already paid" if dollars and roomy else "already paid"


def _by_zone(moment: Moment) -> str:
    """A title that says which group of machines is which zone."""
    regions: dict[str, list[str]] = {}
    for zone in sorted({machine.zone for machine in (*moment.sight.machines, *moment.gone)}):
        regions.setdefault(zone.rpartition("-")[0], []).append(zone)
    groups = [", ".join([zones[0], *map(_short, zones[1:])]) for zones in regions.values()]
    return f"machines in {' or '.join(reversed(groups))}" if groups else "machines"


def _zones(names: Sequence[str]) -> str:
    """Zones of one region by their ends: `eu-west-1a`, `eu-west-1a and 1b`."""
    return " and ".join([names[0], *map(_short, names[1:])])


def _short(zone: str) -> str:
    """`1a` of `eu-west-1a`; a hall keeps its name."""
    end = zone.rpartition("-")[2]
    return end if any(letter.isdigit() for letter in end) else zone


def _standing(cluster: ClusterMoment, *, satisfied: bool, coming: bool) -> Text:
    if not cluster.connected:
        return Text("away", "bright_yellow")
    if not satisfied:
        return Text("short", "bright_red")
    return Text("soon", "bright_yellow") if coming else Text("yes", "bright_green")


def _coming(machine: SeenMachine) -> bool:
    return machine.state in ARRIVING


def _count(machines: Sequence[SeenMachine], state: MachineState) -> int:
    return sum(machine.state is state for machine in machines)


def _colours(moment: Moment) -> dict[str, str]:
    return {cluster.name: CLUSTER_COLOURS[n % len(CLUSTER_COLOURS)] for n, cluster in enumerate(moment.clusters)}
