"""Encryption and authentication of a connection, from librdkafka properties.

Supported: security.protocol, sasl.mechanism(s), sasl.username, sasl.password, sasl.oauthbearer.* with OpenID Connect,
a command that prints a token (:mod:`tokens`), and what :mod:`tls` lists. Properties of librdkafka that change neither
which server a connection reaches, nor what it trusts, nor the user that logs in are ignored; every other one is refused
by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import SaslMechanismOAuth

from streaming.errors import ConfigurationError
from streaming.secret_values import as_of_now
from streaming.sources.protocol.tls import VERIFICATION, Tls
from streaming.sources.protocol.tokens import COMMAND, Provider, Tokens, are_known, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTH: Final = "OAUTHBEARER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTH)
USED: Final = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions",
    "https.ca.location", VERIFICATION, COMMAND,
})  # fmt: skip
"""The properties that have an effect here, without those of TLS, which begin with ``ssl.``."""
IGNORED: Final = frozenset({
    # What every client has: buffers, times, retries, logs.
    "client.id", "client.rack", "client.dns.lookup", "message.max.bytes", "message.copy.max.bytes",
    "receive.message.max.bytes", "max.in.flight.requests.per.connection", "max.in.flight",
    "metadata.recovery.strategy", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms",
    "topic.metadata.refresh.interval.ms", "topic.metadata.refresh.fast.cnt",
    "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms",
    "topic.blacklist", "debug", "socket.timeout.ms", "socket.blocking.max.ms", "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes", "socket.keepalive.enable", "socket.nagle.disable", "socket.max.fails",
    "broker.address.ttl", "broker.address.family", "socket.connection.setup.timeout.ms", "connections.max.idle.ms",
    "reconnect.backoff.jitter.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms",
    "retry.backoff.max.ms", "statistics.interval.ms", "log_level", "log.thread.name", "log.connection.close",
    "enable.random.seed", "api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms",
    "broker.version.fallback", "allow.auto.create.topics", "enable.metrics.push",
    # What logins have that are not those above: the mechanism decides whether one is used.
    "sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab",
    "sasl.kerberos.min.time.before.relogin", "sasl.oauthbearer.sub.claim.name",
    # What consumers and producers have.
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy",
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "enable.auto.commit",
    "auto.commit.interval.ms", "enable.auto.offset.store", "auto.offset.reset", "queued.min.messages",
    "queued.max.messages.kbytes", "fetch.wait.max.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes",
    "fetch.max.bytes", "fetch.min.bytes", "isolation.level", "enable.partition.eof", "check.crcs",
    "transactional.id", "transaction.timeout.ms", "enable.idempotence", "queue.buffering.max.messages",
    "queue.buffering.max.kbytes", "queue.buffering.max.ms", "linger.ms", "message.send.max.retries", "retries",
    "compression.codec", "compression.type", "compression.level", "batch.num.messages", "batch.size",
    "request.required.acks", "acks", "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms",
    "partitioner",
})  # fmt: skip
"""The properties of librdkafka that mean nothing here, and whose lack changes nothing that is read."""
_SERVERS: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})


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

    def written_in(self, table: str) -> Security:
        """Return the same, which sentences ascribe to another table."""
        return replace(self, tls=None if self.tls is None else replace(self.tls, table=table), table=table)

    def prepare(self) -> None:
        """Get what a login needs before it begins: a token that holds.

        Raises:
            ConnectionRefused: there is none.
        """
        if self.tokens is not None:
            self.tokens.current()

    def refused(self) -> None:
        """Note that a node refuses the login: the next one is with another token."""
        if self.tokens is not None:
            self.tokens.refused()

    def exchange(self) -> Any:  # noqa: ANN401 - kafka-python's SaslMechanism ships no types
        """Start a SASL exchange: an object that turns the server's bytes into the next bytes to send."""
        if self.tokens is not None:
            return SaslMechanismOAuth(sasl_oauth_token_provider=Provider(self.tokens))
        return get_sasl_mechanism(self.mechanism)(
            sasl_mechanism=self.mechanism,
            sasl_plain_username=as_of_now(self.username),
            sasl_plain_password=as_of_now(self.password),
        )

    def __repr__(self) -> str:
        return f"Security(tls={self.tls is not None}, mechanism={self.mechanism!r}, username={self.username!r})"


def from_client(client: Mapping[str, str], table: str = "cluster.client") -> Security:
    """Parse ``[cluster.client]``, or another table like it.

    Raises:
        ConfigurationError: an unsupported property or value, a missing password, an unreadable file.
    """
    _check_names(client, table)
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
        raise ConfigurationError(
            f"{table} {key} is {mechanism!r}, but isrwatch logs in with {', '.join(_MECHANISMS)} only; let a listener "
            f"offer one of them, and name it here{_instead(table)}"
        )
    if mechanism == _OAUTH and not are_known(client):
        raise ConfigurationError(
            f"{table} {key} is {mechanism!r}, but nothing says where its tokens come from: set "
            f'"sasl.oauthbearer.method" = "oidc" for OpenID Connect, or "{COMMAND}"'
        )
    if mechanism == _OAUTH:
        return Security(tls, mechanism, table=table, tokens=tokens_of(client, table))
    for required in ("sasl.username", "sasl.password"):
        if required not in client:
            raise ConfigurationError(f"{table} {required} is missing; {mechanism} requires it")
    return Security(tls, mechanism, client["sasl.username"], client["sasl.password"], table)


def _check_names(client: Mapping[str, str], table: str) -> None:
    for key in sorted(client):
        if key in _SERVERS:
            raise ConfigurationError(
                f"{table} {key} has no effect; remove it: cluster.bootstrap_servers has the addresses"
            )
        if key.startswith("sasl.oauthbearer.") and key not in USED | IGNORED:
            raise ConfigurationError(
                f'{table} {key} is not supported; remove it, and set "{COMMAND}" to a command that prints such a token'
            )
        if not key.startswith("ssl.") and key not in USED | IGNORED:
            raise ConfigurationError(
                f"{table} {key} is unknown, or not supported; correct or remove it. Those that have an effect are "
                f"{', '.join(sorted(USED))} and ssl.*"
            )


def _instead(table: str) -> str:
    return "" if table == "cluster.client" else ', or set collect.primary_source = "poll", which asks no controller'


def without_login(client: Mapping[str, str]) -> Security:
    """Return what suffices to see whether a listener responds, and its certificate: no login, nothing is verified."""
    return Security(None if (tls := tls_of(client)) is None else tls.unverified())


def tls_of(client: Mapping[str, str], table: str = "cluster.client") -> Tls | None:
    """Return the properties of TLS, unchecked; None without TLS."""
    if not client.get("security.protocol", "").upper().endswith("SSL"):
        return None
    return Tls({key: value for key, value in client.items() if key.startswith(("ssl.", "enable.ssl."))}, table)


# Sessions: the time for which a login holds (KIP-368).


NEVER: Final = float("inf")
_RENEWED_AFTER: Final = 0.85
_LEAST_RENEWAL_SECONDS: Final = 1.1


class Session(NamedTuple):
    """Until when a login holds, and when it is to be renewed; monotonic seconds."""

    renewed_at: float
    ends_at: float
    is_too_short: bool = False
    """A broker lets no client log in twice within a second on one connection."""

    @classmethod
    def of(cls, began: float, seconds: float) -> Session:
        """Return the session of a login; the broker's clock for it began after ``began``."""
        return cls(began + _RENEWED_AFTER * seconds, began + seconds, _RENEWED_AFTER * seconds < _LEAST_RENEWAL_SECONDS)

    def is_due(self, now: float) -> bool:
        """Return whether it is to be renewed."""
        return now >= self.renewed_at

    def is_over(self, now: float) -> bool:
        """Return whether it has ended."""
        return now >= self.ends_at

    def later(self, now: float) -> Session:
        """Return the same session, to be renewed a little later."""
        return self._replace(renewed_at=min(self.ends_at, now + _LEAST_RENEWAL_SECONDS))


NO_SESSION: Final = Session(NEVER, NEVER)
