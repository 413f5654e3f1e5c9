"""Encryption and authentication of a connection, from librdkafka properties.

Supported: security.protocol, sasl.mechanism(s), sasl.username, sasl.password, ssl.ca.location,
ssl.certificate.location, ssl.key.location, ssl.key.password, ssl.endpoint.identification.algorithm,
enable.ssl.certificate.verification. Other properties are ignored.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.net.sasl import get_sasl_mechanism

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class UnsupportedMechanism(ConfigurationError):
    """A SASL mechanism that librdkafka may support, but the reader of the metadata log does not."""


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and credentials. ``mechanism`` is None without authentication; ``table`` is where they are written."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    table: str = "cluster.client"

    def exchange(self) -> Any:  # noqa: ANN401 - kafka-python's SaslMechanism ships no types
        """Start a SASL exchange: an object that turns the server's bytes into the next bytes to send."""
        return get_sasl_mechanism(self.mechanism)(
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.username,
            sasl_plain_password=self.password,
        )

    def __repr__(self) -> str:
        return f"Security(tls={self.tls is not None}, mechanism={self.mechanism!r}, username={self.username!r})"


def from_client(client: Mapping[str, str], table: str = "cluster.client") -> Security:
    """Parse ``[cluster.client]``, or another table like it.

    Raises:
        UnsupportedMechanism: the metadata log cannot be read with this SASL mechanism.
        ConfigurationError: any other unsupported value, a missing password, an unreadable file.
    """
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(f"{table} security.protocol is {protocol!r}; use one of {', '.join(_PROTOCOLS)}")
    tls = _tls(client, table) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls, table=table)
    key = "sasl.mechanisms" if "sasl.mechanisms" in client else "sasl.mechanism"
    mechanism = client.get(key, "").upper()
    if mechanism not in _MECHANISMS:
        raise UnsupportedMechanism(
            f"{table} {key} is {mechanism!r}, but the metadata log can only be read with "
            f'{", ".join(_MECHANISMS)}; use one of them, or set collect.primary_source = "poll"'
        )
    for required in ("sasl.username", "sasl.password"):
        if required not in client:
            raise ConfigurationError(f"{table} {required} is missing; {mechanism} requires it")
    return Security(tls, mechanism, client["sasl.username"], client["sasl.password"], table)


def _tls(client: Mapping[str, str], table: str) -> ssl.SSLContext:
    with _blaming("ssl.ca.location", client, table):
        context = ssl.create_default_context(cafile=client.get("ssl.ca.location"))
    if "ssl.certificate.location" in client:
        with _blaming("ssl.certificate.location", client, table):
            context.load_cert_chain(
                client["ssl.certificate.location"],
                client.get("ssl.key.location"),
                client.get("ssl.key.password", ""),  # without one, ssl would prompt on the terminal
            )
    if client.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if client.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _blaming(key: str, client: Mapping[str, str], table: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # ssl.SSLError is one, too
        raise ConfigurationError(f"{table} {key} cannot be used: {client[key]}: {error}") from None
