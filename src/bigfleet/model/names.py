"""Names others see: label and annotation keys, frame keys, and the names of the objects the operator writes.

Owns spelling only. Every name is a pure function of its subject, so a restarted operator finds its own objects again.
"""

from __future__ import annotations

import hashlib
import re

API_GROUP = "bigfleet.lucy.sh"
API_VERSION = "v1alpha1"

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOSTNAME_LABEL = "kubernetes.io/hostname"

# On CapacityRequests, pods and nodes.
OWNED_BY_POD_LABEL = f"{API_GROUP}/owned-by-pod"
INTERRUPTION_PENALTY_ANNOTATION = f"{API_GROUP}/interruption-penalty"
RECLAMATION_PENALTY_ANNOTATION = f"{API_GROUP}/reclamation-penalty"
MACHINE_ID_LABEL = f"{API_GROUP}/machine-id"
SIMULATED_LABEL = f"{API_GROUP}/simulated"
CAPACITY_TYPE_LABEL = f"{API_GROUP}/capacity-type"
# About how many GiB a node has for each core; pods of that proportion prefer it (`model/proportion.py`).
MEMORY_PER_CORE_LABEL = f"{API_GROUP}/memory-per-core"
# A new node is kept for whom it came: this taint, and a toleration of it on pods that may come meanwhile.
KEPT_TAINT = f"{API_GROUP}/kept"
# The machine's id as it is, on nodes whose label cannot hold it.
MACHINE_ID_ANNOTATION = MACHINE_ID_LABEL

# What an operator may announce in Hello; towards one that does not, the shard keeps to the base contract.
DRAIN_REPORTS = "drain-reports"
RECLAIM_CANCEL = "reclaim-cancel"
RESYNC_END = "resync-end"
ACK_OUTCOMES = "ack-outcomes"
NODE_REPORTS = "node-reports"
REFERRALS = "referrals"
# Every row says how many units it wants, how many run and how many have no room; nodes are told in full.
PLACEMENT = "placement"
OPERATOR_CAPABILITIES = (DRAIN_REPORTS, RECLAIM_CANCEL, RESYNC_END, ACK_OUTCOMES, NODE_REPORTS, REFERRALS)
# Trailing metadata of FAILED_PRECONDITION: the host:port that serves what was asked for.
REDIRECT = "bigfleet-redirect"
# Trailing metadata of a refused call: what a provider's RESOURCE_EXHAUSTED or UNAVAILABLE means.
REASON = "bigfleet-reason"
SOLD_OUT = "sold-out"
THROTTLED = "throttled"
# Trailers of a coordinator's listings: the leader's term, and instructions shards have not answered yet.
LEADER_TERM = "bigfleet-term"
PENDING_INSTRUCTIONS = "bigfleet-pending-instructions"

# Label keys a provider must not publish: the machine has fields for them.
RESERVED_MACHINE_LABELS = frozenset(
    {
        "instance-type",
        "instance_type",
        "instanceType",
        "zone",
        "availability-zone",
        "availability_zone",
        "capacity-type",
        "capacity_type",
        "capacityType",
    }
)

MAX_OBJECT_NAME = 253
MAX_LABEL_VALUE = 63

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.]+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_UPCOMING_NODE_PREFIX = "un-"


def available_supersedes_key(fingerprint: str) -> str:
    """The frame key of an available-capacity hint."""
    return f"available:{fingerprint}"


def node_supersedes_key(machine_id: str) -> str:
    """The frame key of a node state."""
    return f"node:{machine_id}"


def available_capacity_name(supersedes_key: str) -> str:
    """The AvailableCapacity object of a hint, from its whole frame key: `ac-` and 32 hexadecimal digits."""
    return f"ac-{hashlib.sha256(supersedes_key.encode()).hexdigest()[:32]}"


def upcoming_node_name(machine_id: str) -> str:
    """The UpcomingNode object of a machine: its id where that makes a valid name, else sanitised with a hash."""
    name = _UPCOMING_NODE_PREFIX + machine_id
    if is_object_name(name):
        return name
    return _UPCOMING_NODE_PREFIX + _hashed(machine_id, 16, MAX_OBJECT_NAME - len(_UPCOMING_NODE_PREFIX))


def node_name(machine_id: str) -> str:
    """The name a Node is told to register under when its machine's own id is another's too: `provider/id` in the form
    of a DNS-1123 subdomain, with a hash, so that no two machines have one."""
    return _hashed(machine_id, 10, MAX_LABEL_VALUE)


def _hashed(text: str, digits: int, most: int) -> str:
    """As much of it as a name can hold, with so many digits of its hash behind it; `most` characters in all."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:digits]
    readable = _NOT_IN_NAMES.sub("-", text.lower())[: most - digits - 1].strip("-")
    return f"{readable}-{digest}" if readable else digest


def machine_label(machine_id: str) -> str:
    """What a Node's machine-id label says: the id where a label can hold it, else sanitised with a hash."""
    if len(machine_id) <= MAX_LABEL_VALUE and _LABEL_VALUE.fullmatch(machine_id):
        return machine_id
    digest = hashlib.sha256(machine_id.encode()).hexdigest()[:16]
    readable = _NOT_IN_LABELS.sub("-", machine_id)[: MAX_LABEL_VALUE - len(digest) - 1].strip("-_.")
    return "-".join(part for part in (readable, digest) if part)


def is_object_name(name: str) -> bool:
    """Whether Kubernetes accepts it as the name of a custom resource (a DNS-1123 subdomain)."""
    return len(name) <= MAX_OBJECT_NAME and _OBJECT_NAME.fullmatch(name) is not None


def kept_value(node: str) -> str:
    """What tells the taint of one kept node from another's: its name, or a digest where a value cannot hold that."""
    return node if len(node) <= 63 else hashlib.sha256(node.encode()).hexdigest()[:40]
