"""When a log begins a new file, what it may forget, and what it compacts."""

from __future__ import annotations

import pytest

from streaming.model.constants import Constants
from streaming.model.storage.batch import Batch
from streaming.model.storage.log import Log
from streaming.model.storage.retention import compact, first_retained, next_visit
from streaming.model.storage.segments import INDEX_RECORDS, LogConfig, log_config

FOREVER = {"retention_ms": -1}


def log_of(*appends: tuple[int, int], **config: int | bool) -> Log:
    """Make a log of (records, timestamp) appends."""
    log = Log()
    log.config = LogConfig(**config)  # type: ignore[arg-type]
    log.begin_epoch(0, 0)
    for count, timestamp in appends:
        log.append(count, timestamp)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_topic_configures_its_logs_in_bytes_and_the_model_counts_records() -> None:
    settings = {"segment.bytes": "10240", "retention.bytes": "-1", "cleanup.policy": "compact,delete"}
    expected = LogConfig(segment_records=10, retention_records=-1, deletes=True, compacts=True, retention_ms=77)
    assert expected == log_config(settings, Constants(log_retention_ms=77))
    assert log_config({"min.insync.replicas": "2"}, Constants()) is None


# ---------------------------------------------------------------------- rolling


@pytest.mark.parametrize(
    ("limits", "appends", "expected"),
    [
        pytest.param({"segment_records": 10}, [(5, 0), (5, 0)], [0], id="full to the last record"),
        pytest.param({"segment_records": 10}, [(5, 0), (5, 0), (1, 0)], [0, 10], id="no room for one more"),
        pytest.param({"segment_records": 10}, [(6, 0), (5, 0)], [0, 6], id="an append is not divided"),
        pytest.param({"segment_records": 10}, [(25, 0), (1, 0)], [0, 25], id="an empty segment takes anything"),
        pytest.param({"segment_ms": 100}, [(1, 7), (1, 107)], [0], id="not older than the limit"),
        pytest.param({"segment_ms": 100}, [(1, 7), (1, 108)], [0, 1], id="older, counted from its first record"),
        pytest.param({"segment_ms": 100}, [(1, 7), (1, 108), (1, 200)], [0, 1], id="the new one has its own age"),
        pytest.param({"segment_ms": 100}, [(1, 900)], [0], id="an empty segment has no age"),
        pytest.param({"segment_records": 2**40}, [(INDEX_RECORDS, 0), (1, 0)], [0, INDEX_RECORDS], id="a full index"),
        pytest.param(
            {"segment_records": 2**40, "index_records": 2**40},
            [(2**31 - 1, 0), (1, 0), (1, 0)],
            [0, 2**31],
            id="an offset that does not fit into 32 bits beside the base",
        ),
    ],
)
def test_a_segment_is_rolled(limits: dict[str, int], appends: list[tuple[int, int]], expected: list[int]) -> None:
    assert expected == bases(log_of(*appends, **limits))


def test_a_segment_is_named_by_its_base_offset_in_twenty_digits() -> None:
    log = log_of((10, 0), (1, 0), segment_records=10)
    assert [it.file_name for it in log.segments] == ["00000000000000000000.log", "00000000000000000010.log"]


def test_a_new_leader_epoch_rolls_nothing() -> None:
    log = log_of((5, 0))
    log.begin_epoch(3, log.end)
    log.append(5)
    assert bases(log) == [0]


def test_a_rolled_segment_is_flushed_and_so_is_what_the_interval_says() -> None:
    assert log_of((10, 0), (3, 0), segment_records=10).flushed == 10
    assert log_of((10, 0), (3, 0), (4, 0), flush_interval_records=7).flushed == 17
    assert log_of((5, 0), (3, 0), (6, 0), flush_interval_records=8).flushed == 8


@pytest.mark.parametrize(("offset", "expected"), [(25, [0, 10, 20]), (20, [0, 10, 20]), (19, [0, 10]), (0, [0])])
def test_truncation_removes_segments_above_it(offset: int, expected: list[int]) -> None:
    log = log_of(*[(10, 0)] * 3, segment_records=10)
    log.truncate(offset)
    assert expected == bases(log)


# ---------------------------------------------------------------------- retention


@pytest.mark.parametrize(
    ("limits", "high_watermark", "now", "expected"),
    [
        pytest.param({"retention_ms": 1_000}, 30, 1_100, 0, id="by time: just young enough"),
        pytest.param({"retention_ms": 1_000}, 30, 1_101, 10, id="by time: the oldest"),
        pytest.param({"retention_ms": 1_000}, 30, 1_201, 20, id="by time: two"),
        pytest.param({"retention_ms": 1_000}, 30, 1_301, 30, id="by time: the active one, too"),
        pytest.param({"retention_ms": 1_000}, 19, 1_301, 10, id="never above the high watermark"),
        pytest.param({**FOREVER, "retention_records": 21}, 30, 0, 0, id="by size: too small without the oldest"),
        pytest.param({**FOREVER, "retention_records": 20}, 30, 0, 10, id="by size: large enough without it"),
        pytest.param({**FOREVER, "retention_records": 5}, 30, 0, 20, id="by size: not below the limit"),
        pytest.param(FOREVER, 30, 10**9, 0, id="no limit"),
        pytest.param({"retention_ms": 0, "deletes": False}, 30, 10**9, 0, id="a log that is only compacted"),
    ],
)
def test_retention_takes_whole_segments_from_the_oldest_on(
    limits: dict[str, int], high_watermark: int, now: int, expected: int
) -> None:
    log = log_of((10, 100), (10, 200), (10, 300), segment_records=10, **limits)
    assert expected == first_retained(log, high_watermark, now)


def test_a_log_start_takes_the_segments_below_it_along() -> None:
    log = log_of(*[(10, 0)] * 3, segment_records=10)
    log.start_at(15)
    assert (log.start, bases(log)) == (15, [10, 20])
    log.start_at(20)
    assert bases(log) == [20]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (log_of(retention_ms=500), 1_501),
        (log_of((3, 700), (1, 900), retention_ms=500), 1_401),
        (log_of((3, 700), **FOREVER), None),
        (log_of((3, 700), **FOREVER, retention_records=9), 1_000),
        (log_of((3, 700), compacts=True, deletes=False), 1_000),
    ],
)
def test_a_log_is_visited_when_something_may_be_due(log: Log, expected: int | None) -> None:
    assert expected == next_visit(log, 1_000)


# ---------------------------------------------------------------------- compaction


def compacted_log(*batches: str, **config: int | bool) -> Log:
    """Make a log from batches such as ``a=1 b=2 a=``; each in its own segment, the last one active."""
    log = Log()
    log.config = LogConfig(compacts=True, deletes=False, segment_records=2, **config)  # type: ignore[arg-type]
    for text in batches:
        pairs = [item.split("=") for item in text.split()]
        keys, values = tuple(key for key, _ in pairs), tuple(value or None for _, value in pairs)
        log.append_batch(Batch(0, len(pairs), keys=keys, values=values))
    return log


def records(log: Log) -> list[tuple[int, str, object]]:
    return [
        (offset, key, value)
        for batch in log.batches
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True)
    ]


def test_compaction_keeps_the_newest_value_of_each_key_and_every_offset() -> None:
    log = compacted_log("a=1 b=1", "a=2 c=1", "b=2 b=3", "x=1 x=2")
    compact(log, log.end, 0)
    assert records(log) == [(2, "a", "2"), (3, "c", "1"), (5, "b", "3"), (6, "x", "1"), (7, "x", "2")]
    assert (log.start, log.end, log.cleaned, log.sizes()) == (0, 8, 6, [0, 2, 1, 2])


def test_compaction_leaves_the_active_segment_and_what_is_not_stable() -> None:
    log = compacted_log("a=1 b=1", "a=2 b=2", "a=3 b=3", "x=1")
    compact(log, 4, 0)
    assert [offset for offset, _, _ in records(log)] == [2, 3, 4, 5, 6]


def test_a_tombstone_stays_for_its_time_after_it_was_first_compacted() -> None:
    log = compacted_log("a=1 b=1", "a= c=1", "x=1", delete_retention_ms=100)
    compact(log, log.end, 1_000)
    assert (2, "a", None) in records(log)
    for now, is_there in ((1_100, True), (1_101, False)):
        log.cleaned = 0
        compact(log, log.end, now)
        assert is_there == ((2, "a", None) in records(log))


def test_a_log_is_compacted_once_half_of_it_is_new() -> None:
    log = compacted_log("a=1 b=1", "a=2 b=2", "x=1")
    compact(log, log.end, 0)
    log.append_batch(Batch(0, 1, keys=("a",), values=("3",)))
    log.append_batch(Batch(0, 2, keys=("y", "z"), values=("1", "1")))
    compact(log, log.end, 0)
    assert log.cleaned == 4
    log.append_batch(Batch(0, 2, keys=("y", "z"), values=("2", "2")))
    compact(log, log.end, 0)
    assert (log.cleaned, [offset for offset, _, _ in records(log)]) == (8, [3, 4, 5, 6, 7, 8, 9])


def test_records_without_a_key_are_not_touched() -> None:
    log = compacted_log("a=1 b=1", "a=2 b=2")
    log.append(2)
    log.append(2)
    compact(log, log.end, 0)
    assert (log.end, log.sizes()) == (8, [0, 2, 2, 2])


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("offset", "max_records", "expected"),
    [(0, 5, 4), (0, 8, 8), (0, 2, 4), (4, 1, 8), (8, 1, 9), (4, 5, 9), (0, 99, 12)],
)
def test_a_read_splits_no_batch_and_has_at_least_one(offset: int, max_records: int, expected: int) -> None:
    log = Log()
    for _ in range(2):
        log.append_batch(Batch(0, 4))
    log.append(4)
    assert expected == log.read_end(offset, max_records)
