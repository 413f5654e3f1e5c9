"""Outages of Kafka as the bus, with a collector and a job: nothing is lost below the bound, and told above it.

Spark runs twice, so each of the two stories has all of its outages in one run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from deploy.sandbox import Sandbox
from streaming.bus.directory import DirectoryPublisher
from streaming.bus.kafka.topics import administrator, described, ensure
from streaming.contracts.events import EventKind
from streaming.contracts.observations import Channel
from streaming.errors import ConnectionRefused
from tests.chaos.comparison import all_differences, undisturbed
from tests.end_to_end.stories import long_story
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]
SOURCE = "simulated:collector-1"
AWAY_SECONDS = 600.0
LITTLE = 10_000


@pytest.fixture(scope="module")
def brokers(kafka_module_cluster: MakeSandbox) -> Sandbox:
    return kafka_module_cluster(brokers=3)


@pytest.fixture
def pipeline(tmp_path: Path, brokers: Sandbox, request: pytest.FixtureRequest) -> Iterator[KafkaPipeline]:
    settings = bus_settings(brokers.bootstrap_servers, replication_factor=3, min_insync_replicas=2)
    made = KafkaPipeline(tmp_path, settings, bus=getattr(request, "param", ""))
    try:
        yield made
    finally:
        made.close()
        brokers.heal()


def goes_on(pipeline: KafkaPipeline) -> None:
    """Wait until what is collected from now on is applied, too."""
    at = pipeline.last_positions()[Channel.REPLICATION, SOURCE]
    pipeline.eventually(lambda: pipeline.applied(Channel.REPLICATION, SOURCE) > at + LITTLE, "what is new is applied")


def test_a_client_whose_broker_for_topics_died_asks_another_one(brokers: Sandbox) -> None:
    settings = bus_settings(brokers.bootstrap_servers, replication_factor=3, min_insync_replicas=2)
    admin = administrator(settings)
    ensure(admin, settings)
    asked = admin.list_topics().controller_id  # with KRaft any broker; topics are asked for there
    brokers.kill(asked)
    deadline = time.monotonic() + 30.0
    while True:
        with suppress(ConnectionRefused):
            assert len(described(admin, settings)) == 2
            break
        assert time.monotonic() < deadline, f"still only broker {asked} is asked"
    brokers.start(asked)


@pytest.mark.timeout(3 * AWAY_SECONDS)
def test_nothing_is_lost_while_brokers_are_lost_or_away_or_the_topics_are_created_again(
    pipeline: KafkaPipeline, brokers: Sandbox
) -> None:
    collector = pipeline.simulate("--speed", "5")
    job = pipeline.job()
    pipeline.eventually(lambda: pipeline.rows("partition_changes"), "the job applies", job)
    brokers.kill(1)
    goes_on(pipeline)
    brokers.kill(2)  # fewer than min.insync.replicas: no record is taken
    time.sleep(AWAY_SECONDS)
    for broker in (1, 2):
        brokers.start(broker)
    goes_on(pipeline)
    admin = administrator(pipeline.settings)
    for topic in (pipeline.settings.replication_topic, pipeline.settings.samples_topic):
        admin.delete_topics([topic])[topic].result()
    pipeline.eventually(lambda: collector.text().count("was created again") > 1, "it is noticed", collector)
    goes_on(pipeline)
    assert collector.stop() == 0, collector.text()
    pipeline.eventually(pipeline.is_applied, "everything is applied", job)
    assert job.stop() == 0, job.text()[-3000:]
    expected = pipeline.directory / "expected"
    undisturbed(pipeline.bus, expected)
    assert [*all_differences(pipeline.tables, expected)] == []
    assert "takes records again" in collector.text()
    assert "was created again" in collector.text()


@pytest.mark.parametrize("pipeline", ["max_bytes = 1_048_576\n[advanced]\nsegment_bytes = 32_768"], indirect=True)
def test_what_is_more_than_the_bound_or_deleted_by_the_retention_is_told_and_recorded_as_missed(
    pipeline: KafkaPipeline, brokers: Sandbox
) -> None:
    collector = pipeline.simulate("--speed", "20")
    job = pipeline.job()
    pipeline.eventually(lambda: pipeline.rows("partition_changes"), "the job applies", job)
    assert job.stop() == 0, job.text()[-3000:]
    applied = pipeline.applied(Channel.REPLICATION, SOURCE)
    pipeline.eventually(
        lambda: pipeline.last_positions()[Channel.REPLICATION, SOURCE] > applied + 2 * LITTLE,
        "more is shipped",
        collector,
    )
    admin, topic = administrator(pipeline.settings), pipeline.settings.replication_topic
    partitions = [TopicPartition(topic, number) for number in range(pipeline.settings.replication_partitions)]
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    below = [TopicPartition(topic, at.partition, future.result().offset) for at, future in ends.items()]
    for future in admin.delete_records(below).values():
        future.result()
    job = pipeline.job()
    goes_on(pipeline)
    assert "were deleted before the job had read them: they are recorded as missed" in job.text()
    before = pipeline.eventually(lambda: missed(pipeline), "the gap is recorded", job)
    other = DirectoryPublisher(pipeline.bus, segment_bytes=32_768, max_bytes=1 << 20)
    story = long_story(seed=1, steps=3_000)
    other.publish(story[:10])  # by another collector, and more than the directory may have
    goes_on(pipeline)
    for broker in (1, 2, 3):
        brokers.kill(broker)
    for at in range(10, len(story), 50):
        other.publish(story[at : at + 50])
    other.close()
    pipeline.eventually(
        lambda: "deleted before the bus had them" in collector.text(), "the bound is reached", collector
    )
    for broker in (1, 2, 3):
        brokers.start(broker)
    goes_on(pipeline)
    pipeline.eventually(lambda: missed(pipeline) > before, "the gap is recorded", job)
    assert collector.stop() == 0, collector.text()
    assert job.stop() == 0, job.text()[-3000:]


def missed(pipeline: KafkaPipeline) -> int:
    return sum(row["event"] == EventKind.CHANGES_MISSED for row in pipeline.rows("replication_events"))
