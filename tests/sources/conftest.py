"""Fixtures of the room of sources."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from streaming.sources.polling.reassignments import ReassignmentsRound, dialer_of
from tests.plugins.fake_kafka import FakeKafka
from tests.plugins.mock_kafka import MockKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def mock_kafka() -> Iterator[Callable[[int], MockKafka]]:
    """Give a factory of librdkafka's mock clusters, which end with the test."""
    with ExitStack() as stack:

        def make(brokers: int = 3) -> MockKafka:
            cluster = MockKafka(brokers)
            stack.callback(cluster.close)
            return cluster

        yield make


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


def unlisted() -> ReassignmentsRound:
    """Return a round that nobody answers."""
    return ReassignmentsRound(dialer_of({"security.protocol": "of librdkafka alone"}), name="t", seconds=1)
