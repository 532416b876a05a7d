"""TLS certificates for tests, made with the ``openssl`` program and good for a day."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[elsewhere]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:elsewhere.invalid
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: an authority, what it has signed, and another authority with a client of its own.

    Two certificates of the server's key are not as they should be: one is for another host, one has expired.
    """

    ca: Path
    server_cert: Path
    server_key: Path
    elsewhere_cert: Path
    expired_cert: Path
    client_cert: Path
    client_key: Path
    other_ca: Path
    other_client_cert: Path
    other_client_key: Path

    def server_options(
        self, *, client_certificates: bool = True, certificate: Path | None = None
    ) -> list[str]:
        """Return the flags for a Redis server, which may ask its clients for certificates."""
        files = {"ca-cert": self.ca, "cert": certificate or self.server_cert, "key": self.server_key}
        flags = [text for name, path in files.items() for text in (f"--tls-{name}-file", str(path))]
        return [*flags, "--tls-auth-clients", "yes" if client_certificates else "no"]


def tls_files(directory: Path) -> TlsFiles:
    """Make the files in ``directory``; the server's certificate is for 127.0.0.1 and localhost."""
    config = directory / "openssl.cnf"
    config.write_text(_CONFIG)

    def openssl(*arguments: str | Path) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=directory)  # noqa: S603 - our own words

    def request(name: str, kind: str, *more: str | Path) -> None:
        files = ("-keyout", f"{name}.key", "-out", f"{name}.{kind}")
        openssl("req", "-new", *_NEW_KEY, "-config", config, "-subj", f"/CN={name}", *files, *more)

    def sign(name: str, request: str, authority: str, extensions: str, days: str) -> None:
        by = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", days)
        how = ("-extfile", config, "-extensions", extensions)
        openssl("x509", "-req", "-in", f"{request}.csr", "-out", f"{name}.pem", *by, *how)

    for authority in ("ca", "other-ca"):
        request(authority, "pem", "-x509", "-days", "1", "-extensions", "ca")
    for name in ("server", "client", "other-client"):
        request(name, "csr")
    sign("server", "server", "ca", "server", "1")
    sign("elsewhere", "server", "ca", "elsewhere", "1")
    sign("expired", "server", "ca", "server", "0")  # its last moment is the one in which it is made
    sign("client", "client", "ca", "client", "1")
    sign("other-client", "other-client", "other-ca", "client", "1")
    return TlsFiles(
        ca=directory / "ca.pem",
        server_cert=directory / "server.pem",
        server_key=directory / "server.key",
        elsewhere_cert=directory / "elsewhere.pem",
        expired_cert=directory / "expired.pem",
        client_cert=directory / "client.pem",
        client_key=directory / "client.key",
        other_ca=directory / "other-ca.pem",
        other_client_cert=directory / "other-client.pem",
        other_client_key=directory / "other-client.key",
    )
