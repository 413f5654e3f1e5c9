"""The bus as a Spark source: planning without Spark, and a query that reads everything once."""

from __future__ import annotations

import itertools
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame, DamagedRange
from streaming.contracts.observations import Channel
from streaming.errors import IsrwatchError
from streaming.jobs.streams import bus_source
from streaming.jobs.streams.bus_source import BusPartition, BusStreamReader, LogRange, arrow_batches, grouped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


A, B = "poll:a", "poll:b"
FRAME = 12 + 10  # header and payload


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[DirectoryPublisher]:
    with closing(DirectoryPublisher(tmp_path / "bus", segment_bytes=10 * FRAME, fsync=False)) as opened:
        yield opened


@pytest.fixture
def bus(tmp_path: Path) -> DirectoryReader:
    return DirectoryReader(tmp_path / "bus")


@pytest.fixture
def reader(tmp_path: Path) -> BusStreamReader:
    return BusStreamReader(tmp_path / "bus", Channel.REPLICATION, {}, max_bytes=10 * FRAME)


def publish(publisher: DirectoryPublisher, source: str, numbers: range) -> None:
    for number in numbers:
        publisher.publish_raw(Channel.REPLICATION, source, f"{source}{number:04d}".encode())


def read(reader: BusStreamReader, start: dict[str, int], end: dict[str, int]) -> list[tuple[str, bytes]]:
    """Read a batch as Spark does: plan, then each partition by another reader."""
    rows = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            rows += [(row["source"], row["payload"]) for row in batch.to_pylist()]
    return rows


def test_an_empty_bus_has_nothing_to_read(reader: BusStreamReader) -> None:
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadMaxBytes(1)) == {}
    assert reader.partitions({}, {}) == []


def test_batches_are_bounded_and_give_everything_once(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publish(publisher, A, range(35))
    publish(publisher, B, range(3))
    start = reader.initialOffset()
    rows, sizes = [], []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batch = read(reader, start, end)
        rows, sizes, start = rows + batch, [*sizes, len(batch)], end
    assert max(sizes) <= 10
    assert sorted(rows) == [(source, f"{source}{i:04d}".encode()) for source, n in ((A, 35), (B, 3)) for i in range(n)]
    assert start == {A: 35 * FRAME, B: 3 * FRAME}


def test_an_engine_that_asks_for_everything_gets_it(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publish(publisher, A, range(35))
    assert reader.latestOffset({}, ReadAllAvailable()) == {A: 35 * FRAME}


def test_a_frame_larger_than_the_limit_is_read_alone(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publisher.publish_raw(Channel.REPLICATION, A, bytes(100 * FRAME))
    publish(publisher, A, range(1))
    assert reader.latestOffset({}, ReadMaxBytes(1)) == {A: 100 * FRAME + 12}


def test_offsets_name_their_sources_in_one_order(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    """Spark compares offsets as text."""
    for source in (B, A):
        publish(publisher, source, range(1))
    offset = reader.latestOffset({B: 0}, ReadAllAvailable())
    assert list(offset) == [A, B] == list(reader.reportLatestOffset())
    assert reader.latestOffset(offset, ReadAllAvailable()) == offset


def test_a_log_that_appears_later_is_read_whole(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publish(publisher, A, range(2))
    start = reader.latestOffset({}, ReadAllAvailable())
    publish(publisher, B, range(2))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, start, end) == [(B, b"poll:b0000"), (B, b"poll:b0001")]


def test_a_new_query_begins_with_what_is_kept(
    publisher: DirectoryPublisher, reader: BusStreamReader, bus: DirectoryReader
) -> None:
    publish(publisher, A, range(35))
    bus.delete_below(Channel.REPLICATION, A, 20 * FRAME)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert [f"poll:a{i:04d}".encode() for i in range(20, 35)] == [payload for _, payload in read(reader, {}, end)]


def test_what_was_deleted_unread_stops_the_query_in_words(
    publisher: DirectoryPublisher, reader: BusStreamReader, bus: DirectoryReader
) -> None:
    publish(publisher, A, range(35))
    bus.delete_below(Channel.REPLICATION, A, 20 * FRAME)
    with pytest.raises(IsrwatchError, match=f"segments up to position {20 * FRAME} of replication/poll:a"):
        read(reader, {A: FRAME}, {A: 30 * FRAME})


def test_a_replaced_log_stops_the_query_in_words(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publish(publisher, A, range(2))
    with pytest.raises(IsrwatchError, match="the log replication/poll:a on the bus was replaced"):
        reader.latestOffset({A: 3 * FRAME}, ReadAllAvailable())


def test_only_a_query_without_a_pause_waits_for_records(publisher: DirectoryPublisher, tmp_path: Path) -> None:
    publish(publisher, A, range(1))
    limit = ReadAllAvailable()
    waiting = BusStreamReader(tmp_path / "bus", Channel.REPLICATION, {}, max_bytes=1000, wait_seconds=30)
    paused = BusStreamReader(tmp_path / "bus", Channel.REPLICATION, {}, max_bytes=1000, wait_seconds=0)
    start = paused.latestOffset({}, limit)
    later = threading.Timer(0.2, publish, (publisher, A, range(1, 2)))
    later.start()
    assert paused.latestOffset(start, limit) == start
    assert waiting.latestOffset(start, limit) == {A: start[A] + FRAME}
    later.join()


def test_a_record_that_is_never_complete_holds_no_query_up(publisher: DirectoryPublisher, tmp_path: Path) -> None:
    publish(publisher, A, range(1))
    reader = BusStreamReader(tmp_path / "bus", Channel.REPLICATION, {}, max_bytes=1000, wait_seconds=0.2)
    start = reader.latestOffset({}, ReadAllAvailable())
    (segment,) = (tmp_path / "bus" / Channel.REPLICATION).glob("*/*.log")
    stopped = threading.Event()

    def write_on() -> None:
        with segment.open("ab") as file:
            file.write((1000).to_bytes(4, "big"))
            while not stopped.wait(0.001):
                file.write(b"x")
                file.flush()

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    finally:
        stopped.set()
        writer.join()


def planned(reader: BusStreamReader, start: int, end: int) -> list[list[LogRange]]:
    """The ranges of each task, from one record to another."""
    tasks = reader.partitions({A: start * FRAME}, {A: end * FRAME})
    return [[*task.ranges] for task in tasks if isinstance(task, BusPartition)]


@pytest.mark.parametrize(
    ("most", "bounds"),
    [(40, [5, 10, 20, 30, 32]), (10, [1, 3, 5, 7, 9, 10])],
    ids=["a large range, at its segments", "a large segment, between records for several tasks"],
)
def test_what_is_large_is_cut(
    publisher: DirectoryPublisher, bus: DirectoryReader, tmp_path: Path, most: int, bounds: list[int]
) -> None:
    publish(publisher, A, range(35))
    reader = BusStreamReader(tmp_path / "bus", Channel.REPLICATION, {}, max_bytes=most * FRAME)
    log_id = bus.segments(Channel.REPLICATION, A)[0].log_id
    assert [each for task in planned(reader, bounds[0], bounds[-1]) for each in task] == [
        LogRange(A, lower * FRAME, upper * FRAME, log_id) for lower, upper in itertools.pairwise(bounds)
    ]


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [LogRange(A, 0, 3, 1), LogRange(B, 0, 3, 2)]
    large = [LogRange(A, 3, 13, 1), LogRange(B, 3, 13, 2)]
    assert grouped(small, 10) == [small]
    assert grouped(large, 10) == [[large[0]], [large[1]]]
    assert grouped([*small, *large], 10) == [small, [large[0]], [large[1]]]


def test_planning_is_a_function_of_the_offsets(publisher: DirectoryPublisher, reader: BusStreamReader) -> None:
    publish(publisher, A, range(35))
    before = planned(reader, 1, 33)
    publish(publisher, A, range(35, 40))
    assert before == planned(reader, 1, 33)


def test_damage_is_a_row_with_its_bytes_and_its_reason() -> None:
    (batch,) = arrow_batches(
        A, iter([BusFrame(0, b"{}"), DamagedRange(14, b"??", "no frame begins here", 16)]), log_id=7
    )
    common = {"source": A, "left_out": None, "samples": None, "log_id": 7}
    assert batch.to_pylist() == [
        {**common, "position": 0, "payload": b"{}", "damage": None},
        {**common, "position": 14, "payload": b"??", "damage": "no frame begins here"},
    ]


@pytest.mark.spark
def test_a_query_reads_each_record_once(spark: SparkSession, publisher: DirectoryPublisher, tmp_path: Path) -> None:
    bus_source.register(spark)
    seen: list[list[tuple[str, int, bytes]]] = []

    def collect(frame: DataFrame, _batch: int) -> None:
        rows = frame.toArrow().to_pylist()
        seen.append([(row["source"], row["position"], row["payload"]) for row in rows])

    def run() -> None:
        rows = bus_source.bus_stream(spark, tmp_path / "bus", Channel.REPLICATION, {}, 20 * FRAME)
        query = rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = query.start()
        started.processAllAvailable()
        started.stop()

    publish(publisher, A, range(35))
    publish(publisher, B, range(2))
    run()
    publish(publisher, A, range(35, 40))
    run()
    run()

    expected = [(A, i * FRAME, f"{A}{i:04d}".encode()) for i in range(40)]
    expected += [(B, i * FRAME, f"{B}{i:04d}".encode()) for i in range(2)]
    assert sorted(row for batch in seen for row in batch) == expected
    assert all(len(batch) <= 20 for batch in seen)
    assert [row for row in seen[-1] if row[0] == A] == expected[35:40]
