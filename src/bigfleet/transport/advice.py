"""What to do about a connection that could not be made, where gRPC's own words do not say.

Only failures of the handshake are translated: everything a peer said itself is passed on as it is. A server that will
not have our certificate closes the connection without a word, so what is wrong with it is found on our own side.
"""

import ipaddress
import re
import socket
import ssl
import time
from pathlib import Path

from bigfleet.transport.address import split, without_resolver
from bigfleet.transport.certificates import TlsFiles, out_of_time
from bigfleet.transport.errors import TransportError

_LOOK_SECONDS = 2.0

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


def own_trouble(tls: TlsFiles, target: str) -> str | None:
    """What is wrong with the certificates we dial `target` with, as a closed connection does not tell; None if nothing.

    Looks at the files, and without any at whether the server wants some. For after a failure: it may take two seconds.
    """
    if tls.enabled:
        found = [
            f"{path} {why}" for path in (tls.cert, tls.ca) if (why := out_of_time(Path(path).read_bytes(), time.time()))
        ]
        return f"{' and '.join(found)}; give one that is valid now" if found else None
    if _serves_tls(target):
        return "it wants certificates and none was given; give --tls-cert, --tls-key and --tls-ca"
    return None


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


def _serves_tls(target: str) -> bool:
    """Whether a TLS handshake gets an answer there. Nobody is trusted by it and nothing is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connected(without_resolver(target)) as plain, context.wrap_socket(plain):
            return True
    except (OSError, TransportError):
        return False


def _connected(target: str) -> socket.socket:
    if target.startswith("unix:"):
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(_LOOK_SECONDS)
        connected.connect(target.removeprefix("unix:"))
        return connected
    host, port = split(target)
    return socket.create_connection((host or "localhost", port), _LOOK_SECONDS)
