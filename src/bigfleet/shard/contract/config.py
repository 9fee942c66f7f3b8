"""Every value a shard decides by, typed, with the names it has as a flag and in `--config FILE`.

`read_settings` turns a mapping (parsed YAML, or flags that were given) into a dataclass like these: keys are field
names with dashes, durations are texts such as `10s`, unknown keys are errors. Parsing files and command lines is the
shell's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from bigfleet.duration import ACCEPTED, nanoseconds
from bigfleet.engine.policy import SECOND, IdleHold, Placement, Policy, RollupGuard, VictimWeights
from bigfleet.model.machine import CallKind
from bigfleet.refusal import MISTAKE, RefusalError

T = TypeVar("T")
# Evictions any cluster may borrow for a few pods that hold a dear machine, unless pods earn none.
LENT = 4


class ConfigError(RefusalError, ValueError):
    """A setting that cannot be used; the message names it, its value and what is accepted."""

    code = MISTAKE


def parse_duration(name: str, value: object) -> int:
    """Nanoseconds of `10s`, `1m30s`, `250ms`, `0`. Other bare numbers are refused: nobody agrees on their unit."""
    found = nanoseconds(str(value))
    if found is None:
        raise ConfigError(f"{name} is {value!r}; {ACCEPTED} is accepted")
    return found


def parse_pair(name: str, value: object) -> tuple[str, str]:
    key, equals, text = str(value).partition("=")
    if not key or not equals or not text:
        raise ConfigError(f"{name} is {value!r}; key=value is accepted")
    return key, text


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}; a text is accepted")
    return value


def _switch(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ConfigError(f"{name} is {value!r}; true or false is accepted")


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{name} is {value!r}; a whole number of at least 0 is accepted")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(f"{name} is {value!r}; a number of at least 0 is accepted")
    return float(value)


def _list(name: str, value: object) -> tuple[object, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}; a list is accepted")
    return tuple(value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(_text(name, item) for item in _list(name, value))


def _pairs(name: str, value: object) -> tuple[tuple[str, str], ...]:
    return tuple(parse_pair(name, item) for item in _list(name, value))


def _holds(name: str, value: object) -> tuple[tuple[str, IdleHold], ...]:
    """`{provider: {on-demand: 5m, spot: 60s}}`."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {value!r}; a mapping of provider to holds is accepted")
    holds = []
    for provider, hold in value.items():
        where = f"{name}.{provider}"
        if not isinstance(hold, Mapping) or not hold.keys() <= {"on-demand", "spot"}:
            raise ConfigError(f"{where} is {hold!r}; a mapping with on-demand and spot is accepted")
        holds.append(
            (
                str(provider),
                IdleHold(
                    parse_duration(f"{where}.on-demand", hold.get("on-demand", "5m")),
                    parse_duration(f"{where}.spot", hold.get("spot", "60s")),
                ),
            )
        )
    return tuple(holds)


def setting(read: Callable[[str, object], Any], default: Any, help: str) -> Any:
    """A dataclass field that may be set from outside."""
    return field(default=default, metadata={"read": read, "help": help})


def duration(seconds: float, help: str) -> Any:
    return setting(parse_duration, round(seconds * SECOND), help)


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """What the core needs to know. Durations are nanoseconds."""

    id: str = setting(_text, "shard-0", "stable shard id")
    providers: tuple[str, ...] = setting(_texts, (), "names of the configured providers")
    ignore_provider: tuple[str, ...] = setting(_texts, (), "providers whose first List is not waited for")
    domain: tuple[tuple[str, str], ...] = setting(_pairs, (), "own only machines of these domains (key=value)")
    with_coordinator: bool = setting(_switch, False, "own what the coordinator's table says, nothing before the first")

    cycle_interval: int = duration(10, "time between two cycles")
    early_cycle_interval: int = duration(1, "shortest time between two cycles when something changed")
    max_actions_per_cycle: int = setting(_whole, 0, "most actions of one cycle, 0 for no limit")
    reclaim_cap_fraction: float = setting(_number, 0.05, "share of a cluster that may be reclaimed at once, 0 is off")
    reclaim_cap_window: int = duration(10, "time in which that share may be reclaimed")
    reclaim_hold: int = duration(120, "how long excess must last before it is drained")
    reclaim_grace: int = duration(600, "grace of a voluntary drain")
    empty_rollup_guard: bool = setting(_switch, True, "hold roll-ups that suddenly lose most of a cluster's demand")
    rollup_guard_rows: int = setting(_whole, 10, "with so many rows or more, losing most of them is enough to be held")
    rollup_guard_retain: float = setting(_number, 0.1, "a roll-up that keeps a smaller share of the demand is held")
    rollup_guard_reports: int = setting(_whole, 3, "so many held roll-ups in a row confirm the loss")
    rollup_guard_hold: int = duration(30, "the loss must be reported for at least so long")
    park_after_cycles: int = setting(_whole, 8, "a gang no domain can hold rests after so many cycles")
    reprobe_every_cycles: int = setting(_whole, 32, "a resting gang is tried again every so many cycles")
    escalate_after: int = duration(60, "a shortfall of this age is reported to the coordinator at once")
    idle_hold_on_demand: int = duration(300, "keep idle on-demand machines so long, 0 for ever")
    idle_hold_spot: int = duration(60, "keep idle spot machines so long, 0 for ever")
    return_window: int = duration(
        600, "after a restart, keep idle machines so long while a cluster that had demand is not back"
    )
    idle_hold_by_provider: tuple[tuple[str, IdleHold], ...] = setting(_holds, (), "idle holds of single providers")
    victim_weight_priority: float = setting(_number, 1.0, "victim score: weight of the priority gap")
    victim_weight_drain: float = setting(_number, 0.1, "victim score: weight of a short drain")
    victim_weight_interruption: float = setting(_number, 0.1, "victim score: weight of a low interruption penalty")
    victim_weight_reclamation: float = setting(_number, 0.1, "victim score: weight of a low reclamation penalty")
    victim_drain_estimate: int = duration(30, "victim score: how long a drain takes")
    victim_penalty_floor: float = setting(_number, 0.01, "victim score: no penalty counts for less (dollars)")

    execute_concurrency: int = setting(_whole, 64, "provider calls in flight per provider")
    execute_timeout: int = duration(30, "deadline of one provider call")
    execute_attempts: int = setting(_whole, 4, "attempts of one provider call")
    retry_delay: int = duration(1, "delay before the second attempt; doubles")
    retry_delay_max: int = duration(30, "longest delay between two attempts")
    create_timeout: int = duration(900, "a Create may take so long")
    visibility_window: int = duration(180, "an acknowledged Create may stay unseen so long before it counts as failed")
    configure_timeout: int = duration(900, "a Configure may take so long")
    drain_timeout: int = duration(600, "a provider's Drain may take so long beyond the grace")
    delete_timeout: int = duration(900, "a Delete may take so long")
    breaker_delay: int = duration(30, "no Create of a kind for so long after one failed; doubles")
    breaker_delay_max: int = duration(1800, "longest pause of Creates of one kind")
    machine_backoff: int = duration(10, "a machine rests so long after a failed action; doubles")
    machine_backoff_max: int = duration(300, "longest rest of a machine")
    stuck_hold: int = duration(300, "a fenced or undrainable machine stays Failed so long; doubles to an hour")

    bootstrap_timeout: int = duration(30, "wait so long for user data")
    bootstrap_backoff: int = duration(10, "a (cluster, profile) rests so long after a bootstrap error; doubles")
    bootstrap_backoff_max: int = duration(300, "longest rest of a (cluster, profile)")
    local_bootstrap: bool = setting(_switch, False, "render a stub blob locally, never ask the operator (scale tests)")
    drain_after_grace: bool = setting(_switch, False, "let the provider drain although pods remain after the grace")
    drain_report_slack: int = duration(10, "wait so long beyond the grace for a drain report")

    reconcile_interval: int = duration(10, "time between two Lists of a provider")
    incremental_reconcile: bool = setting(_switch, False, "use the provider's cursor between two full Lists")
    full_list_interval: int = duration(300, "time between two full Lists when incremental")
    transition_poll_interval: int = duration(
        1, "look at a machine under way after so long; doubles up to reconcile-interval, 0 waits for Lists"
    )
    loss_fraction: float = setting(_number, 0.1, "hold a List that loses a larger share of a provider's machines")
    loss_confirm_interval: int = duration(5, "list again after so long to confirm a large loss")
    read_concurrency: int = setting(_whole, 32, "Gets in flight per provider")

    placement: bool = setting(_switch, True, "serve clusters that say what has no room by units, not by sums")
    consolidate: bool = setting(
        _switch, True, "close and replace nodes of such clusters whose pods cost less elsewhere"
    )
    consolidate_dry_run: bool = setting(_switch, False, "tell what consolidation would do, but do nothing of it")
    eviction_rate: float = setting(_number, 0.045, "pods consolidation may evict for each that becomes 15 min old")
    eviction_most: int = setting(_whole, 60, "so many evictions a cluster may save up, or that share of its pods")
    ready_timeout: int = duration(600, "a Configured machine whose node is not ready by then has failed")
    refused_rest: int = duration(300, "a machine whose drain its cluster refused is left alone for so long")
    reopened_rest: int = duration(3600, "a node that was opened again is not closed for so long")
    mode_hold: int = duration(
        600, "nothing is reclaimed or closed so long after a cluster began to tell units, or sums"
    )
    boot_time: int = duration(120, "how long a machine takes from its purchase to a ready node")
    empty_hold: int = duration(120, "an empty node is kept at least so long")
    empty_hold_max: int = duration(3600, "and at most so long, however dear its return would be")
    closed_empty_hold: int = duration(120, "an empty node that was closed is kept so long")
    consolidate_interval: int = duration(30, "time between two looks for nodes that are worth closing")
    consolidate_settle: int = duration(600, "a node is left alone so long after it became ready")
    consolidate_closing: int = duration(1200, "a closing node is emptied after so long")
    consolidate_payback: int = duration(3600, "what a move saves in so long must exceed what it costs")
    consolidate_saving: float = setting(
        _number, 0.25, "a node is closed if its pods cost so much less elsewhere (0 to 1)"
    )
    consolidate_closing_fraction: float = setting(_number, 0.15, "share of a cluster that may be closing (0 to 1)")
    consolidate_move_fraction: float = setting(_number, 0.05, "share of a cluster that may be moved in 5 min (0 to 1)")

    available_capacity_interval: int = duration(5, "shortest time between two capacity hints per cluster")
    forget_cluster_after: int = duration(86_400, "a cluster without stream and machines is forgotten after so long")
    outbox_limit: int = setting(_whole, 65_536, "coalesced frames waiting per session")
    actuation_paused: bool = setting(_switch, False, "kill switch: decide, but do nothing")
    dry_run: bool = setting(_switch, False, "shadow mode: decide and tell, but do nothing")

    def __post_init__(self) -> None:
        at_least_one = ("execute_concurrency", "execute_attempts", "read_concurrency", "outbox_limit")
        for name in (*at_least_one, "park_after_cycles", "reprobe_every_cycles", "rollup_guard_reports"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', '-')} is {getattr(self, name)}; at least 1 is accepted")
        for name in (
            "cycle_interval",
            "reconcile_interval",
            "execute_timeout",
            "bootstrap_timeout",
            "reclaim_cap_window",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name.replace('_', '-')} is 0; more than 0 is accepted")
        shares = ("consolidate_saving", "consolidate_closing_fraction", "consolidate_move_fraction")
        for name in ("reclaim_cap_fraction", *shares):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name.replace('_', '-')} is {getattr(self, name)}; 0 to 1 is accepted")
        unknown = [name for name in self.ignore_provider if name not in self.providers]
        if unknown:
            raise ConfigError(f"ignore-provider is {unknown[0]!r}; one of {', '.join(self.providers)} is accepted")

    def transition_timeout(self, call: CallKind) -> int:
        """How long a provider may work on a call before it counts as failed; a drain's grace comes on top."""
        return {
            CallKind.CREATE: self.create_timeout,
            CallKind.CONFIGURE: self.configure_timeout,
            CallKind.DRAIN: self.drain_timeout,
            CallKind.DELETE: self.delete_timeout,
        }[call]

    def policy(self) -> Policy:
        """The engine's share of the configuration."""
        return Policy(
            cycle_ns=self.cycle_interval,
            reclaim_grace_seconds=self.reclaim_grace // SECOND,
            park_after_cycles=self.park_after_cycles,
            reprobe_every_cycles=self.reprobe_every_cycles,
            escalate_after_ns=self.escalate_after,
            reclaim_hold_ns=self.reclaim_hold,
            reclaim_cap_window_ns=self.reclaim_cap_window,
            reclaim_cap_fraction=self.reclaim_cap_fraction,
            max_actions_per_step=self.max_actions_per_cycle,
            idle_hold=IdleHold(self.idle_hold_on_demand, self.idle_hold_spot),
            idle_hold_by_provider=dict(self.idle_hold_by_provider),
            victim=VictimWeights(
                self.victim_weight_priority,
                self.victim_weight_drain,
                self.victim_weight_interruption,
                self.victim_weight_reclamation,
                self.victim_drain_estimate / SECOND,
                self.victim_penalty_floor,
            ),
            guard=RollupGuard(
                self.empty_rollup_guard,
                self.rollup_guard_rows,
                self.rollup_guard_retain,
                self.rollup_guard_reports,
                self.rollup_guard_hold,
            ),
            placement=Placement(
                consolidate=self.consolidate,
                mode_hold_ns=self.mode_hold,
                boot_ns=self.boot_time,
                empty_min_ns=self.empty_hold,
                empty_max_ns=self.empty_hold_max,
                closed_empty_ns=self.closed_empty_hold,
                pass_ns=self.consolidate_interval,
                settle_ns=self.consolidate_settle,
                closing_ns=self.consolidate_closing,
                # What its pods and three generations after them will earn: less, and short jobs would never be closed.
                evictable=min(1.0, 4 * self.eviction_rate),
                lent_least=LENT if self.eviction_rate > 0 else 0,
                lent_share=min(1.0, self.eviction_rate / 9),
                payback_ns=self.consolidate_payback,
                min_saving=self.consolidate_saving,
                closing_fraction=self.consolidate_closing_fraction,
                move_fraction=self.consolidate_move_fraction,
            ),
        )


def option_name(entry: Field[Any]) -> str:
    """The flag and file name of a field."""
    return entry.name.replace("_", "-")


def read_settings(kind: type[T], settings: Mapping[str, object], base: T | None = None) -> T:
    """A `kind` with these settings on top of `base` or the defaults; every key must be known."""
    known = {option_name(entry): entry for entry in fields(kind) if "read" in entry.metadata}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    if base is not None:
        values = {entry.name: getattr(base, entry.name) for entry in fields(kind)}  # type: ignore[arg-type]
    for name, value in settings.items():
        entry = known.get(name)
        if entry is None:
            raise ConfigError(f"setting {name!r} is unknown; accepted are {', '.join(sorted(known))}")
        values[entry.name] = entry.metadata["read"](name, value)
    missing = [e for e in fields(kind) if e.name not in values and e.default is MISSING]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"setting {option_name(missing[0])!r} is missing; it has no default")
    return kind(**values)
