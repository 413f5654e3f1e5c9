"""What librdkafka complains of, as one sentence that names the address or the permission, and the fix.

Knows librdkafka's error codes only.
"""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streaming.errors import ConnectionRefused

# Prefix "ssl://127.0.0.1:9092/bootstrap: " and suffix "(after 0ms in state CONNECT, 3 identical errors ...)".
_NOISE: Final = re.compile(r"^\S+/(?:bootstrap|\d+): |\s*\(after \d+ms in state .*$")
# The most telling first: a refused login also brings the broker down.
_TELLING: Final = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes carry an underscore
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,  # noqa: SLF001 - librdkafka names its own errors so
    KafkaError._RESOLVE,  # noqa: SLF001 - librdkafka names its own errors so
    KafkaError._TRANSPORT,  # noqa: SLF001 - librdkafka names its own errors so
)
_FORBIDDEN: Final = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})


def error_of(failure: KafkaException) -> KafkaError:
    """Unwrap librdkafka's error."""
    error = failure.args[0]
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001 - librdkafka names its own errors so


class Complaints:
    """The newest complaint of each kind, as librdkafka's background threads report them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._newest: dict[int, str] = {}

    def __call__(self, error: KafkaError) -> None:
        """Keep one; this is librdkafka's ``error_cb``."""
        text = _NOISE.sub("", error.str())
        # A hint at a mismatch of TLS is followed by mere disconnects.
        if "SSL" in text or "SSL" not in self._newest.get(error.code(), ""):
            self._newest[error.code()] = text

    def clear(self) -> None:
        """Forget: the cluster answers again."""
        self._newest.clear()

    def refusal(self, failure: KafkaException) -> ConnectionRefused:
        """Say why the cluster could not be read."""
        servers = self._bootstrap_servers
        code = next((code for code in _TELLING if code in self._newest), None)
        detail = self._newest.get(code, "") if code is not None else ""
        if code in _TELLING[:2]:
            return ConnectionRefused(
                f"Kafka at {servers} does not let us log in: {detail}; check sasl.* under [cluster.client]"
            )
        if code == KafkaError._SSL or "SSL handshake" in detail:  # noqa: SLF001 - librdkafka names its own errors so
            return ConnectionRefused(
                f"no TLS with Kafka at {servers}: {detail}; check security.protocol and ssl.* under [cluster.client]"
            )
        if code == KafkaError._RESOLVE:  # noqa: SLF001 - librdkafka names its own errors so
            return ConnectionRefused(f"{detail}; check cluster.bootstrap_servers, which is {servers}")
        detail = detail or error_of(failure).str()
        return ConnectionRefused(
            f"no broker answers at {servers}: {detail}; check cluster.bootstrap_servers and security.protocol under "
            "[cluster.client]"
        )


def forbidden(failure: BaseException, operation: str, resource: str) -> ConnectionRefused | None:
    """Name the permission that is missing; None where the failure is of another kind."""
    if isinstance(failure, KafkaException) and error_of(failure).code() in _FORBIDDEN:
        return ConnectionRefused(f"Kafka does not let us: grant {operation} on {resource} to the user of isrwatch")
    return None
