"""Why needs got what they got, for readers: the engine's explanations on a copy of it, rendered as the wire says.

A copy is taken between two steps and asked in a thread of its own, so a search for what would help holds up no cycle.
Nothing here decides or judges; whatever is said was said by the engine.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bigfleet.engine.explain import Explanation, HigherPriority, MoreSupply, Source, Why, WithoutConstraint
from bigfleet.engine.results import UnmetReason
from bigfleet.shard.read import views
from bigfleet.shard.read.unmet_words import sentence
from bigfleet.wire import provider_pb2, shardread_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigfleet.engine.explain import Granted, Lost, Remedy
    from bigfleet.engine.results import NeedKey
    from bigfleet.shard.core.published import Published
    from bigfleet.shard.runtime.engine_thread import EngineThread, Snapshot


# Machines that are given to a need, but nothing is asked of their provider at the moment.
BARRED = "barred"
_ASKED = frozenset({Source.IDLE, Source.SPECULATIVE})
# Machines that would be its, if rails let anything be done.
HELD = "held"
_DONE_NOW = frozenset(Source) - {Source.CREDITED, Source.DRAINING}


async def explained(engine: EngineThread, keys: Sequence[NeedKey]) -> list[Explanation]:
    """Explanations of the needs that are still in demand."""
    snapshot = await engine.snapshot() if keys else None
    return await asyncio.to_thread(_answers, snapshot, keys) if snapshot is not None else []


def _answers(snapshot: Snapshot, keys: Sequence[NeedKey]) -> list[Explanation]:
    engine = snapshot.engine
    # The copy decides the same once more, and so has a last step of its own to explain.
    engine.step(None, None, snapshot.policy, snapshot.now, snapshot.conditions)
    found = []
    for key in keys:
        try:
            found.append(engine.explain(key))
        except KeyError:
            continue
    return found


def rendered(
    explanation: Explanation, published: Published, need: shardread_pb2.NeedView
) -> shardread_pb2.NeedExplanation:
    """The explanation without its NeedView `need`, which the caller has."""
    made = shardread_pb2.NeedExplanation(
        granted=[_granted(each, published, need.held) for each in explanation.granted],
        price_per_hour=explanation.price_per_hour,
        effective_cost_per_hour=explanation.effective_cost_per_hour,
        lost=[_lost(each) for each in explanation.lost],
        reason=_sentence(explanation, published, need),
        search=_search(explanation),
        trials=explanation.trials,
    )
    if explanation.remedy is not None:
        made.remedy.CopyFrom(_remedy(explanation.remedy))
    return made


def refused(need: shardread_pb2.NeedView) -> shardread_pb2.NeedExplanation:
    """Of a row that is refused there is nothing to search for."""
    return shardread_pb2.NeedExplanation(need=need, reason=sentence(need.detail))


def _search(explanation: Explanation) -> shardread_pb2.RemedySearch.ValueType:
    if explanation.awaits_drain:
        return shardread_pb2.REMEDY_SEARCH_DRAINING
    if explanation.verdict.satisfied:
        return shardread_pb2.REMEDY_SEARCH_NOT_NEEDED
    if explanation.remedy is not None:
        return shardread_pb2.REMEDY_SEARCH_FOUND
    return shardread_pb2.REMEDY_SEARCH_EXHAUSTED if explanation.exhausted else shardread_pb2.REMEDY_SEARCH_GAVE_UP


def _sentence(explanation: Explanation, published: Published, need: shardread_pb2.NeedView) -> str:
    verdict = explanation.verdict
    blocked = published.blocked.get((verdict.key.cluster, verdict.key.fingerprint))
    if blocked and not verdict.satisfied:
        return f"The cluster's operator cannot render user data for it: {blocked}"
    if need.barred:
        return "; ".join(f"Nothing is asked of {each}" for each in need.barred)
    held = f"{need.held[0].upper()}{need.held[1:]}: nothing of what was decided for it is done." if need.held else ""
    if held and need.unmet_reason == shardread_pb2.UNMET_REASON_ACQUISITION_HELD:
        return held
    if verdict.satisfied:
        return views.REASONS[verdict.reason]
    said = sentence(need.detail) or views.REASONS[verdict.reason]
    sold_out = [f"Sold out: {'; '.join(need.sold_out)}."] if need.sold_out else []
    if sold_out and verdict.reason == UnmetReason.SUPPLY_BACKED_OFF and not need.detail:
        said = ""
    away = (f"Provider {name}: {why}." for name, why in published.away.items())
    return " ".join(each for each in (held, said, *sold_out, *away) if each)


def _granted(each: Granted, published: Published, held: str) -> shardread_pb2.GrantedSupply:
    source = BARRED if each.provider in published.stood_off and each.source in _ASKED else each.source.value
    return shardread_pb2.GrantedSupply(
        instance_type=each.instance_type,
        zone=each.zone,
        capacity_type=views.capacity_type(each.capacity_type),
        state=provider_pb2.MachineState.ValueType(each.state),
        count=each.count,
        price_per_hour=each.price,
        effective_cost_per_hour=each.effective_cost,
        source=HELD if held and each.source in _DONE_NOW else source,
    )


def _lost(each: Lost) -> shardread_pb2.LostCandidate:
    winner = each.winner
    return shardread_pb2.LostCandidate(
        instance_type=each.instance_type,
        zone=each.zone,
        capacity_type=views.capacity_type(each.capacity_type),
        state=provider_pb2.MachineState.ValueType(each.state),
        count=each.count,
        effective_cost_per_hour=each.effective_cost,
        reason=f"{each.why.value}: {each.detail}" if each.detail else each.why.value,
        winner_cluster_id=each.winner_cluster,
        winner_fingerprint=winner.fingerprint if winner is not None else "",
        winner_group=winner.group if winner is not None else "",
        winner_priority=each.winner_priority or 0,
        beside_overhead=each.why is Why.OVERHEAD,
    )


def _remedy(change: Remedy) -> shardread_pb2.Remedy:
    if isinstance(change, MoreSupply):
        more = shardread_pb2.AddSupply(
            instance_type=change.shape.instance_type,
            domain_key=change.domain_key,
            domain_value=change.domain,
            count=change.count,
        )
        return shardread_pb2.Remedy(add_supply=more)
    if isinstance(change, HigherPriority):
        return shardread_pb2.Remedy(raise_priority=shardread_pb2.RaisePriority(above=change.above))
    assert isinstance(change, WithoutConstraint)
    return shardread_pb2.Remedy(drop_constraint=shardread_pb2.DropConstraint(constraint=change.constraint))
