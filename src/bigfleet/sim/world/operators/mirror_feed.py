"""What a simulated cluster tells the operator's mirror: its counted pods get names, and what changed becomes deltas.

The cluster counts equal pods; the mirror knows each by name. The names are kept here and agree with the counts after
every `deltas`: who was evicted is gone for good and another pod waits in its place, as a controller makes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bigfleet.engine.batches import Shape
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.taint import Taint, Toleration
from bigfleet.operator.core.mirror import facts
from bigfleet.operator.core.mirror.labels import Selector, checks_of, equal_to
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.pods import Node, PodKind, PodSet

NAMESPACE = "default"
RISK_TAINT = "sim.bigfleet/interruption-probability"
"""How the rule that keeps precious pods off interruptible nodes looks to whoever reads the cluster."""


class MirrorFeed:
    """Names of all pods of one cluster, as far as the mirror was told of them."""

    def __init__(self, cluster: Cluster, risks: tuple[float, ...]) -> None:
        """`risks` are the interruption probabilities that nodes may have."""
        self._cluster = cluster
        self._risks = risks
        self._sets: dict[str, _Named] = {}
        self._nodes: set[str] = set()

    def deltas(self, now: int) -> list[facts.Delta]:
        """Everything that changed since this was last asked: nodes, then pods, then nodes that are gone."""
        sets, nodes = self._cluster.take_changes()
        told: list[facts.Delta] = [self._node(node) for id in nodes if (node := self._cluster.nodes.get(id))]
        for name in sets:
            known, podset = self._sets.get(name), self._cluster.podsets.get(name)
            if known is not None and (podset is None or podset.sequence != known.sequence):
                told += [facts.PodGone(uid) for uid in known.all()]
                told.append(facts.RequestGone(known.name))
                del self._sets[name]
                known = None
            if podset is not None:
                if known is None:
                    known = self._sets[name] = _Named(podset, self._shape(podset))
                told += known.follow(podset, now)
        told += [facts.NodeGone(id) for id in nodes if id not in self._cluster.nodes and id in self._nodes]
        self._nodes = self._nodes - set(nodes) | {id for id in nodes if id in self._cluster.nodes}
        return told

    def coming(self, machine: str, shape: Shape) -> facts.NodeSeen:
        """A machine as the node it will be."""
        labels = {**shape.node_labels(), HOSTNAME_LABEL: machine}
        return facts.NodeSeen(
            machine,
            shape.allocatable.minus(self._cluster.overhead),
            tuple(sorted(labels.items())),
            self._taints(shape),
            machine=machine,
            ready=False,
        )

    def _node(self, node: Node) -> facts.NodeSeen:
        labels = {**node.attributes, HOSTNAME_LABEL: node.id}
        return facts.NodeSeen(
            node.id,
            node.shape.allocatable.minus(self._cluster.overhead),
            tuple(sorted(labels.items())),
            self._taints(node.shape),
            machine=node.id,
            cordoned=node.cordoned,
            closing_since=node.closing_since,
            kept_for=node.kept_for,
        )

    def _taints(self, shape: Shape) -> tuple[Taint, ...]:
        risk = shape.probability
        risky = self._cluster.scheduler.risk_rule and risk
        return (*shape.taints, Taint(RISK_TAINT, f"{risk:g}")) if risky else shape.taints

    def _shape(self, podset: PodSet) -> facts.PodShape:
        kind = podset.kind
        profile = kind.kept_off if kind.kept_off and self._cluster.scheduler.risk_rule else kind.profile
        terms = checks_of(profile.requirements)
        own = Selector(equal_to({"app": podset.name}))
        return facts.PodShape(
            namespace=NAMESPACE,
            requests=kind.request,
            profile=profile,
            group=podset.group,
            labels=(("app", podset.name),),
            node_terms=(terms,) if terms else (),
            tolerations=(*profile.tolerations, *self._tolerated(kind)),
            anti_affinity=(facts.PodTerm(HOSTNAME_LABEL, own, (NAMESPACE,)),) if kind.apart else (),
            spreads=(facts.SpreadTerm(kind.spread_key, kind.strict_skew, own),) if kind.strict_skew else (),
            origin=facts.Origin.REPLICATED if podset.managed else facts.Origin.BARE,
            service=podset.service,
            reclamation_microdollars=kind.reclamation_microdollars,
        )

    def _tolerated(self, kind: PodKind) -> Iterator[Toleration]:
        for risk in self._risks:
            if not risk * kind.interruption_dollars > kind.most_risk:
                yield Toleration(RISK_TAINT, "Equal", f"{risk:g}", "NoSchedule")


def object_of(uid: str) -> str:
    """The object whose pod has this name."""
    return uid.rsplit("/", 2)[0]


class _Named:
    """The pods of one object by name: those that wait, oldest first, and those on each node in the order in which they
    came."""

    __slots__ = ("_made", "_on", "_shape", "_units", "_waiting", "name", "sequence")

    def __init__(self, podset: PodSet, shape: facts.PodShape) -> None:
        self.name = f"{podset.name}/{podset.sequence}"
        self.sequence = podset.sequence
        self._shape = shape
        self._made = 0
        self._units = -1
        self._waiting: list[str] = []
        self._on: dict[str, list[str]] = {}

    def all(self) -> list[str]:
        return [*self._waiting, *(uid for uids in self._on.values() for uid in uids)]

    def follow(self, podset: PodSet, now: int) -> Iterator[facts.Delta]:
        """Make names agree with counts."""
        if podset.live != self._units:
            self._units = podset.live
            yield facts.RequestSeen(self.name, self._shape, podset.live)
        bound = {node.id: count for node, count in podset.bound.items()}
        ended, podset.ended = podset.ended, {}
        for node, uids in list(self._on.items()):
            # Who came and went between two looks was never seen: the others stay who they were.
            yield from (facts.PodGone(uids.pop(place)) for place in ended.get(node, ()) if place < len(uids))
            gone = max(0, len(uids) - bound.get(node, 0))
            yield from (facts.PodGone(uid) for uid in uids[:gone])
            del uids[:gone]
            if not uids:
                del self._on[node]
        for node, count in bound.items():
            here = self._on.setdefault(node, [])
            while len(here) < count:
                uid = self._waiting.pop(0) if self._waiting else self._new()
                here.append(uid)
                yield facts.PodSeen(uid, self._shape, node, now, self.name)
        while len(self._waiting) > podset.waiting_count:
            yield facts.PodGone(self._waiting.pop())
        while len(self._waiting) < podset.waiting_count:
            self._waiting.append(self._new())
            yield facts.PodSeen(self._waiting[-1], self._shape, "", now, self.name)

    def _new(self) -> str:
        self._made += 1
        return f"{self.name}/{self._made:06}"
