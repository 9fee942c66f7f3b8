"""`bigfleetctl needs`, `machines`, `actions` and `story`: what a shard knows, as tables or for programs."""

from __future__ import annotations

from typing import Annotated, Any

import grpc
import typer

from bigfleet.cli import words
from bigfleet.cli.commands import MistakeError, NotFoundError
from bigfleet.cli.ctl.shard_calls import (
    Caller,
    Limit,
    as_json,
    at,
    clock,
    either,
    gathered,
    shard_command,
)
from bigfleet.cli.flags import HALF_A_MINUTE
from bigfleet.cli.output import Output, print_records
from bigfleet.model.machine import MachineState
from bigfleet.wire import provider_pb2, shardread_pb2, shardread_pb2_grpc

Cluster = Annotated[str, typer.Option("--cluster", help="Only this cluster.")]
InstanceType = Annotated[str, typer.Option("--instance-type", help="Only this instance type.")]
Zone = Annotated[str, typer.Option("--zone", help="Only this zone.")]
Provider = Annotated[str, typer.Option("--provider", help="Only this provider.")]

_STATES = {state.label.lower(): provider_pb2.MachineState.ValueType(state) for state in MachineState}
_KINDS = {
    name.removeprefix("ACTION_KIND_").lower(): shardread_pb2.ActionKind.ValueType(number)
    for name, number in shardread_pb2.ActionKind.items()
    if number
}


@shard_command(HALF_A_MINUTE)
def needs(
    caller: Caller,
    cluster: Cluster = "",
    unmet: Annotated[bool, typer.Option("--unmet", help="Only needs that did not get everything.")] = False,
    limit: Limit = 0,
) -> None:
    """List what clusters want, in the order the shard serves them, and what they got in its last cycle.

    UNITS tells, where a cluster says what has no room, how many units run, have room on a node, are coming and are
    missing. MACHINES serve a sum, BINDING are being given to it, BUYING are being bought for it. Ask `bigfleetctl
    explain` why a need is unmet.
    """
    request = shardread_pb2.InspectNeedsRequest(cluster_id=cluster, limit=0 if unmet else limit)
    frames = caller.ask(lambda to: gathered(shardread_pb2_grpc.ShardReadStub(to).InspectNeeds(request)))
    views = [frame.need for frame in frames if frame.HasField("need")]
    if cluster and not views:
        caller.ask(lambda to: _refuse_unknown(to, cluster))
    chosen = [view for view in views if not (unmet and view.satisfied)][: limit or None]
    print_records(_rows(chosen, need_row, caller.output), caller.output)


@shard_command(HALF_A_MINUTE)
def machines(
    caller: Caller,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only this state; repeat for several.", autocompletion=lambda: list(_STATES)),
    ] = None,
    cluster: Cluster = "",
    instance_type: InstanceType = "",
    zone: Zone = "",
    provider: Provider = "",
    machine: Annotated[str, typer.Option("--machine", help="Only this machine.")] = "",
    limit: Limit = 0,
) -> None:
    """List the machines a shard knows, in order of provider and id.

    OWNER is this shard for those it may act on, and - for the others its providers list: machines of other shards, or
    of nobody yet.
    """
    request = shardread_pb2.ListMachinesRequest(
        states=[_named(_STATES, word, "--state") for word in state or ()],
        cluster_id=cluster,
        instance_type=instance_type,
        zone=zone,
        provider=provider,
        machine_id=machine,
        limit=limit,
    )
    pages = caller.ask(lambda to: gathered(shardread_pb2_grpc.ShardReadStub(to).ListMachines(request)))
    found = [view for page in pages for view in page.machines]
    if machine and not found and not (state or cluster or instance_type or zone or provider):
        raise NotFoundError(f"machine {machine!r} is not known to this shard")
    print_records(_rows(found, machine_row, caller.output), caller.output)


# Filters as `machines` has them: options are declared where they are offered, and each goes into another request.
@shard_command(HALF_A_MINUTE)
def actions(
    caller: Caller,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            help=f"Only this kind ({', '.join(_KINDS)}); repeat for several.",
            autocompletion=lambda: list(_KINDS),
        ),
    ] = None,
    cluster: Cluster = "",
    instance_type: InstanceType = "",
    zone: Zone = "",
    provider: Provider = "",
    machine: Annotated[str, typer.Option("--machine", help="Only this machine.")] = "",
    outcome: Annotated[str, typer.Option("--outcome", help="Only this outcome, as the list shows it.")] = "",
    limit: Limit = 50,
) -> None:
    """List what a shard did, newest first; what is still being carried out has no outcome yet.

    A shard remembers some thousands; its audit log has them all.
    """
    request = shardread_pb2.ListActionsRequest(
        kinds=[_named(_KINDS, word, "--kind") for word in kind or ()],
        cluster_id=cluster,
        instance_type=instance_type,
        zone=zone,
        provider=provider,
        machine_id=machine,
        outcome=words.outcome_code(outcome),
        limit=limit,
    )
    pages = caller.ask(lambda to: gathered(shardread_pb2_grpc.ShardReadStub(to).ListActions(request)))
    print_records(_rows([view for page in pages for view in page.actions], _action_row, caller.output), caller.output)


@shard_command(HALF_A_MINUTE)
def story(
    caller: Caller,
    machine: Annotated[str, typer.Argument(help="Machine id.")] = "",
    machine_option: Annotated[
        str, typer.Option("--machine", help="The same, as other commands have it.", hidden=True)
    ] = "",
    provider: Annotated[str, typer.Option("--provider", help="Needed when two providers use the same id.")] = "",
    limit: Limit = 0,
) -> None:
    """Tell what happened to one machine, oldest first."""
    machine = either("MACHINE", machine, machine_option)
    request = shardread_pb2.StoryRequest(machine_id=machine, provider=provider, limit=limit)

    async def question(to: Any) -> shardread_pb2.StoryResponse:
        answer: shardread_pb2.StoryResponse = await shardread_pb2_grpc.ShardReadStub(to).Story(request)
        return answer

    print_records(_rows(list(caller.ask(question).events), _story_row, caller.output), caller.output)


def _rows(views: list[Any], row: Any, output: Output) -> list[dict[str, Any]]:
    """What programs get is the contract's message; what a table shows is what people look for."""
    return [row(view) if output.for_people else as_json(view) for view in views]


async def _refuse_unknown(to: grpc.aio.Channel, cluster: str) -> None:
    """InspectNeeds answers with no needs for whatever it does not know, as reference shards do. Ours refuse to list
    machines of such a cluster; those that cannot list any say nothing."""
    request = shardread_pb2.ListMachinesRequest(cluster_id=cluster, limit=1)
    try:
        await gathered(shardread_pb2_grpc.ShardReadStub(to).ListMachines(request))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise


def need_row(view: shardread_pb2.NeedView) -> dict[str, Any]:
    return {
        "CLUSTER": view.cluster_id,
        "PRIORITY": view.need.priority,
        "WANTS": words.amounts(view.need.aggregate_resources),
        "UNITS": words.units(view, clock(view.units.coming_until_unix_nanos)) if view.HasField("units") else "",
        "MACHINES": "" if view.HasField("units") else view.claimed_machine_count,
        "BINDING": words.decided(view.bootstrap_count, view.held),
        "BUYING": words.decided(view.provision_count, view.held),
        "MISSING": words.amounts(view.residual_deficit.resources),
        "WHY": words.why(view, clock(view.away_since_unix_nanos)),
        "GROUP": view.need.group,
        "ASKS": words.constraints(view.need),
    }


def machine_row(view: shardread_pb2.MachineView) -> dict[str, Any]:
    machine = view.machine
    return {
        "MACHINE": view.machine_id or machine.id,
        "STATE": MachineState(machine.state).label,
        "OWNER": "this shard" if view.owned else "",
        "CLUSTER": machine.cluster,
        "NODE": view.node_name,
        "TYPE": machine.instance_type,
        "SIZE": words.amounts(machine.allocatable.resources),
        "PAID AS": words.capacity_type(machine.capacity_type),
        "PER HOUR": words.dollars(machine.price_per_hour),
        "ZONE": machine.zone,
        "PROVIDER": view.provider,
        "IN FLIGHT": _kind(view.in_flight) if view.in_flight else "-",
        "SINCE": at(view.state_since_unix_nanos),
        "ERROR": machine.last_error,
    }


def _action_row(view: shardread_pb2.ActionView) -> dict[str, Any]:
    return {
        "TIME": at(view.decided_at_unix_nanos),
        "KIND": _kind(view.kind),
        "MACHINE": view.machine_id,
        "TYPE": view.instance_type,
        "CLUSTER": view.cluster_id,
        "WHY": words.with_reasons_in_words(view.reason),
        "BEAT": view.beat,
        "OUTCOME": words.outcome(view.outcome) if view.outcome else "in flight",
        "ERROR": view.error,
    }


def _story_row(event: shardread_pb2.StoryEvent) -> dict[str, Any]:
    return {"TIME": at(event.at_unix_nanos), "WHAT": words.with_reasons_in_words(event.detail)}


def _kind(number: int) -> str:
    names = {int(each): word for word, each in _KINDS.items()}
    return names.get(number, f"kind {number}")


def _named(words: dict[str, Any], word: str, flag: str) -> Any:
    found = words.get(word.lower())
    if found is None:
        raise MistakeError(f"{flag} {word!r} does not exist; there are: {', '.join(words)}")
    return found
