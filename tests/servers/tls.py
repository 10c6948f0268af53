"""A certificate authority of a test's own, and a server certificate for this machine."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.servers.processes import needs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Certificates", "make_certificates"]

_SETTINGS = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
"""


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
    openssl = shutil.which("openssl")
    needs("openssl", openssl, "install it with the system's package manager")
    settings = folder / "openssl.cnf"
    settings.write_text(_SETTINGS)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def run(*arguments: str) -> None:
        subprocess.run([str(openssl), *arguments], cwd=folder, check=True, capture_output=True)

    run(
        *("req", "-x509", "-config", "openssl.cnf", "-extensions", "authority", "-days", "30"),
        *(*key, "-keyout", "ca.key", "-out", "ca.pem"),
    )
    run(
        *("req", "-config", "openssl.cnf"),
        *(*key, "-keyout", "server.key", "-out", "server.csr"),
    )
    run(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30"),
        *("-CAcreateserial", "-extfile", "openssl.cnf", "-extensions", "server"),
        *("-out", "server.pem"),
    )
    return Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
