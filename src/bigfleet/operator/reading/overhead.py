"""What DaemonSets will take on a node that does not exist yet.

Read from the DaemonSets themselves: a cluster without nodes has no pods of theirs to count. One that chooses its nodes
counts where it chooses one of BigFleet's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bigfleet.model.names import MACHINE_ID_LABEL
from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror.filters import NODE_NAME
from bigfleet.operator.kube.listwatch import key_of
from bigfleet.operator.kube.objects import DaemonSet, Node, Pod
from bigfleet.operator.reading.amounts import pod_requests
from bigfleet.operator.reading.shapes import node_terms


class Overhead:
    """All DaemonSets of the cluster."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._daemons: dict[str, Pod] = {}

    def seen(self, daemons: DaemonSet) -> None:
        template = daemons.spec.template
        self._daemons[key_of(daemons)] = Pod(metadata=template.metadata, spec=template.spec)

    def gone(self, key: str) -> None:
        self._daemons.pop(key, None)

    def total(self) -> Resources:
        """Their requests on one node, with a place for each of their pods."""
        total = Resources.ZERO
        for pod in self._daemons.values():
            if _is_everywhere(pod) or _chooses(pod, self._nodes.values()):
                total += pod_requests(pod) + Resources.of(pods=1)
        return total


def _is_everywhere(pod: Pod) -> bool:
    return not node_terms(pod)


def _chooses(pod: Pod, nodes: Iterable[Node]) -> bool:
    terms = node_terms(pod)
    for node in nodes:
        labels = {**node.metadata.labels, NODE_NAME: node.metadata.name}
        if MACHINE_ID_LABEL in labels and any(all(check.holds(labels) for check in term) for term in terms):
            return True
    return False
