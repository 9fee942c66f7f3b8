"""Oracle against engine on one play: the first difference, and the smallest inputs that still show one."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bigfleet.engine.batches import Conditions
from bigfleet.engine.policy import Policy
from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle, OracleResult
from tests.strategies.fleets import Size, StepInput, play
from tests.strategies.odd_names import play_odd
from tests.strategies.placed_fleets import PlacedStep, play_placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Step = StepInput | PlacedStep

COMPARED = ("rejected", "rollups", "actions", "verdicts", "shortfalls", "deferred", "capped", "aborted", "doubted")


def disagreement(seed: int, size: Size, *, placed: bool = False, odd: bool = False) -> str | None:
    """None when both agree on every step; else a report with cut-down inputs that reproduce the difference."""
    return compared(seed, size, placed=placed, odd=odd)[1]


def is_placed(seed: int) -> bool:
    """Which seeds of a row are played with clusters that report placement: two of four, so that every other one of
    either kind gives back."""
    return bool(seed // 2 % 2)


def compared(seed: int, size: Size, *, placed: bool = False, odd: bool = False) -> tuple[int, str | None]:
    """Steps played, and the report if the last of them differs; `placed` fleets have clusters of both kinds, in `odd`
    ones many names of resources are no machine's."""
    # Every other engine gives back what is unused before each step: the oracle must not see a difference.
    gives_back = bool(seed % 2)
    engine = EngineRows(gives_back=gives_back)
    inputs: list[Step] = []
    played: Any = partial(play_odd, placed=placed) if odd else play_placed if placed else play
    for step, expected in played(seed, size, Oracle()):
        inputs.append(step)
        found = _answer_differs(step, expected, engine)
        if found:
            differs = partial(first_difference, gives_back=gives_back)
            report = _report(shrink(inputs, differs), differs)
            return len(inputs), f"seed {seed}, {size}, {placed=}, step {len(inputs)}, {gives_back=}: {found}\n{report}"
    return len(inputs), None


def _answer_differs(step: Step, expected: OracleResult, engine: EngineRows) -> str | None:
    try:
        return difference(expected, step.feed(engine))
    except Exception as error:
        return f"engine raised {error!r}"


def difference(expected: OracleResult, actual: OracleResult) -> str | None:
    """The first field that differs, as one line."""
    for name in COMPARED:
        want, have = getattr(expected, name), getattr(actual, name)
        if want != have:
            return f"{name}: {_first_difference(want, have)}"
    return None


def _first_difference(want: Any, have: Any) -> str:
    if not isinstance(want, list):
        return f"oracle {want}, engine {have}"
    for index, (left, right) in enumerate(zip(want, have, strict=False)):
        if left != right:
            apart = [name for name in _names(left) if getattr(left, name) != getattr(right, name)]
            detail = "; ".join(f"{name}: oracle {getattr(left, name)}, engine {getattr(right, name)}" for name in apart)
            return f"row {index} ({getattr(left, 'key', getattr(left, 'machine', ''))}) {detail}"
    longer, whose = (want, "oracle") if len(want) > len(have) else (have, "engine")
    return (
        f"{len(want)} rows by the oracle, {len(have)} by the engine; only {whose}: {longer[min(len(want), len(have))]}"
    )


def _names(row: Any) -> Sequence[str]:
    return row.__struct_fields__ if isinstance(row, Struct) else [field.name for field in fields(row)]


def first_difference(inputs: Sequence[Step], *, gives_back: bool = False) -> str | None:
    """Replays fixed inputs against both."""
    oracle, engine = Oracle(), EngineRows(gives_back=gives_back)
    for index, step in enumerate(inputs):
        found = _answer_differs(step, step.feed(oracle), engine)
        if found:
            return f"step {index}: {found}"
    return None


def shrink(inputs: list[Any], differs: Callable[[list[Any]], Any] = first_difference) -> list[Any]:
    """Takes away whatever is not needed to keep the difference; the result is not minimal but readable."""
    progress = bool(differs(inputs))
    while progress:
        progress = False
        for candidate in _smaller(inputs):
            if differs(candidate):
                inputs, progress = candidate, True
                break
    return inputs


def _smaller(inputs: list[Step]) -> Iterator[list[Step]]:
    for index in range(len(inputs)):
        yield inputs[:index] + inputs[index + 1 :]
    for index, step in enumerate(inputs):
        for simpler in _simpler_placed(step) if isinstance(step, PlacedStep) else _simpler(step):
            yield [*inputs[:index], simpler, *inputs[index + 1 :]]


def _simpler(step: StepInput) -> Iterator[StepInput]:
    if step.conditions != Conditions():
        yield replace(step, conditions=Conditions())
    if step.policy != Policy():
        yield replace(step, policy=Policy())
    if step.links:
        yield replace(step, links=())
    if step.forgotten:
        yield replace(step, forgotten=())
    half = len(step.machines) // 2
    if half:
        yield replace(step, machines=step.machines[:half])
        yield replace(step, machines=step.machines[half:])
    for n in range(len(step.machines)):
        yield replace(step, machines=step.machines[:n] + step.machines[n + 1 :])
    for n, asked in enumerate(step.rollups):
        others = (step.rollups[:n], step.rollups[n + 1 :])
        yield replace(step, rollups=others[0] + others[1])
        if asked.overhead:
            yield replace(step, rollups=(*others[0], replace(asked, overhead=()), *others[1]))
        for k in range(len(asked.needs)):
            fewer = replace(asked, needs=asked.needs[:k] + asked.needs[k + 1 :])
            yield replace(step, rollups=(*others[0], fewer, *others[1]))


def _simpler_placed(step: PlacedStep) -> Iterator[PlacedStep]:
    """One field emptied, or one record left out of one."""
    for name in ("conditions", "policy"):
        plain = Conditions() if name == "conditions" else Policy()
        if getattr(step, name) != plain:
            yield replace(step, **{name: plain})
    for each in fields(step.conditions):
        if isinstance(kept := getattr(step.conditions, each.name), tuple) and kept:
            yield replace(step, conditions=replace(step.conditions, **{each.name: ()}))
    for name in ("machines", "deadlines", "sums", "units", "nodes", "confirmed", "streams", "links", "forgotten"):
        records = getattr(step, name)
        if len(records) > 1:
            yield replace(step, **{name: ()})
        for n in range(len(records)):
            yield replace(step, **{name: records[:n] + records[n + 1 :]})
    for name, inner in (("sums", "needs"), ("units", "lines")):
        for n, asked in enumerate(getattr(step, name)):
            lines = getattr(asked, inner)
            for k in range(len(lines)):
                fewer = replace(asked, **{inner: lines[:k] + lines[k + 1 :]})
                yield replace(step, **{name: (*getattr(step, name)[:n], fewer, *getattr(step, name)[n + 1 :])})
    for n, (cluster, lines) in enumerate(step.nodes):
        for k in range(len(lines)):
            yield replace(step, nodes=(*step.nodes[:n], (cluster, lines[:k] + lines[k + 1 :]), *step.nodes[n + 1 :]))


def _report(inputs: list[Any], differs: Callable[[list[Any]], Any]) -> str:
    lines = [f"smallest inputs found ({differs(inputs)}):"]
    for index, step in enumerate(inputs):
        lines.append(f"step {index}: now={step.now} links={step.links} forgotten={step.forgotten}")
        if step.policy != Policy():
            lines.append(f"  {step.policy}")
        if step.conditions != Conditions():
            lines.append(f"  {step.conditions}")
        lines += [f"  {line}" for line in step.machines]
        if isinstance(step, PlacedStep):
            lines += [f"  {name}={getattr(step, name)}" for name in ("deadlines", "confirmed", "streams")]
            lines += [f"  {kind} {each}" for kind in ("sums", "units", "nodes") for each in getattr(step, kind)]
            continue
        for asked in step.rollups:
            lines.append(f"  rollup {asked.cluster} overhead={dict(asked.overhead)}")
            lines += [f"    {need}" for need in asked.needs]
    return "\n".join(lines)
