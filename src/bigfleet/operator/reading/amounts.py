"""How much a pod asks for, reckoned as the scheduler does.

Containers and sidecars run together, init containers one after the other beside the sidecars started before them; the
larger of both counts, then the pod's overhead. Amounts declared for the pod as a whole take the place of the sum.
While a container is being resized in place, the larger of what it asks for and what it has counts.
"""

from __future__ import annotations

from bigfleet.crd.metadata import QuantityValue
from bigfleet.model.resources import Resources
from bigfleet.operator.kube.objects import Container, ContainerStatus, Pod


def pod_requests(pod: Pod) -> Resources:
    """What one pod takes on its node. Raises QuantityError or ResourceError naming the resource."""
    had = {status.name: status for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    together = Resources.ZERO
    for container in pod.spec.containers:
        together += _container(container, had)
    sidecars = peak = Resources.ZERO
    for container in pod.spec.init_containers:
        asked = _container(container, had)
        if container.restart_policy == "Always":
            sidecars += asked
            peak = peak.max(sidecars)
        else:
            peak = peak.max(sidecars + asked)
    total = (together + sidecars).max(peak)
    if pod.spec.resources is not None and pod.spec.resources.requests:
        whole = parse(pod.spec.resources.requests)
        rest = {name: amount for name, amount in total.items() if name not in pod.spec.resources.requests}
        total = Resources(rest) + whole
    return total + parse(pod.spec.overhead)


def parse(quantities: dict[str, QuantityValue], *, round_up: bool = True) -> Resources:
    return Resources.parse({name: str(value) for name, value in quantities.items()}, round_up=round_up)


def _container(container: Container, had: dict[str, ContainerStatus]) -> Resources:
    asked = parse(container.resources.requests)
    status = had.get(container.name)
    if status is None:
        return asked
    holds = status.allocated_resources or (status.resources.requests if status.resources is not None else {})
    return asked.max(parse(holds)) if holds else asked
