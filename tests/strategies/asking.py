"""One-step questions to either engine, and short readings of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigfleet.engine.policy import Policy
from bigfleet.engine.results import Action, ActionKind, Verdict
from tests.oracle.entries import folded_profile
from tests.strategies.builders import START, MachineLine, NeedLine, batch, demand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bigfleet.engine.batches import Conditions
    from tests.oracle.step import OracleResult

Lines = MachineLine | list[MachineLine]


def decide(
    make: Any,
    lines: Iterable[Lines],
    *needs: NeedLine,
    policy: Policy | None = None,
    conditions: Conditions | None = None,
    empty: Sequence[str] = (),
    now: int = START,
) -> OracleResult:
    """One step of a fresh engine over these machines and this demand."""
    result: OracleResult = make().step(batch(*lines), demand(*needs, empty=empty), policy or Policy(), now, conditions)
    return result


def bootstraps(result: OracleResult, cluster: str | None = None) -> list[str]:
    return picked(result, ActionKind.BOOTSTRAP, cluster)


def provisions(result: OracleResult, cluster: str | None = None) -> list[str]:
    return picked(result, ActionKind.PROVISION, cluster)


def preempts(result: OracleResult, cluster: str | None = None) -> list[str]:
    return picked(result, ActionKind.PREEMPT, cluster)


def reclaims(result: OracleResult, cluster: str | None = None) -> list[str]:
    return picked(result, ActionKind.RECLAIM, cluster)


def deletes(result: OracleResult) -> list[str]:
    return picked(result, ActionKind.DELETE)


def picked(result: OracleResult, kind: ActionKind, cluster: str | None = None) -> list[str]:
    """Machines of the actions of one kind, in the order they were emitted."""
    return [action.machine for action in of_kind(result, kind) if cluster in (None, action.cluster)]


def of_kind(result: OracleResult, kind: ActionKind) -> list[Action]:
    return [action for action in result.actions if action.kind == kind]


def verdict(result: OracleResult, need: NeedLine) -> Verdict:
    """The verdict of the entry a need became a part of, folded or not."""
    prints = {need.profile.fingerprint, folded_profile(need.profile).fingerprint}
    found = [
        v
        for v in result.verdicts
        if v.key.cluster == need.cluster and v.key.fingerprint in prints and v.key.group in (need.group, "")
    ]
    assert len(found) == 1, (need, result.verdicts)
    return found[0]
