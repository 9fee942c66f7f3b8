"""What to do about a connection that could not be made, where gRPC's own words do not say.

Only failures of the handshake are translated: everything a peer said itself is passed on as it is.
"""

import ipaddress
import re

from bigfleet.transport.address import split, without_resolver
from bigfleet.transport.errors import TransportError

# How gRPC words a certificate without the dialled name, in two versions of it.
_OTHER_NAME = ("Hostname Verification Check failed", "is not in peer certificate")
_TRIED = re.compile(r"ipv[46]:(\S+:\d+): ")
_PLAINTEXT_PEER = "WRONG_VERSION_NUMBER"


def with_advice(details: str, role: str, target: str = "") -> str:
    """gRPC's details of a failed call to a part of this role, or what to do when they only describe a handshake.

    Who does not know the target any more gets the address that gRPC tried.
    """
    target = target or ((tried := _TRIED.search(details)) and tried[1]) or f"the {role}'s address"
    if any(words in details for words in _OTHER_NAME):
        return other_name(target, role)
    if _PLAINTEXT_PEER in details:
        return f"{target} serves plaintext; leave --tls-cert, --tls-key and --tls-ca out, or start it with them"
    return details


def other_name(target: str, role: str) -> str:
    """The certificate at `target` is of our authority but was issued for other names than the one we dial."""
    host = _host(target)
    return (
        f"the certificate at {target} was not issued for {host}; issue it with that name, "
        f"`bigfleetctl certs issue {role} NAME {_flag(host)} {host} --force`, or dial a name it has"
    )


def _host(target: str) -> str:
    try:
        return split(without_resolver(target))[0] or "localhost"
    except TransportError:
        return "localhost"


def _flag(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "--dns"
    return "--ip"
