"""`bigfleet-operator`: one cluster's side of the fleet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.commands import EXIT_CODES, VersionOption, leave, run

app = typer.Typer(add_completion=True, rich_markup_mode=None, epilog=EXIT_CODES)


def _option(text: str, metavar: str = "TEXT") -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(help=text, metavar=metavar)
    return made


@app.command(epilog=EXIT_CODES)
def operator(
    cluster_id: Annotated[str, _option("Stable name of this cluster. Required.")] = "",
    shard_addr: Annotated[str, _option("The shard's gRPC address. Required.", "HOST:PORT")] = "",
    kubeconfig: Annotated[str, _option("Else $KUBECONFIG, the mounted service account, ~/.kube/config.", "FILE")] = "",
    metrics_addr: Annotated[str, _option("/metrics, /healthz, /readyz; 0 is off.", "HOST:PORT")] = ":8770",
    qps: Annotated[float, _option("Requests to the API server a second.", "N")] = 50.0,
    burst: Annotated[int, _option("Requests to the API server at once.", "N")] = 100,
    ack_concurrency: Annotated[int, _option("Acknowledged statuses written side by side.", "N")] = 16,
    rollup_interval: Annotated[str, _option("Time between two roll-ups; 0 is 10s.", "DURATION")] = "0",
    bootstrap_template_file: Annotated[
        Path | None, _option("User data of a node: a Go template, or Jinja2 if it ends in .j2.", "FILE")
    ] = None,
    bootstrap_secret_dir: Annotated[
        Path | None, _option("A mounted Secret; its keys are .Secrets of the template.", "DIR")
    ] = None,
    placement: Annotated[
        bool,
        typer.Option("--placement/--sums", help="Tell the shard which units have room, or sums of resources alone."),
    ] = True,
    namespace: Annotated[
        list[str] | None, _option("Count requests of this namespace only. Repeat for more; none is all.")
    ] = None,
    drained_retention: Annotated[str, _option("How long a drained UpcomingNode stays.", "DURATION")] = "10m",
    fill_levels: Annotated[
        int, _option("Soft taints by which the scheduler fills fuller nodes first, 0 (off) to 6.", "N")
    ] = 6,
    fill_interval: Annotated[str, _option("Time between two changes of those taints.", "DURATION")] = "30s",
    old_after: Annotated[
        str, _option("Pods of this age count as old: a share of them may be evicted to save money.", "DURATION")
    ] = "15m",
    keep_new_nodes: Annotated[
        bool,
        typer.Option(
            "--keep-new-nodes/--open-new-nodes",
            help="Keep new nodes for whom they came by a NoSchedule taint: gangs, devices, pods that want one each.",
        ),
    ] = True,
    reserve_new_nodes: Annotated[
        bool,
        typer.Option(
            "--reserve-new-nodes/--leave-pods",
            help="Add a toleration of that taint to pods such a node is for; else only nodes of gangs are kept.",
        ),
    ] = True,
    hard_closing: Annotated[
        bool,
        typer.Option(
            "--hard-closing/--soft-closing",
            help="Nodes that close or are empty take nobody until the shard, or a wait of 3 min, opens them.",
        ),
    ] = True,
    keep_off_interruptible: Annotated[
        float,
        _option("Requests whose interruption costs more keep off spot nodes, as deploy/admission has it.", "DOLLARS"),
    ] = math.inf,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Work only while holding the Lease.")
    ] = True,
    lease_namespace: Annotated[str, _option("Where the Lease lies.")] = "bigfleet-system",
    tls_cert: Annotated[str, _option("Own certificate chain, PEM. Re-read when it changes.", "FILE")] = "",
    tls_key: Annotated[str, _option("Key of --tls-cert, PEM. Re-read when it changes.", "FILE")] = "",
    tls_ca: Annotated[str, _option("Authority that the shard is verified against, PEM.", "FILE")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow plaintext beyond this machine.")] = False,
    log_format: Annotated[str, _option("auto, json or text.")] = "auto",
    log_level: Annotated[str, _option("debug, info, warning or error.", "LEVEL")] = "info",
    version: VersionOption = False,
) -> None:
    """Tell a shard what this cluster needs, and carry out what it decides.

        bigfleet-operator --cluster-id prod-1 --shard-addr shard.example:7780

    It only dials out. Without it, or without the shard, the cluster runs on as it is.
    """
    # Imported late: help and version need not wait for it.
    from bigfleet.cli.flags import duration
    from bigfleet.operator.shell.process import run_operator
    from bigfleet.operator.shell.settings import OperatorSettings
    from bigfleet.transport.certificates import TlsFiles
    from bigfleet.transport.logs import LogFormat, configure
    from bigfleet.transport.process import run_until_signal

    configure(log_format=LogFormat(log_format), level=log_level)
    settings = OperatorSettings(
        cluster_id=cluster_id,
        shard_addr=shard_addr,
        kubeconfig=kubeconfig,
        metrics_addr=metrics_addr,
        qps=qps,
        burst=burst,
        ack_concurrency=ack_concurrency if ack_concurrency > 0 else 16,
        rollup_seconds=float(duration(rollup_interval)) or 10.0,
        bootstrap_template=bootstrap_template_file,
        bootstrap_secrets=bootstrap_secret_dir,
        placement=placement,
        namespaces=frozenset(namespace or ()),
        drained_retention_seconds=float(duration(drained_retention)),
        fill_levels=fill_levels,
        fill_seconds=float(duration(fill_interval)),
        old_seconds=float(duration(old_after)),
        keep_new_nodes=keep_new_nodes,
        reserve_new_nodes=reserve_new_nodes,
        hard_closing=hard_closing,
        keep_off_interruptible=keep_off_interruptible,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        tls=TlsFiles(tls_cert, tls_key, tls_ca),
        insecure=insecure,
    )
    leave(run_until_signal(lambda stop: run_operator(settings, stop)))


def main() -> None:
    run(app, prog="bigfleet-operator", extra="operator")


if __name__ == "__main__":
    main()
