"""A certificate for loopback, made when a test needs one, and a TLS server that says what reached it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(folder: Path) -> Path:
    """A file with key and self-signed certificate for localhost and 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "loopback.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return pem


class TLSServer:
    """Accepts connections and hangs up after the request's head; counts what it saw at each depth."""

    def __init__(self, pem: Path, *, answer: bytes = b"") -> None:
        self.connections = 0
        self.handshakes = 0
        self.requests = 0
        self._answer = answer
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> TLSServer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        # A connection of our own ends the wait in `accept`.
        self._stopping = True
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            pass
        self._thread.join(10)
        self._socket.close()

    _stopping = False

    def _serve(self) -> None:
        while True:
            plain, _ = self._socket.accept()
            if self._stopping:
                plain.close()
                return
            self.connections += 1
            plain.settimeout(10)
            with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as connection:
                self.handshakes += 1
                if connection.recv(65536):
                    self.requests += 1
                    connection.sendall(self._answer)
            plain.close()
