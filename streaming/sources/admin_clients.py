"""Ends each client of librdkafka on a thread of ours, whatever becomes of the objects that refer to it.

librdkafka aborts the process if a client is destroyed on one of its own threads. Python frees an unused client wherever
its collector of cycles happens to run, and results of requests are made on a thread of the client. One that was
replaced while a request of it was in flight can end there, and the process with it; one that was closed is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.errors import ConfigurationError
from streaming.sources.admin_refusals import error_of
from streaming.sources.protocol.tokens import COMMAND, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        raise ConfigurationError(f"[cluster.client] is refused by librdkafka: {reason}") from None


def close(client: AdminClient) -> None:
    """End a client, on the thread that calls."""
    client.__exit__(None, None, None)  # type: ignore[attr-defined] # not in the stubs yet
