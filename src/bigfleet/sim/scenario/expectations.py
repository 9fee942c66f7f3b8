"""What a scenario promises: `expect:` clauses and how each is judged against a finished run.

A clause answers with an empty text when it holds and with one sentence when it does not. It sees the run only through
`Outcome`, so the same clauses judge live runs, replays and comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from bigfleet.duration import spelled
from bigfleet.model.machine import MachineState
from bigfleet.sim.document.document import Nanoseconds, item
from bigfleet.sim.document.text import instant, plain
from bigfleet.virtual.kernel import MINUTE

LOWEST = -(2**31)
_PATIENCE = "the longest a pod may wait; 15 minutes when left out, a quarter of the judged time in short runs"


@dataclass(frozen=True, slots=True)
class Limit:
    """The longest acceptable wait of some pods, from a moment on."""

    cluster: str
    priority_at_least: int
    after: int
    longest: int


def patience(judged: int) -> int:
    """What a pod may wait when nobody says: longer than any machine takes to come, never as long as the run."""
    return min(15 * MINUTE, judged // 4)


class Outcome(Protocol):
    """What clauses may ask of a finished run. Times are nanoseconds since its start."""

    end: int

    def states(self) -> Mapping[str, int]: ...
    def configured(self, cluster: str) -> int: ...
    def configured_in(self, offer: str, cluster: str) -> int: ...
    def actions(self, kind: str, since: int, cluster: str) -> int: ...
    def pods(self, cluster: str, workload: str) -> tuple[int, int]: ...
    def met_since(self, priority: int, cluster: str) -> int | None: ...
    def late(self, limit: Limit) -> tuple[int, int, int]: ...
    def shortfalls(self) -> int: ...
    def shortfall_range(self, since: int, priority: int) -> tuple[int, int]: ...
    def deficit(self, resource: str) -> int: ...
    def dollars(self) -> float: ...
    def interruptions(self, cause: str) -> int: ...
    def utilisation(self, resource: str) -> float: ...
    def waited(self, priority_class: str, percentile: float) -> float | None: ...
    def leaks(self, failed_allowed: int) -> list[str]: ...
    def lost_machines(self) -> int: ...
    def baseline_dollars(self) -> float | None: ...


class Judged(StrEnum):
    """How much of a run a clause looks at."""

    RUN = "run"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandMet:
    """Every pod runs at the end, and none waited too long at any time; or from `by` on none waits at all."""

    TAG: ClassVar = ("check", "demand-met")

    by: Nanoseconds | None = item("from this moment on no pod waits; leave it out to judge every wait", default=None)
    waits_at_most: Nanoseconds | None = item(_PATIENCE, default=None, low=1)
    judged: Judged = item("the whole run, or only who waits at its end", default=Judged.RUN)
    priority_at_least: int = item("only pods of at least this priority", default=LOWEST)
    cluster: str = item("only this cluster", default="")

    def __post_init__(self) -> None:
        if self.by is not None and (self.waits_at_most is not None or self.judged is Judged.END):
            raise ValueError("judges from a moment on and otherwise too; give by alone, or leave it out")

    def limit(self, end: int) -> Limit | None:
        """The longest acceptable wait; None where only a moment is judged."""
        if self.by is not None or self.judged is Judged.END:
            return None
        return Limit(self.cluster, self.priority_at_least, 0, self.waits_at_most or patience(end))

    def judge(self, run: Outcome) -> str:
        since = run.met_since(self.priority_at_least, self.cluster)
        if since is None:
            live, bound = run.pods(self.cluster, "")
            return f"demand is not met at the end: {bound} of {live} pods run"
        if self.by is not None and since > self.by:
            return f"demand is met from {instant(since)} on, not by {spelled(self.by)}"
        limit = self.limit(run.end)
        return "" if limit is None else _late(run, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How many pods run at the end."""

    TAG: ClassVar = ("check", "running")

    share_at_least: float | None = item("share of the live pods", default=None, low=0, high=1)
    pods: int | None = item("exactly so many", default=None, low=0)
    pods_at_most: int | None = item("no more than so many", default=None, low=0)
    live: int | None = item("exactly so many live pods, running or not", default=None, low=0)
    live_at_most: int | None = item("no more live pods than this", default=None, low=0)
    cluster: str = item("only this cluster", default="")
    workload: str = item("only this workload", default="")

    def __post_init__(self) -> None:
        _demand_one(self, "share_at_least", "pods", "pods_at_most", "live", "live_at_most")

    def judge(self, run: Outcome) -> str:
        live, bound = run.pods(self.cluster, self.workload)
        if self.share_at_least is not None and bound < self.share_at_least * live:
            return f"{bound} of {live} pods run, less than {self.share_at_least:.1%}"
        if self.pods is not None and bound != self.pods:
            return f"{bound} pods run, not {self.pods}"
        if self.pods_at_most is not None and bound > self.pods_at_most:
            return f"{bound} pods run, more than {self.pods_at_most}"
        if self.live is not None and live != self.live:
            return f"{live} pods are alive, not {self.live}"
        if self.live_at_most is not None and live > self.live_at_most:
            return f"{live} pods are alive, more than {self.live_at_most}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """How many machines serve a cluster at the end."""

    TAG: ClassVar = ("check", "configured")

    count: int | None = item("exactly so many", default=None, low=0)
    at_least: int | None = item("at least so many", default=None, low=0)
    at_most: int | None = item("at most so many", default=None, low=0)
    cluster: str = item("only this cluster", default="")
    offer: str = item("only machines of this offer", default="")

    def __post_init__(self) -> None:
        _demand_one(self, "count", "at_least", "at_most")

    def judge(self, run: Outcome) -> str:
        found = run.configured_in(self.offer, self.cluster) if self.offer else run.configured(self.cluster)
        what = f"{found} machines{' of ' + self.offer if self.offer else ''} serve {self.cluster or 'clusters'}"
        return _between(what, found, self.count, self.at_least, self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """How many machines are in each state at the end; states not named are not judged."""

    TAG: ClassVar = ("check", "states")

    counts: dict[str, int] = item("state to number of machines", low=0)

    def __post_init__(self) -> None:
        known = [state.label for state in MachineState]
        for state in self.counts:
            if state not in known:
                raise ValueError(f"counts names the state {state!r}; give one of {', '.join(known)}")
        if not self.counts:
            raise ValueError("counts is empty; give at least one state")

    def judge(self, run: Outcome) -> str:
        found = run.states()
        wrong = [
            f"{state} {found.get(state, 0)}, not {n}" for state, n in self.counts.items() if found.get(state, 0) != n
        ]
        return f"machines are {'; '.join(wrong)}" if wrong else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """How often the shard acted."""

    TAG: ClassVar = ("check", "actions")

    kind: str = item(
        "Bootstrap, Provision, Reclaim, Preempt, Delete, Close, Reopen, or any",
        pattern="Bootstrap|Provision|Reclaim|Preempt|Delete|Close|Reopen|any",
        accepted="one of Bootstrap, Provision, Reclaim, Preempt, Delete, Close, Reopen, any",
    )
    count: int | None = item("exactly so often", default=None, low=0)
    at_least: int | None = item("at least so often", default=None, low=0)
    at_most: int | None = item("at most so often", default=None, low=0)
    after: Nanoseconds = item("only from this moment on", default=Nanoseconds(0))
    cluster: str = item("only for this cluster", default="")

    def __post_init__(self) -> None:
        _demand_one(self, "count", "at_least", "at_most")

    def judge(self, run: Outcome) -> str:
        found = run.actions(self.kind, self.after, self.cluster)
        what = "actions" if self.kind == "any" else f"{self.kind} actions"
        after = f" after {spelled(self.after)}" if self.after else ""
        return _between(f"{found} {what}{after}", found, self.count, self.at_least, self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converged:
    """In the last stretch of the run the shard does nothing and the shortfalls do not change."""

    TAG: ClassVar = ("check", "converged")

    window: Nanoseconds = item("how long that stretch is")

    def judge(self, run: Outcome) -> str:
        since = max(0, run.end - self.window)
        if actions := run.actions("any", since, ""):
            return f"{actions} actions in the last {spelled(self.window)}, not 0"
        low, high = run.shortfall_range(since, LOWEST)
        return "" if low == high else f"shortfalls vary from {low} to {high} in the last {spelled(self.window)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfalls:
    """How many rows of demand nobody can answer, at the end."""

    TAG: ClassVar = ("check", "shortfalls")

    count: int | None = item("exactly so many", default=None, low=0)
    at_least: int | None = item("at least so many", default=None, low=0)
    at_most: int | None = item("at most so many", default=None, low=0)
    resource: str = item("the resource whose deficit is judged", default="")
    deficit: int | None = item("its deficit in units", default=None, low=0)

    def __post_init__(self) -> None:
        _demand_one(self, "count", "at_least", "at_most", "deficit")
        if bool(self.resource) != (self.deficit is not None):
            raise ValueError("judges a deficit by half; give both resource and deficit, or none")

    def judge(self, run: Outcome) -> str:
        found = run.shortfalls()
        problem = _between(f"{found} shortfalls", found, self.count, self.at_least, self.at_most)
        if problem or self.deficit is None:
            return problem
        missing = run.deficit(self.resource)
        return "" if missing == self.deficit else f"the deficit of {self.resource} is {missing}, not {self.deficit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoShortfall:
    """Once the run has warmed up no pod of at least a priority waits too long, whatever the engine says of it."""

    TAG: ClassVar = ("check", "no-shortfall")
    # Without its priority the verdict would deny a shortfall of less important demand that the summary shows.
    ALWAYS_TOLD: ClassVar = ("priority_at_least",)

    priority_at_least: int = item("the priority", default=1_000_000)
    after: Nanoseconds = item("how long warming up takes", default=Nanoseconds(0))
    waits_at_most: Nanoseconds | None = item(_PATIENCE, default=None, low=1)
    cluster: str = item("only this cluster", default="")

    def limit(self, end: int) -> Limit:
        return Limit(self.cluster, self.priority_at_least, self.after, self.waits_at_most or patience(end - self.after))

    def judge(self, run: Outcome) -> str:
        return _late(run, self.limit(run.end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the machines cost."""

    TAG: ClassVar = ("check", "cost")

    below: float | None = item("dollars", default=None, low=0)
    below_baseline_by: float | None = item("at least this share cheaper than the baseline", default=None, high=1)

    def __post_init__(self) -> None:
        _demand_one(self, "below", "below_baseline_by")

    def judge(self, run: Outcome) -> str:
        spent = run.dollars()
        if self.below is not None and not spent < self.below:
            return f"it costs {spent:.2f} dollars, not below {self.below:.2f}"
        if self.below_baseline_by is None:
            return ""
        baseline = run.baseline_dollars()
        if baseline is None:
            return "the scenario has no baseline to compare with; give one"
        if not spent <= baseline * (1 - self.below_baseline_by):
            return f"it costs {spent:.2f} dollars against {baseline:.2f}, not {self.below_baseline_by:.0%} less"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """How many running pods were thrown out."""

    TAG: ClassVar = ("check", "interruptions")

    at_most: int | None = item("at most so many", default=None, low=0)
    at_least: int | None = item("at least so many", default=None, low=0)
    cause: str = item(
        "loss, notice, preemption, reclaim or any",
        default="any",
        pattern="loss|notice|preemption|reclaim|any",
        accepted="one of loss, notice, preemption, reclaim, any",
    )

    def __post_init__(self) -> None:
        _demand_one(self, "at_most", "at_least")

    def judge(self, run: Outcome) -> str:
        found = run.interruptions(self.cause)
        return _between(f"{found} pods interrupted ({self.cause})", found, None, self.at_least, self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Share of the serving machines' resource that pods request, over the run."""

    TAG: ClassVar = ("check", "utilisation")

    resource: str = item("the resource", default="cpu")
    at_least: float = item("the share", low=0, high=1)

    def judge(self, run: Outcome) -> str:
        found = run.utilisation(self.resource)
        return "" if found >= self.at_least else f"{self.resource} is used to {found:.1%}, below {self.at_least:.1%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How long pods of a class wait until they run; those that still wait count with their wait so far."""

    TAG: ClassVar = ("check", "waiting")

    priority_class: str = item(
        "critical, service, batch or other",
        pattern="critical|service|batch|other",
        accepted="one of critical, service, batch, other",
    )
    percentile: float = item("the percentile", default=99.0, low=0, high=100)
    at_most: Nanoseconds = item("the longest acceptable wait")

    def judge(self, run: Outcome) -> str:
        found = run.waited(self.priority_class, self.percentile)
        if found is None:
            return f"no {self.priority_class} pod ever asked for capacity; the clause needs at least one"
        if found * 1e9 <= self.at_most:
            return ""
        return f"{self.priority_class} pods wait {found:.1f} s (p{self.percentile:g}), over {spelled(self.at_most)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredPerLoss:
    """Machines bought or bound for each one lost, from a moment on."""

    TAG: ClassVar = ("check", "acquired-per-loss")

    exactly: float = item("how many", default=1.0, low=0)
    after: Nanoseconds = item("counted from here on", default=Nanoseconds(0))

    def judge(self, run: Outcome) -> str:
        lost = run.lost_machines()
        bound = run.actions("Bootstrap", self.after, "")
        bought = run.actions("Provision", self.after, "")
        found = max(bound, bought)
        if lost == 0:
            return "no machine was lost; the clause needs at least one"
        return "" if found == self.exactly * lost else f"{bought} bought and {bound} bound for {lost} lost machines"


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingLeaked:
    """No machine is stuck, forgotten, known to only one side, or paid for and unused against the policy."""

    TAG: ClassVar = ("check", "nothing-leaked")

    failed_allowed: int = item("machines that may be Failed at the end", default=0, low=0)

    def judge(self, run: Outcome) -> str:
        leaks = run.leaks(self.failed_allowed)
        return f"{len(leaks)} leaks: {'; '.join(leaks[:3])}" if leaks else ""


Expectation = (
    DemandMet
    | Running
    | Configured
    | States
    | Actions
    | Converged
    | Shortfalls
    | NoShortfall
    | Cost
    | Interruptions
    | Utilisation
    | Waiting
    | AcquiredPerLoss
    | NothingLeaked
)


def promise(clause: Expectation) -> dict[str, Any]:
    """What a clause says, for its verdict: whatever differs from the default, and what it never leaves unsaid."""
    said = {name: value for name, value in plain(clause).items() if name != clause.TAG[0]}
    unsaid = [name for name in getattr(clause, "ALWAYS_TOLD", ()) if name not in said]
    return {**{name: getattr(clause, name) for name in unsaid}, **said}


def moments_of(clauses: Iterable[Expectation], end: int) -> tuple[int, ...]:
    """The instants that clauses ask about, in order: books may be folded between them, never across."""
    found = {int(getattr(clause, "after", 0)) for clause in clauses}
    found |= {max(0, end - clause.window) for clause in clauses if isinstance(clause, Converged)}
    return tuple(sorted(found))


def limits_of(clauses: Iterable[Expectation], end: int) -> list[Limit]:
    """The waits that clauses will ask about."""
    asked = [clause.limit(end) for clause in clauses if isinstance(clause, DemandMet | NoShortfall)]
    return [limit for limit in asked if limit is not None]


def _late(run: Outcome, limit: Limit) -> str:
    pods, longest, since = run.late(limit)
    if not pods:
        return ""
    who = f"pods of priority {limit.priority_at_least} or more" if limit.priority_at_least > LOWEST else "pods"
    return (
        f"{pods} {who} waited longer than {spelled(limit.longest)}, one of them {instant(longest)} "
        f"from {instant(since)} on"
    )


def _demand_one(clause: object, *bounds: str) -> None:
    """A clause without a bound would hold whatever happens."""
    if all(getattr(clause, bound) is None for bound in bounds):
        raise ValueError(f"demands nothing; give one of {', '.join(bounds)}")


def _between(what: str, found: int, count: int | None, at_least: int | None, at_most: int | None) -> str:
    if count is not None and found != count:
        return f"{what}, not {count}"
    if at_least is not None and found < at_least:
        return f"{what}, fewer than {at_least}"
    if at_most is not None and found > at_most:
        return f"{what}, more than {at_most}"
    return ""
