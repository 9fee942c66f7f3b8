"""The attribution probe: of one cycle, which demand stayed short, what was given up meanwhile, and whether they fit.

A diagnosis for people who look at scale tests (`--phase-attribution-log`); decides nothing and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bigfleet.engine.results import ActionKind
from bigfleet.model.resources import Resources
from bigfleet.shard.core.machines.matching import parse_canonical, serves

if TYPE_CHECKING:
    from bigfleet.engine.results import Action, Verdict
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.core import ShardCore
    from bigfleet.shard.core.state.fleet import Record

EVERY_CYCLES = 20
SAMPLES = 5
MACHINES = 12
Line = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Need:
    verdict: Verdict
    profile: Profile

    def matches(self, record: Record) -> bool:
        return serves(record, self.profile, Resources.ZERO)

    def fits(self, record: Record) -> bool:
        return serves(record, self.profile, parse_canonical(self.verdict.key.min_unit))


def probe_lines(core: ShardCore, verdicts: Sequence[Verdict], actions: Iterable[Action]) -> Iterator[Line]:
    """Messages of the log with their attributes."""
    asked = [(verdict, core.demand.profile(verdict.key.cluster, verdict.key.fingerprint)) for verdict in verdicts]
    needs = [_Need(verdict, profile) for verdict, profile in asked if profile is not None]
    short = [need for need in needs if not need.verdict.satisfied]
    machines = core.state.fleet.machines
    given_up = [
        machines[each.machine] for each in actions if each.kind == ActionKind.RECLAIM and each.machine in machines
    ]
    matching = [record for record in given_up if any(need.matches(record) for need in short)]
    fitting = [record for record in matching if any(need.fits(record) for need in short)]
    yield (
        "phase attribution",
        {
            "needs_total": len(verdicts),
            "needs_same": sum(need.profile.same is not None for need in needs),
            "p1_unsatisfied": sum(not verdict.satisfied for verdict in verdicts),
            "p1_unsatisfied_same": sum(need.profile.same is not None for need in short),
            "p3_reclaim": len(given_up),
            "p3_reclaim_matches_unsatisfied": len(matching),
            "p3_reclaim_matches_and_fits": len(fitting),
        },
    )
    for record in given_up[:SAMPLES]:
        yield (
            "reclaim attribution",
            {
                "machine": record.key,
                "cluster": record.cluster,
                "fingerprint": record.stamp.fingerprint,
                "matches_unsatisfied": record in matching,
                "matches_and_fits": record in fitting,
            },
        )
    gangs = [need.verdict for need in needs if need.profile.same is not None]
    for verdict in [each for each in gangs if not each.satisfied][:SAMPLES]:
        yield (
            "gang attribution",
            {
                **_named(verdict),
                "satisfiable": verdict.satisfiable,
                "parked": verdict.parked,
                "reason": verdict.reason.name,
                "deficit": verdict.deficit.canonical,
            },
        )
    for verdict in [each for each in gangs if each.satisfied][:SAMPLES]:
        holding = _holding(core, verdict)
        yield (
            "satisfied gang attribution",
            {**_named(verdict), "machine_count": len(holding), "machines": holding[:MACHINES]},
        )


def _named(verdict: Verdict) -> dict[str, Any]:
    key = verdict.key
    return {
        "cluster": key.cluster,
        "fingerprint": key.fingerprint,
        "group": key.group,
        "priority": verdict.priority,
        "domain": verdict.domain or "",
    }


def _holding(core: ShardCore, verdict: Verdict) -> list[str]:
    """Machines of the cluster that were bound for this gang, in order."""
    fleet, key = core.state.fleet, verdict.key
    stamps = ((name, fleet.machines[name].stamp) for name in fleet.of_cluster(key.cluster))
    return [name for name, stamp in stamps if (stamp.fingerprint, stamp.group) == (key.fingerprint, key.group)]
