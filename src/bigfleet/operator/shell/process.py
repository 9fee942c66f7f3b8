"""The operator's process: credentials, probes and metrics, the lead among replicas, and an orderly end."""

from __future__ import annotations

import asyncio

from bigfleet.operator.kube.access import find_access
from bigfleet.operator.kube.agent import own_name, run_agent
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.lease import Election
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.operator.shell.operator import Operator
from bigfleet.operator.shell.settings import OperatorSettings
from bigfleet.operator.shell.templates import Renderer


async def run_operator(settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Until `stop`; returning earlier means that the lead was lost and a fresh process should begin."""
    renderer = Renderer(settings.cluster_id, settings.bootstrap_template, settings.bootstrap_secrets)
    access = find_access(settings.kubeconfig)
    metrics = OperatorMetrics()
    client = Client(access, qps=settings.qps, burst=settings.burst, agent="bigfleet-operator")
    client.answers = lambda verb, code: metrics.api_answers.labels(verb, str(code)).inc()
    operator = Operator(settings, client, metrics, renderer)
    election = Election(
        client, settings.lease_namespace, f"bigfleet-operator-{settings.cluster_id}", identity(settings)
    )
    await run_agent(
        operator.run,
        stop,
        client=client,
        election=election if settings.leader_elect else None,
        metrics_addr=settings.metrics_addr,
        registry=metrics.registry,
        missing=lambda: None if operator.complete else "the view of the cluster is not complete",
    )


def identity(settings: OperatorSettings) -> str:
    return settings.identity or own_name()
