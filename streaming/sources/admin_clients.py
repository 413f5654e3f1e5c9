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
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future

    from streaming.contracts.identifiers import Micros


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


class AdminClients:
    """Every client that was made and not yet closed. Not thread-safe.

    Args:
        connect: creates a client for a list of addresses.
    """

    def __init__(self, connect: Callable[[str], AdminClient]) -> None:
        self._connect = connect
        self._unused_since: dict[AdminClient, Micros | None] = {}
        self._reading: dict[AdminClient, Future[Any]] = {}

    def made(self, servers: str) -> AdminClient:
        """Create a client for a list of addresses; it is in use."""
        client = self._connect(servers)
        self._unused_since[client] = None
        return client

    def is_read_by(self, client: AdminClient, reading: Future[Any]) -> None:
        """Note that a thread reads with a client until a future is done: before that it must not be closed."""
        self._reading[client] = reading

    def close_unused(self, used: Collection[AdminClient], now: Micros, patience: int) -> None:
        """Close the clients that have not been used for a while, in which the last requests of each have ended.

        Args:
            used: those that are in use.
            now: the monotonic time.
            patience: how long they have not been, microseconds.
        """
        for client, since in list(self._unused_since.items()):
            if client in used:
                self._unused_since[client] = None
            elif since is None:
                self._unused_since[client] = now
            elif now - since > patience:
                self._close(client)

    def close(self) -> None:
        """Close every client, one that a thread reads with as soon as it has read."""
        for client in list(self._unused_since):
            self._close(client)

    def _close(self, client: AdminClient) -> None:
        del self._unused_since[client]
        reading = self._reading.pop(client, None)
        end = client.__exit__  # type: ignore[attr-defined] # not in the stubs yet
        if reading is None:
            end(None, None, None)
        else:  # at once, if it is done
            reading.add_done_callback(lambda _: end(None, None, None))
