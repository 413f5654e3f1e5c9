"""Fixtures of the room of sources."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import SourceKind
from streaming.errors import ConnectionRefused
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import Connection
from tests.plugins.fake_kafka import FakeKafka


@pytest.fixture
def fake_kafka() -> Iterator[Callable[..., FakeKafka]]:
    """Give a factory of clusters of brokers that speak Kafka's protocol, which end with the test.

    Its topics have so many partitions each, on all brokers.
    """
    with ExitStack() as stack:

        def make(brokers: int = 3, **topics: int) -> FakeKafka:
            cluster = FakeKafka(brokers)
            stack.callback(cluster.close)
            for topic, partitions in topics.items():
                cluster.create_topic(topic, partitions=partitions, replicas=brokers)
            return cluster

        yield make


def envelope(at: int = 2) -> dict[str, Any]:
    """Return what all observations of a poll have in common."""
    times = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(at))
    return {"cluster_id": ClusterId("c"), "cluster": "c", "source": "admin:a", "source_kind": SourceKind.POLL, **times}


def unlisted() -> ReassignmentsRound:
    """Return a round that nobody answers."""

    def dial(address: Address, *, response_seconds: float) -> Connection:  # noqa: ARG001 - the signature of Dial
        raise ConnectionRefused(f"{address} cannot be reached")

    return ReassignmentsRound(dial, name="t", seconds=1)


def answer(body: str, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.end_headers()
        request.wfile.write(body.encode(errors="surrogateescape"))

    return handle


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Give a factory of local servers: a handler in, the address out."""
    with ExitStack() as stack:

        def start(handle: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    handle(self)

                do_POST = do_GET  # noqa: N815 - the name that the server calls

                def log_message(self, *_: object) -> None:
                    """Stay silent."""

            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            if tls is not None:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}/metrics"

        yield start
