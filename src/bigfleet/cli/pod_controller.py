"""`bigfleet-unschedulable-pod-controller`: a CapacityRequest for every pod that needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.commands import EXIT_CODES, MistakeError, VersionOption, leave, run

app = typer.Typer(add_completion=True, rich_markup_mode=None, epilog=EXIT_CODES)


def _option(text: str, metavar: str = "TEXT") -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(help=text, metavar=metavar)
    return made


@app.command(epilog=EXIT_CODES)
def pod_controller(
    kubeconfig: Annotated[str, _option("Else $KUBECONFIG, the mounted service account, ~/.kube/config.", "FILE")] = "",
    metrics_addr: Annotated[str, _option("/metrics, /healthz, /readyz; 0 is off.", "HOST:PORT")] = ":8080",
    priority_class_defaults: Annotated[Path | None, _option("Penalties by PriorityClass, YAML.", "FILE")] = None,
    qps: Annotated[float, _option("Requests to the API server a second.", "N")] = 50.0,
    burst: Annotated[int, _option("Requests to the API server at once.", "N")] = 100,
    mode: Annotated[
        str, _option("unschedulable: pods that wait or run on BigFleet's nodes; all: every pod.", "MODE")
    ] = "unschedulable",
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Work only while holding the Lease.")
    ] = True,
    lease_namespace: Annotated[str, _option("Where the Lease lies.")] = "bigfleet-system",
    log_format: Annotated[str, _option("auto, json or text.")] = "auto",
    log_level: Annotated[str, _option("debug, info, warning or error.", "LEVEL")] = "info",
    version: VersionOption = False,
) -> None:
    """Write a CapacityRequest for every pod the scheduler finds no node for, and keep it while its pod runs here.

    bigfleet-unschedulable-pod-controller
    """
    # Imported late: help and version need not wait for it.
    from bigfleet.operator.pods.process import PodControllerSettings, run_pod_controller
    from bigfleet.operator.pods.rule import Mode
    from bigfleet.transport.logs import LogFormat, configure
    from bigfleet.transport.process import run_until_signal

    configure(log_format=LogFormat(log_format), level=log_level)
    if mode not in set(Mode):
        raise MistakeError(f"--mode {mode!r} is unknown; {' and '.join(Mode)} are accepted")
    settings = PodControllerSettings(
        kubeconfig=kubeconfig,
        metrics_addr=metrics_addr,
        priority_class_defaults=priority_class_defaults,
        qps=qps,
        burst=burst,
        mode=Mode(mode),
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
    )
    leave(run_until_signal(lambda stop: run_pod_controller(settings, stop)))


def main() -> None:
    run(app, prog="bigfleet-unschedulable-pod-controller", extra="operator")


if __name__ == "__main__":
    main()
