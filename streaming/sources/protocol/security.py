"""Encryption and authentication of a connection, from librdkafka properties.

Supported: security.protocol, sasl.mechanism(s), sasl.username, sasl.password, sasl.oauthbearer.* with OpenID Connect,
a command that prints a token (:mod:`tokens`), and what :mod:`tls` lists. Other
properties of TLS are refused; properties that do not concern a connection are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import SaslMechanismOAuth

from streaming.errors import ConfigurationError
from streaming.sources.protocol.tls import Tls, UnsupportedProperty
from streaming.sources.protocol.tokens import COMMAND, Provider, Tokens, are_known, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTH: Final = "OAUTHBEARER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTH)


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and credentials. ``mechanism`` is None without authentication; ``table`` is where they are written.

    ``tokens`` are those of OAUTHBEARER, which has no user and no password.
    """

    tls: Tls | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    table: str = "cluster.client"
    tokens: Tokens | None = None

    @property
    def login(self) -> str:
        """Refusals that a wrong login causes, and what to check."""
        if self.tokens is not None:
            return "the token"
        return f"the login of {self.username!r}"

    @property
    def keys(self) -> str:
        """The properties that the login comes from."""
        return "sasl.oauthbearer.*" if self.tokens is not None else "sasl.username and sasl.password"

    def exchange(self) -> Any:  # noqa: ANN401 - kafka-python's SaslMechanism ships no types
        """Start a SASL exchange: an object that turns the server's bytes into the next bytes to send."""
        if self.tokens is not None:
            return SaslMechanismOAuth(sasl_oauth_token_provider=Provider(self.tokens))
        return get_sasl_mechanism(self.mechanism)(
            sasl_mechanism=self.mechanism, sasl_plain_username=self.username, sasl_plain_password=self.password
        )

    def __repr__(self) -> str:
        return f"Security(tls={self.tls is not None}, mechanism={self.mechanism!r}, username={self.username!r})"


def from_client(client: Mapping[str, str], table: str = "cluster.client") -> Security:
    """Parse ``[cluster.client]``, or another table like it.

    Raises:
        UnsupportedProperty: the metadata log cannot be read with this SASL mechanism, or with a property of TLS.
        ConfigurationError: any other unsupported value, a missing password, an unreadable file.
    """
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(f"{table} security.protocol is {protocol!r}; use one of {', '.join(_PROTOCOLS)}")
    tls = tls_of(client, table)
    if tls is not None:
        tls.check()
    if not protocol.startswith("SASL"):
        return Security(tls, table=table)
    key = "sasl.mechanisms" if "sasl.mechanisms" in client else "sasl.mechanism"
    mechanism = client.get(key, "").upper()
    if mechanism not in _MECHANISMS:
        raise UnsupportedProperty(
            f"{table} {key} is {mechanism!r}, but the metadata log can only be read with "
            f'{", ".join(_MECHANISMS)}; use one of them, or set collect.primary_source = "poll"'
        )
    if mechanism == _OAUTH and not are_known(client):
        raise UnsupportedProperty(
            f"{table} {key} is {mechanism!r}, but the metadata log can only be read with tokens of OpenID Connect "
            f'("sasl.oauthbearer.method" = "oidc") or of a command ("{COMMAND}"); use one of them, or set '
            'collect.primary_source = "poll"'
        )
    if mechanism == _OAUTH:
        return Security(tls, mechanism, table=table, tokens=tokens_of(client, table))
    for required in ("sasl.username", "sasl.password"):
        if required not in client:
            raise ConfigurationError(f"{table} {required} is missing; {mechanism} requires it")
    return Security(tls, mechanism, client["sasl.username"], client["sasl.password"], table)


def without_login(client: Mapping[str, str]) -> Security:
    """Return what suffices to see whether a listener responds, and its certificate: no login, nothing is verified."""
    return Security(None if (tls := tls_of(client)) is None else tls.unverified())


def tls_of(client: Mapping[str, str], table: str = "cluster.client") -> Tls | None:
    """Return the properties of TLS, unchecked; None without TLS."""
    if not client.get("security.protocol", "").upper().endswith("SSL"):
        return None
    return Tls({key: value for key, value in client.items() if key.startswith(("ssl.", "enable.ssl."))}, table)
