"""What the mirror is told: pods, nodes, requests and budgets as they are, one delta per object that changed.

Immutable values made by the shell from the API server's objects, with amounts already as the scheduler computes them.
Pods that are gated, finished, or waiting for somebody else's scheduler are not told unless they are bound.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, Toleration
from bigfleet.operator.core.mirror.labels import LabelCheck, Selector

Labels = tuple[tuple[str, str], ...]


class Origin(StrEnum):
    """What happens to a pod that is evicted."""

    REPLICATED = "replicated"  # a controller makes another
    BARE = "bare"  # it is gone for good
    DAEMON = "daemon"  # it belongs to its node: DaemonSet and mirror pods


class PodTerm(Struct, frozen=True):
    """A required (anti-)affinity term; without namespaces it means pods of all of them."""

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()


class SpreadTerm(Struct, frozen=True):
    """A DoNotSchedule spread over pods of the pod's own namespace."""

    topology_key: str
    max_skew: int
    selector: Selector


class HostPort(NamedTuple):
    protocol: str
    port: int
    ip: str = "0.0.0.0"

    def clashes(self, other: HostPort) -> bool:
        everywhere = "0.0.0.0" in (self.ip, other.ip)
        return self[:2] == other[:2] and (everywhere or self.ip == other.ip)


class PodShape(Struct, frozen=True):
    """Everything of a pod that decides where it may stand and what it counts as; pods of one template share one."""

    namespace: str
    requests: Resources
    profile: Profile
    group: str = ""
    labels: Labels = ()
    # Alternatives, each a conjunction; none means any node.
    node_terms: tuple[tuple[LabelCheck, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spreads: tuple[SpreadTerm, ...] = ()
    origin: Origin = Origin.REPLICATED
    # Somebody forbade to move it: do-not-disrupt, safe-to-evict "false", our own pin.
    pinned: bool = False
    # Serves until it is stopped, unlike a job that ends by itself.
    service: bool = True
    # What moving it costs at most, where that is less than its profile's bucket says; 0 where it is not.
    reclamation_microdollars: int = 0

    @property
    def picky(self) -> bool:
        """Whether it asks more of its place than room, labels and taints."""
        return bool(self.ports or self.affinity or self.anti_affinity or self.spreads or self.group)


class PodSeen(Struct, frozen=True):
    """A pod as it is now. `since` is when it came to be; `request` names the request that counts it, if any."""

    uid: str
    shape: PodShape
    node: str = ""
    since: int = 0
    request: str = ""
    nominated: str = ""
    terminating: bool = False


class PodGone(Struct, frozen=True):
    uid: str


class NodeSeen(Struct, frozen=True):
    """A node as it is now. `machine` is empty on nodes that are not BigFleet's; `kept_for` says who alone may come."""

    name: str
    allocatable: Resources
    labels: Labels = ()
    taints: tuple[Taint, ...] = ()
    machine: str = ""
    ready: bool = True
    cordoned: bool = False
    closing_since: int = 0
    kept_for: str = ""


class NodeGone(Struct, frozen=True):
    name: str


class RequestSeen(Struct, frozen=True):
    """So many units of demand; units without a pod are placeholders."""

    name: str
    shape: PodShape
    units: int = 1


class RequestGone(Struct, frozen=True):
    name: str


class BudgetSeen(Struct, frozen=True):
    """A PodDisruptionBudget and how many of its pods may be evicted now."""

    name: str
    namespace: str
    selector: Selector
    allowed: int


class BudgetGone(Struct, frozen=True):
    name: str


Delta = PodSeen | PodGone | NodeSeen | NodeGone | RequestSeen | RequestGone | BudgetSeen | BudgetGone
