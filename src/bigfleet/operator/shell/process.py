"""The operator's process: credentials, probes and metrics, the lead among replicas, and an orderly end."""

from __future__ import annotations

import asyncio
import os
import socket

import structlog

from bigfleet.operator.kube.access import find_access
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.lease import Election
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.operator.shell.operator import Operator
from bigfleet.operator.shell.settings import OperatorSettings
from bigfleet.operator.shell.templates import Renderer
from bigfleet.transport.endpoints import HttpEndpoints

log = structlog.get_logger(__name__)


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

    def missing() -> str | None:
        # A replica in waiting is as ready as it can be.
        if settings.leader_elect and not election.leading:
            return None
        return None if operator.complete else "the view of the cluster is not complete"

    pages = HttpEndpoints(settings.metrics_addr, registry=metrics.registry, ready=[missing])
    await pages.start()
    working = asyncio.ensure_future(election.lead(operator.run) if settings.leader_elect else operator.run())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pages.begin_stop()
        stopping.cancel()
        ended = working.done()
        working.cancel()
        results = await asyncio.gather(working, return_exceptions=True)
        await client.close()
        await pages.stop()
    if ended:
        if isinstance(results[0], BaseException):
            raise results[0]
        raise RuntimeError("the lead was lost; start again")


def identity(settings: OperatorSettings) -> str:
    return settings.identity or f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"
