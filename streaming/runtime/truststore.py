"""The certificate authorities of the environment, in Java's form.

Python, pip and curl follow ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE``; Java does not, and behind a company's proxy it
fails with "PKIX path building failed". A JKS trust store is simple enough to write here, in milliseconds; keytool
takes one certificate a run, and bundles hold 150.
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
    """Give the Java options that make it trust what Python trusts; none when the environment names no bundle.

    Raises:
        ConfigurationError: the bundle that the environment names cannot be read or holds no certificate.
    """
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if bundle := os.environ.get(name):
            return (f"-Djavax.net.ssl.trustStore={_trust_store(name, Path(bundle))}",)
    return ()


def _trust_store(variable: str, bundle: Path) -> Path:
    """Give the trust store of a bundle; its name carries the bundle's hash, so a changed bundle gives another."""
    try:
        pem = bundle.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{variable} names {bundle}, which cannot be read: {error.strerror}") from None
    path = cache_folder() / f"truststore-{hashlib.sha256(pem).hexdigest()[:16]}.jks"
    if not path.exists():
        try:
            certificates = [base64.b64decode(match[1]) for match in _PEM.finditer(pem)]
        except binascii.Error as error:
            raise ConfigurationError(f"{variable} names {bundle}, which is not PEM: {error}") from None
        if not certificates:
            raise ConfigurationError(f"{variable} names {bundle}, which holds no PEM certificate")
        write_atomically(path, jks(certificates))
    return path


def jks(certificates: list[bytes]) -> bytes:
    """Write DER certificates as a JKS trust store: header, entries, keyed SHA-1 over both."""
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    keyed = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(keyed, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
