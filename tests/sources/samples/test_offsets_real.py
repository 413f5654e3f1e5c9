"""Samples of a real cluster: what was written, what followers lack, and what Kafka's own tools say at rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from deploy.sandbox import Sandbox, wait_until
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.contracts.samples import LogDirectoryObserved, ReplicaOffsetsObserved
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.samples.source import SamplesSource, open_samples
from tests.blocks import singly
from tests.topic_writer import TopicWriter

MakeSandbox = Any
Samples = dict[tuple[str, int, int], ReplicaOffsetsObserved]

pytestmark = [pytest.mark.kafka]

PATIENCE_SECONDS = 120.0
TOPIC = "sampled"
SPREAD = ([1, 2, 3], [2, 3, 1], [3, 1, 2])


def opened(cluster: Sandbox) -> SamplesSource:
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
        collect=CollectSettings(offsets_interval=0.5, directories_interval=1.0),
    )
    (source,) = open_samples(settings, print)
    return source


def until(source: SamplesSource, enough: Callable[[list[Observation]], object]) -> list[Observation]:
    found: list[Observation] = []
    began = time.monotonic()
    while not enough(found):
        assert time.monotonic() - began < PATIENCE_SECONDS, f"seen so far: {found[-10:]}"
        found += singly(source.poll(Micros(time.time_ns() // 1000)))
    return found


def newest(found: list[Observation]) -> Samples:
    """Return the last sample by topic, partition and broker."""
    return {
        (item.topic, item.partition, item.broker): item
        for item in found
        if isinstance(item, ReplicaOffsetsObserved) and item.topic == TOPIC
    }


def write(cluster: Sandbox, topic: str, records: int) -> None:
    with TopicWriter(cluster.bootstrap_servers, topic, acks="all") as writer:
        wait_until(lambda: writer.delivered >= records, f"{records} records")


def are_whole(samples: Samples) -> bool:
    return len(samples) == 9 and all(
        item.log_end_offset == item.leader_log_end_offset and item.size_bytes is not None for item in samples.values()
    )


def log_dirs(cluster: Sandbox) -> dict[tuple[int, str], dict[str, int]]:
    """Return what ``kafka-log-dirs`` prints: by broker and directory the size of each replica."""
    printed = cluster.run_tool("org.apache.kafka.tools.LogDirsCommand", "--describe")
    (line,) = (line for line in printed.splitlines() if line.startswith("{"))
    return {
        (broker["broker"], directory["logDir"]): {part["partition"]: part["size"] for part in directory["partitions"]}
        for broker in json.loads(line)["brokers"]
        for directory in broker["logDirs"]
    }


def test_at_rest_samples_are_what_was_written_and_what_kafkas_tool_says(kafka_4_3: Sandbox) -> None:
    kafka_4_3.admin.create_topic(TOPIC, assignment=SPREAD)
    try:
        with closing(opened(kafka_4_3)) as source:
            equal_at_rest(kafka_4_3, source)
    finally:
        kafka_4_3.admin.delete_topic(TOPIC)


def equal_at_rest(cluster: Sandbox, source: SamplesSource) -> None:
    write(cluster, TOPIC, 90)
    until(source, lambda seen: are_whole(newest(seen)))
    found = until(source, lambda seen: are_whole(newest(seen)) and len(seen) > 40)  # later than the last record
    samples = newest(found)
    leaders = {part: cluster.admin.describe(TOPIC)[TOPIC, part].leader for part in range(3)}
    led = [samples[TOPIC, part, leader] for part, leader in leaders.items()]
    ends = [item.high_watermark or 0 for item in led]
    assert sum(ends) >= 90
    assert [item.log_end_offset for item in led] == ends == [item.last_stable_offset for item in led]
    assert {item.log_start_offset for item in led} == {0}
    by_tool = log_dirs(cluster)
    directories = {(each.broker, each.log_dir): each for each in found if isinstance(each, LogDirectoryObserved)}
    assert directories.keys() == by_tool.keys()
    for place, sizes in by_tool.items():
        one = directories[place]
        assert (one.is_online, one.hosted_replicas, one.replica_bytes) == (True, len(sizes), sum(sizes.values()))
        assert 0 < (one.usable_bytes or 0) < (one.total_bytes or 0)
    assert {
        f"{topic}-{partition}": item.size_bytes for (topic, partition, broker), item in samples.items() if broker == 1
    } == {name: size for name, size in by_tool[1, samples[TOPIC, 0, 1].log_dir or ""].items() if TOPIC in name}


@pytest.mark.long
def test_what_a_follower_lacks_is_its_own_log_end(kafka_cluster: MakeSandbox) -> None:
    cluster = kafka_cluster(proxy=True, broker_session_timeout_ms=4000, replica_lag_time_max_ms=60_000)
    cluster.admin.create_topic(TOPIC, assignment=SPREAD)
    with closing(opened(cluster)) as source:
        lag_is_of_the_held_follower(cluster, source)


def lag_is_of_the_held_follower(cluster: Sandbox, source: SamplesSource) -> None:
    write(cluster, TOPIC, 90)
    until(source, lambda seen: are_whole(newest(seen)))
    before = newest(until(source, lambda seen: are_whole(newest(seen))))[TOPIC, 0, 1].log_end_offset or 0
    cluster.proxy.hold(leader=1, follower=3)
    try:
        with TopicWriter(cluster.bootstrap_servers, TOPIC, acks="1") as writer:
            wait_until(lambda: writer.delivered >= 90, "90 records")

        def lags(seen: list[Observation]) -> bool:
            late, kept = newest(seen).get((TOPIC, 0, 3)), newest(seen).get((TOPIC, 0, 2))
            return (
                late is not None
                and kept is not None
                and late.log_end_offset == before
                and (late.leader_log_end_offset or 0) >= before + 25
                and kept.log_end_offset == kept.leader_log_end_offset
            )

        until(source, lags)
    finally:
        cluster.heal()
    until(source, lambda seen: are_whole(newest(seen)))
