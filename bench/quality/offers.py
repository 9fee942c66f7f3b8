"""The judge's kinds as a provider's catalogue, and its classes of pods as the operator's kinds.

Owns the translation into the product's own words, nothing else: every kind is an offering of so many slots (what is
reserved exists from the start), every class of pods a profile with a request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bench.quality.demand import NOBODY, Classes
from bench.quality.kinds import UNLIMITED, Flags, Kinds
from bigfleet.model.machine import CapacityType
from bigfleet.model.names import CAPACITY_TYPE_LABEL
from bigfleet.model.penalty import UNSPECIFIED, bucket_for, finer_bound
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.provider.fake.catalogue import Catalogue, Latencies
from bigfleet.provider.fake.offerings import RACK_LABEL, Offering
from bigfleet.sim.world.pods import PodKind
from bigfleet.virtual.kernel import SECOND, Duration

NAMES = ("cpu", "memory", "nvidia.com/gpu")
PROVIDER = "p"
SLOTS, RACKS = 300, 12
# What a Create takes of a boot; the rest passes between Configure and a Ready node.
_CREATE = 0.1


def amounts(units: Sequence[int]) -> Resources:
    """Milli cores, MiB and devices as the product counts them."""
    return Resources({"cpu": int(units[0]), "memory": int(units[1]) * 1024, NAMES[2]: int(units[2])})


def offerings(kinds: Kinds, racks: int, parts: int = 1, prefix: str = "") -> list[tuple[int, int, Offering]]:
    """(kind, rack, offering); `racks`: machines of a kind in each of them, 0 where nobody asks; `parts`: among how many
    fleets what is reserved is dealt out; `prefix`: what tells the machines of one fleet from another's."""
    found = []
    for kind in range(len(kinds)):
        limited = bool(kinds.limit[kind] < UNLIMITED)
        spot = bool(kinds.spot[kind])
        market = CapacityType.RESERVED if limited else CapacityType.SPOT if spot else CapacityType.ON_DEMAND
        size = amounts(kinds.capacity[kind] + np.where(kinds.capacity[kind] > 0, kinds.overhead, 0)).to_wire()
        count = int(kinds.limit[kind]) // parts if limited else racks if racks else SLOTS
        for rack in range(RACKS) if racks else [NOBODY]:
            place = "" if rack == NOBODY else f"-r{rack:03}"
            offering = Offering(
                name=prefix + kinds.names[kind].lower().replace(".", "-").replace("/", "-") + place,
                instance_type=kinds.names[kind].split("/")[0],
                capacity_type=market,
                count=count,
                zones=("a",),
                racks=0,
                price_per_hour=float(kinds.price[kind]),
                interruption_probability=float(kinds.probability[kind]),
                hosts=count if limited else 0,
                resources=size,
                allocatable=size,
                labels={} if rack == NOBODY else {RACK_LABEL: f"r{rack:03}"},
            )
            found.append((kind, rack, offering))
    return found


def catalogue(made: Sequence[tuple[int, int, Offering]], boot_s: tuple[float, float], seed: int) -> Catalogue:
    """Machines boot as everybody's do; drains and deletions take no time, as for everybody."""

    def share(part: float) -> Duration:
        return Duration.uniform(*(round(part * second * SECOND) for second in boot_s))

    nothing = Duration.fixed(0)
    pace = Latencies(share(_CREATE), share(1 - _CREATE), nothing, nothing, nothing)
    return Catalogue(PROVIDER, tuple(offering for _, _, offering in made), seed=seed, latencies=pace)


def pod_kind(classes: Classes, cls: int, gang: bool, may_be_interrupted: Flags, spot: bool) -> PodKind:
    """`may_be_interrupted`: by class, whether the rule that keeps precious pods off spot lets it there; where there is
    `spot`, those it does not let there say so, as `deploy/admission` has them say it."""
    same = [Requirement(RACK_LABEL, Operator.SAME, ())] if gang else []
    # Half a cent is what a stateless pod costs whose owner says nothing.
    reclamation = float(classes.reclamation[cls])
    penalty = float(classes.interruption[cls])
    reclaimed = UNSPECIFIED if reclamation == 0.005 else bucket_for(reclamation)
    profile = Profile(same, [], 0, bucket_for(penalty), reclaimed, (), finer_bound(penalty))
    firm = Requirement(CAPACITY_TYPE_LABEL, Operator.NOT_IN, (CapacityType.SPOT.label,))
    request = amounts(classes.request[cls])
    return PodKind(
        f"k{cls}",
        profile,
        request,
        tuple(request.get(name) for name in NAMES),
        RACK_LABEL if gang else "",
        "",
        0,
        "",
        apart=bool(classes.exclusive[cls] != NOBODY),
        interruption_dollars=profile.interruption_dollars,
        reclamation_microdollars=finer_bound(reclamation),
        most_risk=math.inf if may_be_interrupted[cls] else -1.0,
        kept_off=profile.with_(requirements=(*same, firm)) if spot and not may_be_interrupted[cls] else None,
    )


def told(kind: PodKind) -> Profile:
    """The profile of its row, as the operator tells it."""
    return kind.kept_off or kind.profile
