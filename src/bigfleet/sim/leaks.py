"""What a site must not be left with: machines stuck in a transition, or seen differently by shard and provider."""

from __future__ import annotations

from typing import Any

from bigfleet.model.machine import MachineState
from bigfleet.sim.kernel import SECOND
from bigfleet.sim.site import Site


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


def _seen_by_shard(site: Site) -> dict[str, Any]:
    return {} if site.host.core is None else {view.key: view.record for view in site.host.core.machines()}


def _shown(record: Any) -> str:
    return "nowhere" if record is None else f"{record.state.label} {record.cluster}".strip()
