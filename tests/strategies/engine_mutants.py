"""The twelve mistakes of `placed_mutants`, made in the engine's own kernels, and how many fleets it takes to notice.

`NUMBA_DISABLE_JIT=1 python -m tests.strategies.engine_mutants [FLEETS]` prints one JSON line. A mutant is a function of
the engine with a few words of its source replaced, put wherever the sound one is used; it is killed where the engine
then differs from the oracle. Compiled kernels cannot be exchanged, so this runs without the JIT.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from numba.core import config

from bigfleet.engine.counted import buying, filling, lots, supply, worth
from bigfleet.engine.demand import rollups
from bigfleet.engine.giving_back import giving, other_room, weighing
from bigfleet.engine.nodes import reports
from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle
from tests.strategies.differential import difference
from tests.strategies.placed_fleets import PlacedStep, play_placed
from tests.strategies.placed_mutants import FLEETS, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Edit(NamedTuple):
    """Words of a function and what stands there instead."""

    owner: Any
    name: str
    old: str
    new: str


MUTANTS: dict[str, tuple[Edit, ...]] = {
    "riders before precedence": (
        Edit(
            filling,
            "fill",
            "        at = b.t.next[t]\n",
            "        at = b.t.next[b.t.next[t]] if b.t.next[t] >= 0 else -1\n",
        ),
    ),
    "remainders forgotten": (
        Edit(lots, "open_remainder", "    b.remainders[cluster] = lot\n", "    b.lots.closed[lot] = 1\n    return\n"),
    ),
    "coming without deadline": (
        Edit(supply, "find_coming", "b.slots.deadline[slot] != 0 and now >= b.slots.deadline[slot]", "False"),
    ),
    "price instead of value": (Edit(buying, "_choose", "times(1.0 - rules.within, best)", "-1.0"),),
    "penalty not summed": (
        Edit(filling, "fill", "times(w.k.risk[cls], dollars)", "times(w.k.risk[cls], b.t.dollars[t])"),
    ),
    "closing nodes counted as room": (
        Edit(
            reports,
            "is_coming",
            "return r.open_version[row] != NEVER",
            "return r.closing[row] != 0 or r.open_version[row] != NEVER",
        ),
    ),
    "room counted twice": (
        Edit(reports, "is_coming", "return row < 0 or not is_counted_on(r, s, row)", "return True"),
    ),
    "move without overlap price": (Edit(other_room, "weigh_moves", "- reclamation - overlap", "- reclamation"),),
    "refusal ignored": (Edit(giving.GivingBack, "begin", "(standing.drain_rests, REST_DRAIN)", "(set(), REST_DRAIN)"),),
    "spread by machines": (Edit(buying, "buy", "+= b.s.units[0] * times", "+= times"),),
    "exclusive ignored": (
        Edit(worth, "fits", "return min(most, 1)", "return most"),
        Edit(worth, "excluded", "return True", "return False"),
    ),
    "pinned moved": (Edit(weighing, "_takes_part", "(EMPTY | STAYS)", "EMPTY"),),
    "stranded counted twice": (
        Edit(
            rollups,
            "_count_units",
            "rows.lacking[row] = new.stranded[i]",
            "rows.lacking[row] = min(2 * new.stranded[i], new.count[i])",
        ),
    ),
}


@contextmanager
def broken(edits: Sequence[Edit]) -> Iterator[None]:
    """The engine with these words replaced."""
    with ExitStack() as stack:
        for edit in edits:
            sound = getattr(edit.owner, edit.name)
            source = textwrap.dedent(inspect.getsource(sound))
            assert source.count(edit.old) == 1, f"{edit.name} does not say {edit.old!r} once"
            home = sys.modules[sound.__module__].__dict__
            made: dict[str, Any] = {}
            body = source[source.index("def ") :].replace(edit.old, edit.new)
            exec(compile("from __future__ import annotations\n" + body, edit.name, "exec"), home, made)
            mutant = made[sound.__name__]
            if inspect.isclass(edit.owner):
                stack.enter_context(mock.patch.object(edit.owner, edit.name, mutant))
                continue
            for module in [each for name, each in sys.modules.items() if name.startswith("bigfleet.engine")]:
                for name in [name for name, value in vars(module).items() if value is sound]:
                    stack.enter_context(mock.patch.object(module, name, mutant))
        yield


def killed(fleets: int = FLEETS, names: Sequence[str] = tuple(MUTANTS)) -> dict[str, int | None]:
    """Per mutant the number of fleets it took to notice it; None if none of them did."""
    found: dict[str, int | None] = dict.fromkeys(names)
    for seed in range(fleets):
        played = list(play_placed(seed, SIZE, Oracle()))
        for name in [name for name, at in found.items() if at is None]:
            if _differs(name, played):
                found[name] = seed + 1
        if all(found.values()):
            break
    return found


def _differs(name: str, played: list[tuple[PlacedStep, Any]]) -> bool:
    engine = EngineRows()
    with broken(MUTANTS[name]):
        return any(difference(sound, inputs.feed(engine)) is not None for inputs, sound in played)


def main(fleets: int) -> int:
    if not config.DISABLE_JIT:
        print("kernels are compiled; set NUMBA_DISABLE_JIT=1", file=sys.stderr)
        return 2
    found = killed(fleets)
    print(
        json.dumps({"fleets": fleets, "killed after fleets": found, "alive": [n for n, at in found.items() if not at]})
    )
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else FLEETS))
