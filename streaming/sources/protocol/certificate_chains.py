"""Times between which the certificates hold that a server shows: those of the path from its own to an authority.

Servers may send more than that, such as an old authority that once signed a newer one: whether it has ended concerns no
client. Where verification ends at an authority that is trusted here, the path is the one that it took; else it leads
from the server's own certificate to each issuer in turn, as far as the server shows them.

``ssl`` gives the fields of a peer's certificate only after it has verified it, and none of a file. What is read here is
``Certificate.tbsCertificate`` of RFC 5280 (4.1), in DER: bytes in, seconds since 1970 out.
"""

from __future__ import annotations

import calendar
import re
import ssl
import time
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _EXTENSIONS, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0xA3, 0x17, 0x18  # tags
_ISSUER, _VALIDITY, _SUBJECT = 2, 3, 4  # behind serial number and signature algorithm
_OWN_KEY, _KEY_OF_ISSUER = b"\x55\x1d\x0e", b"\x55\x1d\x23"  # extensions 2.5.29.14 and 2.5.29.35
_KEY_ID: Final = 0x80
_LONG: Final = 0x80
_DER: Final = 2  # OpenSSL's number of the encoding, as _ssl has it


class Validity(NamedTuple):
    """The times between which a certificate, or each one of a path, holds; seconds since 1970."""

    begins_at: float
    ends_at: float


class Certificate(NamedTuple):
    """Fields of a certificate: how long it holds, and who signed it. Key ids are empty if it has none."""

    validity: Validity
    subject: bytes
    issuer: bytes
    key_id: bytes
    issuer_key_id: bytes

    def is_signed_by(self, other: Certificate) -> bool:
        """Return whether another certificate has the name and the key of what signed this one."""
        has_key = not (self.issuer_key_id and other.key_id) or self.issuer_key_id == other.key_id
        return self.issuer == other.subject and has_key


def certificate_of(der: bytes) -> Certificate:
    """Read a certificate.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = [each for each in _elements(_elements(_elements(der)[0][1])[0][1]) if each[0] != _VERSION]
        (of_begin, begin), (of_end, end) = _elements(fields[_VALIDITY][1])[:2]
        validity = Validity(_time(of_begin, begin.decode("ascii")), _time(of_end, end.decode("ascii")))
        issuer, subject = fields[_ISSUER][1], fields[_SUBJECT][1]
        extensions = next((content for tag, content in fields if tag == _EXTENSIONS), b"")
        return Certificate(validity, subject, issuer, *_key_ids(extensions))
    except (IndexError, UnicodeDecodeError):
        raise ValueError("no certificate in DER") from None


def _key_ids(extensions: bytes) -> tuple[bytes, bytes]:
    """Return the id of a certificate's own key, and that of the key that signed it, as far as they can be read."""
    own = of_issuer = b""
    with suppress(IndexError, ValueError):
        for _, extension in _elements(_elements(extensions)[0][1]):
            (_, name), *_, (_, value) = _elements(extension)
            if name == _OWN_KEY:
                own = _elements(value)[0][1]
            elif name == _KEY_OF_ISSUER:
                of_issuer = next((content for tag, content in _elements(_elements(value)[0][1]) if tag == _KEY_ID), b"")
    return own, of_issuer


def _time(tag: int, text: str) -> float:
    if tag == _UTC_TIME:  # two digits of a year from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"a time of a certificate's validity has the tag {tag:#x}")
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))


def validity_of_path(certificates: Sequence[Certificate]) -> Validity:
    """Return when all certificates of the path hold that begins with the first one.

    Of several that may have signed one, the way that holds longest counts, as for clients.
    """
    holds: dict[Certificate, Validity] = {}

    def way(one: Certificate) -> Validity:
        if one not in holds:
            holds[one] = one.validity  # also what ends a circle of two that signed each other
            is_root = one.is_signed_by(one)
            ways = [way(other) for other in certificates if other != one and not is_root and one.is_signed_by(other)]
            if ways:
                holds[one] = _both(one.validity, max(ways, key=lambda each: each.ends_at))
        return holds[one]

    return way(certificates[0])


def _both(one: Validity, other: Validity) -> Validity:
    return Validity(max(one.begins_at, other.begins_at), min(one.ends_at, other.ends_at))


def end_of_chain(secured: ssl.SSLSocket) -> float | None:
    """Return when the first certificate of the path ends that a server has shown."""
    validity = validity_of_chain(secured)
    return None if validity is None else validity.ends_at


def validity_of_chain(secured: ssl.SSLSocket) -> Validity | None:
    """Return when all certificates of the path hold that a server has shown; None if it showed none.

    Also where it ended the handshake, if nothing is required of its certificate here.
    """
    # Python has get_unverified_chain from 3.13 on; before, only the object behind the socket has it.
    behind = secured._sslobj  # type: ignore[attr-defined] # noqa: SLF001 - as above
    if behind is None:
        return None
    verified, shown = _in_der(behind.get_verified_chain()), _in_der(behind.get_unverified_chain())
    is_trusted = secured.context.verify_mode is ssl.CERT_REQUIRED  # else the connection would not be there
    if verified and (is_trusted or verified[-1] in secured.context.get_ca_certs(binary_form=True)):
        return reduce(_both, (one.validity for one in _readable(verified)))
    path = _readable(shown)
    return validity_of_path(path) if path else None


def _in_der(chain: Iterable[Any] | None) -> list[bytes]:
    return [one if isinstance(one, bytes) else one.public_bytes(_DER) for one in chain or ()]


def _readable(chain: Iterable[bytes]) -> list[Certificate]:
    read = []
    for each in chain:
        with suppress(ValueError):
            read.append(certificate_of(each))
    return read


def last_end(pem: str) -> float:
    """Return until when the last of the certificates in a text holds.

    Raises:
        ValueError: one of them is none, or there is none.
    """
    return max(one.validity.ends_at for one in _in_pem(pem))


def end_of_own(pem: str) -> float:
    """Return until when the first certificate in a text holds, with those behind it that sign it.

    Raises:
        ValueError: one of them is none, or there is none.
    """
    return validity_of_path(_in_pem(pem)).ends_at


def _in_pem(pem: str) -> list[Certificate]:
    certificates = [certificate_of(ssl.PEM_cert_to_DER_cert(each)) for each in _PEM.findall(pem)]
    if not certificates:
        raise ValueError("no certificate")
    return certificates


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
