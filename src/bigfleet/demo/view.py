"""How the demonstration looks: one moment in, something rich can print out. Pure; knows no clock and no terminal.

Every machine is one character, coloured by the cluster it serves, so that a whole fleet is read at a glance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bigfleet.demo.narrate import KINDS, NANOSECONDS, Line, shortfall
from bigfleet.demo.watching import ARRIVING, SeenMachine, Sight
from bigfleet.model.machine import CapacityType, MachineState

WIDTH = 118
FEED = 12
CLUSTER_COLOURS = ("bright_cyan", "bright_magenta", "bright_yellow")
ORDER = (CapacityType.BARE_METAL, CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)

_S = MachineState
# What one machine looks like; a machine of a cluster has the cluster's colour.
GLYPHS = {
    _S.SPECULATIVE: ("·", "bright_black"),
    _S.CREATING: ("◔", "white"),
    _S.IDLE: ("□", "white"),
    _S.CONFIGURING: ("◐", "white"),
    _S.CONFIGURED: ("■", "white"),
    _S.DRAINING: ("◌", "white"),
    _S.DELETING: ("○", "bright_black"),
    _S.FAILED: ("✕", "bright_red"),
}
LEGEND = (
    (_S.CONFIGURED, "node"),
    (_S.CONFIGURING, "joining"),
    (_S.CREATING, "being bought"),
    (_S.DRAINING, "leaving"),
    (_S.IDLE, "idle"),
    (_S.SPECULATIVE, "for sale"),
    (_S.DELETING, "being released"),
    (_S.FAILED, "broken"),
)
# What the audience can press: key, action of the app, words.
KEYS = (
    ("1", "burst('payments')", "burst payments"),
    ("2", "burst('web')", "burst web"),
    ("3", "burst('research')", "burst research"),
    ("c", "critical", "critical job"),
    ("z", "fail_zone", "fail a zone"),
    ("d", "drain", "drain demand"),
    ("r", "reset", "reset"),
    ("q", "quit", "quit"),
)


@dataclass(frozen=True, slots=True)
class ClusterMoment:
    """One cluster as it describes itself."""

    name: str
    connected: bool
    pods: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything a picture shows."""

    now: int
    sight: Sight
    met: bool
    clusters: tuple[ClusterMoment, ...]
    lines: tuple[Line, ...]
    down: tuple[str, ...] = ()
    address: str = ""
    metrics: str = ""


def screen(moment: Moment) -> RenderableType:
    """The whole picture."""
    return Group(
        header(moment),
        Panel(clusters(moment), title="clusters", title_align="left", border_style="bright_black"),
        Panel(fleet(moment), title="machines", title_align="left", border_style="bright_black"),
        Panel(short(moment.sight), title="shortfalls", title_align="left", border_style="bright_black"),
        Panel(decisions(moment), title="last decisions", title_align="left", border_style="bright_black"),
    )


def picture(moment: Moment) -> RenderableType:
    """The screen with its keys, for those who cannot press them."""
    keys = Text("  ").join(Text.assemble((key, "bold reverse"), f" {words}") for key, _, words in KEYS)
    return Group(screen(moment), keys)


def header(moment: Moment) -> RenderableType:
    sight = moment.sight
    standing = (
        Text("● all demand met", "bold bright_green") if moment.met else Text("● working on it", "bold bright_yellow")
    )
    if moment.down:
        standing.append(f"  {' and '.join(moment.down)} down", "bold bright_red")
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(
        Text.assemble(
            (" BigFleet ", "bold reverse"),
            f"  {len(sight.machines)} pretend machines, {len(moment.clusters)} clusters, 1 shard",
        ),
        Text.assemble((f"${sight.dollars:.2f}/h", "bold"), "  ", standing),
    )
    where = f" shard {moment.address} · metrics http://{moment.metrics}/metrics · decision {sight.cycle}"
    return Group(line, Text(where, "bright_black", no_wrap=True, overflow="ellipsis"))


def clusters(moment: Moment) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bright_black")
    table.add_column("cluster", no_wrap=True)
    table.add_column("wants", ratio=1, no_wrap=True)
    for name in ("vCPU", "nodes", "coming", "leaving", "$/h"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    colours = _colours(moment)
    for cluster in moment.clusters:
        mine = [machine for machine in moment.sight.machines if machine.cluster == cluster.name]
        needs = moment.sight.of(cluster.name)
        wants = ", ".join(f"{pods} {name}" for name, pods in cluster.pods if pods) or "nothing"
        table.add_row(
            Text(f"■ {cluster.name}", colours[cluster.name]),
            f"{wants} pods" if wants != "nothing" else wants,
            f"{sum(need.wanted.get('cpu') for need in needs) / 1000:,.0f}",
            str(_count(mine, _S.CONFIGURED)),
            str(sum(map(_coming, mine)) or "–"),
            str(_count(mine, _S.DRAINING) or "–"),
            f"{sum(machine.dollars for machine in mine):.2f}",
            _standing(cluster, satisfied=all(need.satisfied for need in needs), coming=any(map(_coming, mine))),
        )
    return table


def fleet(moment: Moment) -> RenderableType:
    colours = _colours(moment)
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for kind in ORDER:
        machines = [machine for machine in moment.sight.machines if machine.kind is kind]
        if not machines:
            continue
        used = _count(machines, _S.CONFIGURED)
        dollars = sum(machine.dollars for machine in machines)
        table.add_row(KINDS[kind], _cells(machines, colours), f"{used}/{len(machines)} nodes  ${dollars:.2f}/h")
    every = moment.sight.machines
    legend = Text("  ").join(
        Text.assemble(GLYPHS[state], f" {_count(every, state)} ", (word, "bright_black")) for state, word in LEGEND
    )
    return Group(table, Text(), legend)


def short(sight: Sight) -> RenderableType:
    if not sight.unmet:
        return Text("none", "bright_black")
    return Group(*(Text(shortfall(need), "bright_yellow", no_wrap=True, overflow="ellipsis") for need in sight.unmet))


def decisions(moment: Moment) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", no_wrap=True, style="bright_black")
    table.add_column(ratio=1, overflow="fold")
    for line in moment.lines[:FEED]:
        table.add_row(f"{max(0, moment.now - line.at) // NANOSECONDS:>3} s", _told(line))
    return table


def _told(line: Line) -> Text:
    if line.who == "you":
        return Text(f"▶ {line.text}", "bold bright_green" if line.good else "bold bright_red")
    return Text(line.text, "" if line.good else "bright_red")


def _cells(machines: Iterable[SeenMachine], colours: dict[str, str]) -> Text:
    """One character each, by zone; zones are a gap apart."""
    text = Text()
    zone = ""
    for machine in sorted(machines, key=lambda each: (each.zone, each.id)):
        if zone and machine.zone != zone:
            text.append("  ")
        zone = machine.zone
        glyph, style = GLYPHS[machine.state]
        text.append(glyph, colours.get(machine.cluster, style) if machine.state is not _S.FAILED else style)
    return text


def _standing(cluster: ClusterMoment, *, satisfied: bool, coming: bool) -> Text:
    if not cluster.connected:
        return Text("connecting", "bright_yellow")
    if not satisfied:
        return Text("short", "bright_red")
    return Text("soon", "bright_yellow") if coming else Text("yes", "bright_green")


def _coming(machine: SeenMachine) -> bool:
    return machine.state in ARRIVING


def _count(machines: Sequence[SeenMachine], state: MachineState) -> int:
    return sum(machine.state is state for machine in machines)


def _colours(moment: Moment) -> dict[str, str]:
    return {cluster.name: CLUSTER_COLOURS[n % len(CLUSTER_COLOURS)] for n, cluster in enumerate(moment.clusters)}
