"""The three TLS files of a process, and its leaf pair, re-read whenever a file changes.

All three files mean mutual TLS, none means plaintext, anything between is a start-up error. The authority is read
once: replacing it means restarting. A leaf that cannot be read, or whose key does not match, never replaces a good
one, so a rotation caught half-way keeps the old pair until the other half arrives.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from bigfleet.transport.errors import FlagError, TransportError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths from `--tls-cert`, `--tls-key` and `--tls-ca`; empty strings where a flag was not given."""

    cert: str = ""
    key: str = ""
    ca: str = ""

    def __post_init__(self) -> None:
        flags = {"--tls-cert": self.cert, "--tls-key": self.key, "--tls-ca": self.ca}
        missing = [flag for flag, path in flags.items() if not path]
        if missing and len(missing) < len(flags):
            raise FlagError(
                f"{', '.join(missing)} missing: give --tls-cert, --tls-key and --tls-ca together, or none of them"
            )

    @property
    def enabled(self) -> bool:
        return bool(self.cert)


PLAINTEXT = TlsFiles()


@dataclass(frozen=True, slots=True)
class LeafPair:
    """A certificate chain and its private key, in PEM; the key stays out of every representation."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return "LeafPair(...)"


class LeafFiles:
    """The current leaf pair of a process. Safe to ask from any thread: gRPC asks from its own, at each handshake."""

    def __init__(self, files: TlsFiles) -> None:
        self.authority = read_authority(files.ca)
        self._cert = Path(files.cert)
        self._key = Path(files.key)
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self._pair = read_pair(self._cert, self._key)

    def current(self) -> LeafPair:
        """The newest good pair; the same object until a file changes."""
        with self._lock:
            try:
                stamp = self._stamps()
            except TransportError:
                return self._pair
            if stamp != self._stamp:
                # Stamped before reading: a file that changes while being read has another stamp at the next look.
                self._stamp = stamp
                try:
                    self._pair = read_pair(self._cert, self._key)
                except TransportError:
                    return self._pair
            return self._pair

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in (self._cert, self._key):
            try:
                status = path.stat()
            except OSError as error:
                raise TransportError(f"cannot read {path}: {error.strerror}") from error
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)


def read_authority(path: str) -> bytes:
    """The certificates of the authority file, checked to be some."""
    data = _read(Path(path))
    _certificates(data, path, "--tls-ca takes the authority's certificate")
    return data


def read_pair(cert: Path, key: Path) -> LeafPair:
    """Both files, checked to parse and to belong together."""
    chain, secret = _read(cert), _read(key)
    leaf = _certificates(chain, cert, "--tls-cert takes the leaf, then its chain")[0]
    try:
        private = serialization.load_pem_private_key(secret, password=None)
        matches = _public_bytes(private.public_key()) == _public_bytes(leaf.public_key())
    except (TypeError, ValueError, UnsupportedAlgorithm):
        # The parser's own message is dropped: it may quote the file.
        raise TransportError(f"{key} holds no unencrypted PEM private key, which --tls-key takes") from None
    if not matches:
        raise TransportError(f"{key} is not the key of {cert}: give the pair that was issued together")
    return LeafPair(chain, secret)


def leaf_uris(chain: bytes) -> list[str]:
    """The URI names of the leaf of a chain in PEM, of whatever scheme."""
    return uris_of(x509.load_pem_x509_certificates(chain)[0])


def uris_of(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def out_of_time(pem: bytes, now: float) -> str | None:
    """Since or until when a certificate in it is not valid at `now`; None when all are."""
    for each in x509.load_pem_x509_certificates(pem):
        if each.not_valid_after_utc.timestamp() <= now:
            return f"expired on {each.not_valid_after_utc:%Y-%m-%d %H:%M:%SZ}"
        if each.not_valid_before_utc.timestamp() > now:
            return f"is not valid before {each.not_valid_before_utc:%Y-%m-%d %H:%M:%SZ}"
    return None


def _certificates(data: bytes, path: str | Path, accepted: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except (ValueError, x509.InvalidVersion) as error:
        raise TransportError(f"{path} holds no PEM certificate: {accepted}") from error


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TransportError(f"cannot read {path}: {error.strerror}") from error
