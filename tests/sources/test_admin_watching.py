"""Polling that watches the brokers: when it does, what is asked at once, and what is reported of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest, DescribeQuorumRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import (
    BrokerObserved,
    ControllerObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SourceKind,
)
from streaming.sources.polling.inference.inference import Inference
from streaming.sources.polling.source import AdminSource
from tests.blocks import singly
from tests.plugins.fake_kafka import FakeKafka

Make = Callable[..., FakeKafka]
HOUR = 3_600_000_000


@pytest.fixture
def source_of() -> Iterator[Callable[..., AdminSource]]:
    with ExitStack() as stack:

        def make(cluster: FakeKafka, **settings: Any) -> AdminSource:
            every = {"poll_micros": HOUR, "view_micros": 100_000, "config_micros": HOUR, "presence_micros": 100_000}
            source = AdminSource(
                bootstrap_servers=cluster.bootstrap_servers, client={}, cluster="test", name="admin:a",
                **{"source_kind": SourceKind.POLL, "request_seconds": 2.0, **every, **settings},
            )  # fmt: skip
            return stack.enter_context(closing(source))

        yield make


SourceOf = Callable[..., AdminSource]


def until(source: AdminSource, enough: Callable[[list[Observation]], object]) -> list[Observation]:
    found, end = list[Observation](), time.monotonic() + 20
    while not enough(found):
        assert time.monotonic() < end, found[-5:]
        found += singly(source.poll(Micros(time.time_ns() // 1000)))
    return found


def has(kind: type[Observation]) -> Callable[[list[Observation]], bool]:
    return lambda found: any(isinstance(each, kind) for each in found)


def whole_polls(cluster: FakeKafka) -> int:
    return sum(request.topics is None for _, request in cluster.asked(MetadataRequest))


def asked_for(source: AdminSource, cluster: FakeKafka, kind: type[Any], count: int) -> list[Observation]:
    return until(source, lambda _: len(cluster.asked(kind)) >= count)


def test_a_broker_that_ends_is_seen_long_before_the_next_poll(fake_kafka: Make, source_of: SourceOf) -> None:
    """Its partitions are asked about, and once all metadata, which are due in an hour."""
    source = source_of(cluster := fake_kafka(3, orders=3))
    until(source, has(SnapshotEnd))
    asked_for(source, cluster, DescribeClusterRequest, 9)
    before = whole_polls(cluster)
    cluster.take_down(2)
    cluster.fenced.add(2)
    for part in cluster.view.topics["orders"].parts:
        part.isr = [1, 3]
        part.leader, part.leader_epoch = (1, 1) if part.leader == 2 else (part.leader, part.leader_epoch)
    began = time.monotonic()
    found = until(source, lambda found: sum(isinstance(each, PartitionObserved) for each in found) >= 3)
    assert time.monotonic() - began < 8
    parts = [each for each in found if isinstance(each, PartitionObserved)]
    assert {frozenset(each.isr) for each in parts} == {frozenset({1, 3})}
    assert all(each.occurred_not_after - each.occurred_not_before < HOUR // 100 for each in parts)
    until(source, lambda _: whole_polls(cluster) > before)
    assert whole_polls(cluster) - before == 1, "no more than another one each interval"


def test_a_broker_that_lags_behind_an_election_which_others_have_shown_is_no_other_log(
    fake_kafka: Make, source_of: SourceOf
) -> None:
    source = source_of(cluster := fake_kafka(3, orders=6), poll_micros=500_000)
    until(source, has(SnapshotEnd))
    asked_for(source, cluster, DescribeClusterRequest, 9)
    (lags, _) = next(each for each in reversed(cluster.asked(MetadataRequest)) if each[1].topics is None)
    gone = next(broker for broker in (1, 2, 3) if broker != lags)
    cluster.views[lags] = copy.deepcopy(cluster.view)
    cluster.take_down(gone)
    cluster.fenced.add(gone)
    for part in cluster.view.topics["orders"].parts:
        part.isr = [broker for broker in part.isr if broker != gone]
        part.leader, part.leader_epoch = (part.isr[-1], 1) if part.leader == gone else (part.leader, part.leader_epoch)
    found = until(
        source, lambda found: any(each.leader_epoch == 1 for each in found if isinstance(each, PartitionObserved))
    )
    before = whole_polls(cluster)
    found += until(source, lambda _: whole_polls(cluster) > before + 4)
    steps = [each for each in found if isinstance(each, PartitionObserved)]
    assert not [each for each in found if isinstance(each, SnapshotBegin) and each.is_new_log]
    by_partition = {each.partition: [] for each in steps}
    for each in steps:
        by_partition[each.partition].append(each.leader_epoch)
    assert all(epochs == sorted(epochs) for epochs in by_partition.values()), by_partition


def test_the_quorum_is_reported_as_the_brokers_say_and_again_when_it_has_another_leader(
    fake_kafka: Make, source_of: SourceOf
) -> None:
    cluster = fake_kafka(2, orders=1)
    cluster.newest[DescribeQuorumRequest.API_KEY] = 2
    source = source_of(cluster)
    first = [each for each in until(source, has(ControllerObserved)) if isinstance(each, ControllerObserved)]
    cluster.quorum = (102, 7)
    second = [each for each in until(source, has(ControllerObserved)) if isinstance(each, ControllerObserved)]
    assert [(each.controller, each.controller_epoch) for each in (*first, *second)] == [(101, 1), (102, 7)]
    assert {each.source_kind for each in (*first, *second)} == {SourceKind.POLL}


def test_while_the_log_is_read_no_broker_is_watched_and_while_it_is_not_all_are(
    fake_kafka: Make, source_of: SourceOf
) -> None:
    cluster, is_current = fake_kafka(3, orders=1), [True]
    source = source_of(
        cluster, source_kind=SourceKind.NONE, poll_micros=100_000, is_primary_current=lambda: is_current[0]
    )
    until(source, lambda _: whole_polls(cluster) >= 3)
    assert not cluster.asked(DescribeClusterRequest)
    at_rest = cluster.connections()
    is_current[0] = False
    found = asked_for(source, cluster, DescribeClusterRequest, 6)
    assert has(SnapshotEnd)(found)
    is_current[0] = True
    until(source, lambda _: cluster.connections() <= at_rest)
    asked = len(cluster.asked(DescribeClusterRequest))
    polls = whole_polls(cluster)
    found = until(source, lambda _: whole_polls(cluster) >= polls + 3)
    assert len(cluster.asked(DescribeClusterRequest)) == asked
    assert not [each for each in found if isinstance(each, PartitionObserved | BrokerObserved)]


def test_each_broker_is_asked_on_one_connection_that_is_kept(fake_kafka: Make, source_of: SourceOf) -> None:
    source = source_of(cluster := fake_kafka(4, orders=1))
    asked_for(source, cluster, DescribeClusterRequest, 4)
    many = cluster.connections()
    asked_for(source, cluster, DescribeClusterRequest, 40)
    assert cluster.connections() <= many


def test_the_configured_times_of_the_cluster_are_those_of_what_is_inferred(
    fake_kafka: Make, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = dict[str, int]()
    monkeypatch.setattr(Inference, "use_times", lambda _, **times: used.update(times))
    cluster = fake_kafka(2, orders=1)
    cluster.configs = {"1": {"broker.session.timeout.ms": "18000"}, "2": {"replica.lag.time.max.ms": "10000"}}
    until(source_of(cluster), lambda _: len(used) == 2)
    assert used == {"session": 18_000_000, "lag": 10_000_000}
