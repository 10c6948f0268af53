"""A certificate authority of a test's own, and a server certificate for this machine."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["Certificates", "make_certificates"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM form."""

    ca_file: Path
    """Whom a client has to trust."""
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return what a server of this process wraps its connections with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, and a certificate for `localhost` and both loopback addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)

    def certificate(
        key: EllipticCurvePrivateKey, usage: x509.KeyUsage, *, is_authority: bool
    ) -> x509.CertificateBuilder:
        public = key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
                critical=False,
            )
        )

    hosts: list[x509.GeneralName] = [x509.DNSName("localhost")]
    hosts += [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", "::1")]
    made = {
        "ca": certificate(authority, _usage(signs="certificates"), is_authority=True),
        "server": certificate(server, _usage(signs="data"), is_authority=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False),
    }
    for file, builder in made.items():
        signed = builder.sign(authority, SHA256())
        (folder / f"{file}.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    _write_key(folder / "server.key", server)
    return Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")


def _usage(signs: str) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=signs == "data",
        key_cert_sign=signs == "certificates",
        crl_sign=signs == "certificates",
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(file: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
