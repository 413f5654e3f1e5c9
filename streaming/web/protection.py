"""Content of a web configuration file: read again when it, or a file that it names, has changed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import bcrypt

from streaming.errors import ConfigurationError
from streaming.web.config_file import (
    CIPHER_SUITES,
    NO_CLIENT_CERT,
    REQUIRE_AND_VERIFY,
    VERIFY_IF_GIVEN,
    WebConfig,
    read_web_config,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.web.config_file import TlsServerConfig

LOG: Final = logging.getLogger(__name__)
_READS: Final = frozenset({"GET", "HEAD"})
Version = tuple[tuple[int, int, int] | None, ...]
"""Version of several files: inode, size and time of change; None for a missing file."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """A web configuration with what is made of it."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    logins: Logins | None = None

    @property
    def allowed_names(self) -> tuple[str, ...]:
        """The names that a client's certificate must have one of; empty allows all."""
        return self.config.tls.client_allowed_sans if self.config.tls else ()

    def protects(self) -> tuple[bool, bool, bool]:
        """Return whether there are TLS, certificates of clients, and logins."""
        tls = self.config.tls
        return tls is not None, tls is not None and tls.client_auth_type == REQUIRE_AND_VERIFY, self.logins is not None


class Protection:
    """The rules of now.

    A file that is wrong after a change is reported, and the rules of before apply: half a file is what a reader sees
    while another program writes it. For the same reason TLS, certificates of clients and logins can be added and
    changed, but are switched off by a restart only.
    """

    def __init__(self, path: Path | None = None, without_login: Collection[str] = ()) -> None:
        """Read a file; None protects nothing. Routes ``without_login`` may be read without one, if there are logins.

        Raises:
            ConfigurationError: the file is wrong.
        """
        self._path = path
        self._without_login = frozenset(without_login)
        self._files: tuple[str, ...] = ()
        self._version: Version = ()
        self._rules = Rules() if path is None else self._read(path)

    @property
    def rules(self) -> Rules:
        """The rules of now."""
        if self._path is not None and (version := self._version_now(self._path)) != self._version:
            self._version = version
            self._read_again(self._path)
        return self._rules

    def needs_login(self, method: str, route: str) -> bool:
        """Return whether there are logins, and a request to a route needs one."""
        return self.rules.logins is not None and not (method in _READS and route in self._without_login)

    def _read_again(self, path: Path) -> None:
        try:
            rules = self._read(path)
        except ConfigurationError as error:
            LOG.warning("%s; what was read before applies", error)
            return
        if any(before and not now for before, now in zip(self._rules.protects(), rules.protects(), strict=True)):
            LOG.warning(
                "%s has no TLS, certificates of clients or logins any more; what was read before applies, restart to "
                "switch them off",
                path,
            )
            return
        self._rules = rules

    def _read(self, path: Path) -> Rules:
        """Read a file. What it names is watched from then on, also while it is not there yet."""
        version = _version_of(path)
        config = read_web_config(path)
        self._files = config.tls.files if config.tls else ()
        self._version = (version, *map(_version_of, map(Path, self._files)))
        try:
            context = context_of(config.tls) if config.tls else None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        return Rules(config, context, Logins(config.users) if config.users else None)

    def _version_now(self, path: Path) -> Version:
        return tuple(_version_of(each) for each in (path, *map(Path, self._files)))


def protection_of(file: str, without_login: Collection[str] = ()) -> Protection:
    """Read the web configuration file of a program; an empty name is none.

    Raises:
        ConfigurationError: it is wrong.
    """
    return Protection(Path(file) if file else None, without_login)


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns  # of the content, or of who may read it


# Logins of HTTP's basic authentication (RFC 7617) against bcrypt hashes.


LONGEST_PASSWORD: Final = 72
"""Bytes that bcrypt looks at."""


class Logins:
    """The users of a web configuration file.

    A hash takes a tenth of a second, so a password that was right is remembered, as a digest with a random key, and
    only one is computed at a time: strangers delay each other, not those who were let in before.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._hashes = {user: hashed.encode() for user, hashed in users.items()}
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._one_at_a_time = asyncio.Lock()
        # No user has its password. An unknown user takes as long as one that exists.
        rounds = max((int(hashed.split("$")[2]) for hashed in users.values()), default=10)
        self._of_nobody = bcrypt.hashpw(secrets.token_hex(16).encode(), bcrypt.gensalt(min(rounds, 12)))

    async def accept(self, header: str) -> bool:
        """Return whether an ``Authorization`` header has the name and password of a user."""
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            decoded = base64.b64decode(encoded.strip(), validate=True)
        except ValueError:  # no base64, or characters beyond ASCII
            return False
        name, colon, password = decoded.partition(b":")
        if not colon:
            return False
        hashed = self._hashes.get(name.decode(errors="replace"))
        digest = hashlib.blake2b(decoded, key=self._key).digest()
        if digest in self._right:
            return True
        async with self._one_at_a_time:
            is_right = await asyncio.to_thread(_is_right, password, hashed or self._of_nobody)
        if not is_right or hashed is None:
            return False
        self._right.add(digest)
        return True


def _is_right(password: bytes, hashed: bytes) -> bool:
    return b"\0" not in password and bcrypt.checkpw(password[:LONGEST_PASSWORD], hashed)


# TLS of our HTTP servers, from the web configuration file.


_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    NO_CLIENT_CERT: ssl.CERT_NONE,
    VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}


def context_of(tls: TlsServerConfig) -> ssl.SSLContext:
    """Load certificates, and return what TLS connections are made with.

    Raises:
        ConfigurationError: a file cannot be read, or key and certificate are of different pairs.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if tls.cipher_suites:
        context.set_ciphers(":".join(CIPHER_SUITES[suite] for suite in tls.cipher_suites))
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        # Of an encrypted key OpenSSL would ask a terminal for the password.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except OSError as error:
        raise _refusal("cert_file and key_file", f"{tls.cert_file} and {tls.key_file}", error) from None
    if tls.client_ca_file:
        try:
            context.load_verify_locations(tls.client_ca_file)
        except OSError as error:
            raise _refusal("client_ca_file", tls.client_ca_file, error) from None
    context.verify_mode = _VERIFY[tls.client_auth_type]
    return context


def has_allowed_name(certificate: Mapping[str, Any] | None, allowed: Collection[str]) -> bool:
    """Return whether a certificate, as ``getpeercert`` returns it, has one of the Subject Alternative Names.

    No certificate is allowed here: whether one is required was decided in the handshake.
    """
    if not allowed or not certificate:
        return True
    return any(_name(kind, name) in allowed for kind, name in certificate.get("subjectAltName", ()))


def _name(kind: str, name: str) -> str:
    if kind == "IP Address":
        with suppress(ValueError):
            return str(ip_address(name))  # OpenSSL writes IPv6 in full, Go and people in short
    return name


def _refusal(key: str, files: str, error: OSError) -> ConfigurationError:
    reason = "not a PEM certificate with its key, unencrypted" if isinstance(error, ssl.SSLError) else error.strerror
    return ConfigurationError(f"tls_server_config.{key}: cannot load {files}: {reason}")
