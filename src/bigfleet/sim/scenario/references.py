"""Whether the parts of a scenario fit each other: every name means something, every moment lies within the run.

A part that means nothing would be passed over in silence, and a clause about nothing would always hold; so each is
refused with the line it stands in. Reads the parts in the order of their file and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from bigfleet.duration import spelled
from bigfleet.sim.document.document import MisfitError, Place
from bigfleet.sim.scenario.archetypes import realistic
from bigfleet.sim.scenario.expectations import Cost
from bigfleet.sim.scenario.supply import size_of
from bigfleet.sim.scenario.workloads import Archetypes, Jobs, Levels, Trace, Workload

if TYPE_CHECKING:
    from bigfleet.sim.scenario.scenario import Scenario


def check(scenario: Scenario) -> None:
    """Raises MisfitError at the first part that does not fit."""
    _names_differ(scenario)
    _supply_fits(scenario)
    for name, shape in scenario.shapes.items():
        try:
            shape.profile()
            shape.request  # noqa: B018  parsed for its complaint
        except ValueError as error:
            raise MisfitError(("shapes", name), f": {error}") from error
    for place, name, known in _names(scenario):
        if name and name not in known:
            raise MisfitError(place, f"is {name!r}; give one of {', '.join(sorted(known)) or 'none: there is none'}")
    _moments_fit(scenario)


def _names_differ(scenario: Scenario) -> None:
    clusters = len(scenario.cluster_names())
    if scenario.shards > clusters:
        raise MisfitError(("shards",), f"is {scenario.shards} for {clusters} clusters; give at most one for each")
    for field, key in (("fleets", "provider"), ("clusters", "name"), ("workloads", "name")):
        _differ([((field, n, key), str(getattr(each, key))) for n, each in enumerate(getattr(scenario, field))])
    offers = [
        (("fleets", n, "offers", m, "name"), offer.name)
        for n, fleet in enumerate(scenario.fleets)
        for m, offer in enumerate(fleet.offers)
    ]
    _differ(offers)


def _differ(names: Sequence[tuple[Place, str]]) -> None:
    seen = set()
    for place, name in names:
        if name in seen:
            raise MisfitError(place, f"is {name!r} a second time; give every one a name of its own")
        seen.add(name)


def _supply_fits(scenario: Scenario) -> None:
    for n, fleet in enumerate(scenario.fleets):
        for m, offer in enumerate(fleet.offers):
            if offer.holds is not None and offer.holds.shape not in scenario.shapes:
                continue  # its name is complained about with all others
            try:
                size_of(offer, scenario.shapes)
            except ValueError as error:
                raise MisfitError(("fleets", n, "offers", m), f": {error}") from error


def _names(scenario: Scenario) -> Iterator[tuple[Place, str, Collection[str]]]:
    """Every name somewhere in the document, and those it may be."""
    offers = [offer for fleet in scenario.fleets for offer in fleet.offers]
    known: dict[str, Collection[str]] = {
        "offer": {offer.name for offer in offers},
        "zone": {zone for offer in offers for zone in offer.zones},
        "provider": {fleet.provider for fleet in scenario.fleets},
        "workload": {workload.name for workload in scenario.workloads},
        "cluster": set(scenario.cluster_names()),
        "shard": set(scenario.shard_names()),
    }
    for n, fleet in enumerate(scenario.fleets):
        for m, offer in enumerate(fleet.offers):
            if offer.holds is not None:
                yield ("fleets", n, "offers", m, "holds", "shape"), offer.holds.shape, scenario.shapes
    for n, workload in enumerate(scenario.workloads):
        yield from ((("workloads", n, *place), name, scenario.shapes) for place, name in _shapes(workload))
        yield from ((("workloads", n, *place), name, known["cluster"]) for place, name in _clusters(workload))
        if isinstance(workload, Archetypes):
            archetypes = {each.name for each in realistic().archetypes}
            for field in ("only", "exclude"):
                chosen = enumerate(getattr(workload, field))
                yield from ((("workloads", n, field, m), name, archetypes) for m, name in chosen)
    for field in ("steps", "expect"):
        for n, each in enumerate(getattr(scenario, field)):
            yield from (((field, n, key), getattr(each, key, ""), names) for key, names in known.items())
            clusters = enumerate(getattr(each, "clusters", ()))
            yield from (((field, n, "clusters", m), name, known["cluster"]) for m, name in clusters)


def _shapes(workload: Workload) -> Iterator[tuple[Place, str]]:
    match workload:
        case Jobs():
            yield from ((("mix", n, "shape"), part.shape) for n, part in enumerate(workload.mix))
        case Trace():
            yield from ((("jobs", n, "shape"), job.shape) for n, job in enumerate(workload.jobs))
        case Levels():
            yield from ((("levels", n, "shape"), level.shape) for n, level in enumerate(workload.levels))
        case Archetypes():
            pass
        case _:
            yield ("shape",), workload.shape


def _clusters(workload: Workload) -> Iterator[tuple[Place, str]]:
    match workload:
        case Trace():
            yield from ((("jobs", n, "cluster"), job.cluster) for n, job in enumerate(workload.jobs))
        case Levels():
            yield from ((("levels", n, "cluster"), level.cluster) for n, level in enumerate(workload.levels))
        case _:
            yield from ((("clusters", n), name) for n, name in enumerate(workload.clusters))


def _moments_fit(scenario: Scenario) -> None:
    moments: list[tuple[Place, int]] = [(("steps", n, "at"), step.at) for n, step in enumerate(scenario.steps)]
    moments += [(("expect", n, "after"), getattr(each, "after", 0)) for n, each in enumerate(scenario.expect)]
    for place, moment in moments:
        if moment > scenario.duration:
            length = spelled(scenario.duration)
            raise MisfitError(place, f"is {spelled(moment)}, after the end of the run; give at most {length}")
    for n, clause in enumerate(scenario.expect):
        if isinstance(clause, Cost) and clause.below_baseline_by is not None and scenario.baseline is None:
            raise MisfitError(
                ("expect", n, "below_baseline_by"), "needs something to compare with; give the scenario a baseline"
            )
