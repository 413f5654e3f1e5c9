"""Until when a certificate is valid. Pure: bytes in, seconds since 1970 out.

``ssl`` gives the fields of a peer's certificate only after it has verified it, and none of a file. What is read here is
``Certificate.tbsCertificate.validity.notAfter`` of RFC 5280 (4.1), in DER.
"""

from __future__ import annotations

import calendar
import re
import ssl
import time
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18  # tags
_VALIDITY: Final = 3  # behind serial number, signature algorithm and issuer
_LONG: Final = 0x80


def expires_at(der: bytes) -> float:
    """Return the end of a certificate's validity.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        certificate = _elements(_elements(_elements(der)[0][1])[0][1])
        validity = [content for tag, content in certificate if tag != _VERSION][_VALIDITY]
        tag, end = _elements(validity)[1]
        text = end.decode("ascii")
    except (IndexError, UnicodeDecodeError):
        raise ValueError("no certificate in DER") from None
    if tag == _UTC_TIME:  # two digits of a year from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"the end of a certificate's validity has the tag {tag:#x}")
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))


def expiries_in(pem: str) -> list[float]:
    """Return the end of the validity of each certificate in a text.

    Raises:
        ValueError: one of them is none.
    """
    return [expires_at(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem)]


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Split DER into elements: tag and content of each."""
    elements, at = list[tuple[int, bytes]](), 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & _LONG:
            size = length & ~_LONG
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise IndexError
        elements.append((tag, data[at : at + length]))
        at += length
    return elements
