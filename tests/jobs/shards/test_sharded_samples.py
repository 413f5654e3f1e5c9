"""Samples that executors apply: every table equals that of one driver, whatever happens to workers and driver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from streaming.bus.segments import new_log_id
from streaming.contracts.codec import decode, encode
from streaming.contracts.observations import Channel, Observation
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.jobs.shards import samples
from streaming.jobs.shards.samples import SampleBatch
from tests.chaos.comparison import SAMPLED, all_differences
from tests.jobs.shards.test_kafka_batch import as_directory, rows, sent
from tests.jobs.shards.test_shards import Bus, batches, of_cluster, renamed, shipped, topics
from tests.plays import observations
from tests.plugins.batches import store_progress
from tests.plugins.executors import Executors, OnExecutors, samples_on
from tests.plugins.pipeline import rows_of

__all__ = ["topics"]
SCENARIOS = ("broker_loss", "consumer_groups", "hanging_transaction")
TABLES = {*SAMPLED, "broker_speed", "isr_reconciliation"}


def sampled(name: str) -> list[Observation]:
    return [each for each in observations(name) if each.channel is Channel.SAMPLES]


def of_collector(told: Sequence[Observation], number: int) -> list[Observation]:
    """Give the samples of a cluster as if another collector had taken them a moment later."""
    source = told[0].source.encode()
    names = {b'"source":"%s"' % source: b'"source":"%s/%d"' % (source, number)}
    return [decode(renamed(encode(each), names)) for each in told]


def open_samples(tables: Path, executors: Executors) -> OnExecutors:
    bus = Bus()
    batch = samples_on(executors, tables, bus)
    bus.start(Channel.SAMPLES, batch.batch.offset)
    return batch


def compared(tables: Path, expected: Path) -> list[str]:
    return [each for each in all_differences(tables, expected) if each.partition(":")[0] in TABLES]


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.jobs.shards.samples.LONGEST_REST_SECONDS", 0.0)


def test_every_table_is_that_of_one_driver_whatever_happens_to_workers_and_to_the_driver(tmp_path: Path) -> None:
    chance = random.Random(5)
    clusters = [of_cluster(sampled(name), number) for number, name in enumerate(SCENARIOS)]
    clusters.append(of_collector(clusters[0][: len(clusters[0]) // 2], 2))
    logs = shipped(clusters)
    executors = Executors(chance=chance)
    batch = open_samples(tmp_path / "tables", executors)
    pieces = batches(logs, chance)
    for piece in pieces[:-2]:
        batch.apply(rows(piece))
        if chance.random() < 0.3:
            batch.apply(rows(piece))
        if chance.random() < 0.5:
            store_progress(tmp_path / "tables", batch.batch)
            batch = open_samples(tmp_path / "tables", executors)
    one = SampleBatch(tmp_path / "driver")
    for piece in pieces[:-2]:
        one.apply(as_directory(piece))
    assert compared(tmp_path / "tables", tmp_path / "driver") == []
    assert {name for name in TABLES if len({row["cluster_id"] for row in rows_of(tmp_path / "driver", name)}) > 1} >= {
        "replica_offsets", "log_directories", "broker_metrics", "broker_speed", "topic_settings",
    }  # fmt: skip
    # One driver goes on where they were.
    store_progress(tmp_path / "tables", batch.batch)
    again = SampleBatch(tmp_path / "tables")
    for piece in pieces[-2:]:
        again.apply(as_directory(piece))
        one.apply(as_directory(piece))
    assert compared(tmp_path / "tables", tmp_path / "driver") == []


def test_a_log_that_begins_again_takes_its_samples_with_it(tmp_path: Path) -> None:
    told = of_cluster(sampled("broker_loss"), 0)
    (before,), (after,) = shipped([told[-40:]]), shipped([told[:40]])
    after = [each._replace(log_id=new_log_id(None)) for each in after]
    after = [each._replace(runs=str(after[0].log_id), log_id=after[0].log_id) for each in after]
    executors = Executors()
    batch = open_samples(tmp_path / "tables", executors)
    batch.apply(rows(sent([*before, *after])))
    one = SampleBatch(tmp_path / "driver")
    one.apply(as_directory(after))
    assert compared(tmp_path / "tables", tmp_path / "driver") == []


def test_the_driver_keeps_the_samples_of_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    where_in = samples.where_in
    monkeypatch.setattr(samples, "where_in", lambda clusters: (asked.append(min(clusters)), where_in(clusters))[1])
    logs = shipped([of_cluster(sampled("broker_loss")[:60], number) for number in range(2)])
    logs = [sent(each._replace(partition=number) for each in records) for number, records in enumerate(logs)]
    bus = Bus()
    batch = SampleBatch(tmp_path, bus=bus)
    bus.start(Channel.SAMPLES, batch.offset)
    for begin in range(0, 60, 20):
        batch.apply(rows([each for records in logs for each in records[begin : begin + 20]]))
    assert Counter(asked) == dict.fromkeys(("cluster/0", "cluster/1"), len(samples.TABLE_OF) + 1)


def test_a_start_reads_each_table_once_and_meters_that_wait_are_compared_with_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = sampled("broker_loss")
    half, broker_metrics = len(told) // 2, [n for n, each in enumerate(told) if each.kind == "broker_metrics"]
    assert broker_metrics[0] < half < broker_metrics[-1]
    records = as_directory(shipped([told])[0])
    whole, stopped = SampleBatch(tmp_path / "whole"), SampleBatch(tmp_path / "stopped")
    for batch in (whole, stopped):
        batch.apply(records.slice(0, half))
    store_progress(tmp_path / "stopped", stopped)
    read, select = Counter[str](), samples.select
    monkeypatch.setattr(samples, "select", lambda *given: (read.update([given[1].name]), select(*given))[1])
    stopped = SampleBatch(tmp_path / "stopped")
    for batch in (whole, stopped):
        batch.apply(records.slice(half))
    assert read == {table.name: 1 for table in (SAMPLED_CONDITIONS, *samples.TABLE_OF.values())}
    assert compared(tmp_path / "stopped", tmp_path / "whole") == []
