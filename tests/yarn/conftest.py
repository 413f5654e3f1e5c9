"""A YARN, a bus and tables in HDFS, for tests that submit the job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.delta.store.place import place_of
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox
from tests.yarn.cluster import YarnCluster

EXPIRY_SECONDS = 20.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[YarnCluster]:
    made = YarnCluster(tmp_path / "hadoop", expiry_seconds=EXPIRY_SECONDS)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def pipeline(tmp_path: Path, cluster: YarnCluster, kafka_cluster: MakeSandbox) -> Iterator[KafkaPipeline]:
    """Give a pipeline whose tables are in HDFS, and whose configuration has no path of this machine.

    The address of the bus stands in a file, as a secret does.
    """
    servers = kafka_cluster(brokers=1).bootstrap_servers
    made = KafkaPipeline(tmp_path, bus_settings(servers, replication_partitions=2))
    url = f"hdfs://127.0.0.1:{cluster.hdfs.port}/tables"
    (tmp_path / "bus-servers").write_text(f"{servers}\n")
    text = re.sub(r"^directory = .*bus.*\n", "", made.config.read_text(), flags=re.MULTILINE)
    for there, here in ((servers, "file:bus-servers"), (made.tables, url), (made.checkpoint, "checkpoint")):
        text = text.replace(f'"{there}"', f'"{here}"')
    assert str(tmp_path) not in text
    made.config.write_text(text.replace("[tables]\n", '[tables]\nhistory = "forever"\n'))
    made.tables = place_of(url)
    try:
        yield made
    finally:
        made.close()
