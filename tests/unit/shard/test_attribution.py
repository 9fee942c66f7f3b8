"""The attribution probe counts what stayed short and what was given up meanwhile, and samples gangs."""

from __future__ import annotations

from typing import Any

from bigfleet.engine.results import Action, ActionKind, Disposition, Reason
from bigfleet.shard.telemetry.shortage_probe import probe_lines
from tests.strategies.builders import RACK
from tests.strategies.shard_world import World, cpu


def _lines(world: World, *reclaimed: str) -> dict[str, list[dict[str, Any]]]:
    result = world.core.published.result
    assert result is not None
    given_up = [_reclaim(machine) for machine in reclaimed]
    found: dict[str, list[dict[str, Any]]] = {}
    for message, attributes in probe_lines(world.core, list(result.verdicts.rows()), given_up):
        found.setdefault(message, []).append(attributes)
    return found


def _reclaim(machine: str) -> Action:
    return Action(ActionKind.RECLAIM, machine, "c", None, 0, 0, Reason.EXCESS, Disposition.EMIT)


def test_the_probe_tells_total_same_short_matching_and_fitting() -> None:
    world = World()
    world.provider.several(4, "m", labels={RACK: "r-1"})
    world.operator("c").send(
        cpu("c", 2, priority=2000, group="g", same=RACK),
        cpu("c", 9, priority=2000, group="h", same=RACK),
        cpu("c", 7, priority=10),
    )
    world.run(20)
    found = _lines(world, "m0", "unknown")
    (counts,) = found["phase attribution"]
    assert (counts["needs_total"], counts["needs_same"]) == (3, 2)
    assert (counts["p1_unsatisfied"], counts["p1_unsatisfied_same"]) == (2, 1)
    assert (counts["p3_reclaim"], counts["p3_reclaim_matches_unsatisfied"], counts["p3_reclaim_matches_and_fits"]) == (
        1,
        1,
        1,
    )
    assert [line["machine"] for line in found["reclaim attribution"]] == ["m0"]
    assert [line["group"] for line in found["gang attribution"]] == ["h"]
    (met,) = found["satisfied gang attribution"]
    assert (met["group"], met["machine_count"], len(met["machines"])) == ("g", 2, 2)
