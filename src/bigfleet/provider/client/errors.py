# ruff: noqa: N818 - the kinds are the words callers match on: Fenced, NotFound, Unavailable
"""Typed errors of the six provider calls: what a caller may conclude from a status code, and nothing else.

A Fenced error means another incarnation of this shard is alive: it is terminal and must never be retried.
Messages carry the provider's own words, cut short and without the bootstrap secret that was sent along.
"""

from __future__ import annotations

from typing import ClassVar

from bigfleet.model import names
from bigfleet.model.blob import redact

_DETAIL_LIMIT = 500


class ProviderError(Exception):
    """A provider call that did not succeed. `outcome` is the word used in metrics and logs."""

    outcome: ClassVar[str] = "refused"

    def __init__(self, provider: str, method: str, code: str, detail: str, machine_id: str = "") -> None:
        self.provider = provider
        self.method = method
        self.code = code
        self.detail = detail[:_DETAIL_LIMIT]
        self.machine_id = machine_id
        subject = f" of machine {machine_id}" if machine_id else ""
        super().__init__(f"provider {provider}: {method}{subject} answered {code}: {self.detail}")


class Refused(ProviderError):
    """The provider understood and said no: an out-of-position transition or a failure of its own."""

    outcome = "refused"


class Fenced(ProviderError):
    """A newer token of this shard was seen for the machine: this process is a zombie for it. Terminal."""

    outcome = "fenced"


class NotFound(ProviderError):
    """The provider does not know the machine."""

    outcome = "not_found"


class Unimplemented(ProviderError):
    """The provider cannot do this at all, such as Delete on bare metal."""

    outcome = "unimplemented"


class Invalid(ProviderError):
    """The request itself is wrong; sending it again cannot help."""

    outcome = "invalid"


class Denied(ProviderError):
    """The provider does not accept our identity for this call."""

    outcome = "denied"


class Unavailable(ProviderError):
    """The provider could not be reached, is going away, or is not who it should be; the call may have been applied."""

    outcome = "unavailable"


class TimedOut(Unavailable):
    """No answer within the deadline; the call may or may not have been applied."""

    outcome = "timeout"


class Unreachable(Unavailable):
    """There was no connection to the provider: the call was never sent."""


class Busy(Unavailable):
    """The provider itself said that it cannot at the moment, for a reason it did not give."""


class RateLimited(ProviderError):
    """The provider asks for fewer calls, or has nothing left: it did not say which."""

    outcome = "rate_limited"


class Throttled(RateLimited):
    """The provider said that it wants fewer calls."""

    outcome = "throttled"


class SoldOut(ProviderError):
    """The provider said that there is nothing left of what was asked for."""

    outcome = "sold_out"


class FrameTooLarge(ProviderError):
    """The answer does not fit one message; ask for it in parts."""

    outcome = "too_large"


class Malformed(ProviderError):
    """The answer is not what the contract describes."""

    outcome = "malformed"


_BY_CODE: dict[str, type[ProviderError]] = {
    "FAILED_PRECONDITION": Fenced,
    "NOT_FOUND": NotFound,
    "UNIMPLEMENTED": Unimplemented,
    "INVALID_ARGUMENT": Invalid,
    "OUT_OF_RANGE": Invalid,
    "UNAUTHENTICATED": Denied,
    "PERMISSION_DENIED": Denied,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": TimedOut,
    "RESOURCE_EXHAUSTED": RateLimited,
}


_BY_REASON: dict[str, type[ProviderError]] = {names.SOLD_OUT: SoldOut, names.THROTTLED: Throttled}
# Codes a provider may use for any trouble of its own; the reason, where there is one, says what is meant.
_REASONED = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE"})

# gRPC's own words for a call that found no connection to go out on.
_NOT_CONNECTED = ("failed to connect to all addresses", "DNS resolution failed")


def error_for(
    provider: str,
    method: str,
    code: str,
    detail: str,
    *,
    machine_id: str = "",
    secret: bytes = b"",
    reason: str = "",
    from_peer: bool = False,
) -> ProviderError:
    """The typed error for a status code name. `secret` is cut out of the detail should the provider echo it.

    `reason` is what the trailer says; `from_peer` tells a status the provider sent from one made on the way to it.
    """
    # What is cut off here would not be shown anyway, and what is left of a form of the secret is recognised.
    detail = redact(detail[: 2 * _DETAIL_LIMIT], secret)
    kind = _BY_CODE.get(code, Refused)
    # gRPC uses one code for "slow down" and "does not fit"; only its own wording tells them apart.
    if kind is RateLimited and "larger than max" in detail:
        kind = FrameTooLarge
    elif code in _REASONED and reason in _BY_REASON:
        kind = _BY_REASON[reason]
    elif kind is Unavailable and from_peer:
        kind = Busy
    elif kind is Unavailable and detail.startswith(_NOT_CONNECTED):
        kind = Unreachable
    return kind(provider, method, code, detail, machine_id)
