"""Counted rows and node reports in a line each, for clusters that report placement.

Beside `builders.py`, with its sizes and defaults; a row whose `stranded` is not said is stranded as far as it does not
run, and a report says ready and open unless told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from bigfleet.engine.batches import Conditions, DemandBatch, Ids, MachineBatch, Rollup
from bigfleet.engine.placement import Counted, Load, NodeBatch
from bigfleet.engine.policy import Placement, Policy
from tests.strategies.builders import START, MachineLine, NeedLine, amounts, batch, need, rollup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class CountedLine:
    """One counted row as a test writes it."""

    row: NeedLine
    count: int
    running: int
    stranded: int
    domains: tuple[tuple[str, int], ...] = ()
    exclusive: tuple[str, ...] = ()

    def now(self, *, running: int | None = None, stranded: int | None = None) -> CountedLine:
        """The same row later."""
        return replace(
            self,
            running=self.running if running is None else running,
            stranded=self.stranded if stranded is None else stranded,
        )


def pods(
    cluster: str,
    count: int,
    *,
    running: int = 0,
    stranded: int | None = None,
    domains: Mapping[str, int] | None = None,
    exclusive: Sequence[str] = (),
    **facts: Any,
) -> CountedLine:
    """`count` pods of one size (`cpu`, `mem`, `gpu`) under the constraints `builders.need` knows."""
    row = need(cluster, count, **facts)
    missing = count - running if stranded is None else stranded
    return CountedLine(row, count, running, missing, tuple((domains or {}).items()), tuple(exclusive))


def counted(cluster: str, *lines: CountedLine, version: int = 1, overhead: Mapping[str, int] | None = None) -> Rollup:
    """One cluster's roll-up in units."""
    return structs.replace(
        rollup(cluster, *(line.row for line in lines), overhead=overhead),
        counted=Counted(
            count=np.array([line.count for line in lines], np.int32),
            running=np.array([line.running for line in lines], np.int32),
            stranded=np.array([line.stranded for line in lines], np.int32),
            mirror_version=version,
            domain_units={n: line.domains for n, line in enumerate(lines) if line.domains},
            exclusive={n: line.exclusive for n, line in enumerate(lines) if line.exclusive},
        ),
    )


@dataclass(frozen=True)
class NodeLine:
    """One node report as a test writes it."""

    id: str
    ready: bool = True
    empty: bool = False
    removable: bool = False
    pinned: bool = False
    priority: int = 0
    used: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    reclamation: float = 0.0
    interruption: float = 0.0
    closing_since: int = 0
    version: int = 1
    load: Load = field(default_factory=Load)


def node(
    id: str,
    *,
    profiles: Sequence[str] = (),
    groups: Sequence[str] = (),
    exclusive: Sequence[str] = (),
    allocatable: Mapping[str, int] | None = None,
    ready: bool = True,
    empty: bool = False,
    removable: bool = False,
    pinned: bool = False,
    priority: int = 0,
    reclamation: float = 0.0,
    interruption: float = 0.0,
    closing_since: int = 0,
    version: int = 1,
    **used: float,
) -> NodeLine:
    """A node on which so much (`cpu`, `mem`, `gpu`, other resources by name) is used."""
    load = Load(tuple(profiles), tuple(groups), tuple(exclusive))
    return NodeLine(
        id,
        ready,
        empty,
        removable,
        pinned,
        priority,
        amounts(**used),  # type: ignore[arg-type]
        allocatable or {},
        reclamation,
        interruption,
        closing_since,
        version,
        load,
    )


def reports(cluster: str, *lines: NodeLine) -> NodeBatch:
    names = tuple(sorted({name for line in lines for name in (*line.used, *line.allocatable)}))
    loads = list(dict.fromkeys(line.load for line in lines)) or [Load()]

    def table(rows: list[Mapping[str, int]]) -> Any:
        return np.array([[row.get(name, 0) for name in names] for row in rows], np.int64).reshape(len(rows), len(names))

    return NodeBatch(
        cluster=cluster,
        ids=Ids.of([line.id for line in lines]),
        resources=names,
        ready=np.array([line.ready for line in lines], np.bool_),
        empty=np.array([line.empty for line in lines], np.bool_),
        removable=np.array([line.removable for line in lines], np.bool_),
        pinned=np.array([line.pinned for line in lines], np.bool_),
        max_pod_priority=np.array([line.priority for line in lines], np.int32),
        used=table([line.used for line in lines]),
        allocatable=table([line.allocatable for line in lines]),
        reclamation_dollars=np.array([line.reclamation for line in lines], np.float64),
        interruption_dollars=np.array([line.interruption for line in lines], np.float64),
        closing_since=np.array([line.closing_since for line in lines], np.int64),
        mirror_version=np.array([line.version for line in lines], np.int64),
        load=np.array([loads.index(line.load) for line in lines], np.int32),
        loads=loads,
    )


def with_deadlines(machines: MachineBatch, deadlines: Mapping[str, int]) -> MachineBatch:
    column = [deadlines.get(machines.ids[n], 0) for n in range(len(machines))]
    return structs.replace(machines, deadline=np.array(column, np.int64))


class Steps:
    """Steps of one engine, each a line: what changed, and how many seconds after the last."""

    def __init__(self, make: Any, policy: Policy | None = None, **placement: Any) -> None:
        self.engine = make()
        self.policy = (policy or Policy()).with_(placement=Placement(**placement))
        self.now = START

    def __call__(
        self,
        *machines: MachineLine | list[MachineLine],
        rows: Sequence[CountedLine] | None = None,
        sums: Sequence[NeedLine] = (),
        nodes: Sequence[NodeLine] = (),
        version: int = 1,
        cluster: str = "c",
        after: float = 0,
        deadlines: Mapping[str, int] | None = None,
        overhead: Mapping[str, int] | None = None,
        demand: DemandBatch | None = None,
        **conditions: Any,
    ) -> Any:
        self.now += round(after * 1_000_000_000)
        rollups = [] if rows is None else [counted(cluster, *rows, version=version, overhead=overhead)]
        for name in dict.fromkeys(line.cluster for line in sums):
            rollups.append(rollup(name, *(line for line in sums if line.cluster == name)))
        change = demand or DemandBatch(rollups=rollups, reports=[reports(cluster, *nodes)] if nodes else [])
        lines = with_deadlines(batch(*machines), deadlines or {}) if machines else None
        return self.engine.step(lines, change, self.policy, self.now, Conditions(**conditions))


def did(result: Any, kind: Any) -> list[str]:
    """Machines of the actions of one kind, in order."""
    return [action.machine for action in result.actions if action.kind == kind]


def verdict(result: Any, line: CountedLine) -> Any:
    """What the row was told."""
    for found in result.verdicts:
        same_row = found.key.fingerprint == line.row.profile.fingerprint and found.key.group == line.row.group
        if same_row and found.key.min_unit in ("", _canonical(line)):
            return found
    raise AssertionError(f"no verdict for {line}")


def _canonical(line: CountedLine) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(line.row.min_unit.items()))
