"""`bigfleet coordinator`: one replica of the fleet's coordinator."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import structlog
import typer

from bigfleet.cli.commands import CommandError, MistakeError, leave
from bigfleet.cli.flags import Insecure, LogFormatOption, LogLevel, TlsCa, TlsCert, TlsKey, duration
from bigfleet.coordinator.core.policy import SECOND, Policy
from bigfleet.coordinator.server.settings import EXPORT_SECONDS, CoordinatorSettings, EtcdSettings
from bigfleet.coordinator.stores.store import StoreError
from bigfleet.transport.address import default_listen
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.logs import LogFormat, configure
from bigfleet.transport.process import run_until_signal

log = structlog.get_logger(__name__)
app = typer.Typer(add_completion=False)

_SERVING, _STORE, _MOVING, _SNAPSHOTS = "Serving", "Store", "Moving capacity", "Snapshots"


def _option(text: str, panel: str, metavar: str = "TEXT") -> typer.models.OptionInfo:
    made: typer.models.OptionInfo = typer.Option(help=text, rich_help_panel=panel, metavar=metavar)
    return made


@app.callback(invoke_without_command=True)
def coordinator(
    listen: Annotated[
        str,
        _option("Address (gRPC); :7790, without certificates 127.0.0.1:7790.", _SERVING, "HOST:PORT"),
    ] = "",
    metrics_addr: Annotated[str, _option("/metrics, /healthz, /readyz; 0 is off.", _SERVING, "HOST:PORT")] = ":8790",
    id: Annotated[str, _option("Name of this replica.", _SERVING)] = "node-1",
    advertise_addr: Annotated[
        str, _option("Address others reach this replica at; empty is the listen address.", _SERVING, "HOST:PORT")
    ] = "",
    data_dir: Annotated[Path, _option("State of a single replica: coordinator.db.", _STORE, "DIR")] = Path(
        "coord-data"
    ),
    etcd_endpoints: Annotated[
        str,
        _option(
            "etcd, several with commas, for more than one replica; empty keeps the state here.", _STORE, "HOST:PORT"
        ),
    ] = "",
    etcd_prefix: Annotated[
        str, _option("Keys of this fleet begin with it.", _STORE, "PREFIX")
    ] = "/bigfleet/coordinator",
    etcd_cert: Annotated[str, _option("Certificate towards etcd; empty is --tls-cert.", _STORE, "FILE")] = "",
    etcd_key: Annotated[str, _option("Key of --etcd-cert.", _STORE, "FILE")] = "",
    etcd_ca: Annotated[str, _option("Authority etcd is verified against.", _STORE, "FILE")] = "",
    etcd_user: Annotated[str, _option("User towards etcd; empty is none.", _STORE)] = "",
    etcd_password_file: Annotated[str, _option("Holds the user's password.", _STORE, "FILE")] = "",
    lease: Annotated[str, _option("A frozen leader loses its lead after so long.", _STORE, "DURATION")] = "5s",
    ownership_key: Annotated[
        list[str] | None, _option("Topology keys that decide a machine's owner, in order. Repeat.", _MOVING)
    ] = None,
    rebalance_interval: Annotated[
        str, _option("Time between two looks for capacity to move; 0 is never.", _MOVING, "DURATION")
    ] = "5s",
    rebalance_after: Annotated[str, _option("Help shortfalls of this age.", _MOVING, "DURATION")] = "60s",
    preempt_after: Annotated[str, _option("Drain elsewhere for those of this age.", _MOVING, "DURATION")] = "120s",
    rebalance_cooldown: Annotated[
        str, _option("A shard gives nothing of a kind it received so lately.", _MOVING, "DURATION")
    ] = "10m",
    rebalance_margin: Annotated[float, _option("Share of its free machines a donor keeps.", _MOVING, "X")] = 0.1,
    rebalance_settle: Annotated[
        str, _option("What moved counts as coming for so long after it arrived.", _MOVING, "DURATION")
    ] = "30s",
    snapshot_export_dir: Annotated[
        Path | None, _option("Export snapshots into this directory; without it none.", _SNAPSHOTS, "DIR")
    ] = None,
    snapshot_export_interval: Annotated[
        str, _option("Time between two exports; 0 is 5m.", _SNAPSHOTS, "DURATION")
    ] = "0",
    snapshot_export_keep: Annotated[int, _option("So many of the newest exports stay.", _SNAPSHOTS, "N")] = 48,
    raft_bind: Annotated[str, typer.Option(hidden=True)] = "",
    raft_advertise: Annotated[str, typer.Option(hidden=True)] = "",
    join_addr: Annotated[str, typer.Option(hidden=True)] = "",
    bootstrap: Annotated[bool, typer.Option("--bootstrap", hidden=True)] = False,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    insecure: Insecure = False,
    log_format: LogFormatOption = LogFormat.AUTO,
    log_level: LogLevel = "info",
) -> None:
    """Run one replica of the coordinator: who owns what, and capacity that moves to where it is needed.

        bigfleet coordinator --data-dir /var/lib/bigfleet

    Several replicas share an etcd (--etcd-endpoints), have names of their own (--id, --advertise-addr) and elect one
    leader; the others refer callers to it.

    Shards run without it; what stops meanwhile is rebalancing and changes of ownership.
    """
    configure(log_format=log_format, level=log_level)
    _tell_of_raft(raft_bind=raft_bind, raft_advertise=raft_advertise, join_addr=join_addr, bootstrap=bootstrap)
    tls = TlsFiles(tls_cert, tls_key, tls_ca)
    etcd_tls = TlsFiles(etcd_cert, etcd_key, etcd_ca)
    settings = CoordinatorSettings(
        # One of several replicas must be told where others reach it: loopback would hide that it was not.
        listen=listen or default_listen(7790, secured=tls.enabled or insecure or bool(etcd_endpoints)),
        metrics_addr=metrics_addr,
        id=id,
        advertise_addr=advertise_addr,
        data_dir=data_dir,
        etcd=EtcdSettings(
            endpoints=tuple(part.strip() for part in etcd_endpoints.split(",") if part.strip()),
            prefix=etcd_prefix,
            tls=etcd_tls if etcd_tls.enabled else tls,
            user=etcd_user,
            password_file=etcd_password_file,
            lease_seconds=round(_seconds("--lease", lease)),
        ),
        tls=tls,
        insecure=insecure,
        rebalance_seconds=_seconds("--rebalance-interval", rebalance_interval),
        policy=Policy(
            after=_nanos("--rebalance-after", rebalance_after),
            preempt_after=_nanos("--preempt-after", preempt_after),
            cooldown=_nanos("--rebalance-cooldown", rebalance_cooldown),
            margin=_share("--rebalance-margin", rebalance_margin),
            settle=_nanos("--rebalance-settle", rebalance_settle),
        ),
        ownership_keys=tuple(ownership_key or ()),
        export_dir=snapshot_export_dir,
        export_seconds=_seconds("--snapshot-export-interval", snapshot_export_interval) or EXPORT_SECONDS,
        export_keep=snapshot_export_keep,
    )
    # Imported late: help and refusals need not wait for it.
    from bigfleet.coordinator.server.process import run_coordinator

    # Reports leave next to nothing for the cycle collector, and while it looks everybody waits.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        code = run_until_signal(lambda stop: run_coordinator(settings, stop))
    except StoreError as error:
        raise CommandError(str(error)) from error
    leave(code)


def _tell_of_raft(**flags: object) -> None:
    for name, value in flags.items():
        if value:
            flag = f"--{name.replace('_', '-')}"
            log.warning("flag is accepted and does nothing; replicas share --etcd-endpoints instead", flag=flag)


def _seconds(flag: str, text: str) -> float:
    try:
        return duration(text)
    except typer.BadParameter as error:
        raise MistakeError(f"{flag}: {error}") from error


def _share(flag: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise MistakeError(f"{flag} is {value:g}; it is a share, within 0 and 1")
    return value


def _nanos(flag: str, text: str) -> int:
    return round(_seconds(flag, text) * SECOND)
