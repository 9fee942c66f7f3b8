"""How a run's books stay small over months: what is kept for plots thins out, what is kept for verdicts is folded.

Folding never changes an answer about one of the run's `moments`, the instants that clauses ask about; thinned samples
keep their counts, and of two neighbours the one in which more pods wait stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigfleet.sim.world.meter import Acted, Sample

SAMPLES_KEPT = 20_000
"""Two days of cycles are kept as they are, months as every sixteenth or so."""
ENTRIES_KEPT = 20_000
_DIGITS = 3

Steps = list[tuple[int, tuple[tuple[int, int], ...]]]


def every_second(samples: Sequence[Sample]) -> list[Sample]:
    """Half of the samples; what was counted since the sample before is counted in the one that stays."""
    kept = []
    for first, second in zip(samples[::2], samples[1::2], strict=False):
        stays = first if first.waiting > second.waiting else second
        actions, interrupted = Counter(first.actions), Counter(first.interrupted)
        actions.update(second.actions)
        interrupted.update(second.interrupted)
        kept.append(
            replace(stays, actions=dict(sorted(actions.items())), interrupted=dict(sorted(interrupted.items())))
        )
    return kept + ([samples[-1]] if len(samples) % 2 else [])


def folded_actions(acted: Sequence[Acted], moments: Sequence[int]) -> list[Acted]:
    """One entry per kind and cluster between two moments, at the instant of its first."""
    found: dict[tuple[int, str, str], Acted] = {}
    for each in acted:
        name = (bisect_right(moments, each.at), each.kind, each.cluster)
        known = found.get(name)
        found[name] = each if known is None else replace(known, count=known.count + each.count)
    return list(found.values())


def folded_steps(steps: Steps, moments: Sequence[int]) -> Steps:
    """Every picture once between two moments; the one that held when the next moment came stays last."""
    found: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    for at, rows in steps:
        name = (bisect_right(moments, at), rows)
        first = found.pop(name, at)
        found[name] = first
    # Instants in order again: within a stretch only its ends are asked about.
    out: Steps = []
    for (_, rows), at in found.items():
        out.append((max(at, out[-1][0]) if out else at, rows))
    return out


def rounded(waits: Counter[int]) -> Counter[int]:
    """Waits to three digits, rounded up: a month of pods has as many different waits as pods."""
    found: Counter[int] = Counter()
    for waited, count in waits.items():
        step = 10 ** max(0, len(str(waited)) - _DIGITS)
        found[-(-waited // step) * step] += count
    return found
