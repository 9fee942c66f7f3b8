"""How one behaviour can end, and the two exceptions that end it early.

A Breach is the provider's fault and says what the contract demands; a Skip says why the question could not be asked,
and whether that leaves the run incomplete.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from bigfleet.provider.conformance.registry import Behaviour
from bigfleet.provider.conformance.transcript import Exchange


class Status(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_IMPLEMENTED = "not_implemented"


class SkipKind(enum.Enum):
    """Not applicable counts as pass, unless a profile was claimed that asks for it; anything that was due but could
    not run leaves the certificate incomplete. Optional is what no profile needs."""

    NOT_APPLICABLE = "not_applicable"
    OPTIONAL = "optional"
    INVENTORY = "inventory"
    NOT_CONFIGURED = "not_configured"
    NOT_SELECTED = "not_selected"


class Breach(Exception):  # noqa: N818 - the provider's error, not ours
    """The provider broke the contract."""

    def __init__(self, problem: str, *, contract: str = "", exchange: Exchange | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.contract = contract
        self.exchange = exchange


class Skip(Exception):  # noqa: N818 - an outcome, not an error
    """The behaviour cannot be judged on this provider or with this inventory."""

    def __init__(self, reason: str, kind: SkipKind = SkipKind.NOT_APPLICABLE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


@dataclass(slots=True)
class Result:
    """The outcome of one behaviour."""

    behaviour: Behaviour
    status: Status
    seconds: float = 0.0
    problem: str = ""
    contract: str = ""
    calls: list[str] = field(default_factory=list)
    skip: SkipKind | None = None
    note: str = ""

    @property
    def leaves_incomplete(self) -> bool:
        if self.status is Status.NOT_IMPLEMENTED:
            return True
        return self.status is Status.SKIPPED and self.skip not in (SkipKind.NOT_APPLICABLE, SkipKind.OPTIONAL)

    def failure_text(self) -> str:
        """Everything an author needs to see: the problem, the calls, the contract."""
        lines = [f"{self.behaviour.id} {self.behaviour.title}", f"problem   {self.problem}"]
        for call in self.calls:
            lines += [f"  {line}" for line in call.splitlines()]
        lines.append(f"contract  {' '.join(self.contract.split())}")
        return "\n".join(lines)
