"""One answer of the provider and the demands a behaviour may make of it.

Each demand raises a Breach that carries the very call it judged, so a failure shows what was sent and what came back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc

from bigfleet.provider.conformance.transcript import Exchange
from bigfleet.provider.conformance.verdicts import Breach
from bigfleet.wire import provider_pb2 as pb

Code = grpc.StatusCode

FENCED: Final = Code.FAILED_PRECONDITION
_NO_ANSWER = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED)

RESERVED_CODE = (
    "FAILED_PRECONDITION is reserved for fencing: a shard takes it for a zombie incident, pages, and never retries. "
    "Every other refusal uses another code."
)
FENCE_RULE = (
    "The provider keeps the highest accepted (epoch, sequence) per (shard_id, machine_id), compared lexicographically. "
    "A token that is not strictly newer is answered FAILED_PRECONDITION and nothing is applied."
)


@dataclass(frozen=True, slots=True)
class Token:
    """The fencing token of a mutating call; the zero token bypasses fencing."""

    shard_id: str = ""
    epoch: int = 0
    sequence: int = 0


ZERO: Final = Token()


class Reply:
    """Status and payload of one call."""

    __slots__ = ("code", "exchange", "seconds")

    def __init__(self, exchange: Exchange, code: grpc.StatusCode, seconds: float) -> None:
        self.exchange = exchange
        self.code = code
        self.seconds = seconds

    @property
    def ok(self) -> bool:
        return self.code is Code.OK

    @property
    def details(self) -> str:
        return self.exchange.details

    @property
    def operation_id(self) -> str:
        answer = self.exchange.answer
        return answer.operation_id if isinstance(answer, pb.TransitionAck) else ""

    @property
    def snapshot(self) -> pb.Machine | None:
        """The machine inside an ack; the contract lets a provider leave it out."""
        answer = self.exchange.answer
        return answer.machine if isinstance(answer, pb.TransitionAck) and answer.HasField("machine") else None

    def accepted(self, why: str = "the call is legal here and must be accepted") -> Reply:
        if not self.ok:
            contract = RESERVED_CODE if self.code is FENCED else ""
            raise self.breach(f"answered {self.code.name} although {why}", contract)
        if isinstance(self.exchange.answer, pb.TransitionAck) and not self.operation_id:
            raise self.breach("the ack carries no operation_id", "Every TransitionAck has a non-empty operation_id.")
        return self

    def fenced(self, why: str = "the token is stale") -> Reply:
        if self.code is not FENCED:
            raise self.breach(f"answered {self.code.name} although {why}: FAILED_PRECONDITION was due", FENCE_RULE)
        return self

    def rejected(self, why: str = "the call is out of position") -> Reply:
        if self.ok:
            raise self.breach(f"answered OK although {why}")
        return self.not_fenced().answered()

    def not_fenced(self) -> Reply:
        if self.code is FENCED:
            raise self.breach("answered FAILED_PRECONDITION although no fence is involved", RESERVED_CODE)
        return self

    def answered(self) -> Reply:
        if self.code in _NO_ANSWER:
            raise self.breach(f"no answer from the provider: {self.code.name}", "Every call is answered in time.")
        return self

    def coded(self, *codes: grpc.StatusCode) -> Reply:
        if self.code not in codes:
            wanted = " or ".join(code.name for code in codes)
            raise self.breach(f"answered {self.code.name}; {wanted} was due")
        return self

    def breach(self, problem: str, contract: str = "") -> Breach:
        return Breach(problem, contract=contract, exchange=self.exchange)
