"""Ends each client of librdkafka on a thread of ours, whatever becomes of the objects that refer to it.

librdkafka aborts the process if a client is destroyed on one of its own threads. Python frees an unused client wherever
its collector of cycles happens to run, and results of requests are made on a thread of the client. One that was
replaced while a request of it was in flight can end there, and the process with it; one that was closed is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, libversion
from confluent_kafka.admin import AdminClient

from streaming.errors import ConfigurationError
from streaming.sources.admin_refusals import error_of
from streaming.sources.protocol.tokens import COMMAND, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_LACKS_GSSAPI: Final = "No provider for SASL mechanism GSSAPI"


def new_client(properties: Mapping[str, Any]) -> AdminClient:
    """Create a client.

    Raises:
        ConfigurationError: librdkafka refuses a property.
    """
    command = properties.get(COMMAND)
    passed = {key: value for key, value in properties.items() if key != COMMAND}
    if command is not None:  # librdkafka asks for a token when it needs one, on a thread of its own
        tokens = tokens_of(properties, "cluster.client")
        passed["oauth_cb"] = lambda _: tuple(tokens.current())
    try:
        return AdminClient(passed)
    except (KafkaException, TypeError, ValueError) as failure:
        reason = error_of(failure).str() if isinstance(failure, KafkaException) else str(failure)
        if _LACKS_GSSAPI in reason:
            raise ConfigurationError(_no_gssapi()) from None
        raise ConfigurationError(f"[cluster.client] is refused by librdkafka: {reason}") from None


def _no_gssapi() -> str:
    """Say how to get it (confluent-kafka-python, INSTALL.md)."""
    version, _ = libversion()
    return (
        f"cluster.client sasl.mechanism is GSSAPI (Kerberos), which this librdkafka {version} was built without, as in "
        f"every wheel of confluent-kafka: install librdkafka {version} or newer with its headers, built with libsasl2, "
        "then: pip install --force-reinstall --no-binary confluent-kafka confluent-kafka"
    )


def close(client: AdminClient) -> None:
    """End a client, on the thread that calls."""
    client.__exit__(None, None, None)  # type: ignore[attr-defined] # not in the stubs yet
