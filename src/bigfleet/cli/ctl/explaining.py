"""`bigfleetctl explain`: an explanation of a shard, in sentences: what would help first, then why, has and lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import grpc
import typer

from bigfleet.cli import words
from bigfleet.cli.commands import NotFoundError
from bigfleet.cli.ctl.shard_calls import Caller, Limit, as_json, clock, either, shard_command
from bigfleet.cli.flags import A_MINUTE
from bigfleet.cli.output import print_data
from bigfleet.model.machine import MachineState
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc


@shard_command(A_MINUTE)
def explain(
    caller: Caller,
    cluster: Annotated[str, typer.Argument(help="Cluster id; without one every cluster.")] = "",
    cluster_option: Annotated[
        str, typer.Option("--cluster", help="The same, as other commands have it.", hidden=True)
    ] = "",
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", help="Only needs of this profile, as -o json names it.")
    ] = "",
    group: Annotated[str, typer.Option("--group", help="Only this placement group.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Also needs that got everything.")] = False,
    limit: Limit = 10,
) -> None:
    """Say what would satisfy unmet needs, why they are unmet, what they got, and what they lost to whom.

    The remedy is the first single change that would help. A cluster the shard does not know is exit code 3.
    """
    cluster = either("CLUSTER", cluster, cluster_option, needed=False)
    request = shardread_pb2.ExplainRequest(
        cluster_id=cluster, fingerprint=fingerprint, group=group, unmet_only=not everything
    )
    found, total = caller.ask(lambda to: _explained(to, request, limit))
    if not caller.output.for_people:
        print_data([as_json(each) for each in found], caller.output)
        return
    if found:
        typer.echo("\n\n".join(folded(found)))
    if len(found) < total:
        typer.echo(f"\n{total - len(found)} more; --limit 0 shows all")
    elif not found and (fingerprint or group):
        raise NotFoundError("no need matches --fingerprint and --group; `bigfleetctl needs -o json` lists them")
    elif not found:
        typer.echo("every need got everything it wants" if not everything else "nobody wants anything")


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


def folded(explanations: Iterable[shardread_pb2.NeedExplanation]) -> Iterator[str]:
    """One paragraph each; needs that differ in nothing but group and remedy share one that says how many they are."""
    alike: dict[tuple[str, ...], list[shardread_pb2.NeedExplanation]] = {}
    for each in explanations:
        alike.setdefault(tuple(sentences(each)), []).append(each)
    for (first, *rest), members in alike.items():
        lines = [first if len(members) == 1 else f"{first}  ×{len(members)}", *_remedies(members), *rest]
        named = [each.need.need.group for each in members if each.need.need.group]
        yield "\n".join([*lines, f"  group    {', '.join(named)}"] if named else lines)


def _remedies(members: Sequence[shardread_pb2.NeedExplanation]) -> Iterator[str]:
    """What would help each; once where that is the same."""
    helping: dict[str, list[str]] = {}
    for each in members:
        if not each.need.satisfied:
            helping.setdefault(_remedy(each), []).append(each.need.need.group)
    for remedy, groups in helping.items():
        whose = f"{', '.join(group for group in groups if group)}: " if len(helping) > 1 and any(groups) else ""
        yield f"  remedy   {whose}{remedy}"


def sentences(explanation: shardread_pb2.NeedExplanation) -> Iterator[str]:
    """One explanation for a person, but for its remedy."""
    view = explanation.need
    wanted = words.amounts(view.need.aggregate_resources)
    who = f"{view.cluster_id} at priority {view.need.priority}"
    away = clock(view.away_since_unix_nanos)
    if view.satisfied:
        yield f"{who} {'had all it wanted when last heard of' if away else 'has all it wants'}: {wanted}"
    else:
        missing = words.amounts(view.residual_deficit.resources)
        lacks = "has none of it" if missing == wanted else f"lacks {missing}"
        # Where units are counted, those on their way are not missing.
        yield f"{who} wants {wanted} and {lacks if view.residual_deficit.resources else 'waits for the rest'}"
        yield f"  why      {explanation.reason}"
    if away:
        yield f"  away     its operator is not connected since {away}: all of this is what it said before"
    if view.HasField("units"):
        yield f"  units    {words.units(view, clock(view.units.coming_until_unix_nanos))}"
    yield from (f"  asks     {each}" for each in (words.constraints(view.need), words.penalties(view.need)) if each)
    yield from (f"  has      {line}" for line in _has(explanation.granted))
    if explanation.granted:
        risk = explanation.effective_cost_per_hour - explanation.price_per_hour
        expected = f", and {words.dollars(risk)}/h of interruptions to expect" if risk > 0 else ""
        yield f"  {'would cost' if view.held else 'costs   '} {words.dollars(explanation.price_per_hour)}/h{expected}"
    yield from (f"  lost     {line}" for line in _lost(explanation.lost))


def _has(granted: Iterable[shardread_pb2.GrantedSupply]) -> Iterator[str]:
    """Machines of one kind and price in one line, wherever they stand."""
    alike: dict[tuple[str, str, float, str], list[shardread_pb2.GrantedSupply]] = {}
    for got in granted:
        kind = words.capacity_type(got.capacity_type)
        key = (got.instance_type, kind, got.price_per_hour, words.SOURCES.get(got.source, got.source))
        alike.setdefault(key, []).append(got)
    for (instance_type, kind, price, source), rows in alike.items():
        count, zones = sum(row.count for row in rows), _listed(row.zone for row in rows)
        yield f"{count} × {instance_type}, {kind}, in {zones}, {words.price(price, kind)} ({source})"


def _lost(candidates: Iterable[shardread_pb2.LostCandidate]) -> Iterator[str]:
    """Candidates that were lost for one reason to one winner in one line: `12 × m6i.large, 4 × r6i.large`."""
    alike: dict[tuple[str, str, int], list[shardread_pb2.LostCandidate]] = {}
    for lost in candidates:
        winner = f" to {lost.winner_cluster_id} at priority {lost.winner_priority}" if lost.winner_fingerprint else ""
        holder = f" of {lost.winner_cluster_id}" if lost.winner_cluster_id and not winner else ""
        alike.setdefault((lost.reason, winner or holder, lost.state), []).append(lost)
    for (reason, whose, state), rows in alike.items():
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.instance_type] = counts.get(row.instance_type, 0) + row.count
        machines = ", ".join(f"{count} × {name}" for name, count in counts.items())
        where = _listed(row.zone for row in rows)
        yield f"{machines} in {where} ({MachineState(state).label}){whose}: {_loss(reason)}"


def _loss(reason: str) -> str:
    """The sentence of a loss; what it says after the colon are keys and resources."""
    sentence, colon, detail = reason.partition(": ")
    return f"{sentence}: {', '.join(words.key(part) for part in detail.split(','))}" if colon else sentence


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _remedy(explanation: shardread_pb2.NeedExplanation) -> str:
    remedy, view = explanation.remedy, explanation.need
    if words.waits_for_rails(view):
        return "resume: `bigfleetctl rails` says who set them, `bigfleetctl rails --resume` lets things be done"
    if view.barred:
        return words.while_barred(view)
    if view.unmet_reason == shardread_pb2.UNMET_REASON_DID_NOT_HELP and remedy.WhichOneof("change"):
        # More of anything may be as little use to pods that did not take what came.
        return f"{words.remedy(view)}, or {_change(explanation)}"
    return _change(explanation)


def _change(explanation: shardread_pb2.NeedExplanation) -> str:
    """The change that was found, or what to say where none was."""
    remedy, view = explanation.remedy, explanation.need
    change = remedy.WhichOneof("change")
    if change == "add_supply":
        more = remedy.add_supply
        where = f" in {words.key(more.domain_key)} {more.domain_value or 'of one value'}" if more.domain_key else ""
        return f"{more.count} more {more.instance_type or 'machines that match'}{where}"
    if change == "raise_priority":
        return f"a priority above {remedy.raise_priority.above}"
    if change == "drop_constraint":
        return f"without asking that {words.constraint(remedy.drop_constraint.constraint, view.need)}"
    return words.without_remedy(explanation)
