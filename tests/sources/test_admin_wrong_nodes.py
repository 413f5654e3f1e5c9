"""Polls where addresses lead to other brokers or to another cluster: who answered, and of which cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ConfigObserved, Heartbeat, Observation, SnapshotBegin, SourceKind
from streaming.errors import ConnectionRefused
from streaming.sources.polling import metadata
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.source import AdminSource
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from streaming.sources.source import monotonic
from tests.blocks import singly
from tests.plugins.fake_kafka import BROKER, MIN_ISR, FakeKafka, View

Make = Callable[..., FakeKafka]
OTHER = "zzzzzzzzzzzzzzzzzzzzzg"


def source_of(cluster: FakeKafka) -> AdminSource:
    every = {"poll_micros": 50_000, "view_micros": 50_000, "config_micros": 100_000, "snapshot_micros": 100_000}
    return AdminSource(
        bootstrap_servers=cluster.bootstrap_servers, client={}, cluster="test", name="admin:a",
        source_kind=SourceKind.POLL, request_seconds=2.0, **every,
    )  # fmt: skip


def polled(
    source: AdminSource, enough: Callable[[list[Observation]], object], refused: list[ConnectionRefused]
) -> list[Observation]:
    found: list[Observation] = []
    until = time.monotonic() + 30.0
    while not enough(found):
        assert time.monotonic() < until, refused[-1:]
        try:
            found += singly(source.poll(Micros(time.time_ns() // 1000)))
        except ConnectionRefused as refusal:
            refused.append(refusal)
    return found


def count(found: list[Observation], kind: type[Any]) -> int:
    return sum(isinstance(each, kind) for each in found)


def recycle(cluster: FakeKafka, broker: int) -> None:
    """Let the port of a broker be one of another cluster, with a topic of the same name."""
    cluster.disconnect(broker)
    other = FakeKafka(1)
    other.create_topic("orders", partitions=1, replicas=1)
    cluster.views[broker], cluster.cluster_ids[broker] = View(other.view.topics, [broker]), OTHER
    other.close()
    cluster.configs["orders"] = {MIN_ISR: "2"}
    cluster.bring_up(broker)


@pytest.mark.parametrize("recycled", [1, 2])
def test_a_port_of_another_cluster_is_not_polled(
    fake_kafka: Make, recycled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "ELSEWHERE_EVERY", Micros(50_000))
    cluster, refused = fake_kafka(3, orders=3), list[ConnectionRefused]()
    with closing(source_of(cluster)) as source:
        polled(source, lambda seen: count(seen, ConfigObserved), refused)
        recycle(cluster, recycled)
        cluster.requests.clear()
        found = polled(source, lambda seen: count(seen, SnapshotBegin) > 5, refused)
    assert {each.cluster_id for each in found} == {cluster.cluster_id}
    asked = [each.resource_type for broker, one in cluster.asked(DescribeConfigsRequest) for each in one.resources
             if broker == recycled]  # fmt: skip
    assert set(asked) <= {BROKER}, "who it is, and nothing of topics"


def test_a_cluster_that_was_rebuilt_at_its_addresses_is_polled(fake_kafka: Make) -> None:
    cluster, refused = fake_kafka(2, orders=1), list[ConnectionRefused]()
    with closing(source_of(cluster)) as source:
        polled(source, lambda seen: count(seen, Heartbeat), refused)
        for broker in (1, 2):
            recycle(cluster, broker)
        found = polled(source, lambda seen: any(each.cluster_id == OTHER for each in seen), refused)
    assert count(found, SnapshotBegin)


def test_two_addresses_of_one_broker_are_no_two_opinions(fake_kafka: Make) -> None:
    cluster = fake_kafka(2, orders=1)
    address = ("127.0.0.1", cluster.ports[2])
    cluster.ids[2] = 1
    opened = ConnectedBrokers(dialer(Security()), cluster="test", seconds=2.0)
    with closing(opened(Address(*address))) as broker:
        answer = broker.answer((), Micros(monotonic() + 2_000_000))
    assert answer.view.answered_by == 1
