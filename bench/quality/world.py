"""A fast closed loop: pods arrive, are scheduled, finish; a policy buys, closes and gives back machines every 10 s.

Owns the truth of a replay: nodes as columns, pods, time. Policies act only through `buy` and `give_back`, or `join`,
`evict` and `leave` where a machine is paid for longer than it is a node, and `close`, `reopen` and `cordon`; nothing
else changes a node, and every dollar is counted in `Account`. The world never decides anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import numpy as np

from bench.quality.account import Account
from bench.quality.bounds import allowed
from bench.quality.demand import NOBODY, Classes, Trace
from bench.quality.kinds import GPU, RESOURCES, UNLIMITED, Flags, Ints, Kinds
from bench.quality.scheduler import Scheduler

CYCLE_S = 10.0
BOOT_S = (60.0, 120.0)
TOKENS = 2


class Policy(Protocol):
    """Whoever supplies machines. Called once per cycle, after pods that fit were bound."""

    name: str

    def decide(self, world: World) -> None: ...


class Watcher(Protocol):
    """Who follows every pod of a world, as an operator does."""

    def waits(self, pod: int) -> None: ...
    def bound(self, pod: int, row: int) -> None: ...
    def unbound(self, pod: int, row: int) -> None: ...


class Unwatched:
    def waits(self, pod: int) -> None: ...
    def bound(self, pod: int, row: int) -> None: ...
    def unbound(self, pod: int, row: int) -> None: ...


class Nodes:
    """Rows are reused; `ready` ones take pods unless cordoned; `billed` ones are paid for by the world; `units`: pods
    per class on each."""

    def __init__(self, size: int, classes: int) -> None:
        self.alive = np.zeros(size, np.bool_)
        self.ready = np.zeros(size, np.bool_)
        self.closed = np.zeros(size, np.bool_)
        self.cordoned = np.zeros(size, np.bool_)
        self.billed = np.zeros(size, np.bool_)
        self.kind = np.zeros(size, np.int64)
        self.cluster = np.full(size, NOBODY, np.int64)
        self.rack = np.full(size, NOBODY, np.int64)
        self.serial = np.zeros(size, np.int64)
        self.free = np.zeros((size, RESOURCES), np.int64)
        self.tokens = np.zeros((size, TOKENS), np.bool_)
        self.taints = np.zeros(size)
        self.pods = np.zeros(size, np.int64)
        self.units = np.zeros((size, classes), np.int64)
        self.services = np.zeros(size, np.int64)
        self.bought_at = np.zeros(size)
        self.ready_at = np.zeros(size)
        self.closed_at = np.zeros(size)
        self.opened_at = np.full(size, -1e12)
        self.empty_at = np.zeros(size)

    def grow(self) -> None:
        for name, column in vars(self).items():
            more = np.zeros_like(column)
            if name in ("cluster", "rack"):
                more[...] = NOBODY
            setattr(self, name, np.concatenate([column, more]))


class World:
    def __init__(self, trace: Trace, kinds: Kinds, scheduler: Scheduler, racks: int = 0) -> None:
        self.trace, self.kinds, self.scheduler, self.racks = trace, kinds, scheduler, racks
        self.may_run = may_run(trace.classes, kinds)
        self.soft = np.zeros(self.may_run.shape)
        # Kinds that pods of a class were given a preference for when they were created.
        self.preferred = np.zeros(self.may_run.shape, np.bool_)
        self.now = 0.0
        self.nodes = Nodes(256, len(trace.classes))
        self.on_node: list[set[int]] = [set() for _ in range(256)]
        self.stock = kinds.limit.copy()
        self.node_of = np.full(len(trace), NOBODY, np.int64)
        self.left = trace.work.copy()
        self.bound_at = np.zeros(len(trace))
        self.waiting_since = trace.arrive.copy()
        self.waiting: list[int] = []
        self.gang_rack: dict[int, int] = {}
        # Rows with a hard taint, each with how many pods of a class and gang may come all the same.
        self.permits: dict[int, dict[tuple[int, int], int]] = {}
        self.account = Account(trace, kinds, BOOT_S[1], CYCLE_S)
        self.watcher: Watcher = Unwatched()
        # Who has bills of its own to settle when the books are closed.
        self.settling: list[Callable[[], None]] = []
        self._boots = np.random.default_rng([trace.seed, 99])
        self._serial = 0
        self._ends: list[tuple[float, int, float]] = []
        self._next = 0
        self._members: dict[int, list[int]] = {}
        for pod in np.flatnonzero(trace.gang != NOBODY).tolist():
            self._members.setdefault(int(trace.gang[pod]), []).append(pod)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def run(self, policy: Policy) -> Account:
        cycles = int(self.trace.horizon / CYCLE_S)
        for cycle in range(cycles):
            self.now = cycle * CYCLE_S
            self._advance()
            self._schedule()
            policy.decide(self)
        self.now = self.trace.horizon
        self._close_books()
        return self.account

    def _advance(self) -> None:
        nodes = self.nodes
        coming = nodes.alive & ~nodes.ready
        if coming.any():
            arrived = coming & (nodes.ready_at <= self.now)
            nodes.ready |= arrived
            nodes.empty_at[arrived] = self.now
        while self._ends and self._ends[0][0] <= self.now:
            at, pod, bound = heapq.heappop(self._ends)
            if self.node_of[pod] != NOBODY and self.bound_at[pod] == bound:
                self._unbind(pod, at)
                self.left[pod] = 0.0
        arrive = self.trace.arrive
        while self._next < len(arrive) and arrive[self._next] <= self.now:
            self.waiting.append(self._next)
            self.watcher.waits(self._next)
            self._next += 1

    def _schedule(self) -> None:
        if not self.waiting:
            return
        trace, hopeless, still = self.trace, set(), []
        tried_gangs: set[int] = set()
        for pod in self.waiting:
            gang = int(trace.gang[pod])
            if gang != NOBODY:
                if gang not in tried_gangs:
                    tried_gangs.add(gang)
                    self._schedule_gang(gang)
                if self.node_of[pod] == NOBODY:
                    still.append(pod)
                continue
            key = (int(trace.cls[pod]), int(trace.cluster[pod]))
            if key in hopeless:
                still.append(pod)
                continue
            row = self.scheduler.choose(self, key[0], key[1], pod)
            if row == NOBODY:
                hopeless.add(key)
                still.append(pod)
            else:
                self._bind(pod, row)
        self.waiting = still

    def _schedule_gang(self, gang: int) -> None:
        members = [pod for pod in self._members[gang] if self.node_of[pod] == NOBODY and self.left[pod] > 0]
        running = [pod for pod in self._members[gang] if self.node_of[pod] != NOBODY]
        rack = int(self.nodes.rack[self.node_of[running[0]]]) if running else NOBODY
        chosen = self.scheduler.choose_gang(self, members, rack)
        if chosen is not None:
            for pod, row in zip(members, chosen, strict=True):
                self._bind(pod, row)

    def _bind(self, pod: int, row: int) -> None:
        nodes, cls = self.nodes, int(self.trace.cls[pod])
        if row in self.permits:
            self.permits[row][cls, int(self.trace.gang[pod])] -= 1
        nodes.free[row] -= self.trace.classes.request[cls]
        nodes.pods[row] += 1
        nodes.units[row, cls] += 1
        nodes.services[row] += int(self.trace.classes.service[cls])
        token = int(self.trace.classes.exclusive[cls])
        if token != NOBODY:
            nodes.tokens[row, token] = True
        if nodes.closed[row] and nodes.billed[row]:
            self.reopen(row)
        self.on_node[row].add(pod)
        self.node_of[pod], self.bound_at[pod] = row, self.now
        self.account.started(pod, self.now - float(self.waiting_since[pod]))
        heapq.heappush(self._ends, (self.now + float(self.left[pod]), pod, self.now))
        self.watcher.bound(pod, row)

    def _unbind(self, pod: int, at: float) -> None:
        nodes, row, cls = self.nodes, int(self.node_of[pod]), int(self.trace.cls[pod])
        nodes.free[row] += self.trace.classes.request[cls]
        nodes.pods[row] -= 1
        nodes.units[row, cls] -= 1
        nodes.services[row] -= int(self.trace.classes.service[cls])
        token = int(self.trace.classes.exclusive[cls])
        if token != NOBODY:
            nodes.tokens[row, token] = False
        self.on_node[row].discard(pod)
        if not nodes.pods[row]:
            nodes.empty_at[row] = self.now
        self.node_of[pod] = NOBODY
        self.account.ran(pod, int(nodes.kind[row]), at - float(self.bound_at[pod]))
        self.watcher.unbound(pod, row)

    # ---- what a policy may do --------------------------------------------------------------------------------------

    def buy(self, cluster: int, kind: int, carries: Ints | None = None, rack: int = NOBODY) -> int:
        """A machine of a kind for a cluster, Ready after its boot; `carries` is the room it was bought for."""
        if self.stock[kind] <= 0:
            raise ValueError(
                f"kind {self.kinds.names[kind]} has no stock left; {self.kinds.limit[kind]} were to be had"
            )
        row = self._new_row(cluster, kind, rack)
        nodes = self.nodes
        nodes.billed[row] = True
        self.stock[kind] -= 1
        nodes.ready_at[row] = self.now + self._boots.uniform(*BOOT_S)
        room = self.wanted(cluster, kind) if carries is None else carries
        self.account.bought(self.now, cluster, kind, room)
        return row

    def _new_row(self, cluster: int, kind: int, rack: int) -> int:
        if not (~self.nodes.alive).any():
            self.nodes.grow()
            self.on_node += [set() for _ in range(len(self.nodes.alive) - len(self.on_node))]
        nodes = self.nodes
        row = int(np.flatnonzero(~nodes.alive)[0])
        self._serial += 1
        nodes.alive[row] = True
        nodes.ready[row] = nodes.closed[row] = nodes.cordoned[row] = nodes.billed[row] = False
        nodes.kind[row], nodes.cluster[row], nodes.serial[row] = kind, cluster, self._serial
        nodes.rack[row] = rack
        nodes.free[row] = self.kinds.capacity[kind]
        nodes.tokens[row] = False
        nodes.taints[row] = 0
        nodes.bought_at[row] = self.now
        nodes.opened_at[row] = -1e12
        return row

    def join(self, cluster: int, kind: int, rack: int = NOBODY) -> int:
        """A Ready node of a machine that somebody else pays for and counts."""
        row = self._new_row(cluster, kind, rack)
        self.nodes.ready[row] = True
        self.nodes.ready_at[row] = self.nodes.empty_at[row] = self.now
        return row

    def leave(self, row: int) -> None:
        """The end of a node that joined; who is still on it is evicted."""
        self.evict(row)
        self._end_row(row)

    def wanted(self, cluster: int, kind: int) -> Ints:
        """What a purchase is for when its buyer does not say: all that waits, as far as the machine holds it."""
        pods = [pod for pod in self.waiting if self.trace.cluster[pod] == cluster]
        total = self.trace.classes.request[self.trace.cls[pods]].sum(0) if pods else np.zeros(RESOURCES, np.int64)
        return np.minimum(total, self.kinds.capacity[kind])

    def together(self, rows: list[int]) -> None:
        """A startup taint that goes when the last of these machines has booted: they become Ready together."""
        if rows:
            self.nodes.ready_at[rows] = self.nodes.ready_at[rows].max()

    def give_back(self, row: int) -> int:
        """Ends a machine; its pods wait again and are counted as evicted. Returns how many."""
        nodes = self.nodes
        if not nodes.alive[row]:
            raise ValueError(f"node row {row} is not alive; only machines that are paid for can be given back")
        evicted = self.evict(row)
        kind = int(nodes.kind[row])
        self.account.returned(self.now, int(nodes.cluster[row]), kind, self.now - float(nodes.bought_at[row]))
        self.stock[kind] += 1
        self._end_row(row)
        return evicted

    def _end_row(self, row: int) -> None:
        nodes = self.nodes
        self.permits.pop(row, None)
        nodes.alive[row] = nodes.ready[row] = nodes.closed[row] = nodes.cordoned[row] = False
        nodes.cluster[row] = nodes.rack[row] = NOBODY

    def evict(self, row: int) -> int:
        """Pods of a node wait again and are counted as evicted, except those whose work is over. Returns how many."""
        evicted = 0
        for pod in sorted(self.on_node[row]):
            left = float(self.left[pod]) - (self.now - float(self.bound_at[pod]))
            self.left[pod] = max(0.0, left)
            if left <= 0:
                self._unbind(pod, self.now + left)
                continue
            evicted += 1
            self.account.evicted(pod, self.now - float(self.trace.arrive[pod]))
            self._unbind(pod, self.now)
            self.waiting_since[pod] = self.now
            self.waiting.append(pod)
            self.watcher.waits(pod)
        return evicted

    def close(self, row: int) -> None:
        """A soft taint: new pods go elsewhere while there is an elsewhere."""
        self.nodes.closed[row], self.nodes.closed_at[row] = True, self.now

    def reopen(self, row: int) -> None:
        self.nodes.closed[row], self.nodes.opened_at[row] = False, self.now

    def taint(self, taints: np.ndarray) -> None:
        """How many PreferNoSchedule taints each row carries from now on."""
        self.nodes.taints[:] = taints

    # ---- reading ---------------------------------------------------------------------------------------------------

    def fill(self) -> np.ndarray:
        """Mean used share of cpu and memory of each row; of GPUs where there are some."""
        capacity = np.maximum(self.kinds.capacity[self.nodes.kind], 1)
        used = 1 - self.nodes.free / capacity
        return np.where(self.kinds.gpu[self.nodes.kind], used[:, GPU], used[:, :GPU].mean(1))

    def _close_books(self) -> None:
        for pod in np.flatnonzero(self.node_of != NOBODY).tolist():
            self.account.ran(pod, int(self.nodes.kind[self.node_of[pod]]), self.now - float(self.bound_at[pod]))
        for settle in self.settling:
            settle()
        for row in np.flatnonzero(self.nodes.alive & self.nodes.billed).tolist():
            kind = int(self.nodes.kind[row])
            self.account.paid(kind, self.now - float(self.nodes.bought_at[row]))
        for pod in self.waiting:
            self.account.never_started(pod, self.now - float(self.waiting_since[pod]))
        for kind in np.flatnonzero(self.kinds.limit < UNLIMITED).tolist():
            self.account.base(kind, self.now)


def may_run(classes: Classes, kinds: Kinds) -> Flags:
    """(class, kind): the rule that keeps high penalties off interruptible nodes: spot only where it saves."""
    may = allowed(classes, kinds)
    if not kinds.spot.any():
        return may
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(classes.request[:, None, :] / kinds.capacity[None, :, :], nan=0.0, posinf=np.inf)
    penalty = np.where(np.isinf(classes.interruption), 0.0, classes.interruption)
    cost = np.where(may, share.max(2) * kinds.price + kinds.probability * penalty[:, None], np.inf)
    firm = np.where(kinds.spot, np.inf, cost).min(1)
    risky = np.where(kinds.spot, cost, np.inf).min(1)
    return may & ~(kinds.spot[None, :] & (risky >= firm)[:, None])
