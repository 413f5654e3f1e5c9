"""A share group of Kafka 4.4.0 with a dead letter queue (KIP-1191): all of it is read, and shown where it belongs."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from deploy.sandbox.command import MOVED
from streaming.contracts.identifiers import Micros
from streaming.jobs.shards.samples import SampleBatch
from streaming.settings import ClusterSettings, Settings
from streaming.sources.samples.source import open_samples
from tests.jobs.shards.test_batch import published, rows
from tests.plugins.real_collector import Following
from tests.sources.samples.test_odd_clusters_real import OFTEN

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.sandbox import Sandbox

pytestmark = [pytest.mark.kafka, pytest.mark.long]
TOOLS = "org.apache.kafka.tools"
PATIENCE = 60.0


def test_what_a_share_group_rejects_and_where_it_goes_is_read_and_nothing_is_quarantined(
    kafka_4_4: Sandbox, tmp_path: Path
) -> None:
    cluster, folder = kafka_4_4, tmp_path / "tables"
    cluster.admin.create_topic("jobs", partitions=2, configs={"min.insync.replicas": "2"})
    cluster.admin.create_topic("dlq.jobs", partitions=1, configs={"errors.deadletterqueue.group.enable": "true"})
    following = Following(cluster, tmp_path / "checkpoint.json")
    try:
        write(cluster, "jobs", 20)
        cluster.run_tool(
            MOVED["4.4"]["kafka-configs"], "--alter", "--entity-type", "groups", "--entity-name", "shared",
            "--add-config", "share.auto.offset.reset=earliest,errors.deadletterqueue.topic.name=dlq.jobs",
        )  # fmt: skip
        cluster.run_tool(
            f"{TOOLS}.consumer.ConsoleShareConsumer", "--topic", "jobs", "--group", "shared", "--reject",
            "--max-messages", "20", "--timeout-ms", "15000",
        )  # fmt: skip
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers), collect=OFTEN)
        (source,) = open_samples(settings, print)
        batch, count, deadline = SampleBatch(folder), 0, time.monotonic() + PATIENCE
        with closing(source):
            while not is_shown(folder):
                assert time.monotonic() < deadline, [rows(folder, name) for name in ("group_offsets", "topic_settings")]
                observed = source.poll(Micros(time.time_ns() // 1_000))
                batch.apply(published(observed, count))
                count += len(observed)
        dumped = cluster.dump_metadata_log()
        following.until(lambda: following.offset() >= dumped[-1].offset, "the end of the log")
        names = {record.data["name"] for record in dumped if record.kind == "CONFIG_RECORD"}
        assert {"errors.deadletterqueue.topic.name", "errors.deadletterqueue.group.enable"} <= names
        assert following.source.take_undecodable() == []
        assert not [line for line in following.lines if "quarantine" in line]
        assert rows(folder, "quarantine") == []
    finally:
        following.stop()
        for topic in ("jobs", "dlq.jobs"):
            cluster.admin.delete_topic(topic)


def is_shown(folder: Path) -> bool:
    """The dead letters are in their topic, which is known for it, and the group is listed with nothing to read."""
    ends = {
        row["partition"]: row["log_end_offset"] for row in rows(folder, "replica_offsets") if row["topic"] == "dlq.jobs"
    }
    takes = {row["topic"]: row["takes_dead_letters"] for row in rows(folder, "topic_settings")}
    groups = {row["group"]: row["group_protocol"] for row in rows(folder, "group_offsets")}
    lags = {row["partition"]: row["lag"] for row in rows(folder, "group_offsets") if row["group"] == "shared"}
    shown = takes.get("dlq.jobs"), takes.get("jobs"), groups.get("shared")
    return shown == (True, False, "share") and ends.get(0, 0) == 20 and set(lags.values()) == {0}


def write(cluster: Sandbox, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{number}".encode(), partition=number % 2)
    assert producer.flush(30) == 0
