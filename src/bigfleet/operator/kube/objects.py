"""Typed views of Kubernetes' own objects, decoded straight from JSON: only the fields somebody here reads.

What a field means is decided in `reading` and in the pod controller, never here.
"""

from __future__ import annotations

import msgspec

from bigfleet.crd.capacity_request import LabelSelector, Requirement, Toleration
from bigfleet.crd.metadata import ObjectMeta, QuantityValue
from bigfleet.crd.upcoming_node import Taint

Quantities = dict[str, QuantityValue]


class _Part(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


# ----------------------------------------------------------------------------------------------------------------- pods


class ResourceNeeds(_Part, frozen=True, gc=False):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(_Part, frozen=True, gc=False):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(_Part, frozen=True, gc=False):
    name: str = ""
    resources: ResourceNeeds = ResourceNeeds()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class NodeTerm(_Part, frozen=True, gc=False):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(_Part, frozen=True, gc=False):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(_Part, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(_Part, frozen=True, gc=False):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(_Part, frozen=True, gc=False):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Part, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(_Part, frozen=True, gc=False):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int = 0


class SchedulingGate(_Part, frozen=True, gc=False):
    name: str = ""


class ClaimVolume(_Part, frozen=True, gc=False):
    claim_name: str = ""


class Ephemeral(_Part, frozen=True, gc=False):
    pass


class Volume(_Part, frozen=True, gc=False):
    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: Ephemeral | None = None


class ResourceClaim(_Part, frozen=True, gc=False):
    name: str = ""


class PodSpec(_Part, frozen=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceNeeds | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    host_network: bool = False


class PodCondition(_Part, frozen=True, gc=False):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(_Part, frozen=True, gc=False):
    name: str = ""
    resources: ResourceNeeds | None = None
    allocated_resources: Quantities = {}


class PodStatus(_Part, frozen=True, gc=False):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: str | None = None


class Pod(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(_Part, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(_Part, frozen=True, gc=False):
    template: PodTemplate = PodTemplate()


class DaemonSet(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()


# ---------------------------------------------------------------------------------------------------------------- nodes


class NodeSpec(_Part, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(_Part, frozen=True, gc=False):
    allocatable: Quantities = {}
    conditions: tuple[PodCondition, ...] = ()


class Node(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


# -------------------------------------------------------------------------------------------------- budgets and volumes


class BudgetSpec(_Part, frozen=True, gc=False):
    selector: LabelSelector | None = None


class BudgetStatus(_Part, frozen=True, gc=False):
    disruptions_allowed: int = 0


class Budget(_Part, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ClaimSpec(_Part, frozen=True, gc=False):
    volume_name: str = ""
    storage_class_name: str = ""


class Claim(_Part, frozen=True, gc=False):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()


class VolumeAffinity(_Part, frozen=True, gc=False):
    required: NodeSelector | None = None


class CsiSource(_Part, frozen=True, gc=False):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(_Part, frozen=True, gc=False):
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolume(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyExpression(_Part, frozen=True, gc=False):
    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(_Part, frozen=True, gc=False):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class AttachLimit(_Part, frozen=True, gc=False):
    count: int | None = None


class CsiDriver(_Part, frozen=True, gc=False):
    name: str = ""
    allocatable: AttachLimit | None = None


class CsiNodeSpec(_Part, frozen=True, gc=False):
    drivers: tuple[CsiDriver, ...] = ()


class CsiNode(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: CsiNodeSpec = CsiNodeSpec()


class LeaseSpec(_Part, frozen=True, gc=False):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(_Part, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()
