"""TLS of a connection, from librdkafka's properties with librdkafka's meaning, and the truststore of Java's clients.

The files are read for each connection, so a certificate that was renewed is used without a restart.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.errors import ConfigurationError, reason_of, sentence_of
from streaming.secret_values import as_of_now
from streaming.sources.protocol.certificate_chains import end_of_own, last_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


SUPPORTED: Final = frozenset({
    "ssl.ca.location", "ssl.ca.pem", "ssl.crl.location", "ssl.certificate.location", "ssl.certificate.pem",
    "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.keystore.location", "ssl.keystore.password",
})  # fmt: skip
_PROBE: Final = "probe"
VERIFICATION: Final = "enable.ssl.certificate.verification"
_TRUSTSTORE, _KEYSTORE = "ssl.truststore.location", "ssl.keystore.location"
_SEEN: Final = SUPPORTED - {"ssl.crl.location"} | {VERIFICATION}
# The last authority of a file counts, because a new one stands next to the old one for a time; of our own
# certificate, with those that sign it, the first one.
_LASTING: Final = (
    ("ssl.ca.location", last_end), ("ssl.ca.pem", last_end), (_TRUSTSTORE, last_end),
    ("ssl.certificate.location", end_of_own), ("ssl.certificate.pem", end_of_own), (_KEYSTORE, end_of_own),
)  # fmt: skip
_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


@dataclass(frozen=True, slots=True)
class Tls:
    """The properties that concern TLS, and the table that they are written in.

    ``verifies``: if not, any certificate is accepted; the authorities still say which path of it counts.
    """

    client: Mapping[str, str]
    table: str
    verifies: bool = True

    def check(self) -> None:
        """Check the properties, and the files as they are now.

        Raises:
            ConfigurationError: one of them is not supported, or a file cannot be used.
        """
        unsupported = sorted(key for key in self.client if key.startswith("ssl.") and key not in SUPPORTED)
        if unsupported:
            raise ConfigurationError(
                f"{self.table} {unsupported[0]} is not supported: remove it, or use one of "
                f"{', '.join(sorted(SUPPORTED))}"
            )
        self.context()

    def context(self) -> ssl.SSLContext:
        """Read the files.

        Raises:
            ConfigurationError: one cannot be used; the sentence names the property.
        """
        context = self._trusting() if self.verifies else self.seeing()
        if "ssl.cipher.suites" in self.client:
            with self._blaming("ssl.cipher.suites"):
                context.set_ciphers(self.client["ssl.cipher.suites"])
        self._show_certificate(context)
        if self.client.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if not (self.verifies and self._boolean(VERIFICATION)):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def unverified(self) -> Tls:
        """Return TLS that shows our own certificate, and accepts any."""
        return replace(self, client={key: self.client[key] for key in self.client if key in _SEEN}, verifies=False)

    def seeing(self) -> ssl.SSLContext:
        """Return a context that accepts any certificate; it knows the authorities, unless they cannot be read."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with suppress(ConfigurationError):
            context = self._trusting()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def without_ours(self, refused: str) -> str:
        """Say that a server does not accept our certificate, or wants one; ``refused`` are its words."""
        if any(key in self.client for key in ("ssl.certificate.location", "ssl.certificate.pem", _KEYSTORE)):
            return f"does not accept our certificate ({refused}): renew it, or check the ssl keys of {self.table}"
        how = "set ssl.certificate.location and ssl.key.location"
        return f"wants a certificate of its clients ({refused}): {how}, the ssl keys of {self.table}"

    def expiries(self) -> dict[str, float]:
        """Return until when the client's own certificates are valid, as they are now: property to seconds since 1970.

        What cannot be read is left out: the next connection says why.
        """
        ends: dict[str, float] = {}
        for key, which in _LASTING:
            with suppress(OSError, ValueError):
                ends[key] = which(self._pem(key))
        return ends

    def _pem(self, key: str) -> str:
        value = self.client.get(key, "")
        if key.endswith(".pem"):
            return value
        if key in {_TRUSTSTORE, _KEYSTORE}:
            return self._store(key).certificates if value else ""
        path = Path(value)
        files = [each for each in path.iterdir() if each.is_file()] if value and path.is_dir() else [path]
        return "".join(each.read_text(encoding="utf-8", errors="replace") for each in files)

    def _trusting(self) -> ssl.SSLContext:
        location = self.client.get("ssl.ca.location", _PROBE)
        with self._blaming("ssl.ca.location"):
            if location == _PROBE and not self._boolean(VERIFICATION):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the authorities of the machine take 25 ms to load
            elif location == _PROBE and _TRUSTSTORE in self.client:
                with self._blaming(_TRUSTSTORE):
                    context = ssl.create_default_context(cadata=self._store(_TRUSTSTORE).certificates)
            elif location == _PROBE and "ssl.ca.pem" not in self.client:
                context = ssl.create_default_context()
            elif location == _PROBE:
                with self._blaming("ssl.ca.pem"):
                    context = ssl.create_default_context(cadata=self.client["ssl.ca.pem"])
            elif Path(location).is_dir():
                context = ssl.create_default_context(capath=location)
            else:
                context = ssl.create_default_context(cafile=location)
        if "ssl.crl.location" in self.client:
            with self._blaming("ssl.crl.location"):
                context.load_verify_locations(self.client["ssl.crl.location"])
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        """Load our own certificate and its key. OpenSSL reads them from files only."""
        password = as_of_now(self.client.get("ssl.key.password", ""))  # without one, ssl would prompt on the terminal
        key = self.client.get("ssl.key.location")
        if _KEYSTORE in self.client:
            self._show_keystore(context)
        if not self.client.keys() & {"ssl.key.pem", "ssl.certificate.pem", "ssl.certificate.location"}:
            return
        with _private_folder(self.table) as folder:
            if "ssl.key.pem" in self.client:
                key = self._written(folder / "key.pem", "ssl.key.pem")
            if "ssl.certificate.pem" in self.client:
                certificate = self._written(folder / "certificate.pem", "ssl.certificate.pem")
                with self._blaming("ssl.certificate.pem"):
                    context.load_cert_chain(certificate, key, password)
            elif "ssl.certificate.location" in self.client:
                with self._blaming("ssl.certificate.location"):
                    context.load_cert_chain(self.client["ssl.certificate.location"], key, password)

    def _show_keystore(self, context: ssl.SSLContext) -> None:
        with self._blaming(_KEYSTORE):
            store = self._store(_KEYSTORE)
            if not store.key:
                raise ValueError("it has no key with a certificate")
        with _private_folder(self.table) as folder, self._blaming(_KEYSTORE):
            key, chain = _private(folder / "key.pem", store.key), _private(folder / "own.pem", store.chain)
            context.load_cert_chain(chain, key, as_of_now(self.client.get("ssl.key.password", "")))

    def _store(self, key: str) -> KeyStore:
        return read_store(self.client[key], as_of_now(self.client.get(key.replace(".location", ".password"), "")))

    def _written(self, path: Path, key: str) -> str:
        return _private(path, self.client[key])

    def _boolean(self, key: str) -> bool:
        value = self.client.get(key, "true")
        if value.lower() not in _BOOLEANS:
            raise ConfigurationError(f"{self.table} {key} is {value!r}; write true or false")
        return _BOOLEANS[value.lower()]

    @contextmanager
    def _blaming(self, key: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError, too
            where = f"{self.client[key]}: " if key.endswith((".location", ".suites")) else ""
            is_of_system = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
            why = reason_of(error) if is_of_system else error  # type: ignore[arg-type]
            raise ConfigurationError(f"{self.table} {key} cannot be used: {where}{why}") from None


@contextmanager
def _private_folder(table: str) -> Iterator[Path]:
    """Give a folder for what OpenSSL reads from files only, which is gone afterwards.

    Raises:
        ConfigurationError: none can be written, as where the disk of ``TMPDIR`` is full.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="isrwatch-") as folder:
            yield Path(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the keys of {table} cannot be used: OpenSSL reads them from a file for a moment, and none can be "
            f"written: {sentence_of(error)}; make space there, or set TMPDIR to another folder"
        ) from None


def _private(path: Path, content: str) -> str:
    """Write a file that only its owner may read; return its path."""
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")
    return str(path)


# Reasons for which TLS fails, in words: which side does not accept the other's certificate, and what to do.


_NOT_YET, _ENDED, _OTHER_NAMES = 9, 10, frozenset({62, 64})  # X509_V_ERR_*
_OF_OURS: Final = re.compile(r"ALERT_.*(?:CERTIFICATE|UNKNOWN_CA)")


def distrust(error: ssl.SSLCertVerificationError, table: str) -> str:
    """Say why the certificate of a server is not accepted here: the end of a sentence about the server."""
    if error.verify_code == _ENDED:
        return (
            "shows a certificate that has ended, itself or one that signs it: renew it there, and restart nothing "
            "before; if it holds, the clock here is wrong"
        )
    if error.verify_code == _NOT_YET:
        return (
            "shows a certificate that is not valid yet, itself or one that signs it: set the clock here by NTP, or "
            "issue it again"
        )
    if error.verify_code in _OTHER_NAMES:
        return (
            f"shows a certificate that is not for this name ({error.verify_message.rstrip('.')}): use a name that it "
            f'has, issue it again, or set "ssl.endpoint.identification.algorithm" = "none" in {table}'
        )
    return f"shows a certificate that is not trusted here ({error.verify_message}): check the ssl keys of {table}"


def refusal_of_ours(error: OSError | str) -> str:
    """Return the words of a server that does not accept our certificate, or our lack of one; "" of other errors."""
    reason = (getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    return reason.partition("ALERT_")[2].lower().replace("_", " ") if _OF_OURS.search(reason) else ""


# Truststores and keystores, as clients of Kafka take them: PKCS #12 (RFC 7292) or PEM (KIP-651), by what is in the
# file. Keys stay in memory.


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


def read_store(location: str, password: str) -> KeyStore:
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
