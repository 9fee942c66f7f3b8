"""Pods, requests, nodes and budgets as the mirror is told them.

A pod's shape says where the scheduler would let it stand: its own terms, exactly, not what a fleet was asked for. What
it counts as (profile, group, unit) comes from its request.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.crd.capacity_request import LabelSelector
from bigfleet.crd.capacity_request import Requirement as Expression
from bigfleet.model.names import API_GROUP, KEPT_TAINT
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, Toleration
from bigfleet.operator.core.mirror.facts import BudgetSeen, HostPort, NodeSeen, Origin, PodShape, PodTerm, SpreadTerm
from bigfleet.operator.core.mirror.filters import NODE_NAME
from bigfleet.operator.core.mirror.labels import LabelCheck, Selector, checks_of, equal_to
from bigfleet.operator.kube.objects import Budget, Node, Pod, PodAffinityTerm
from bigfleet.operator.reading.amounts import parse
from bigfleet.operator.reading.profiles import Meaning

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
PIN_ANNOTATION = f"{API_GROUP}/do-not-disrupt"
CLOSING_ANNOTATION = f"{API_GROUP}/closing-since"
CLOSING_TAINT = f"{API_GROUP}/closing"
# For whom a node that has just come is kept; in force while its taint is there.
KEPT_ANNOTATION = f"{API_GROUP}/kept-for"
# Hard taints that annotations explain: filters need not judge them.
_OURS = (CLOSING_TAINT, KEPT_TAINT)
# Who wrote that a pod must not be moved, and in which words.
_PINS = (
    (PIN_ANNOTATION, "true"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)
# A kubelet says Ready before its node's controllers let pods on: until these are gone the node is still coming.
_STARTING = frozenset(
    (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    )
)
_NOBODY = Selector((LabelCheck("", "In"),))


def pod_shape(
    pod: Pod, meaning: Meaning, requests: Resources, terms: tuple[tuple[LabelCheck, ...], ...] = ()
) -> PodShape:
    """Where the pod may stand and what it counts as; `terms` are alternatives its volumes leave."""
    spec, meta = pod.spec, pod.metadata
    affinity = spec.affinity
    near = affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else ()
    apart = (
        affinity.pod_anti_affinity.required if affinity is not None and affinity.pod_anti_affinity is not None else ()
    )
    return PodShape(
        namespace=meta.namespace,
        requests=requests,
        profile=meaning.profile,
        group=meaning.group,
        labels=tuple(sorted(meta.labels.items())),
        node_terms=_both(node_terms(pod), terms),
        tolerations=tuple(
            Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations if t.key != KEPT_TAINT
        ),
        ports=_host_ports(pod),
        affinity=tuple(_pod_term(term, pod) for term in near),
        anti_affinity=tuple(_pod_term(term, pod) for term in apart),
        spreads=tuple(
            SpreadTerm(each.topology_key, each.max_skew, _selector(each.label_selector, pod, each.match_label_keys))
            for each in spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
        origin=origin_of(pod),
        pinned=any(meta.annotations.get(key) == value for key, value in _PINS),
        service=not any(owner.controller and owner.kind == "Job" for owner in meta.owner_references),
        reclamation_microdollars=meaning.reclamation_microdollars,
    )


def request_shape(namespace: str, meaning: Meaning) -> PodShape:
    """A unit that has no pod yet: it may stand wherever its requirements are met."""
    checks = checks_of(meaning.profile.requirements)
    return PodShape(
        namespace=namespace,
        requests=meaning.unit,
        profile=meaning.profile,
        group=meaning.group,
        node_terms=(checks,) if checks else (),
        tolerations=meaning.profile.tolerations,
        reclamation_microdollars=meaning.reclamation_microdollars,
    )


def origin_of(pod: Pod) -> Origin:
    if MIRROR_ANNOTATION in pod.metadata.annotations:
        return Origin.DAEMON
    for owner in pod.metadata.owner_references:
        if owner.kind in ("DaemonSet", "Node"):
            return Origin.DAEMON
        if owner.controller:
            return Origin.REPLICATED
    return Origin.BARE


def standing(pod: Pod) -> str:
    """The node whose room the pod takes: its own, or the one that the DaemonSet controller made it for."""
    if pod.spec.node_name or origin_of(pod) is not Origin.DAEMON:
        return pod.spec.node_name
    named = {
        value
        for term in node_terms(pod)
        for check in term
        if check.key == NODE_NAME and check.operator == "In"
        for value in check.values
    }
    return named.pop() if len(named) == 1 else ""


def node_seen(node: Node, *, machine: str, extra: Resources = Resources.ZERO) -> NodeSeen:
    """`machine` is empty on nodes that are not BigFleet's."""
    labels = node.metadata.labels
    return NodeSeen(
        name=node.metadata.name,
        allocatable=parse(node.status.allocatable, round_up=False) + extra,
        labels=tuple(sorted(labels.items())),
        # As it will be: whether it has come and whom it is kept for is told apart, and these taints go by themselves.
        taints=tuple(
            Taint(each.key, each.value, each.effect)
            for each in node.spec.taints
            if each.key not in _OURS and each.key not in _STARTING
        ),
        machine=machine,
        ready=node.ready and not any(each.key in _STARTING for each in node.spec.taints),
        cordoned=node.spec.unschedulable,
        closing_since=closing_since(node),
        kept_for=kept_for(node),
    )


def closing_since(node: Node) -> int:
    written = node.metadata.annotations.get(CLOSING_ANNOTATION, "")
    return int(written) if written.isdecimal() else 0


def kept_for(node: Node) -> str:
    """Whoever takes the taint away opens the node."""
    tainted = any(each.key == KEPT_TAINT for each in node.spec.taints)
    return node.metadata.annotations.get(KEPT_ANNOTATION, "") if tainted else ""


def budget_seen(key: str, budget: Budget) -> BudgetSeen:
    selector = budget.spec.selector
    # A budget without a selector selects nobody; one with an empty selector everybody.
    return BudgetSeen(
        name=key,
        namespace=budget.metadata.namespace,
        selector=_NOBODY if selector is None else Selector(_checks(selector)),
        allowed=budget.status.disruptions_allowed,
    )


def node_terms(pod: Pod) -> tuple[tuple[LabelCheck, ...], ...]:
    """Alternatives that the pod's own selector and affinity leave; none means any node."""
    selected = equal_to(pod.spec.node_selector)
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required if node is not None else None
    if required is None:
        return (selected,) if selected else ()
    found = []
    for term in required.node_selector_terms:
        checks = tuple(_check(each) for each in (*term.match_expressions, *term.match_fields))
        # A term that says nothing matches no node.
        if checks:
            found.append((*selected, *checks))
    return tuple(found) or ((LabelCheck("", "In"),),)


def _both(
    wanted: tuple[tuple[LabelCheck, ...], ...], also: tuple[tuple[LabelCheck, ...], ...]
) -> tuple[tuple[LabelCheck, ...], ...]:
    if not also or not wanted:
        return wanted or also
    return tuple((*one, *other) for one in wanted for other in also)


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    found = {
        HostPort(port.protocol, port.host_port, port.host_ip or "0.0.0.0")
        for container in containers
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(found))


def _pod_term(term: PodAffinityTerm, pod: Pod) -> PodTerm:
    selector = _selector(term.label_selector, pod, term.match_label_keys, term.mismatch_label_keys)
    if term.namespace_selector is not None:
        # Namespaces' labels are not watched: a term that selects some of them is taken to mean all.
        return PodTerm(term.topology_key, selector)
    return PodTerm(term.topology_key, selector, tuple(sorted(term.namespaces)) or (pod.metadata.namespace,))


def _selector(
    selector: LabelSelector | None, pod: Pod, matching: Iterable[str] = (), differing: Iterable[str] = ()
) -> Selector:
    if selector is None:
        return _NOBODY
    labels = pod.metadata.labels
    own = [LabelCheck(key, "In", (labels[key],)) for key in matching if key in labels]
    others = [LabelCheck(key, "NotIn", (labels[key],)) for key in differing if key in labels]
    return Selector((*_checks(selector), *own, *others))


def _checks(selector: LabelSelector) -> tuple[LabelCheck, ...]:
    return (*equal_to(selector.match_labels), *(_check(each) for each in selector.match_expressions))


def _check(each: Expression) -> LabelCheck:
    return LabelCheck(each.key, each.operator, each.values)
