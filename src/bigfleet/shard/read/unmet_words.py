"""What more is known of why a need is unmet than its reason says: facts of the shard, in words, looked up per question.

The engine judges; here its judgement is given the names and errors it has no columns for. Decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import isinf
from typing import TYPE_CHECKING

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import UnmetReason
from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.machine import MachineState
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.resources import Resources
from bigfleet.shard.core.machines.matching import parse_canonical, shape_serves
from bigfleet.shard.read.gang_words import Alike, by_shape, why_nowhere
from bigfleet.shard.read.views import REASONS, UNDER_WAY, sold_out_for

if TYPE_CHECKING:
    from bigfleet.engine.results import Verdict
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.core import ShardCore
    from bigfleet.shard.core.state.fleet import Record

# Errors that are told of failed machines: the most frequent ones.
_ERRORS = 2
# Kinds and clusters that are told by name.
_KINDS = 3
_CLUSTERS = 3
_NONE_THERE = frozenset({UnmetReason.NO_MATCHING_SUPPLY, UnmetReason.TOPOLOGY_UNSATISFIABLE})
_TAKEN = frozenset({UnmetReason.FRAGMENTATION, UnmetReason.PRIORITY_STARVED, UnmetReason.PREEMPTION_EXHAUSTED})
_WAITS = frozenset({UnmetReason.NONE, UnmetReason.AWAITING_NODE})
_MAY_HAVE_FAILED = frozenset(
    {UnmetReason.SUPPLY_BACKED_OFF, UnmetReason.NO_MATCHING_SUPPLY, UnmetReason.PRIORITY_STARVED}
)


class UnmetWords:
    """Asked about the needs of one question: what it looks up once serves them all."""

    def __init__(self, core: ShardCore) -> None:
        self._core = core
        self._in_state: dict[MachineState, list[Record]] = {}
        self._alike: list[Alike] | None = None

    def of(self, verdict: Verdict, profile: Profile | None) -> tuple[str, int]:
        """The words, empty where the reason says all there is; and how many failed machines they tell of."""
        published = self._core.published
        if verdict.satisfied:
            return "", 0
        if published.limiting and (limits := self._limits(verdict)):
            return limits, 0
        if verdict.reason == UnmetReason.DID_NOT_HELP:
            return self._did_not_help(verdict, profile)[0], 0
        if verdict.reason == UnmetReason.RISK_TOO_HIGH and profile is not None and isinf(profile.interruption_dollars):
            return "what is free may be interrupted, and its units must not be", 0
        if verdict.reason in _NONE_THERE and not published.machines:
            return _none_owned(sum(each.machines for each in published.providers)), 0
        if verdict.reason == UnmetReason.TOPOLOGY_UNSATISFIABLE and profile is not None:
            return self._nowhere(verdict, profile), 0
        if verdict.reason == UnmetReason.AWAITING_DRAIN and profile is not None:
            return self._drains(verdict, profile), 0
        if verdict.reason in _TAKEN and profile is not None and (said := self._refused(verdict, profile)):
            return said, 0
        if verdict.reason not in _MAY_HAVE_FAILED or profile is None:
            return "", 0
        if failed := self._that_failed(verdict, profile):
            return _failed(failed), len(failed)
        return self._taken_by_overhead(verdict, profile), 0

    def sentence(self, verdict: Verdict) -> str:
        """The words, or where there are none what the reason means; of what rails hold, that first."""
        detail, _ = self.of(verdict, self._core.read.profile(verdict.key.fingerprint, verdict.key.cluster))
        said = sentence(detail) or self._sold_out(verdict) or REASONS[verdict.reason]
        if not (held := self.held(verdict)):
            return said
        held = sentence(f"{held}: nothing of what was decided for it is done")
        return held if verdict.reason in UNDER_WAY else f"{held} {said}"

    def _sold_out(self, verdict: Verdict) -> str:
        """Of what rests and would serve a need: which of it cannot be bought at the moment."""
        published = self._core.published
        profile = self._core.read.profile(verdict.key.fingerprint, verdict.key.cluster)
        if verdict.reason != UnmetReason.SUPPLY_BACKED_OFF or profile is None:
            return ""
        unit = parse_canonical(verdict.key.min_unit)
        kinds = list(sold_out_for(profile, unit, published.sold_out, published.now))
        return sentence(f"sold out: {'; '.join(kinds)}") if kinds else ""

    def held(self, verdict: Verdict) -> str:
        """Why nothing of what was decided for a need is done; empty where it is, or nothing was decided."""
        published, switches = self._core.published, self._core.read.rails.in_force
        acquired = verdict.units.acquired if verdict.units is not None else 0
        if not (published.paused or published.dry_run):
            return ""
        if not verdict.bootstraps + verdict.provisions + verdict.victims + acquired:
            return ""
        what = "rails are paused" if published.paused else "rails are set to dry run"
        return f"{what} ({switches.reason})" if switches.reason else what

    def _limits(self, verdict: Verdict) -> str:
        """What of it waits for its turn at a provider that limits calls."""
        asked = self._core.read.asked_of(verdict.key) if verdict.reason in _WAITS else frozenset()
        said = [f"provider {name}: {how}" for name, how in self._core.published.limiting.items() if name in asked]
        return f"its machines come slowly: {'; '.join(said)}" if said else ""

    def not_as_offered(self, verdict: Verdict, profile: Profile | None) -> bool:
        """Whether what did not help a need is all of kinds that come as something else than is offered."""
        unhelped = not verdict.satisfied and verdict.reason == UnmetReason.DID_NOT_HELP
        return unhelped and self._did_not_help(verdict, profile)[1]

    def _did_not_help(self, verdict: Verdict, profile: Profile | None) -> tuple[str, bool]:
        """Which kinds came for it and were no use, why, and when they are tried again; and whether none of them came as
        it is offered."""
        unit, overhead = parse_canonical(verdict.key.min_unit), self._core.read.overhead(verdict.key.cluster)
        now = self._core.published.now
        came: dict[str, None] = {}
        otherwise: dict[str, None] = {}
        for shape, rest in self._core.read.resting_kinds(verdict.key):
            if profile is None or shape_serves(shape, profile, unit, overhead):
                again = f"tried again in {(rest.until - now) // SECOND}s"
                if rest.otherwise:
                    otherwise[f"{rest.why} ({again})"] = None
                else:
                    came[f"{shape.instance_type} in {shape.zone or 'no zone'} ({rest.why}, {again})"] = None
        said = {"not as offered": otherwise, "came and did not help": came}
        words = "; ".join(f"{how}: {_first(kinds)}" for how, kinds in said.items() if kinds)
        return words, bool(otherwise) and not came

    def resting_at(self, verdict: Verdict, profile: Profile | None, providers: Collection[str]) -> set[str]:
        """Those of the providers whose free machines would serve a need that gets none because they rest."""
        if verdict.satisfied or verdict.reason != UnmetReason.SUPPLY_BACKED_OFF or profile is None:
            return set()
        unit, overhead = parse_canonical(verdict.key.min_unit), self._core.read.overhead(verdict.key.cluster)
        shapes = (shape for shape in self._core.read.free_shapes() if shape.provider in providers)
        return {shape.provider for shape in shapes if shape_serves(shape, profile, unit, overhead)}

    def _nowhere(self, verdict: Verdict, profile: Profile) -> str:
        """Whether a domain could hold a gang that has no place."""
        key, read = verdict.key, self._core.read
        parts = read.demand.parts(key)
        if profile.same is None or profile.same.key == HOSTNAME_LABEL or not parts:
            return ""
        if self._alike is None:
            self._alike = by_shape(read.records())
        runs = verdict.domain if verdict.units is not None and verdict.units.running else None
        return why_nowhere(self._alike, parts, profile, read.overhead(key.cluster), runs or "")

    def _taken_by_overhead(self, verdict: Verdict, profile: Profile) -> str:
        """What would hold a unit, but not beside what the cluster runs on every node."""
        unit, overhead = parse_canonical(verdict.key.min_unit), self._core.read.overhead(verdict.key.cluster)
        if verdict.reason != UnmetReason.NO_MATCHING_SUPPLY or overhead.is_zero:
            return ""
        for shape in self._core.read.free_shapes():
            if shape_serves(shape, profile, unit, Resources.ZERO):
                left = shape.allocatable.minus(overhead)
                short = [name for name, amount in unit.items() if amount > left.get(name)]
                asked, there, taken = (_spoken(amounts, short) for amounts in (unit, shape.allocatable, overhead))
                return (
                    f"{shape.instance_type} would hold it, but not beside what its cluster runs on every node: "
                    f"{asked} of {there} less {taken}"
                )
        return ""

    def _that_failed(self, verdict: Verdict, profile: Profile) -> list[Record]:
        published = self._core.published
        if not any(state == MachineState.FAILED and count for (state, _, _), count in published.states.items()):
            return []
        return self._that_would_fit(MachineState.FAILED, verdict, profile)

    def _drains(self, verdict: Verdict, profile: Profile) -> str:
        """How long what is draining and would serve a need may take at most."""
        fitting, now = self._that_would_fit(MachineState.DRAINING, verdict, profile), self._core.published.now
        left = [self._core.read.counted_on_until(record.key) - now for record in fitting]
        if not left or min(left) <= 0:
            return ""
        drain = "drains" if len(left) == 1 else "drain"
        return f"waits for a drain: {len(left)} that would fit {drain}, for at most {max(left) // SECOND}s more"

    def _refused(self, verdict: Verdict, profile: Profile) -> str:
        """Which clusters refuse to let go of empty nodes that would serve a need of another."""
        unit, overhead = parse_canonical(verdict.key.min_unit), self._core.read.overhead(verdict.key.cluster)
        found = [
            record
            for record in self._core.read.refused()
            if record.cluster != verdict.key.cluster and shape_serves(record.shape, profile, unit, overhead)
        ]
        whose = ", ".join(sorted({record.cluster for record in found})[:_CLUSTERS])
        stand = "stands" if len(found) == 1 else "stand"
        return f"{len(found)} that would fit {stand} empty, and {whose} refused to let go" if found else ""

    def _that_would_fit(self, state: MachineState, verdict: Verdict, profile: Profile) -> list[Record]:
        """Machines of this shard in a state that would serve a need."""
        if state not in self._in_state:
            records = (record for record in self._core.read.records() if record.state == state and record.owned)
            self._in_state[state] = list(records)
        unit, overhead = parse_canonical(verdict.key.min_unit), self._core.read.overhead(verdict.key.cluster)
        return [each for each in self._in_state[state] if shape_serves(each.shape, profile, unit, overhead)]


def sentence(detail: str) -> str:
    """Words as a sentence of their own; nothing stays nothing."""
    return f"{detail[0].upper()}{detail[1:]}." if detail else ""


def _first(kinds: Collection[str]) -> str:
    """The first few by name, and how many more there are."""
    more = [f"{len(kinds) - _KINDS} more kinds"] if len(kinds) > _KINDS else []
    return ", ".join([*list(kinds)[:_KINDS], *more])


def _failed(machines: list[Record]) -> str:
    errors = Counter(each.error.partition(": ")[2] or each.error for each in machines if each.error)
    why = "; ".join(error for error, _ in errors.most_common(_ERRORS))
    are = "has" if len(machines) == 1 else "have"
    return f"{len(machines)} that would fit {are} failed{f': {why}' if why else ''}"


def _none_owned(listed: int) -> str:
    """Of a shard without a machine: whether there are none at all, or none of its own."""
    if listed == 0:
        return "no machine is known: providers have listed none"
    if listed == 1:
        return "the one machine that providers have listed is not this shard's"
    return f"none of the {listed:,} machines that providers have listed is this shard's"


def _spoken(amounts: Resources, names: list[str]) -> str:
    return spoken_amounts({name: text for name, text in amounts.to_wire().items() if name in names})
