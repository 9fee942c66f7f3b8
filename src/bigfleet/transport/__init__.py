"""gRPC servers and channels, TLS identities, the HTTP endpoints, logs and process lifetime, one way for every binary.

A leaf of the layering: runtimes use it, cores never do, and it imports nothing of the project but itself.
"""

from bigfleet.transport.certificates import PLAINTEXT, TlsFiles
from bigfleet.transport.channel import channel
from bigfleet.transport.errors import TransportError
from bigfleet.transport.identity import ADMIN, READONLY, Identity, IdentityError, Kind, peer_identity, require
from bigfleet.transport.server import DEFAULT_GRACE_SECONDS, MAX_MESSAGE_BYTES, Server

__all__ = [
    "ADMIN",
    "DEFAULT_GRACE_SECONDS",
    "MAX_MESSAGE_BYTES",
    "PLAINTEXT",
    "READONLY",
    "Identity",
    "IdentityError",
    "Kind",
    "Server",
    "TlsFiles",
    "TransportError",
    "channel",
    "peer_identity",
    "require",
]
