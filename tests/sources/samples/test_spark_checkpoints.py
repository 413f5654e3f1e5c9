"""Checkpoints of Spark: which offsets a query has finished, and what is no checkpoint, or not yet a whole one.

The files are what Spark 4.2 wrote; ``test_spark_real`` reads those of a running one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.sources.samples.groups import spark as module
from streaming.sources.samples.groups.spark import CheckpointUnreadable, read_checkpoint

SECOND = 1_000_000
BATCH = {"batchWatermarkMs": 0, "batchTimestampMs": 1_795_712_942_516, "conf": {"spark.sql.shuffle.partitions": "2"}}
DELTA = {"sourceVersion": 1, "reservoirId": "0a", "reservoirVersion": 3, "index": -1, "isStartingVersion": False}
ORDERS = {"orders": {"0": 15, "1": 5}}


class Query:
    """A query that writes a checkpoint, a second per file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.second = folder, 1_000
        self.write("metadata", '{"id":"bf113ddc-ca1d-4f20-8c09-938812347d09"}')

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.second += 1
        os.utime(path, (self.second, self.second))

    def begin(self, number: int, *sources: Any, version: int = 1) -> None:
        lines = [each if isinstance(each, str) else json.dumps(each) for each in sources]
        self.write(f"offsets/{number}", "\n".join([f"v{version}", json.dumps(BATCH), *lines]))
        (self.folder / f"offsets/.{number}.crc").write_text("x")

    def finish(self, number: int, version: int = 1) -> None:
        self.write(f"commits/{number}", f'v{version}\n{{"nextBatchWatermarkMs":0}}')

    def run(self, number: int, *sources: Any) -> None:
        self.begin(number, *sources)
        self.finish(number)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


def test_what_is_finished_is_of_the_newest_batch_that_is_committed(query: Query) -> None:
    for number in range(8, 11):
        query.run(number, {"orders": {"0": number, "1": 5}})
    query.begin(11, {"orders": {"0": 99, "1": 99}})
    read = read_checkpoint(query.folder)
    assert read.committed == {"orders": {0: 10, 1: 5}}
    assert read.other_sources == 0
    assert read.finished_at == 1_007 * SECOND
    assert read.progress_at == 1_008 * SECOND, "it has begun another one"


def test_before_its_first_batch_is_finished_a_query_has_read_nothing(query: Query) -> None:
    assert read_checkpoint(query.folder) == ({}, 0, None, 1_001 * SECOND)
    query.begin(0, ORDERS)
    assert read_checkpoint(query.folder) == ({}, 0, None, 1_002 * SECOND)


def test_of_several_sources_those_of_kafka_are_read_and_the_lower_of_two_offsets_counts(query: Query) -> None:
    query.run(0, ORDERS, {"clicks": {"3": 7}, "orders": {"0": 9, "2": 1}}, DELTA, 5, "-", {})
    read = read_checkpoint(query.folder)
    assert read.committed == {"orders": {0: 9, 1: 5, 2: 1}, "clicks": {3: 7}}
    assert read.other_sources == 2, "a Delta table and a rate; one without an offset yet may be of Kafka"


def test_sources_may_have_names(query: Query) -> None:
    query.begin(0, f"0:{json.dumps(ORDERS)}", f"clicks:{json.dumps({'clicks': {'0': 4}})}", "2:-", version=2)
    query.finish(0, version=3)
    assert read_checkpoint(query.folder).committed == {"orders": {0: 15, 1: 5}, "clicks": {0: 4}}


@pytest.mark.parametrize(
    "offset",
    [
        {"logOffset": 3},
        {"shardId-0": {"iteratorType": "AFTER", "sequence": "4"}},
        {"orders": {"0": True}},
        {"orders": {"0": -2}},
        {"orders": {"0": 1 << 63}},
        {"orders": {"9999999999": 1}},
        {"orders": {"x": 1}},
        ["orders"],
        "5",
    ],
)
def test_an_offset_that_is_not_of_kafka_gives_no_number(query: Query, offset: Any) -> None:
    query.run(0, offset)
    assert read_checkpoint(query.folder)[:2] == ({}, 1)


def reason(folder: Path) -> str:
    with pytest.raises(CheckpointUnreadable) as refused:
        read_checkpoint(folder)
    return str(refused.value)


def test_a_folder_that_is_missing_or_empty_is_no_checkpoint(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        expected = f"{folder} has no file metadata; name the folder that is the checkpointLocation of a query"
        assert reason(folder) == expected


@pytest.mark.parametrize("name", ["offsets/1", "commits/1"])
def test_a_half_written_file_is_incomplete_wherever_it_ends(query: Query, name: str) -> None:
    query.run(0, ORDERS)
    query.run(1, ORDERS)
    whole = (query.folder / name).read_text()
    lines = {len("v1\n"), len(whole)} if name.startswith("commits") else {len(whole)}
    for end in set(range(len(whole) + 1)) - lines:
        query.write(name, whole[:end])
        assert reason(query.folder) == f"{query.folder / name} is incomplete"


@pytest.mark.parametrize(("name", "newest"), [("offsets/0", 2), ("commits/0", 3)])
def test_a_newer_version_is_named(query: Query, name: str, newest: int) -> None:
    query.run(0, ORDERS)
    query.write(name, "v4\n{}\n{}")
    assert reason(query.folder) == (
        f"{query.folder / name} is of version 4, and this program reads up to {newest}: upgrade it"
    )


def test_a_batch_without_its_offsets_is_not_replaced_by_an_older_one(query: Query) -> None:
    query.run(0, ORDERS)
    query.finish(1)
    assert reason(query.folder) == f"{query.folder}/offsets/1 is missing"


def test_a_batch_that_spark_deletes_while_it_is_read_is_replaced_by_the_newest(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(0, ORDERS)
    newest, runs = module.newest_batch, iter(range(1, 3))

    def while_it_runs(log: Path) -> int:
        found = newest(log)
        if log.name == "commits" and (number := next(runs, None)):
            query.run(number, {"orders": {"0": 15 + number}})
            (query.folder / f"offsets/{number - 1}").unlink()
        return found

    monkeypatch.setattr(module, "newest_batch", while_it_runs)
    assert read_checkpoint(query.folder).committed == {"orders": {0: 17}}


def test_a_file_that_cannot_be_read_is_named_with_the_reason(query: Query) -> None:
    query.run(0, ORDERS)
    (query.folder / "offsets/0").unlink()
    (query.folder / "offsets/0").mkdir()
    assert reason(query.folder) == f"{query.folder}/offsets/0 cannot be read: Is a directory"


OFFSETS = st.dictionaries(st.text(), st.dictionaries(st.integers(0, 999), st.integers(0, 1 << 62)))


@given(st.lists(OFFSETS, min_size=1, max_size=4))
def test_whatever_topics_and_partitions_there_are_each_has_its_lowest_offset(
    tmp_path_factory: pytest.TempPathFactory, sources: list[dict[str, dict[int, int]]]
) -> None:
    query = Query(tmp_path_factory.mktemp("checkpoint"))
    query.run(0, *sources)
    read = read_checkpoint(query.folder).committed
    assert read.keys() == {topic for source in sources for topic in source}
    assert {(topic, number): offset for topic, of_topic in read.items() for number, offset in of_topic.items()} == {
        (topic, number): min(each[topic][number] for each in sources if number in each.get(topic, {}))
        for source in sources
        for topic, of_topic in source.items()
        for number in of_topic
    }
