"""What a site must not be left with: machines that are stuck, seen differently by shard and provider, or rented for
nobody for longer than the policy keeps them.
"""

from __future__ import annotations

from typing import Any

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.sim.world.site import Site
from bigfleet.virtual.kernel import SECOND


def failed_machines(site: Site) -> set[str]:
    """Machines that are Failed at their provider, or by the shard's own verdict."""
    found = {record.id for record in site.machines.values() if record.state == MachineState.FAILED}
    return found | {id for id, record in _seen_by_shard(site).items() if record.state == MachineState.FAILED}


def leaks(site: Site, patience: int) -> list[str]:
    """One sentence per machine in trouble for longer than `patience`."""
    now = site.now
    found = [
        f"{record.id} has been {record.state.label} for {(now - site.since(record.id)) // SECOND} s"
        for record in sorted(site.machines.values(), key=lambda record: record.id)
        if record.transition is not None and now - site.since(record.id) > patience
    ]
    if site.host.core is None:
        return [*found, f"{site.name} is down"]
    found += _rented_for_nobody(site, patience)
    seen = _seen_by_shard(site)
    for id in sorted(seen.keys() | site.machines.keys()):
        mine, theirs = seen.get(id), site.machines.get(id)
        if theirs is not None and now - site.since(id) <= patience:
            continue
        if mine is not None and theirs is not None and mine.state == MachineState.FAILED:
            continue  # the shard's own verdict, counted as Failed
        if mine is None or theirs is None or (mine.state, mine.cluster) != (theirs.state, theirs.cluster):
            found.append(f"{id} is {_shown(theirs)} and {site.name} sees {_shown(mine)}")
    return found


def _rented_for_nobody(site: Site, patience: int) -> list[str]:
    config = site.host.config
    holds = {CapacityType.ON_DEMAND: config.idle_hold_on_demand, CapacityType.SPOT: config.idle_hold_spot}
    found = []
    for name, port in sorted(site.ports.items()):
        if not port.provider.catalogue.can_delete:
            continue
        for record in sorted(port.provider.core.machines.values(), key=lambda record: record.id):
            hold = holds.get(record.shape.capacity_type, 0)
            idle = site.now - site.since(record.id)
            if record.state == MachineState.IDLE and hold and idle > hold + patience:
                found.append(f"{record.id} of {name} has been Idle for {idle // SECOND} s and is kept for nobody")
    return found


def _seen_by_shard(site: Site) -> dict[str, Any]:
    return {} if site.host.core is None else {view.key: view.record for view in site.host.core.machines()}


def _shown(record: Any) -> str:
    return "nowhere" if record is None else f"{record.state.label} {record.cluster}".strip()
