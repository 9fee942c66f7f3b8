"""`bigfleetctl snapshot`: save the coordinator's state to a file, judge a file, put one into an empty store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from bigfleet.cli.commands import AwayError, CommandError, MistakeError
from bigfleet.cli.ctl.coordinator_calls import (
    DEFAULT_COORDINATOR,
    REFERRALS,
    Coordinator,
    Coordinators,
    referred_to,
)
from bigfleet.cli.flags import Insecure, TlsCa, TlsCert, TlsKey
from bigfleet.cli.output import Output, OutputOption, print_record
from bigfleet.coordinator.server.process import open_store
from bigfleet.coordinator.server.settings import CoordinatorSettings, EtcdSettings
from bigfleet.coordinator.snapshots.document import Snapshot, SnapshotError, Verdict, restorable, verify
from bigfleet.coordinator.snapshots.files import read_snapshot, write_tar
from bigfleet.coordinator.stores.store import StoreError
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.channel import channel
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc

app = typer.Typer(add_completion=False, no_args_is_help=True)

SnapshotFile = Annotated[Path, typer.Argument(help="A saved file, an export directory, or the exports' `latest`.")]


# Not by `coordinator_command`: saving takes as long as it takes, and `restore` asks no coordinator, but an etcd.
@app.command()
def save(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    insecure: Insecure = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Save the leader's state: `bigfleetctl snapshot save backup.snap`. Do it before every upgrade."""
    tls = TlsFiles(tls_cert, tls_key, tls_ca)
    try:
        snapshot = asyncio.run(_saved(coordinator, tls, insecure))
        verdict = _sound(snapshot, str(file))
        write_tar(snapshot, file)
    except grpc.aio.AioRpcError as error:
        raise Coordinators(coordinator, tls, insecure, 0.0, output).refusal(error) from error
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error
    print_record({"saved": str(file), **_facts(verdict)}, output)


@app.command(name="verify")
def verify_file(file: SnapshotFile, output: OutputOption = Output.TABLE) -> None:
    """Read a snapshot as a restore would; exit code 1 and every problem when it cannot be restored."""
    verdict = _read(file)
    print_record({"valid": not verdict.problems, **_facts(verdict), "problems": verdict.problems}, output)
    if verdict.problems:
        raise typer.Exit(1)


@app.command()
def restore(
    file: SnapshotFile,
    data_dir: Annotated[
        Path | None, typer.Option(help="Into the directory of a single replica, which must be empty.", metavar="DIR")
    ] = None,
    etcd_endpoints: Annotated[
        str, typer.Option(help="Into etcd, several endpoints with commas.", metavar="HOST:PORT")
    ] = "",
    etcd_prefix: Annotated[
        str, typer.Option(help="The fleet's prefix, which must be empty.", metavar="PREFIX")
    ] = "/bigfleet/coordinator",
    node_id: Annotated[str, typer.Option(hidden=True)] = "",
    raft_advertise: Annotated[str, typer.Option(hidden=True)] = "",
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    insecure: Insecure = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put a snapshot into an empty store while every coordinator is stopped; from either kind into either.

    The term and all table versions rise by 1,000,000, past whatever was handed out after the snapshot was taken.
    """
    if (data_dir is None) == (not etcd_endpoints):
        raise MistakeError("give --data-dir for a single replica, or --etcd-endpoints for several")
    tls = TlsFiles(tls_cert, tls_key, tls_ca)
    endpoints = tuple(part.strip() for part in etcd_endpoints.split(",") if part.strip())
    settings = CoordinatorSettings(
        data_dir=data_dir or Path(), etcd=EtcdSettings(endpoints, etcd_prefix, tls), insecure=insecure
    )
    verdict = _sound(read_or_refuse(file), str(file))
    rows, term = restorable(verdict)
    try:
        count = asyncio.run(_restored(settings, rows, term))
    except StoreError as error:
        raise CommandError(str(error)) from error
    where = str(data_dir) if data_dir is not None else f"etcd {etcd_prefix}"
    print_record({"restored": where, "rows": count, **_facts(verdict), "next_term": term + 1}, output)


def read_or_refuse(file: Path) -> Snapshot:
    try:
        return read_snapshot(file)
    except SnapshotError as error:
        raise CommandError(str(error)) from error


def _read(file: Path) -> Verdict:
    return verify(read_or_refuse(file))


def _sound(snapshot: Snapshot, name: str) -> Verdict:
    verdict = verify(snapshot)
    if verdict.problems:
        raise CommandError(f"snapshot {name} is not sound: {'; '.join(verdict.problems)}")
    return verdict


def _facts(verdict: Verdict) -> dict[str, Any]:
    tables = verdict.state.tables
    return {
        "revision": verdict.revision,
        "term": verdict.term,
        "shards": len(tables.shards),
        "clusters": len(tables.clusters),
        "domains": len(tables.domains),
    }


async def _saved(address: str, tls: TlsFiles, insecure: bool) -> Snapshot:
    """From the leader, which any replica names."""
    for _ in range(REFERRALS):
        async with channel(address, tls=tls, insecure=insecure) as opened:
            meta, data = b"", bytearray()
            try:
                chunks: Any = coordinator_pb2_grpc.CoordinatorStub(opened).SnapshotSave(
                    coordinator_pb2.SnapshotSaveRequest()
                )
                async for chunk in chunks:
                    meta, data = meta or chunk.meta_json, data + chunk.data
                return Snapshot(meta, bytes(data))
            except grpc.aio.AioRpcError as error:
                address = referred_to(error)
    raise AwayError(f"coordinator {address} refers to another leader every time; try again")


async def _restored(settings: CoordinatorSettings, rows: list[Any], term: int) -> int:
    store = open_store(settings, "")
    try:
        return await store.restore(rows, term)
    finally:
        await store.close()
