"""Connections to the provider under test: plaintext, TLS, mTLS, and one minted identity per shard given an issuer.

Owns channels and credentials only; judging answers is the trial's business.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol, cast

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bigfleet.provider.conformance.config import Tls, UsageError
from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc

_LARGEST_MESSAGE = 256 * 1024 * 1024
_OPTIONS = [
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.use_local_subchannel_pool", 1),
    # Retries would hide the very answers we judge.
    ("grpc.enable_retries", 0),
]


class Stub(Protocol):
    """The six calls, asynchronous."""

    def Create(self, request: pb.CreateRequest, *, timeout: float) -> Awaitable[pb.TransitionAck]: ...  # noqa: N802
    def Configure(self, request: pb.ConfigureRequest, *, timeout: float) -> Awaitable[pb.TransitionAck]: ...  # noqa: N802
    def Drain(self, request: pb.DrainRequest, *, timeout: float) -> Awaitable[pb.TransitionAck]: ...  # noqa: N802
    def Delete(self, request: pb.DeleteRequest, *, timeout: float) -> Awaitable[pb.TransitionAck]: ...  # noqa: N802
    def Get(self, request: pb.MachineRef, *, timeout: float) -> Awaitable[pb.Machine]: ...  # noqa: N802
    def List(self, request: pb.ListFilter, *, timeout: float) -> Awaitable[pb.MachineList]: ...  # noqa: N802


class Target:
    """One endpoint and the channels the run holds to it."""

    def __init__(self, address: str, tls: Tls) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"target {address!r} is not HOST:PORT")
        self.address = address
        self.tls = tls
        self._issuer = _Issuer(tls) if tls.issuer_cert else None
        self._channels: dict[tuple[str, int], tuple[grpc.aio.Channel, Stub]] = {}

    @property
    def checks_identity(self) -> bool:
        return self._issuer is not None

    def stub(self, shard_id: str = "", connection: int = 0) -> Stub:
        """The stub to call with; shard ids only matter when each plays its own certificate."""
        identity = shard_id if self._issuer else ""
        key = (identity, connection)
        if key not in self._channels:
            channel = self._dial(identity)
            self._channels[key] = (channel, cast(Stub, rpc.CapacityProviderStub(channel)))
        return self._channels[key][1]

    async def redirect(self, address: str) -> None:
        """Follow the provider to the address of its next life."""
        await self.close()
        self.address = address

    async def close(self) -> None:
        for channel, _ in self._channels.values():
            await channel.close(None)
        self._channels.clear()

    def _dial(self, identity: str) -> grpc.aio.Channel:
        options = list(_OPTIONS)
        if not self.tls.enabled:
            return grpc.aio.insecure_channel(self.address, options=options)
        if self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))  # type: ignore[arg-type]
        root = _read(self.tls.ca) if self.tls.ca else None
        if self._issuer is not None:
            key, chain = self._issuer.mint(identity or "conformance")
        else:
            key = _read(self.tls.key) if self.tls.key else b""
            chain = _read(self.tls.cert) if self.tls.cert else b""
        credentials = grpc.ssl_channel_credentials(root, key or None, chain or None)
        return grpc.aio.secure_channel(self.address, credentials, options=options)


class _Issuer:
    """A test certificate authority that mints shard identities on demand."""

    def __init__(self, tls: Tls) -> None:
        try:
            self._cert = x509.load_pem_x509_certificate(_read(tls.issuer_cert))
            self._key = serialization.load_pem_private_key(_read(tls.issuer_key), None)
        except ValueError as error:
            raise UsageError("tls: issuer_cert and issuer_key must be PEM files of a certificate authority") from error

    def mint(self, shard_id: str) -> tuple[bytes, bytes]:
        """A private key and certificate with the one URI SAN `bigfleet://shard/<id>`."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, shard_id[:64])]))
            .issuer_name(self._cert.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"bigfleet://shard/{shard_id}")]), False
            )
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
            .sign(self._key, hashes.SHA256())  # type: ignore[arg-type]
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self._cert.public_bytes(
            serialization.Encoding.PEM
        )
        return private, chain


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"tls file {path} cannot be read: {error.strerror}") from error
