"""Who a peer is: the single `bigfleet://` URI in its verified certificate, and who may call what.

Without TLS there is no identity and every check passes; the listener rule in `address` keeps that on this machine.
Identities are compared as values; no rule here depends on a common name, a DNS name or an address.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import grpc

from bigfleet.refusal import MISTAKE, RefusalError

SCHEME = "bigfleet://"
_NAME = re.compile(r"[^\s/?#%\x00-\x1f\x7f]{1,253}")


class Kind(StrEnum):
    """The roles a certificate can carry."""

    CLUSTER = "cluster"
    SHARD = "shard"
    ADMIN = "admin"
    READONLY = "readonly"
    PROVIDER = "provider"


NAMED = frozenset({Kind.CLUSTER, Kind.SHARD, Kind.PROVIDER})


class IdentityError(RefusalError, ValueError):
    """A certificate or URI does not name exactly one BigFleet identity; the message says what it carries."""

    code = MISTAKE


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """One role, with the name of its holder where the role has holders: `bigfleet://cluster/prod-1`."""

    kind: Kind
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind in NAMED and not _NAME.fullmatch(self.name):
            raise IdentityError(
                f"identity {self.kind} has the name {self.name!r}: "
                "use 1 to 253 characters without spaces, '/', '?', '#' or '%'"
            )
        if self.kind not in NAMED and self.name:
            raise IdentityError(f"identity {self.kind} takes no name, got {self.name!r}")

    @classmethod
    def parse(cls, uri: str) -> "Identity":
        """The identity in a `bigfleet://` URI."""
        kind, slash, name = uri.removeprefix(SCHEME).partition("/")
        if not uri.startswith(SCHEME) or kind not in list(Kind) or (slash and not name):
            raise IdentityError(
                f"{uri!r} is not a BigFleet identity: accepted are bigfleet://cluster/<id>, bigfleet://shard/<id>, "
                "bigfleet://provider/<name>, bigfleet://admin and bigfleet://readonly"
            )
        return cls(Kind(kind), name)

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.kind}/{self.name}" if self.name else f"{SCHEME}{self.kind}"

    def __str__(self) -> str:
        return self.uri


ADMIN = Identity(Kind.ADMIN)
READONLY = Identity(Kind.READONLY)


def cluster(name: str) -> Identity:
    return Identity(Kind.CLUSTER, name)


def shard(name: str) -> Identity:
    return Identity(Kind.SHARD, name)


def provider(name: str) -> Identity:
    return Identity(Kind.PROVIDER, name)


def single_identity(uris: Iterable[str]) -> Identity:
    """The identity among a certificate's URI names; none or several is an error, other schemes are not ours."""
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        presented = ", ".join(ours) or "none"
        raise IdentityError(f"a certificate needs exactly one bigfleet:// URI name, presented: {presented}")
    return Identity.parse(ours[0])


def peer_identity(context: "grpc.aio.ServicerContext[Any, Any]") -> Identity | None:
    """The caller's identity; None when the connection is plaintext. Raises `IdentityError`."""
    authenticated = context.auth_context()
    if not authenticated or list(authenticated.get("transport_security_type", ())) != [b"ssl"]:
        return None
    return single_identity(value.decode("utf-8", "replace") for value in authenticated.get("peer_uri", ()))


async def require(context: "grpc.aio.ServicerContext[Any, Any]", *allowed: Identity | Kind) -> Identity | None:
    """Abort with PERMISSION_DENIED unless the caller is one of `allowed` (a kind allows every holder of it).

    Returns the caller's identity, None over plaintext.
    """
    try:
        presented = peer_identity(context)
    except IdentityError as error:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"requires {_either(allowed)}: {error}")
    if presented is not None and presented not in allowed and presented.kind not in allowed:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"requires {_either(allowed)}, presented {presented}")
    return presented


def _either(allowed: Iterable[Identity | Kind]) -> str:
    return " or ".join(_pattern(entry) for entry in allowed)


def _pattern(entry: Identity | Kind) -> str:
    if isinstance(entry, Identity):
        return entry.uri
    return f"{SCHEME}{entry}/<id>" if entry in NAMED else f"{SCHEME}{entry}"
