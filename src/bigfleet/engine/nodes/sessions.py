"""Sessions: how each cluster is heard. Whether it reports placement, by which roll-up of which stream, and what is held
(`docs/engine.md` P2 to P4). One row per cluster, by the fleet's numbers; nothing here looks at machines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import made, room
from bigfleet.engine.kernels.jit import I4, I8, U1, inner, kernel
from bigfleet.engine.kernels.view import View, view

# No instant and no mirror version.
NEVER = -(2**63)
# What `judge_sessions` says of a cluster.
FRESH, MODE_HELD, GIVES = 1, 2, 4


@view
class Sessions(View):
    """`reporting`: the last applied roll-up was counted; `streamed`: one of the present stream was applied; `held`: a
    roll-up is held; `changed_at`: when the mode last changed; `seen_version`, `seen_at`: of the last applied or
    confirmed roll-up of this stream; `passed_at`: the last consolidation pass; `head`: first node report, or -1;
    `suspect`: the suspect price of what was said (P19), or -1 where something was said since; `recount`: which of its
    nodes are seen is to be found out anew."""

    reporting: U1
    streamed: U1
    held: U1
    known: U1
    changed_at: I8
    seen_version: I8
    seen_at: I8
    passed_at: I8
    suspect: I8
    recount: U1
    head: I4
    reports: I4


@inner
def is_fresh(s: Sessions, connected: U1, cluster: int, now: int, fresh_ns: int) -> bool:
    """Whether a roll-up of this session, young enough, says what the cluster lacks (P3)."""
    return bool(
        s.reporting[cluster] != 0
        and connected[cluster] != 0
        and s.streamed[cluster] != 0
        and now - s.seen_at[cluster] <= fresh_ns
    )


@inner
def in_mode_hold(s: Sessions, cluster: int, now: int, hold_ns: int) -> bool:
    """Whether the cluster changed its mode so lately that nothing of it is reclaimed, closed or moved (P2)."""
    return bool(s.changed_at[cluster] != NEVER and now - s.changed_at[cluster] < hold_ns)


@inner
def gives(s: Sessions, connected: U1, cluster: int, now: int, fresh_ns: int, hold_ns: int) -> bool:
    """Whether anything of a reporting cluster may be given back now: fresh, nothing held, out of mode hold."""
    return (
        is_fresh(s, connected, cluster, now, fresh_ns)
        and s.held[cluster] == 0
        and not in_mode_hold(s, cluster, now, hold_ns)
    )


@kernel
def judge_sessions(s: Sessions, connected: U1, now: int, fresh_ns: int, hold_ns: int, found: U1) -> None:
    """The same of all clusters at once: which of FRESH, MODE_HELD and GIVES each is."""
    for cluster in range(len(found)):
        found[cluster] = 0
        if is_fresh(s, connected, cluster, now, fresh_ns):
            found[cluster] |= FRESH
        if in_mode_hold(s, cluster, now, hold_ns):
            found[cluster] |= MODE_HELD
        if gives(s, connected, cluster, now, fresh_ns, hold_ns):
            found[cluster] |= GIVES


class SessionStore:
    """Owns the rows; told what happened to a cluster in the order of P3."""

    def __init__(self) -> None:
        self.v = _empty(16)
        # Clusters of which more machines may be on their way than before: each of them is to be looked at again.
        self.turned: set[int] = set()

    def cover(self, count: int) -> None:
        """Rows for so many clusters."""
        size = room(len(self.v.head), count)
        if size > len(self.v.head):
            new = _empty(size)
            for name, column in self.v._asdict().items():
                getattr(new, name)[: len(column)] = column
            self.v = new

    def forget(self, cluster: int) -> None:
        """Everything but its reports, which their own store forgets."""
        v = self.v
        v.reporting[cluster] = v.streamed[cluster] = v.held[cluster] = v.known[cluster] = 0
        v.changed_at[cluster] = v.seen_version[cluster] = v.passed_at[cluster] = NEVER
        v.seen_at[cluster] = 0
        self._doubtful(cluster)

    def begin(self, cluster: int) -> None:
        """A session began anew: no roll-up is of it yet."""
        self.v.streamed[cluster] = 0
        self.v.seen_version[cluster] = NEVER
        self._doubtful(cluster)

    def applied(self, cluster: int, version: int | None, now: int) -> None:
        """A roll-up was applied; one of sums has no mirror version."""
        v = self.v
        reporting = version is not None
        if v.known[cluster] and bool(v.reporting[cluster]) != reporting:
            v.changed_at[cluster] = now
        if bool(v.reporting[cluster]) != reporting:
            self._doubtful(cluster)
        if reporting and not v.reporting[cluster]:
            self.turned.add(cluster)
        v.known[cluster], v.reporting[cluster] = 1, reporting
        v.streamed[cluster], v.held[cluster] = 1, 0
        v.suspect[cluster] = -1
        self._saw(cluster, NEVER if version is None else version, now)

    def withheld(self, cluster: int) -> None:
        """A roll-up was held; until the next applied one nothing is taken from the cluster."""
        self.v.held[cluster] = 1

    def confirmed(self, cluster: int, version: int, now: int) -> None:
        """The last applied roll-up was sent again unchanged."""
        if self.v.streamed[cluster] and not self.v.held[cluster]:
            self._saw(cluster, version, now)

    def _saw(self, cluster: int, version: int, now: int) -> None:
        if version < self.v.seen_version[cluster]:
            # Nodes that were seen may not be any more.
            self.turned.add(cluster)
            self._doubtful(cluster)
        self.v.seen_version[cluster], self.v.seen_at[cluster] = version, now

    def _doubtful(self, cluster: int) -> None:
        """Nodes that were seen may not be, or the other way round."""
        self.v.suspect[cluster] = -1
        self.v.recount[cluster] = 1

    def renumber(self, kept: NDArray[np.int64]) -> None:
        """Keeps these clusters only, in this order."""
        old, self.v = self.v, _empty(max(16, len(kept)))
        for name, column in self.v._asdict().items():
            column[: len(kept)] = getattr(old, name)[kept]
        self.v.suspect[:] = -1
        self.v.recount[:] = 1

    def heard_of(self) -> NDArray[np.int64]:
        """Clusters whose row says anything."""
        v = self.v
        return np.nonzero(v.known | v.streamed | v.held | (v.reports > 0) | (v.changed_at != NEVER))[0]


def _empty(size: int) -> Sessions:
    v = made(Sessions, size)
    for column in (v.changed_at, v.seen_version, v.passed_at):
        column[:] = NEVER
    v.head[:] = -1
    v.suspect[:] = -1
    return v
