"""Volumes: in which zones they keep their pods, and how many of them a node can attach.

A claim that is bound asks of the pod's node what its volume asks; one that waits for its first pod asks what its class
allows. Attach limits are counted like a resource of the node, for drivers that have a limit anywhere. A volume that two
pods of one node share is counted twice, which errs on the side of another node.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.crd.capacity_request import Requirement
from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror.labels import LabelCheck
from bigfleet.operator.kube.listwatch import key_of
from bigfleet.operator.kube.objects import Claim, CsiNode, PersistentVolume, Pod, StorageClass
from bigfleet.operator.reading.wishes import OPERATORS, merge_terms

Terms = tuple[tuple[LabelCheck, ...], ...]

UNLIMITED = 1 << 20
_ATTACH = "attachable-volumes-csi-"
_WAITS = "WaitForFirstConsumer"


class Volumes:
    """Claims, volumes, classes and attach limits. `on_change(claim)` names whose pods must be read again; "" is all."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._claims: dict[str, Claim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._claimed: dict[str, str] = {}

    # ----------------------------------------------------------------------------------------------------------- heard

    def claim_seen(self, claim: Claim) -> None:
        key = key_of(claim)
        before = self._claims.get(key)
        self._claims[key] = claim
        if claim.spec.volume_name:
            self._claimed[claim.spec.volume_name] = key
        if before is None or before.spec != claim.spec:
            self._on_change(key)

    def claim_gone(self, key: str) -> None:
        claim = self._claims.pop(key, None)
        if claim is not None:
            self._claimed.pop(claim.spec.volume_name, None)

    def volume_seen(self, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        before = self._volumes.get(name)
        self._volumes[name] = volume
        claim = self._claimed.get(name)
        if claim is not None and (before is None or before.spec != volume.spec):
            self._on_change(claim)

    def volume_gone(self, name: str) -> None:
        self._volumes.pop(name, None)

    def class_seen(self, storage: StorageClass) -> None:
        before = self._classes.get(storage.metadata.name)
        self._classes[storage.metadata.name] = storage
        if before is None or before.allowed_topologies != storage.allowed_topologies:
            for key, claim in list(self._claims.items()):
                if claim.spec.storage_class_name == storage.metadata.name:
                    self._on_change(key)

    def class_gone(self, name: str) -> None:
        self._classes.pop(name, None)

    def limits_seen(self, node: CsiNode) -> None:
        drivers = self.drivers
        found = {
            each.name: each.allocatable.count
            for each in node.spec.drivers
            if each.allocatable is not None and each.allocatable.count is not None
        }
        if self._limits.get(node.metadata.name) != found:
            self._limits[node.metadata.name] = found
            # A driver nobody limited before is counted on every node and pod from now on.
            self._on_change("" if self.drivers != drivers else f"node:{node.metadata.name}")

    def limits_gone(self, name: str) -> None:
        if self._limits.pop(name, None):
            self._on_change("")

    # ----------------------------------------------------------------------------------------------------------- asked

    @property
    def drivers(self) -> set[str]:
        return {driver for limits in self._limits.values() for driver in limits}

    def room_on(self, node: str) -> Resources:
        """Volumes the node can attach, by driver."""
        limits = self._limits.get(node, {})
        return Resources({f"{_ATTACH}{driver}": limits.get(driver, UNLIMITED) for driver in self.drivers})

    def attached_by(self, pod: Pod) -> Resources:
        counted: dict[str, int] = {}
        drivers = self.drivers
        for claim in self._claims_of(pod) if drivers else ():
            driver = self._driver(claim)
            if driver in drivers:
                counted[f"{_ATTACH}{driver}"] = counted.get(f"{_ATTACH}{driver}", 0) + 1
        return Resources(counted)

    def terms(self, pod: Pod) -> Terms:
        """Alternatives that the pod's volumes leave for its node; none means any."""
        found: Terms = ()
        for claim in self._claims_of(pod):
            alternatives = self._alternatives(claim)
            if alternatives:
                found = tuple((*one, *other) for one in found for other in alternatives) if found else alternatives
        return found

    def requirements(self, pod: Pod) -> tuple[Requirement, ...]:
        """The same as one conjunction, as far as that can be asked of a fleet."""
        terms = [tuple(Requirement(*check) for check in term) for term in self.terms(pod)]
        if not terms or any(each.operator not in OPERATORS for term in terms for each in term):
            return ()
        return merge_terms(terms) or terms[0]

    def _claims_of(self, pod: Pod) -> list[Claim]:
        keys = claims_of(pod)
        return [self._claims[key] for key in keys if key in self._claims]

    def _alternatives(self, claim: Claim) -> Terms:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            affinity = volume.spec.node_affinity
            if affinity is None or affinity.required is None:
                return ()
            return tuple(
                tuple(
                    LabelCheck(each.key, each.operator, each.values)
                    for each in (*term.match_expressions, *term.match_fields)
                )
                for term in affinity.required.node_selector_terms
            )
        storage = self._classes.get(claim.spec.storage_class_name)
        if storage is None or storage.volume_binding_mode != _WAITS:
            return ()
        return tuple(
            tuple(LabelCheck(each.key, "In", each.values) for each in term.match_label_expressions)
            for term in storage.allowed_topologies
        )

    def _driver(self, claim: Claim) -> str:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        storage = self._classes.get(claim.spec.storage_class_name)
        return storage.provisioner if storage is not None else ""


def claims_of(pod: Pod) -> list[str]:
    """Keys of the claims a pod mounts; a claim made for the pod alone is named after both."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}")
    return found
