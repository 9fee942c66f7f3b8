"""Which pods of a scenario no offer could ever run: told before a run, because they would wait through all of it.

Judges one pod on one empty machine of each offer: labels, taints and size after the node overhead. Says nothing about
how many machines there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, tolerates
from bigfleet.provider.fake.offerings import RACK_LABEL
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.sim.scenario.supply import OFFER_LABEL, Offer, size_of
from bigfleet.sim.scenario.workloads import Trace

Place = tuple[dict[str, str], Resources, tuple[Taint, ...]]
"""What one empty machine is to a pod: its labels, its size and its taints."""


def misfits(scenario: Scenario) -> list[str]:
    """One sentence for every shape that fits no offer, those of most pods first."""
    places = [
        place for fleet in scenario.fleets for offer in fleet.offers for place in places_of(offer, scenario.shapes)
    ]
    overheads = [Resources.parse(spec.overhead, round_up=True) for spec in scenario.clusters]
    pods: Counter[str] = Counter()
    for workload in scenario.workloads:
        for job in workload.jobs if isinstance(workload, Trace) else ():
            pods[job.shape] += job.pods
    found = []
    for name, shape in scenario.shapes.items():
        problem = _problem(shape, places, overheads)
        if problem:
            found.append((-pods[name], name, f"{_who(name, shape, pods[name])} {problem}"))
    return [sentence for _, _, sentence in sorted(found)]


def is_open(profile: Profile, place: Place) -> bool:
    """Whether labels and taints let such a pod there."""
    labels, _, taints = place
    return profile.matches(labels.get) and tolerates(profile.tolerations, taints)


def places_of(offer: Offer, shapes: dict[str, PodShape]) -> Iterator[Place]:
    """One for each zone its machines are in."""
    size = Resources.parse(size_of(offer, shapes), round_up=False)
    taints = tuple(Taint(t.key, t.value, t.effect) for t in offer.taints)
    for zone in offer.zones:
        labels = {**offer.labels, OFFER_LABEL: offer.name, INSTANCE_TYPE_LABEL: offer.instance_type, ZONE_LABEL: zone}
        if offer.racks:
            labels[RACK_LABEL] = f"{zone}-rack-0"
        yield labels, size, taints


def _problem(shape: PodShape, places: list[Place], overheads: list[Resources]) -> str:
    profile = shape.profile()
    matching = [place for place in places if profile.matches(place[0].get)]
    if not matching:
        return "fit no offer: none has the labels they ask for"
    open_ = [place for place in matching if is_open(profile, place)]
    if not open_:
        return "fit no offer: they tolerate the taints of none that has the labels they ask for"
    if any(size.minus(overhead).covers(shape.request) for _, size, _ in open_ for overhead in overheads):
        return ""
    beside = any(size.covers(shape.request) for _, size, _ in open_)
    sizes = [size.minus(overhead) for _, size, _ in open_ for overhead in overheads]
    largest = {name: max(size.get(name) for size in sizes) for name, _ in shape.request.items()}
    less = " beside what their clusters run on every node" if beside else ""
    return (
        f"fit no offer{less}: the most any they may use has{' left' if beside else ''} is {_spoken(Resources(largest))}"
    )


def _who(name: str, shape: PodShape, pods: int) -> str:
    count = f"{pods:,} {'pod' if pods == 1 else 'pods'} of" if pods else "pods of"
    return f"{count} {_spoken(shape.request)} (shape {name})"


def _spoken(amounts: Resources) -> str:
    return spoken_amounts(amounts.to_wire())
