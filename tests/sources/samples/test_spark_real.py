"""A real query of Spark on a real cluster: its checkpoint is a group of the tables, with what it has finished."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from deploy.sandbox import wait_until
from streaming.contracts.identifiers import Micros
from streaming.jobs.shards.samples import SampleBatch
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.samples.source import open_samples
from tests.jobs.shards.test_batch import published, rows
from tests.sources.samples import spark_query
from tests.topic_writer import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deploy.sandbox import Sandbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]

PATIENCE = 60.0
Positions = dict[tuple[str, int], tuple[int, int, int]]


class Query:
    """The process of ``spark_query``."""

    def __init__(self, cluster: Sandbox, checkpoint: Path) -> None:
        command = [sys.executable, "-m", spark_query.__name__, cluster.bootstrap_servers, str(checkpoint)]
        self._process = subprocess.Popen(
            [*command, "orders", "clicks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, word: str = "run") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)


class Collecting:
    """The samples of a configuration, and the tables of a job that applies them."""

    def __init__(self, cluster: Sandbox, folder: Path, checkpoints: dict[str, str]) -> None:
        self._folder, self._batch, self._position = folder, SampleBatch(folder), 0
        self.lines: list[str] = []
        every = dict.fromkeys(("offsets_interval", "groups_interval"), 0.5)
        settings = Settings(
            cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
            collect=CollectSettings(collector="collector-1", **every, spark_checkpoints=checkpoints),  # type: ignore[arg-type]
        )
        (self._source,) = open_samples(settings, self.lines.append)

    def until(self, holds: Callable[[list[dict[str, Any]], Positions], bool], what: str) -> list[dict[str, Any]]:
        """Wait until the groups and the positions of the query in the tables are so; return the groups."""
        until = time.monotonic() + PATIENCE
        while True:
            seen = self._source.poll(Micros(time.time_ns() // 1000))
            self._batch.apply(published(seen, start=self._position))
            self._position += len(seen)
            groups = rows(self._folder, "groups")
            positions: Positions = {
                (row["topic"], row["partition"]): (row["committed_offset"], row["high_watermark"], row["lag"])
                for row in rows(self._folder, "group_offsets")
                if row["group"] == "to-delta"
            }
            if holds(groups, positions):
                return groups
            assert time.monotonic() < until, (what, groups, positions, self.lines)

    def close(self) -> None:
        self._source.close()


@pytest.fixture
def cluster(kafka_cluster: Callable[..., Sandbox]) -> Sandbox:
    sandbox = kafka_cluster(brokers=1)
    for topic in ("orders", "clicks"):
        sandbox.admin.create_topic(topic, partitions=1, replication_factor=1)
    return sandbox


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def query(cluster: Sandbox, checkpoint: Path) -> Iterator[Query]:
    query = Query(cluster, checkpoint)
    yield query
    query.close()


@pytest.fixture
def collecting(cluster: Sandbox, checkpoint: Path, tmp_path: Path) -> Iterator[Collecting]:
    collecting = Collecting(cluster, tmp_path / "tables", {"to-delta": str(checkpoint), "none": str(tmp_path / "none")})
    yield collecting
    collecting.close()


def write(cluster: Sandbox, topic: str, records: int) -> int:
    """Write at least so many records, and return how many there are."""
    with TopicWriter(cluster.bootstrap_servers, topic, acks="all") as writer:
        wait_until(lambda: writer.delivered >= records, f"{records} records")
    return end_of(cluster, topic)


def end_of(cluster: Sandbox, topic: str) -> int:
    printed = cluster.run_tool("org.apache.kafka.tools.GetOffsetShell", "--topic", topic)
    return int(printed.split(":")[-1])


def test_the_lag_of_a_query_is_what_its_finished_batches_have_not_read(
    cluster: Sandbox, checkpoint: Path, query: Query, collecting: Collecting
) -> None:
    orders, clicks = write(cluster, "orders", 20), write(cluster, "clicks", 5)
    began = time.time_ns() // 1000
    assert query.run() == "done"
    (group,) = collecting.until(
        lambda _, positions: positions == {("orders", 0): (orders, orders, 0), ("clicks", 0): (clicks, clicks, 0)},
        "it has read everything",
    )
    assert (group["group"], group["group_protocol"], group["group_state"]) == ("to-delta", "spark", "Active")
    assert (group["members"], group["coordinator"]) == (None, -1)
    assert began <= group["last_progress_at"].timestamp() * 1e6 <= time.time_ns() // 1000

    more = write(cluster, "orders", 10)
    assert query.run("fail").startswith("failed")
    begun = max(int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdecimal())
    finished = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal())
    assert begun == finished + 1, "a batch has failed"
    collecting.until(
        lambda _, positions: (
            positions == {("orders", 0): (orders, more, more - orders), ("clicks", 0): (clicks, clicks, 0)}
        ),
        "what it has begun is no more than begun",
    )
    assert query.run() == "done"
    collecting.until(lambda _, positions: positions["orders", 0] == (more, more, 0), "it has read the rest")
    prefix = "samples:collector-1: "
    assert sorted(collecting.lines) == [
        f"{prefix}of the query with the Spark checkpoint to-delta only what it reads of Kafka is shown",
        (
            f"{prefix}the Spark checkpoint none is not read: {checkpoint.parent / 'none'} has no file metadata; "
            "name the folder that is the checkpointLocation of a query"
        ),
    ]

    cluster.admin.delete_topic("orders")
    cluster.admin.create_topic("orders", partitions=1, replication_factor=1)
    write(cluster, "orders", 1)
    collecting.until(
        lambda _, positions: positions.keys() == {("clicks", 0)} and len(collecting.lines) == 3,
        "the topic is another one",
    )
    assert collecting.lines[-1].startswith(
        f"{prefix}the query with the Spark checkpoint to-delta has read more of the "
    )
