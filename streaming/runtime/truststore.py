"""The certificate authorities of the environment as a Java trust store.

Python, pip and curl use ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE``; Java does not, and fails behind a company's proxy
with "PKIX path building failed". The JKS format is simple enough to be written here, in milliseconds; keytool imports
one certificate per run, and bundles contain 150.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import struct
from pathlib import Path
from typing import Final

from streaming.errors import ConfigurationError
from streaming.runtime.folders import cache_folder, write_atomically

_PEM: Final = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----\s+(.*?)-----END", re.DOTALL)
_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_PASSWORD: Final = "changeit"  # noqa: S105 - Java's default; a list of public certificates is no secret


def trust_options() -> tuple[str, ...]:
    """Return the Java options for the CA bundle of the environment; none when it sets no bundle.

    Raises:
        ConfigurationError: the bundle cannot be read or contains no certificate.
    """
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if bundle := os.environ.get(name):
            return (f"-Djavax.net.ssl.trustStore={_trust_store(name, Path(bundle))}",)
    return ()


def _trust_store(variable: str, bundle: Path) -> Path:
    """Return the trust store of a bundle, with the hash of the bundle in its name, so that a change creates another."""
    try:
        pem = bundle.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{variable} is {bundle}, which cannot be read: {error.strerror}") from None
    path = cache_folder() / f"truststore-{hashlib.sha256(pem).hexdigest()[:16]}.jks"
    if not path.exists():
        try:
            certificates = [base64.b64decode(match[1]) for match in _PEM.finditer(pem)]
        except binascii.Error as error:
            raise ConfigurationError(f"{variable} is {bundle}, which is not PEM: {error}") from None
        if not certificates:
            raise ConfigurationError(f"{variable} is {bundle}, which contains no PEM certificate")
        write_atomically(path, jks(certificates))
    return path


def jks(certificates: list[bytes]) -> bytes:
    """Return DER certificates as a JKS trust store: header, entries, keyed SHA-1 over both.

    The key is the password in UTF-16 and the constant "Mighty Aphrodite" (``sun.security.provider.JavaKeyStore``).
    """
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    keyed = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(keyed, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
