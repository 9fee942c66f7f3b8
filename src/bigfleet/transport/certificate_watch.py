"""What people must know of a process's certificates before nobody can connect any more: logged once, metric, readiness.

Looks at the pair in use and at the files: a rotation that wrote garbage or removed a file changes nothing at once and
ends everything when the pair in use expires. Each trouble is said when it begins and when it is over, not meanwhile.
A process that has an identity of its own must carry it: it does not start with another's, and is not ready with one.
"""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog
from cryptography import x509
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bigfleet.transport.certificates import LeafFiles, TlsFiles, leaf_uris, out_of_time, read_pair
from bigfleet.transport.errors import TransportError
from bigfleet.transport.identity import SCHEME, Identity, IdentityError, single_identity

log = structlog.get_logger(__name__)

LOOK_SECONDS = 30.0
DAY = 86_400.0
# Said once when it begins: a week is time to act, a day is time to act now.
WARNINGS = (7 * DAY, DAY)


def require_own(files: TlsFiles, own: Identity) -> None:
    """Refuse a certificate that is not this process's own: every peer would refuse it, one call at a time."""
    if files.enabled and (wrong := _not_own(files.cert, LeafFiles(files).current().chain, own)):
        raise TransportError(wrong)


class CertificateWatch(Collector):
    """The certificates of one process; a metrics collector and a readiness check. Plaintext has nothing to watch."""

    def __init__(
        self, files: TlsFiles, prefix: str, clock: Callable[[], float] = time.time, own: Identity | None = None
    ) -> None:
        self._files = files
        self._prefix = prefix
        self._clock = clock
        self._own = own
        self._leaf = LeafFiles(files) if files.enabled else None
        self._troubles: dict[str, str] = {}

    def expiries(self) -> dict[str, float]:
        """Seconds until each certificate in use expires, below 0 once it has."""
        if self._leaf is None:
            return {}
        used = {"cert": self._leaf.current().chain, "ca": self._leaf.authority}
        return {name: _expiry(pem) - self._clock() for name, pem in used.items()}

    def look(self) -> None:
        """Say what is new since the last look."""
        found = dict(self._found()) if self._leaf is not None else {}
        for subject, text in found.items():
            if self._troubles.get(subject) != text:
                log.warning("certificate trouble", file=subject, err=text)
        for subject in self._troubles.keys() - found.keys():
            log.info("certificate trouble is over", file=subject)
        self._troubles = found

    def unusable(self) -> str | None:
        """Why nobody can connect any more; None while they can."""
        if self._leaf is None:
            return None
        found = [f"{path} {trouble}" for path, trouble in self._out_of_time()]
        if found:
            return f"nobody can connect: {' and '.join(found)}; put a certificate there that is valid now"
        return self._foreign()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"{self._prefix}certificate_expiry_seconds", "Time until a certificate in use expires.", labels=["file"]
        )
        for name, left in self.expiries().items():
            family.add_metric([name], left)
        yield family

    async def run(self) -> None:
        """Look now and then, for as long as the process lives."""
        while self._leaf is not None:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def _found(self) -> Iterator[tuple[str, str]]:
        cert, key = Path(self._files.cert), Path(self._files.key)
        try:
            read_pair(cert, key)
        except TransportError as error:
            yield str(cert), f"{error}; the pair read before stays in use"
        try:
            mode = key.stat().st_mode
        except OSError:
            mode = 0
        if mode & stat.S_IROTH:
            yield str(key), f"everybody on this host can read the key (mode {stat.S_IMODE(mode):04o}); chmod 0600 {key}"
        if foreign := self._foreign():
            yield f"{cert} in use", foreign
        for path, trouble in self._out_of_time():
            yield path, f"{trouble}: nobody can connect"
        paths = {"cert": self._files.cert, "ca": self._files.ca}
        for name, left in self.expiries().items():
            if left > 0 and (reached := [bound for bound in WARNINGS if left <= bound]):
                yield paths[name], f"expires in less than {int(min(reached) // DAY)} days"

    def _out_of_time(self) -> Iterator[tuple[str, str]]:
        assert self._leaf is not None
        for path, pem in ((self._files.cert, self._leaf.current().chain), (self._files.ca, self._leaf.authority)):
            if trouble := out_of_time(pem, self._clock()):
                yield path, trouble

    def _foreign(self) -> str | None:
        if self._leaf is None or self._own is None:
            return None
        return _not_own(self._files.cert, self._leaf.current().chain, self._own)


def _not_own(path: str, chain: bytes, own: Identity) -> str | None:
    """What is wrong with who this certificate is; None when it is `own`."""
    try:
        presented = str(single_identity(leaf_uris(chain)))
    except IdentityError:
        presented = " and ".join(uri for uri in leaf_uris(chain) if uri.startswith(SCHEME)) or "no bigfleet:// name"
    if presented == own.uri:
        return None
    return (
        f"{path} carries {presented}, this is {own}: give the certificate that was issued to it, as "
        f"`bigfleetctl certs issue {own.kind} {own.name}` makes one"
    )


def _expiry(pem: bytes) -> float:
    """When the first certificate in it to expire does."""
    return min(each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(pem))
