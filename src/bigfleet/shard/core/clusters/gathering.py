"""Machines bought together for a gang: those that are ready count as coming until the last of them is.

A gang runs whole or not at all, so that a cluster calls all of it stranded while one machine is still booting. Were the
ready ones seen by then, the engine would buy in their place what is already there. For one boot at most: a gang that
does not come to them after that needs other room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bigfleet.shard.core.state.enum_aliases import CONFIGURED, CONFIGURING, CREATING

if TYPE_CHECKING:
    from bigfleet.shard.contract.events import NodeReported
    from bigfleet.shard.core.state.state import ShardState

_WITH_NODE = frozenset({CONFIGURING, CONFIGURED})


class Gathering:
    """Which ready machines wait for others of their gang; `reports` are the last ones, by machine."""

    def __init__(self, state: ShardState, reports: Mapping[str, NodeReported]) -> None:
        self._state = state
        self._reports = reports
        # Since when each machine has been ready, while its gang is not there.
        self._since: dict[str, int] = {}
        self._waits: set[str] = set()

    def __contains__(self, machine: str) -> bool:
        return machine in self._waits

    def reported(self, machine: str, report: NodeReported) -> None:
        """What its cluster says of it now."""
        record = self._state.fleet.machines.get(machine)
        group = "" if record is None else record.stamp.group
        if not group or not report.ready or report.closing_since or group in report.groups:
            self.forget(machine)
        elif machine not in self._since:
            self._since[machine] = self._state.now

    def forget(self, machine: str) -> None:
        self._since.pop(machine, None)

    def changed(self) -> list[str]:
        """Machines that begin to wait or wait no more, as of now; each is named once."""
        if not self._since and not self._waits:
            return []
        latest = self._state.now - self._state.config.boot_time
        coming: dict[str, set[str]] = {}
        waits = set()
        for machine, since in self._since.items():
            record = self._state.fleet.machines.get(machine)
            if record is None or record.state not in _WITH_NODE or since <= latest:
                continue
            if record.cluster not in coming:
                coming[record.cluster] = self._groups_under_way(record.cluster)
            if record.stamp.group in coming[record.cluster]:
                waits.add(machine)
        changed = sorted(waits ^ self._waits)
        self._waits = waits
        return changed

    def _groups_under_way(self, cluster: str) -> set[str]:
        """Gangs of the cluster of which a machine is not ready yet."""
        found = set()
        machines = self._state.fleet.machines
        for key in self._state.fleet.bound.get(cluster, ()):
            record = machines[key]
            if not record.stamp.group:
                continue
            report = self._reports.get(key)
            unready = record.state in _WITH_NODE and (report is None or not report.ready)
            if record.state == CREATING or unready:
                found.add(record.stamp.group)
        return found
