"""Samples of brokers that speak Kafka's protocol: who is asked for what, and what a hung or a lost one costs."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.contracts.samples import LogDirectoryObserved, ReplicaOffsetsObserved
from streaming.errors import ConnectionRefused
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.source import SamplesSource
from tests.blocks import singly
from tests.plugins.fake_kafka import METADATA, FakeKafka
from tests.sources.samples.opened import PATIENCE, open_samples, polled, until

OpenSource = Callable[..., SamplesSource]

PERIOD = Micros(100_000)


def kinds() -> Sequence[Kind]:
    directories = DirectoriesKind(PERIOD)
    return [directories, OffsetsKind(PERIOD, directories)]


@pytest.fixture
def open_source() -> Iterator[OpenSource]:
    with ExitStack() as stack:
        yield lambda cluster, **options: stack.enter_context(
            closing(open_samples(cluster.bootstrap_servers, kinds, PERIOD, **options))
        )


@pytest.fixture
def cluster(fake_kafka: Callable[[int], FakeKafka]) -> FakeKafka:
    """Three brokers; broker 1 leads partition 0 and so on, and the third replica of each lacks 5 records of 100."""
    made = fake_kafka(3)
    made.create_topic("orders", partitions=3, replicas=3)
    for part in made.view.topics["orders"].parts:
        part.ends = dict(zip(part.replicas, (100, 100, 95), strict=True))
    return made


def newest(found: list[Observation]) -> dict[tuple[int, int], ReplicaOffsetsObserved]:
    """Return the last sample by partition and broker."""
    return {(item.partition, item.broker): item for item in found if isinstance(item, ReplicaOffsetsObserved)}


def has_all(seen: list[Observation]) -> bool:
    return len(newest(seen)) == 9


def is_whole(seen: list[Observation]) -> bool:
    known = [None not in (each.size_bytes, each.leader_log_end_offset) for each in newest(seen).values()]
    return has_all(seen) and all(known)


def rounds(found: list[Observation], broker: int) -> int:
    return len([item for item in found if isinstance(item, LogDirectoryObserved) and item.broker == broker])


@pytest.fixture
def source(open_source: OpenSource, cluster: FakeKafka) -> SamplesSource:
    """A source that has sampled every replica once."""
    source = open_source(cluster)
    until(source, has_all)
    return source


def test_every_replica_is_sampled_with_what_its_leader_has(open_source: OpenSource, cluster: FakeKafka) -> None:
    began = time.time_ns() // 1000
    found = newest(until(open_source(cluster), is_whole))
    times = [(item.occurred_not_before, item.occurred_not_after) for item in found.values()]
    assert all(began <= asked <= answered for asked, answered in times)
    for number, part in enumerate(cluster.view.topics["orders"].parts):
        for broker, end in part.ends.items():
            sample = found[number, broker]
            assert (sample.log_end_offset, sample.leader_log_end_offset) == (end, 100)
            assert (sample.size_bytes, sample.log_dir) == (end * 10, "/data")
            led = (sample.log_start_offset, sample.high_watermark, sample.last_stable_offset)
            assert led == ((0, 100, 100) if broker == part.leader else (None, None, None))


def test_directories_have_their_volumes(open_source: OpenSource, cluster: FakeKafka) -> None:
    found = until(open_source(cluster), lambda seen: all(rounds(seen, broker) for broker in (1, 2, 3)))
    reported = {item.broker: item for item in found if isinstance(item, LogDirectoryObserved)}
    assert {
        (item.log_dir, item.is_online, item.hosted_replicas, item.replica_bytes, item.total_bytes, item.usable_bytes)
        for item in reported.values()
    } == {("/data", True, 3, 2950, 1000, 600)}


def test_a_hung_broker_costs_its_own_samples_and_the_lag_of_what_it_leads(
    open_source: OpenSource, cluster: FakeKafka
) -> None:
    source = open_source(cluster, seconds=30.0)
    until(source, has_all)
    cluster.hang(1, 600_000)
    until(source, lambda seen: rounds(seen, 2) > 1)  # what was asked before is answered
    began = time.monotonic()
    found = until(source, lambda seen: min(rounds(seen, 2), rounds(seen, 3)) > 3)
    assert time.monotonic() - began < 20.0
    samples = newest(found)
    assert {broker for _, broker in samples} == {2, 3}
    assert {number for (number, _), each in samples.items() if each.leader_log_end_offset is None} == {0}
    assert {each.log_end_offset for each in samples.values()} == {100, 95}


def test_a_broker_that_hangs_from_the_beginning_costs_the_first_round_one_timeout(
    open_source: OpenSource, cluster: FakeKafka
) -> None:
    cluster.hang(1, 600_000)
    source = open_source(cluster, seconds=1.0)
    samples = newest(until(source, lambda seen: len(newest(seen)) == 6))
    assert {broker for _, broker in samples} == {2, 3}
    assert {number for (number, _), each in samples.items() if each.leader_log_end_offset is None} == {0}


def test_a_broker_that_left_is_not_asked_and_who_leads_now_is(source: SamplesSource, cluster: FakeKafka) -> None:
    cluster.take_down(1)
    cluster.set_leader("orders", 0, 2)

    def is_moved(seen: list[Observation]) -> bool:
        sample = newest(seen).get((0, 2))
        return sample is not None and sample.high_watermark == 100

    until(source, is_moved)
    found = newest(until(source, lambda seen: min(rounds(seen, 2), rounds(seen, 3)) > 3))
    assert {broker for _, broker in found} == {2, 3}
    assert all(each.leader_log_end_offset == 100 for each in found.values())


def asked_as_leaders(cluster: FakeKafka, since: int) -> set[int]:
    """Which brokers were asked for what the leader of the first partition knows."""
    return {
        broker
        for broker, request in cluster.requests[since:]
        if isinstance(request, ListOffsetsRequest) and request.replica_id == -1
        if any(part.partition_index == 0 for topic in request.topics for part in topic.partitions)
    }


def asked_for_the_view(cluster: FakeKafka, since: int) -> list[int]:
    return [broker for broker, request in cluster.requests[since:] if isinstance(request, MetadataRequest)]


def test_each_round_begins_with_who_leads(source: SamplesSource, cluster: FakeKafka) -> None:
    cluster.set_leader("orders", 0, 2)
    changed = len(cluster.requests)
    until(source, lambda _: asked_for_the_view(cluster, changed))
    begun = changed + next(
        n for n, (_, each) in enumerate(cluster.requests[changed:]) if isinstance(each, MetadataRequest)
    )
    until(source, lambda _: asked_as_leaders(cluster, begun))
    assert asked_as_leaders(cluster, begun) == {2}


def test_a_broker_that_is_cut_off_is_not_believed_who_leads(source: SamplesSource, cluster: FakeKafka) -> None:
    cluster.views[3] = copy.deepcopy(cluster.view)
    cluster.set_leader("orders", 0, 2)
    changed = len(cluster.requests)
    until(source, lambda _: 2 in asked_as_leaders(cluster, changed))
    changed = len(cluster.requests)
    until(source, lambda _: asked_for_the_view(cluster, changed).count(3) > 2)
    assert asked_as_leaders(cluster, changed) == {2}
    cluster.views |= {1: cluster.views[3], 2: cluster.views[3]}
    until(source, lambda _: 1 in asked_as_leaders(cluster, changed))  # all say it


def test_the_times_of_samples_do_not_run_backwards_with_the_clock(open_source: OpenSource, cluster: FakeKafka) -> None:
    source = open_source(cluster)
    found: list[Observation] = []
    ahead = time.time_ns() // 1000
    for minutes in (0, 10, 70):
        deadline, before = time.monotonic() + PATIENCE, len(found)
        while rounds(found[before:], 1) < 2:
            assert time.monotonic() < deadline
            found += singly(source.poll(Micros(time.time_ns() // 1000 - minutes * 60_000_000)))
        if minutes == 10:
            assert all(earlier.collected_at <= later.collected_at for earlier, later in pairwise(found))
    assert found[-1].collected_at < ahead - 3_600_000_000, "the job refuses what is an hour ahead of its clock"


def test_a_topic_that_was_created_again_is_another(open_source: OpenSource, cluster: FakeKafka) -> None:
    source = open_source(cluster)
    before = newest(until(source, has_all))
    cluster.delete_topic("orders")
    cluster.create_topic("orders", partitions=1, replicas=3)
    old = {each.topic_id for each in before.values()}

    def is_new(seen: list[Observation]) -> bool:
        return any(each.topic_id not in old for each in newest(seen).values())

    until(source, is_new)
    found = until(source, lambda seen: rounds(seen, 1) > 3)
    assert not {each.topic_id for each in newest(found).values()} & old


def test_a_missing_permission_is_raised_once_and_the_rest_is_sampled(source: SamplesSource, cluster: FakeKafka) -> None:
    cluster.create_topic("secret", partitions=1, replicas=1)
    cluster.refuse_topic("secret")
    refused: list[ConnectionRefused] = []
    found = until(source, lambda seen: rounds(seen, 1) >= 6, refused)
    (refusal,) = refused
    assert "lacks Describe on topic secret" in str(refusal)
    assert has_all(found)


def test_a_broker_that_is_older_than_the_others_has_its_offsets(open_source: OpenSource, cluster: FakeKafka) -> None:
    cluster.old = {2}
    found = newest(until(open_source(cluster), has_all))
    assert {each.leader_log_end_offset for each in found.values()} == {100}
    assert {broker for (_, broker), each in found.items() if each.size_bytes is not None} <= {1, 3}


def test_of_a_cluster_with_old_brokers_alone_there_are_offsets_and_no_sizes(
    open_source: OpenSource, cluster: FakeKafka
) -> None:
    cluster.old = {1, 2, 3}
    found = newest(until(open_source(cluster), has_all))
    assert {each.leader_log_end_offset for each in found.values()} == {100}
    assert {each.size_bytes for each in found.values()} == {None}


def test_of_a_cluster_that_is_too_old_there_are_no_samples_and_one_line(
    open_source: OpenSource, cluster: FakeKafka
) -> None:
    cluster.newest[METADATA] = 4
    lines: list[str] = []
    source = open_source(cluster, report=lines.append)
    began = time.monotonic()
    while time.monotonic() - began < 0.8:
        assert not polled(source)
    (line,) = lines
    assert "there are no samples of this cluster" in line
    assert "older than Kafka 1.0" in line


def test_nobody_who_says_which_brokers_there_are_is_a_refusal(open_source: OpenSource, cluster: FakeKafka) -> None:
    source = open_source(cluster)
    for broker in (1, 2, 3):
        cluster.take_down(broker)
    with pytest.raises(ConnectionRefused, match="cannot be reached"):
        until(source, lambda _: False)
    for broker in (1, 2, 3):
        cluster.bring_up(broker)
    until(source, has_all, [])


def test_another_cluster_under_the_same_address_begins_anew(source: SamplesSource, cluster: FakeKafka) -> None:
    cluster.cluster_id = "another"
    until(source, lambda seen: {item.cluster_id for item in seen[-3:]} == {"another"})


@pytest.mark.usefixtures("source")
def test_a_round_asks_each_broker_five_times_for_offsets(cluster: FakeKafka) -> None:
    asked = cluster.asked(ListOffsetsRequest)
    kinds_asked = {
        (broker, each.replica_id, each.isolation_level, part[0].timestamp, len(part))
        for broker, each in asked
        for part in [each.topics[0].partitions]
    }
    of_each = {(-1, 0, -2, 1), (-1, 0, -1, 1), (-1, 1, -1, 1), (-2, 0, -1, 1), (-2, 0, -1, 2)}
    assert kinds_asked == {(broker, *kind) for broker in (1, 2, 3) for kind in of_each}
