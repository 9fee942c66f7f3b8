"""The one kernel through which a step acts on its book.

Everything below it shares placing and buying; compiled as kernels of their own they would each compile all of that once
more, and the first start waits for compiling.
"""

from __future__ import annotations

from bigfleet.engine.counted.book import Book, PlacementRules
from bigfleet.engine.counted.buying import find_scarce
from bigfleet.engine.counted.coming import ALL, place_on_coming
from bigfleet.engine.counted.lots import usable
from bigfleet.engine.counted.preempt import await_draining, choose_victims
from bigfleet.engine.counted.serve import drop_superfluous, finish_assign, place_leftovers, serve_turns
from bigfleet.engine.decide.victims import Ranked, Victims, Weights
from bigfleet.engine.decide.world import World
from bigfleet.engine.kernels.jit import kernel

# What to do.
COMING, SCARCE, SERVE, LEFTOVERS, DROP, FINISH, DRAINING, VICTIMS, LOTS = range(9)


@kernel
def act(
    w: World, b: Book, v: Victims, r: Ranked, weights: Weights, rules: PlacementRules, what: int, first: int, last: int
) -> int:
    """Does it for the turns `first .. last` (DROP: for those of the purchases `again`; DRAINING and VICTIMS: for those
    of `short`; LOTS: for turn `first`). Returns how far it came before a column was full; LOTS: how many lots hold a
    unit."""
    if what == COMING:
        return place_on_coming(w, b, rules, first, last)
    if what == SERVE:
        return serve_turns(w, b, rules, first, last)
    if what == LEFTOVERS:
        return place_leftovers(w, b, rules, first, last)
    if what == DROP:
        return drop_superfluous(w, b, rules, first, last)
    if what == DRAINING:
        return await_draining(w, b, v, rules, first, last)
    if what == VICTIMS:
        return choose_victims(w, b, v, r, weights, rules, first, last)
    if what == SCARCE:
        find_scarce(w, b, rules, last)
    elif what == FINISH:
        finish_assign(w, b, last)
    elif what == LOTS:
        return usable(w, b, rules, first, b.t.first[first], ALL, -1, -1)
    return last
