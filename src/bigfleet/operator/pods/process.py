"""The pod controller's process: credentials, penalties of priority classes, probes, the lead, and an orderly end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import yaml

from bigfleet.model.quantity import QuantityError, parse_quantity
from bigfleet.operator.kube.access import find_access
from bigfleet.operator.kube.agent import own_name, run_agent
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.lease import Election
from bigfleet.operator.pods.controller import PodController
from bigfleet.operator.pods.metrics import PodControllerMetrics
from bigfleet.operator.pods.rule import Mode
from bigfleet.operator.reading.wishes import Penalties
from bigfleet.refusal import RefusalError
from bigfleet.yaml_text import read_yaml

_FIELDS = {"interruptionPenalty": "interruption", "reclamationPenalty": "reclamation"}


@dataclass(frozen=True, slots=True)
class PodControllerSettings:
    kubeconfig: str = ""
    metrics_addr: str = ":8080"
    priority_class_defaults: Path | None = None
    qps: float = 50.0
    burst: int = 100
    mode: Mode = Mode.UNSCHEDULABLE
    leader_elect: bool = True
    lease_namespace: str = "bigfleet-system"


async def run_pod_controller(settings: PodControllerSettings, stop: asyncio.Event) -> None:
    """Until `stop`; returning earlier means that the lead was lost and a fresh process should begin."""
    defaults = read_defaults(settings.priority_class_defaults)
    metrics = PodControllerMetrics()
    client = Client(
        find_access(settings.kubeconfig),
        qps=settings.qps,
        burst=settings.burst,
        agent="bigfleet-unschedulable-pod-controller",
    )
    client.answers = lambda verb, code: metrics.api_answers.labels(verb, str(code)).inc()
    controller = PodController(client, metrics, mode=settings.mode, defaults=defaults)
    election = Election(client, settings.lease_namespace, "bigfleet-unschedulable-pod-controller", own_name())
    await run_agent(
        controller.run,
        stop,
        client=client,
        election=election if settings.leader_elect else None,
        metrics_addr=settings.metrics_addr,
        registry=metrics.registry,
        missing=lambda: None if controller.complete else "pods, nodes and requests are not all known",
    )


def read_defaults(path: Path | None) -> dict[str, Penalties]:
    """Penalties by PriorityClass name; a mistake ends the start and names the class."""
    if path is None:
        return {}
    try:
        document = read_yaml(path.read_text()) or {}
    except OSError as error:
        raise RefusalError(f"--priority-class-defaults {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise RefusalError(f"--priority-class-defaults {path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise RefusalError(f"--priority-class-defaults {path} is not a map of PriorityClass names")
    found = {}
    for name, penalties in document.items():
        values: dict[str, str] = {}
        for field, value in (penalties or {}).items():
            if field not in _FIELDS:
                raise RefusalError(f"{path}: class {name!r} has {field!r}; {' and '.join(_FIELDS)} are accepted")
            try:
                values[_FIELDS[field]] = parse_quantity(str(value)).canonical()
            except QuantityError as error:
                raise RefusalError(f"{path}: {field} of class {name!r}: {error}") from error
        found[str(name)] = Penalties(**values)
    return found
