"""A collector whose clock is far ahead: what it reports is refused, so it silences nobody."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from streaming.bus.frames import BusFrame
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.contracts.sample_blocks import offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.errors import InvalidObservation
from streaming.jobs.shards import decoded_batch
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.decoded_batch import decode_row
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.sample_columns import BlockColumns, in_columns
from tests.changes.conftest import Story
from tests.jobs.shards.test_batch import published, rows

HOUR = 3_600_000_000
DAY = 24 * HOUR


def now() -> int:
    return time.time_ns() // 1000


def at(observed: Observation, moment: int) -> Observation:
    """Give an observation the time that its collector's clock shows."""
    shift = moment - observed.collected_at
    times = ("occurred_not_before", "occurred_not_after", "collected_at")
    return replace(observed, **{name: Micros(getattr(observed, name) + shift) for name in times})


def polls(source: str, partitions: int, moment: int) -> Sequence[Observation]:
    story = Story(source, SourceKind.POLL)
    story.snapshot([{"leader_epoch": None, "partition_epoch": None}] * partitions)
    return [at(observed, moment) for observed in story.seen]


def known(tables: Path) -> set[int]:
    return {row["partition"] for row in rows(tables, "partition_changes") if row["subject"] == "partition"}


def test_a_poller_that_is_days_ahead_for_one_heartbeat_hides_no_topic_that_another_one_reports(tmp_path: Path) -> None:
    right, wrong = Story("admin:right", SourceKind.POLL), Story("admin:wrong", SourceKind.POLL)
    wrong.heartbeat()
    batch = ReplicationBatch(tmp_path)
    batch.apply(published(polls("admin:right", 1, now() - HOUR)))
    batch.apply(published([at(wrong.seen[0], now() + 5 * DAY)]))
    right.seen.clear()
    again = polls("admin:right", 3, now())
    batch.apply(published([replace(it, sequence=100 + n) for n, it in enumerate(again)], start=100))
    assert known(tmp_path) == {0, 1, 2}
    (refused,) = rows(tmp_path, "quarantine")
    assert "of the machine of admin:wrong" in refused["reason"]
    assert "more than 3600 s ahead of the job's clock" in refused["reason"]


def test_a_record_that_is_refused_again_later_is_refused_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.heartbeat()
    payload, reasons = encode(at(story.seen[0], now() + 5 * DAY)), []
    for moment in (now(), now() + HOUR):
        monkeypatch.setattr(decoded_batch, "now", partial(Micros, moment))
        with pytest.raises(InvalidObservation) as refused:
            decode_row(payload, None, Channel.REPLICATION)
        reasons.append(str(refused.value))
    assert len(set(reasons)) == 1


def test_less_than_an_hour_ahead_is_believed(tmp_path: Path) -> None:
    ReplicationBatch(tmp_path).apply(published(polls("admin:a", 2, now() + HOUR * 9 // 10)))
    assert known(tmp_path) == {0, 1}
    assert rows(tmp_path, "quarantine") == []


def test_blocks_that_repeat_the_state_are_refused_as_well(tmp_path: Path) -> None:
    batch = ReplicationBatch(tmp_path)
    first = polls("admin:a", 3, now())
    batch.apply(published(first))
    batch.apply(published([replace(it, sequence=100 + n) for n, it in enumerate(first)], start=100))
    ahead = [replace(at(it, now() + DAY), sequence=200 + n) for n, it in enumerate(first)]
    applied = batch.apply(published(ahead, start=200))
    assert applied.refused == len(ahead)
    assert max(source.observed_until or 0 for source in batch.sources()[0]) < now() + HOUR


@pytest.mark.parametrize("ahead", [0, DAY], ids=["now", "a day ahead"])
def test_samples_that_are_ahead_are_refused_blocks_included(tmp_path: Path, ahead: int) -> None:
    envelope = {**Story("admin:a").envelope(), "collected_at": Micros(now() + ahead)}
    samples = [
        ReplicaOffsetsObserved(**envelope, topic_id="t", topic="orders", partition=n, broker=1, high_watermark=7)
        for n in range(3)
    ]
    (block,) = offsets_in_blocks(samples)
    (item,) = in_columns([BusFrame(0, encode(block))])
    assert isinstance(item, BlockColumns) is (ahead == 0)
    batch = SampleBatch(tmp_path)
    applied = batch.apply(published([samples[0], block]))
    assert (applied.refused, len(rows(tmp_path, "replica_offsets"))) == ((2, 0) if ahead else (0, 3))
