"""`bigfleetctl explain`: an explanation of a shard, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import grpc
import typer

from bigfleet.cli.ctl.shard_calls import DEFAULT_SHARD, Caller, Limit, Shard, Timeout, amounts, as_json
from bigfleet.cli.flags import Insecure, TlsCa, TlsCert, TlsKey
from bigfleet.cli.output import Output, OutputOption, print_records
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.transport.certificates import TlsFiles
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    cluster: Annotated[str, typer.Argument(help="Cluster id; without one every cluster.")] = "",
    fingerprint: Annotated[str, typer.Option("--fingerprint", help="Only needs of this profile.")] = "",
    group: Annotated[str, typer.Option("--group", help="Only this placement group.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Also needs that got everything.")] = False,
    limit: Limit = 10,
    shard: Shard = DEFAULT_SHARD,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    insecure: Insecure = False,
    timeout: Timeout = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why needs are unmet: what they got, what they lost to whom, and the first single change that would help."""
    request = shardread_pb2.ExplainRequest(
        cluster_id=cluster, fingerprint=fingerprint, group=group, unmet_only=not everything
    )
    caller = Caller(shard, TlsFiles(tls_cert, tls_key, tls_ca), insecure, timeout)
    found, total = caller.ask(lambda to: _explained(to, request, limit))
    if output is Output.JSON:
        print_records([as_json(each) for each in found], output)
        return
    for each in found:
        typer.echo("\n".join(sentences(each)) + "\n")
    if len(found) < total:
        typer.echo(f"{total - len(found)} more; --limit 0 shows all")
    elif not found:
        typer.echo("every need got everything it wants" if not everything else "no need matches")


async def _explained(
    to: grpc.aio.Channel, request: shardread_pb2.ExplainRequest, limit: int
) -> tuple[list[shardread_pb2.NeedExplanation], int]:
    stub = shardread_pb2_grpc.ShardReadStub(to)
    found: list[shardread_pb2.NeedExplanation] = []
    while True:
        page = await stub.Explain(request)
        found.extend(page.explanations)
        request.page_token = page.next_page_token
        if not request.page_token or (limit and len(found) >= limit):
            return found[: limit or None], page.total_matching


def sentences(explanation: shardread_pb2.NeedExplanation) -> Iterator[str]:
    """One explanation for a person."""
    view = explanation.need
    verdict = "satisfied" if view.satisfied else f"missing {amounts(view.residual_deficit.resources)}"
    yield f"{view.cluster_id}, priority {view.need.priority}, wants {amounts(view.need.aggregate_resources)}: {verdict}"
    yield f"  profile  {view.profile_fingerprint}"
    if view.need.group:
        yield f"  group    {view.need.group}"
    if not view.satisfied:
        yield f"  why      {explanation.reason}"
    for got in explanation.granted:
        kind = f"{got.instance_type} {CapacityType(got.capacity_type).name.lower()} in {got.zone}"
        yield f"  has      {got.count} × {kind} at ${got.price_per_hour:.4g}/h ({got.source})"
    if explanation.granted:
        risk = explanation.effective_cost_per_hour - explanation.price_per_hour
        yield f"  costs    ${explanation.price_per_hour:.4g}/h and ${risk:.4g}/h of interruption risk"
    for lost in explanation.lost:
        winner = f" to {lost.winner_cluster_id} at priority {lost.winner_priority}" if lost.winner_cluster_id else ""
        state = MachineState(lost.state).label
        yield f"  lost     {lost.count} × {lost.instance_type} in {lost.zone} ({state}){winner}: {lost.reason}"
    if not view.satisfied:
        yield f"  remedy   {_remedy(explanation.remedy)}"


def _remedy(remedy: shardread_pb2.Remedy) -> str:
    change = remedy.WhichOneof("change")
    if change == "add_supply":
        more = remedy.add_supply
        where = f" with {more.domain_key}={more.domain_value or 'one value'}" if more.domain_key else ""
        return f"{more.count} more {more.instance_type or 'machines that match'}{where}"
    if change == "raise_priority":
        return f"a priority above {remedy.raise_priority.above}"
    if change == "drop_constraint":
        return f"dropping the constraint {remedy.drop_constraint.constraint}"
    return "no single change would satisfy it"
