"""What a cluster refuses, as one sentence with the address or the permission, and the fix; librdkafka's errors, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from streaming.errors import ConnectionRefused
from streaming.sources.permissions import Denied, addressed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.sources.permissions import Grantee, Permission

# Prefix "ssl://127.0.0.1:9092/bootstrap: " and suffix "(after 0ms in state CONNECT, 3 identical errors ...)".
_NOISE: Final = re.compile(r"^\S+/(?:bootstrap|\d+): |\s*\(after \d+ms in state .*$")
# The most specific first: a failed authentication is also reported as "broker down".
_MOST_SPECIFIC: Final = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes carry an underscore
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,  # noqa: SLF001 - librdkafka names its own errors so
    KafkaError._RESOLVE,  # noqa: SLF001 - librdkafka names its own errors so
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka names its own errors so
)
_AUTHORIZATION_FAILED: Final = frozenset(
    {KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)


class Missing:
    """What is missing, each thing raised once, and again if it was there meanwhile.

    Args:
        grantee: who lacks it.
    """

    def __init__(self, grantee: Grantee) -> None:
        self._grantee = grantee
        self._raised: set[str] = set()

    def raise_new(self, refusals: Iterable[ConnectionRefused | None]) -> None:
        """Raise the first of what is missing now that was not raised yet.

        Raises:
            ConnectionRefused: there is one.
        """
        missing = {str(each): each for each in refusals if each is not None}
        self._raised &= missing.keys()
        for sentence, each in missing.items():
            if sentence not in self._raised:
                self._raised.add(sentence)
                raise addressed(each, self._grantee)


def error_of(failure: KafkaException) -> KafkaError:
    """Return librdkafka's error of an exception."""
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001 - librdkafka names its own errors so


class ClientErrors:
    """The newest error of each code, as reported by librdkafka's background threads."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._newest: dict[int, str] = {}

    def __call__(self, error: KafkaError) -> None:
        """Keep an error; this is librdkafka's ``error_cb``."""
        text = _NOISE.sub("", error.str())
        # The hint at a TLS mismatch comes first, later errors of the same code are plain disconnects.
        if "SSL" in text or "SSL" not in self._newest.get(error.code(), ""):
            self._newest[error.code()] = text

    def clear(self) -> None:
        """Forget all errors, because the cluster responds again."""
        self._newest.clear()

    def refusal(self, failure: KafkaException) -> ConnectionRefused:
        """Return why the cluster could not be read."""
        servers = self._bootstrap_servers
        code = next((code for code in _MOST_SPECIFIC if code in self._newest), None)
        detail = self._newest.get(code, "") if code is not None else ""
        if code in _MOST_SPECIFIC[:2]:
            return ConnectionRefused(
                f"Kafka at {servers} refuses the login: {detail}; check sasl.* under [cluster.client]"
            )
        if code == KafkaError._SSL or "SSL handshake" in detail:  # noqa: SLF001 - librdkafka names its own errors so
            return ConnectionRefused(
                f"no TLS with Kafka at {servers}: {detail}; check security.protocol and ssl.* under [cluster.client]"
            )
        if code == KafkaError._RESOLVE:  # noqa: SLF001 - librdkafka names its own errors so
            return ConnectionRefused(f"{detail}; check cluster.bootstrap_servers, which is {servers}")
        return unanswered(servers, detail or error_of(failure).str())


def unanswered(servers: str, reason: object) -> ConnectionRefused:
    """Return the refusal of a cluster of which no broker answers."""
    return ConnectionRefused(
        f"no broker answers at {servers}: {reason}; check cluster.bootstrap_servers and security.protocol under "
        "[cluster.client]"
    )


def missing_permission(failure: BaseException | None, permission: Permission, *, on: str = "") -> Denied | None:
    """Return the refusal that names the missing permission, None for any other failure and for none."""
    if isinstance(failure, KafkaException) and error_of(failure).code() in _AUTHORIZATION_FAILED:
        return Denied(permission, on=on)
    return None
