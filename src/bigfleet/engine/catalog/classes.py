"""Layout of classes: what demand can tell apart about machines (`docs/engine.md` §1). Owns no rows."""

from __future__ import annotations

from bigfleet.engine.kernels.jit import F8, I4, I4M, I8, I8M, U1
from bigfleet.engine.kernels.view import View, view

# A key column that stands for the hostname; a value that is not there.
HOSTNAME, ABSENT = -2, -1


@view
class Classes(View):
    """One row per class. `value` and `dom` have a column per live key; `count` one per machine state."""

    price: F8
    risk: F8
    alloc: I8M
    value: I4M
    dom: I4M
    named: I4
    offer: I4
    taints: I4
    broken: U1
    hold: I8
    count: I8M
