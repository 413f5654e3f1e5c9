"""Truststores and keystores, as clients of Kafka take them: PKCS #12 or PEM, by what is in the file.

Pure but for reading the file. Keys stay in memory. Sources: PKCS #12 (RFC 7292), KIP-651 (PEM).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

_JKS: Final = b"\xfe\xed\xfe\xed"
_PEM: Final = b"-----BEGIN "


class KeyStore(NamedTuple):
    """Content of a store, as PEM.

    Attributes:
        key: the private key; empty without one. Of a store in PEM it may be encrypted.
        chain: the key's own certificate and those that sign it; empty without a key.
        certificates: every certificate.
    """

    key: str
    chain: str
    certificates: str


def read(location: str, password: str) -> KeyStore:
    """Read a store.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no store, or the password is another one; the sentence holds neither.
    """
    content = Path(location).read_bytes()
    if _PEM in content:
        pem = content.decode("utf-8", errors="replace")
        return KeyStore(pem, pem, pem)
    if content.startswith(_JKS):
        raise ValueError(
            f"it has the old format JKS; convert it, by keytool -importkeystore -srckeystore {location} "
            f"-destkeystore {Path(location).stem}.p12 -deststoretype PKCS12"
        )
    return _of_pkcs12(content, password)


def _of_pkcs12(content: bytes, password: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12  # noqa: PLC0415 - only who has a store needs it

    try:
        store = pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError:
        raise ValueError("it is no PKCS #12 store, or its password is another one") from None
    every = [each for each in (store.cert, *store.additional_certs) if each is not None]
    pem = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in every)
    if store.key is None or store.cert is None:
        return KeyStore("", "", pem)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyStore(key, pem, pem)
