"""Addresses to listen on and to dial, and the one rule about them: plaintext stays on this machine.

Loopback addresses and unix sockets may be plaintext; anything else needs certificates or an explicit `insecure`.
A host name other than `localhost` never counts as loopback: what it resolves to can change after the check.
"""

import ipaddress

from bigfleet.transport.errors import FlagError, TransportError

_UNIX_SCHEMES = ("unix:", "unix-abstract:")
_RESOLVER_SCHEMES = ("dns:///", "dns:", "ipv4:", "ipv6:")


def listen_address(address: str) -> str:
    """The address in the form gRPC binds: `:7780` means every interface."""
    if not address:
        raise FlagError("listen address is empty: give host:port, :port or unix:/path")
    if address.startswith(_UNIX_SCHEMES):
        return address
    host, port = split(address)
    return f"{_bracketed(host or '::')}:{port}"


def is_local(address: str) -> bool:
    """Whether traffic to the address cannot leave this machine."""
    if address.startswith(_UNIX_SCHEMES):
        return True
    return all(_is_loopback(split(part)[0]) for part in without_resolver(address).split(","))


def without_resolver(address: str) -> str:
    """`dns:///host:port` and its kin as plain `host:port`."""
    for scheme in _RESOLVER_SCHEMES:
        address = address.removeprefix(scheme)
    return address


def require_local_plaintext(address: str, *, insecure: bool, purpose: str) -> None:
    """Refuse plaintext beyond this machine. `purpose` is the verb of the sentence: "listen on" or "dial"."""
    if not insecure and not is_local(address):
        raise TransportError(
            f"refusing to {purpose} {address} in plaintext: set --tls-cert, --tls-key and --tls-ca, "
            "use a loopback address or a unix socket, or accept the risk with --insecure"
        )


def split(address: str) -> tuple[str, int]:
    """`host:port` as host (brackets removed, possibly empty) and port."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise FlagError(f"address {address!r} is not host:port, :port, [ipv6]:port or unix:/path")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def default_listen(port: int, *, secured: bool) -> str:
    """Where a server listens that was not told: everywhere with certificates, without them on this host only."""
    return f":{port}" if secured else f"127.0.0.1:{port}"
