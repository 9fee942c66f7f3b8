"""Proof that this process refuses TLS 1.2, without which nobody may use TLS here.

grpcio offers no minimum-version option. Its cipher list (`GRPC_SSL_CIPHER_SUITES`, set in `bigfleet/__init__.py`) only
governs TLS 1.2 and older; TLS 1.3 suites are always on. So the list names a single pre-shared-key suite: since no
pre-shared key is ever configured, neither side can negotiate it and every handshake below 1.3 fails. gRPC reads the
variable once, when it is loaded; a program that imported gRPC before bigfleet would silently get TLS 1.2 back, hence
the probe: it offers TLS 1.2 to a throwaway listener and looks at the answer.
"""

import datetime
import functools
import socket
import ssl
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bigfleet.transport.errors import TransportError

_SERVER_HELLO_RECORD = 0x16
_PROBE_SECONDS = 10.0


@functools.cache
def require_tls13_only() -> None:
    """Raise `TransportError` unless gRPC in this process refuses TLS 1.2. The answer cannot change, so it is kept."""
    if _tls12_accepted():
        raise TransportError(
            "TLS 1.2 would be accepted because grpc was imported before bigfleet: "
            "import bigfleet first, or set GRPC_SSL_CIPHER_SUITES=ECDHE-PSK-CHACHA20-POLY1305 in the environment"
        )


def _tls12_accepted() -> bool:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    credentials = grpc.ssl_server_credentials([_throwaway_pair()])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PROBE_SECONDS) as connection:
            connection.sendall(_tls12_client_hello())
            try:
                answer = connection.recv(1)
            except ConnectionResetError:
                answer = b""
    finally:
        server.stop(None)
    return answer == bytes([_SERVER_HELLO_RECORD])


def _tls12_client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a client handshake finished without an answer")


def _throwaway_pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tls13 probe")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
