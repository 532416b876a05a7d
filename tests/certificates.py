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
    """PEM files: an authority, what it has signed, and an authority that has signed nothing."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path
    other_ca: Path

    def server_options(self, *, client_certificates: bool = True) -> list[str]:
        """Return the flags for a Redis server, which may ask its clients for certificates."""
        files = {"ca-cert": self.ca, "cert": self.server_cert, "key": self.server_key}
        flags = [text for name, path in files.items() for text in (f"--tls-{name}-file", str(path))]
        return [*flags, "--tls-auth-clients", "yes" if client_certificates else "no"]


def tls_files(directory: Path) -> TlsFiles:
    """Make the files in ``directory``; the server's certificate is for 127.0.0.1 and localhost."""
    config = directory / "openssl.cnf"
    config.write_text(_CONFIG)

    def openssl(*arguments: str | Path) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=directory)  # noqa: S603 - our own words

    def request(name: str, *more: str | Path) -> None:
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl("req", "-new", *_NEW_KEY, "-config", config, "-subj", f"/CN={name}", *files, *more)

    for authority in ("ca", "other-ca"):
        request(authority, "-x509", "-days", "1", "-extensions", "ca")
    for name in ("server", "client"):
        request(name)
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1")
        extensions = ("-extfile", config, "-extensions", name)
        openssl("x509", "-req", "-in", f"{name}.pem", "-out", f"{name}.pem", *signing, *extensions)
    return TlsFiles(
        ca=directory / "ca.pem",
        server_cert=directory / "server.pem",
        server_key=directory / "server.key",
        client_cert=directory / "client.pem",
        client_key=directory / "client.key",
        other_ca=directory / "other-ca.pem",
    )
