"""Which server certificates a channel may trust when it expects one identity behind its target.

gRPC's client checks host names but neither checks nor shows a server's URI names. So the channel looks first: a plain
TLS 1.3 handshake, verified against the authority and the host name, whose leaf must carry the expected identity. The
leaves seen this way become the only roots gRPC trusts; a server with any other certificate, even one of the same
authority, cannot complete gRPC's own handshake. A rotated leaf fails there too, until the next look admits it.
"""

import asyncio
import ssl
from collections import deque

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bigfleet.transport.address import split, without_resolver
from bigfleet.transport.advice import other_name
from bigfleet.transport.certificates import TlsFiles, uris_of
from bigfleet.transport.errors import TransportError
from bigfleet.transport.identity import Identity, IdentityError, single_identity

_LOOK_SECONDS = 10.0
# Replicas behind one name have a leaf each; more than this many is not a deployment we know.
_REMEMBERED_LEAVES = 8


class ServerPin:
    """The verified leaves of one target."""

    def __init__(self, target: str, tls: TlsFiles, authority: bytes, server_name: str, expected: Identity) -> None:
        self.expected = expected
        self._target = without_resolver(target)
        self._tls = tls
        self._authority = authority
        self._server_name = server_name
        self._leaves: deque[bytes] = deque(maxlen=_REMEMBERED_LEAVES)

    @property
    def trusted(self) -> bytes:
        """The roots for gRPC, in PEM; empty until one look succeeded."""
        return b"".join(self._leaves)

    async def look(self) -> None:
        """Handshake once and remember the server's leaf. Raises `TransportError` when it must not be trusted."""
        try:
            leaf = await asyncio.wait_for(self._present(), _LOOK_SECONDS)
            presented = single_identity(uris_of(leaf))
        except ssl.CertificateError as error:
            why = other_name(self._target, self.expected.kind) if "mismatch" in str(error) else str(error)
            raise TransportError(f"cannot verify {self.expected} at {self._target}: {why}") from error
        except (OSError, TimeoutError, IdentityError) as error:
            raise TransportError(f"cannot verify {self.expected} at {self._target}: {error or 'timeout'}") from error
        if presented != self.expected:
            raise TransportError(f"expected {self.expected} at {self._target}, presented {presented}")
        pem = leaf.public_bytes(serialization.Encoding.PEM)
        if pem not in self._leaves:
            self._leaves.append(pem)

    async def _present(self) -> x509.Certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["h2"])
        context.load_verify_locations(cadata=self._authority.decode("ascii"))
        context.load_cert_chain(self._tls.cert, self._tls.key)
        if self._target.startswith("unix:"):
            path = self._target.removeprefix("unix:")
            _, writer = await asyncio.open_unix_connection(
                path, ssl=context, server_hostname=self._server_name or "localhost"
            )
        else:
            host, port = split(self._target)
            _, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=self._server_name or host
            )
        try:
            presented: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(presented)
        finally:
            writer.close()
