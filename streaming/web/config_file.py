"""The web configuration file: the format of Prometheus' exporter-toolkit, with its names.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md is the reference. Nothing is
ignored: what is not served here is refused by name. Paths are relative to the folder of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_CLIENT_CERT: Final = "NoClientCert"
VERIFY_IF_GIVEN: Final = "VerifyClientCertIfGiven"
REQUIRE_AND_VERIFY: Final = "RequireAndVerifyClientCert"
TLS_VERSIONS: Final = ("TLS12", "TLS13")
CIPHER_SUITES: Final = {
    f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for suite, openssl in {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }.items()
}
"""The suites of TLS 1.2 that Go calls secure, and OpenSSL's names of them. Those of TLS 1.3 cannot be chosen."""

_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_BCRYPT: Final = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_REFUSED: Final = {
    "rate_limit": "remove it; connections are limited without it",
    "tls_server_config.cert": "write the certificate into a file and name that as cert_file",
    "tls_server_config.key": "write the key into a file and name that as key_file",
    "tls_server_config.client_ca": "write the certificate into a file and name that as client_ca_file",
    "tls_server_config.curve_preferences": "remove it; OpenSSL's own order applies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """The section ``tls_server_config``."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: str = NO_CLIENT_CERT
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(filter(None, (self.cert_file, self.key_file, self.client_ca_file)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The content of a web configuration file; ``users`` are names with bcrypt hashes."""

    tls: TlsServerConfig | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is there twice, as the toolkit does: PyYAML would take the last, and drop logins silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML's
        """Return the content of a mapping."""
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, count in keys.items():
            if count > 1:
                raise yaml.constructor.ConstructorError(problem=f"the key {key} is there {count} times")
        return super().construct_mapping(node, deep)


def read_web_config(path: Path) -> WebConfig:
    """Read and check a file.

    Raises:
        ConfigurationError: it cannot be read, or has something that is wrong or not served here.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigurationError(f"cannot read the web configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: as of a date with a month 13
        raise ConfigurationError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return _web_config(document, path)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def has_tls(file: str) -> bool:
    """Return whether a program with this file, "" for none, serves HTTPS; False if the file is refused."""
    try:
        return bool(file) and read_web_config(Path(file)).tls is not None
    except ConfigurationError:
        return False


def _web_config(document: Any, path: Path) -> WebConfig:  # noqa: ANN401 - any YAML
    sections = _section(document, "", ("tls_server_config", "http_server_config", "basic_auth_users"))
    http = _section(sections.get("http_server_config"), "http_server_config.", ("http2", "headers"))
    if http.get("http2") not in {None, False}:
        raise ConfigurationError("http_server_config.http2: HTTP/2 is not served here; write http2: false")
    tls = _section(sections.get("tls_server_config"), "tls_server_config.", TlsServerConfig.__slots__)
    return WebConfig(
        tls=_tls(tls, path) if tls else None,
        headers=_headers(_texts(http.get("headers"), "http_server_config.headers")),
        users=_users(_texts(sections.get("basic_auth_users"), "basic_auth_users")),
    )


def _section(content: Any, prefix: str, keys: tuple[str, ...]) -> Mapping[str, Any]:  # noqa: ANN401 - any YAML
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{prefix.rstrip('.') or 'the file'} must be a mapping of keys to values")
    for key in content:
        if f"{prefix}{key}" in _REFUSED:
            raise ConfigurationError(f"{prefix}{key} is not served here: {_REFUSED[f'{prefix}{key}']}")
        if key not in keys:
            raise ConfigurationError(f"unknown key {prefix}{key}; the keys there are: {', '.join(keys)}")
    return content


def _texts(content: Any, name: str) -> dict[str, str]:  # noqa: ANN401 - any YAML
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(isinstance(text, str) for item in content.items() for text in item):
        raise ConfigurationError(f"{name} must be a mapping of texts to texts; quote names and values that are numbers")
    return content


def _tls(section: Mapping[str, Any], path: Path) -> TlsServerConfig:
    prefix, defaults, values = "tls_server_config.", TlsServerConfig(), dict(section)
    for key, value in values.items():
        default = getattr(defaults, key)
        if isinstance(default, tuple) and isinstance(value, list) and all(isinstance(each, str) for each in value):
            values[key] = tuple(value)
        elif type(value) is not type(default):
            expected = {str: "a text", bool: "true or false", tuple: "a list of texts"}[type(default)]
            raise ConfigurationError(f"{prefix}{key} must be {expected}, not {value!r}")
    for key in ("cert_file", "key_file", "client_ca_file"):
        if values.get(key):
            values[key] = str(path.parent / values[key])
    tls = TlsServerConfig(**values)
    _check_versions(tls, prefix)
    _check_client(tls, prefix)
    for key in ("cert_file", "key_file"):
        if not getattr(tls, key):
            raise ConfigurationError(f"{prefix}{key} is missing; TLS needs cert_file and key_file")
    return tls


def _check_versions(tls: TlsServerConfig, prefix: str) -> None:
    for key in ("min_version", "max_version"):
        if getattr(tls, key) not in TLS_VERSIONS:
            raise ConfigurationError(
                f"{prefix}{key} is {getattr(tls, key)!r}; use {' or '.join(TLS_VERSIONS)}: OpenSSL refuses older ones"
            )
    if tls.min_version > tls.max_version:
        raise ConfigurationError(f"{prefix}min_version is above max_version; write them the other way round")
    for suite in tls.cipher_suites:
        if suite not in CIPHER_SUITES:
            raise ConfigurationError(
                f"{prefix}cipher_suites has {suite!r}; use some of {', '.join(CIPHER_SUITES)}, or remove the key (the "
                "suites of TLS 1.3 cannot be chosen)"
            )


def _check_client(tls: TlsServerConfig, prefix: str) -> None:
    kinds = (NO_CLIENT_CERT, VERIFY_IF_GIVEN, REQUIRE_AND_VERIFY)
    if tls.client_auth_type not in kinds:
        raise ConfigurationError(
            f"{prefix}client_auth_type is {tls.client_auth_type!r}; use one of {', '.join(kinds)}: a certificate that "
            "is not verified proves nothing"
        )
    is_asked = tls.client_auth_type != NO_CLIENT_CERT
    if is_asked != bool(tls.client_ca_file):
        raise ConfigurationError(
            f"{prefix}client_ca_file and client_auth_type {VERIFY_IF_GIVEN} or {REQUIRE_AND_VERIFY} need each other; "
            "write both or none"
        )
    if tls.client_allowed_sans and not is_asked:
        raise ConfigurationError(
            f"{prefix}client_allowed_sans needs client_auth_type {REQUIRE_AND_VERIFY} and client_ca_file; write them"
        )


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for header, value in headers.items():
        if header not in _HEADERS:
            raise ConfigurationError(
                f"http_server_config.headers has {header!r}; the headers that can be set are: {', '.join(_HEADERS)}"
            )
        if value and (_HEADERS[header] and value not in _HEADERS[header]):
            raise ConfigurationError(
                f"http_server_config.headers.{header} is {value!r}; use one of {', '.join(_HEADERS[header])}"
            )
        if not value.isprintable() or not value.isascii():
            raise ConfigurationError(f"http_server_config.headers.{header} must be one line of ASCII, not {value!r}")
    return headers


def _users(users: dict[str, str]) -> dict[str, str]:
    for user, hashed in users.items():
        if not _BCRYPT.fullmatch(hashed):
            raise ConfigurationError(
                f"basic_auth_users.{user} is no bcrypt hash; write what htpasswd -nBC 10 {user} prints after the colon"
            )
        if ":" in user:
            raise ConfigurationError(f"basic_auth_users has {user!r}; a name of HTTP's basic login has no colon")
    return users
