"""A development certificate authority and the role certificates it issues.

Meant for laptops, tests and first installations; a fleet in production brings its own authority and only needs leaves
of the same shape: one `bigfleet://` URI name, the DNS names or addresses it is reached by, both server and client use.
Private keys are written with mode 0600 and never replaced unless asked.
"""

import contextlib
import datetime
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from bigfleet.transport.errors import FlagError, TransportError
from bigfleet.transport.identity import Identity

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
AuthorityKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-.]*[A-Za-z0-9])?")
# Clocks of two machines may disagree; a certificate issued now must be valid on both.
_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Issued:
    """Where a certificate and its key were written, and until when it is valid."""

    certificate: Path
    key: Path
    not_after: datetime.datetime


def create_authority(
    directory: Path, *, name: str = "BigFleet development CA", days: int = 3650, force: bool = False
) -> Issued:
    """Write `ca.crt` and `ca.key` into `directory`, creating it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        _validity(x509.CertificateBuilder(), days)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return _write(directory, CA_CERTIFICATE, CA_KEY, certificate, key, force=force)


def this_host() -> tuple[list[str], list[str]]:
    """The DNS names and the addresses this machine is dialled by, as far as it knows them itself."""
    name = socket.gethostname()
    names = [name] if _HOST_NAME.fullmatch(name) else []
    addresses = [*_resolved(name), *(_outgoing(family) for family in (socket.AF_INET, socket.AF_INET6))]
    usable = [address for address in addresses if address and not ipaddress.ip_address(address).is_link_local]
    return list(dict.fromkeys(["localhost", *names])), list(dict.fromkeys(["127.0.0.1", "::1", *usable]))


def issue(
    directory: Path,
    identity: Identity,
    *,
    dns: Sequence[str] = (),
    addresses: Sequence[str] = (),
    days: int = 365,
    force: bool = False,
    file_name: str = "",
) -> Issued:
    """Issue a leaf for `identity` from the authority in `directory`, next to it as `<kind>-<name>.crt` and `.key`."""
    authority, authority_key = load_authority(directory)
    names = [x509.UniformResourceIdentifier(identity.uri), *_hosts(dns, addresses)]
    stem = file_name or (f"{identity.kind}-{identity.name}" if identity.name else identity.kind.value)
    certificate, key = sign_leaf(authority, authority_key, common_name=stem[:64], names=names, days=days)
    return _write(directory, f"{stem}.crt", f"{stem}.key", certificate, key, force=force)


def sign_leaf(
    authority: x509.Certificate,
    authority_key: AuthorityKey,
    *,
    common_name: str,
    names: Sequence[x509.GeneralName],
    days: int,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A leaf that can serve and dial, carrying exactly `names`."""
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _validity(x509.CertificateBuilder(), days)
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256()), key


def load_authority(directory: Path) -> tuple[x509.Certificate, AuthorityKey]:
    """The authority `create_authority` wrote into `directory`."""
    try:
        certificate = x509.load_pem_x509_certificate((directory / CA_CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((directory / CA_KEY).read_bytes(), password=None)
    except OSError as error:
        raise TransportError(
            f"no authority in {directory}: {error.strerror}; create one with `bigfleetctl certs init --dir {directory}`"
        ) from error
    except (TypeError, ValueError):
        raise TransportError(f"{directory / CA_CERTIFICATE} or {CA_KEY} is not valid PEM") from None
    if not isinstance(key, AuthorityKey):
        raise TransportError(f"{directory / CA_KEY} cannot sign certificates: use an EC or RSA key")
    return certificate, key


def _hosts(dns: Sequence[str], addresses: Sequence[str]) -> list[x509.GeneralName]:
    hosts: list[x509.GeneralName] = []
    for name in dns:
        if not name or not name.isascii() or any(character.isspace() or character in "/:" for character in name):
            raise FlagError(f"--dns {name!r} is not a DNS name: use ASCII labels such as shard-0.example.org")
        hosts.append(x509.DNSName(name))
    for address in addresses:
        try:
            hosts.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError as error:
            raise FlagError(f"--ip {address!r} is not an IPv4 or IPv6 address") from error
    return hosts


def _resolved(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]).partition("%")[0] for *_, address in found]


def _outgoing(family: socket.AddressFamily) -> str:
    """The address other machines see us by; connecting a datagram socket chooses a route and sends nothing."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1" if family == socket.AF_INET else "2001:db8::1", 9))
        return str(probe.getsockname()[0])
    return ""


def _validity(builder: x509.CertificateBuilder, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    # Days may be negative in tests of expiry; the window then lies wholly in the past.
    end = now + datetime.timedelta(days=days)
    return builder.not_valid_before(min(now, end) - _CLOCK_SKEW).not_valid_after(end)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(
    directory: Path,
    certificate_name: str,
    key_name: str,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    force: bool,
) -> Issued:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    issued = Issued(directory / certificate_name, directory / key_name, certificate.not_valid_after_utc)
    for path in (issued.certificate, issued.key):
        if path.exists() and not force:
            raise TransportError(f"{path} exists: remove it or give --force to replace it")
    # The key first: a reader that reloads on the certificate's change then finds the key that belongs to it.
    _replace(
        issued.key,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        0o600,
    )
    _replace(issued.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return issued


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Atomically: nobody reads half a file, and the mode is right from the first byte."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
