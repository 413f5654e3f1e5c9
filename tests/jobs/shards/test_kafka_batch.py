"""What a batch makes of records of Kafka: which log they are of, what comes twice, and the offsets beside positions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.bus.kafka.reader import KafkaReader, TopicOffsets, offset_name
from streaming.bus.segments import new_log_id
from streaming.contracts.codec import encode
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel, Observation
from streaming.delta.changes.log import ChangeLog
from streaming.errors import IsrwatchError
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.reading import FOREIGN
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.bus_source import SCHEMA
from streaming.settings import KafkaBusSettings
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.examples import examples
from tests.plugins.batches import store_progress
from tests.plugins.executors import Executors, OnExecutors, replication_on
from tests.plugins.pipeline import rows_of

SOURCE = "metadata_log:a"
STORY = long_story(seed=1, steps=40)
TOPIC = KafkaBusSettings().replication_topic


class Sent(NamedTuple):
    """A record as Spark gives it."""

    source: str | None
    position: int | None
    end: int | None
    log_id: int | None
    runs: str | None
    damage: str | None
    payload: bytes
    partition: int
    offset: int


TYPES = (
    pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.binary(), pa.int32(), pa.int64(),
)  # fmt: skip


def rows(sent: Iterable[Sent]) -> pa.Table:
    columns = list(zip(*sent, strict=True)) or [()] * len(TYPES)
    return pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(Sent._fields, columns, TYPES, strict=True)}
    )


def log(
    observations: Sequence[Observation], log_id: int, runs: Sequence[int] = (), *, at: int = 0, partition: int = 0
) -> list[Sent]:
    """Give the records of a log from a position on; their offsets are given by who sends them."""
    payloads = [encode(each) for each in observations]
    positions = [at]
    for payload in payloads:
        positions.append(positions[-1] + 12 + len(payload))
    text = ",".join(map(str, runs or [log_id]))
    return [
        Sent(SOURCE, begin, end, log_id, text, None, payload, partition, 0)
        for (begin, end), payload in zip(pairwise(positions), payloads, strict=True)
    ]


def sent(records: Iterable[Sent], first: int = 0) -> list[Sent]:
    """Number the records of one partition."""
    numbers = count(first)
    return [record._replace(offset=next(numbers)) for record in records]


class Reader(KafkaReader):
    """A reader whose topics are not asked for."""

    def __init__(self) -> None:
        self.said: list[str] = []
        super().__init__(KafkaBusSettings(bootstrap_servers="nowhere:1"), self.said.append)
        self.identity_now = "id-1"

    def look(self, channel: Channel) -> TopicOffsets:  # noqa: ARG002 - of every channel
        return TopicOffsets(self.identity_now, {0: 0, 1: 0}, {0: 1_000, 1: 1_000})


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr("streaming.bus.kafka.reader.ensure", lambda *_: {})
    made = Reader()
    made.start(Channel.REPLICATION, lambda _: -1)
    made.start(Channel.SAMPLES, lambda _: -1)
    return made


def in_driver(tables: Path, reader: Reader) -> ReplicationBatch:
    return ReplicationBatch(tables, bus=reader)


def on_executors(tables: Path, reader: Reader) -> OnExecutors:
    return replication_on(Executors(chance=random.Random(1)), tables, reader)


PLACES = {"driver": in_driver, "executors": on_executors}
OpenBatch = Callable[[Path, Reader], ReplicationBatch | OnExecutors]


@pytest.fixture(params=["driver", pytest.param("executors", marks=pytest.mark.long)])
def open_batch(request: pytest.FixtureRequest) -> OpenBatch:
    return PLACES[request.param]


@pytest.fixture(params=PLACES)
def open_anywhere(request: pytest.FixtureRequest) -> OpenBatch:
    """For what is read where the log is folded."""
    return PLACES[request.param]


def changes(tables: Path) -> list[dict[str, Any]]:
    return essence(rows_of(tables, "partition_changes"))


def missed(tables: Path) -> list[str]:
    kept = rows_of(tables, "partition_changes")
    return [
        event["detail"] for row in kept for event in row["events"] or () if event["event"] == EventKind.CHANGES_MISSED
    ]


def delivered(chance: random.Random) -> list[list[Sent]]:
    """Cut the story into batches; after each the shipper may begin again anywhere before, the job too."""
    runs = [new_log_id(None)]
    runs.append(new_log_id(runs[0]))
    half = len(STORY) // 2
    first = log(STORY[:half], runs[0], runs)
    whole = [*first, *log(STORY[half:], runs[1], runs, at=cast("int", first[-1].end))]
    stream = sent(record for piece in pieces(whole, chance) for record in piece)
    return list(pieces(stream, chance))


def pieces(records: list[Sent], chance: random.Random) -> Iterator[list[Sent]]:
    """Cut records into pieces, each of which may repeat some of the one before."""
    at = 0
    while at < len(records):
        upto = chance.randint(at + 1, len(records))
        yield records[at:upto]
        at = upto if upto == len(records) else chance.randint(max(upto - 10, 0), upto)


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=examples(2))
@given(seed=st.integers(0, 1 << 32))
def test_however_often_records_come_and_however_batches_are_cut_each_is_applied_once(
    place: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = tmp_path_factory.mktemp("tables")
    bus = Reader()
    batch = PLACES[place](tables, bus)
    for each in delivered(random.Random(seed)):
        batch.apply(rows(each))
    assert changes(tables) == expected_changes(STORY)
    assert (missed(tables), bus.said) == ([], [])


def test_the_commit_holds_the_next_offset_of_each_partition_and_of_which_topic(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    run = new_log_id(None)
    batch.apply(rows(sent(log(STORY[:5], run), first=7)))
    table = ChangeLog(tmp_path)
    assert table.at(SOURCE).log_id == run
    assert table.at(offset_name(TOPIC, "id-1", 0)).position == 12
    again = ReplicationBatch(tmp_path)
    assert reader.start(Channel.REPLICATION, again.offset) == {0: 12, 1: 0}
    reader.identity_now = "id-2"
    assert reader.start(Channel.REPLICATION, again.offset) == {0: 0, 1: 0}


def test_a_gap_before_the_oldest_record_is_told_and_recorded_as_missed(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    records = log(STORY, new_log_id(None))
    batch.apply(rows(sent(records[:5])))
    offset = ReplicationBatch(tmp_path).offset
    reader.look = lambda _: TopicOffsets("id-1", {0: 9, 1: 0}, {0: 20, 1: 0})  # type: ignore[method-assign]
    assert reader.start(Channel.REPLICATION, offset) == {0: 9, 1: 0}
    (sentence,) = reader.said
    assert sentence == (
        f"4 records of {TOPIC}/0 were deleted before the job had read them: they are recorded as missed; raise the "
        "retention of the topic, or give the job time to"
    )
    open_batch(tmp_path, reader).apply(rows(sent(records[9:12], first=9)))
    assert missed(tmp_path)[0] == f"4 observations of {SOURCE} are missing, after number 5"


def test_a_log_that_was_replaced_is_read_from_its_beginning_once_what_came_before_is_applied(
    tmp_path: Path, reader: Reader, open_anywhere: OpenBatch
) -> None:
    batch = open_anywhere(tmp_path, reader)
    old, new = log(STORY[:10], new_log_id(None)), log(STORY[10:20], new_log_id(None))
    batch.apply(rows(sent([*old, *new[:4]])))
    batch.apply(rows(sent(new[4:], first=14)))
    assert changes(tmp_path)[-1:] == expected_changes(STORY[:20])[-1:]
    assert len(missed(tmp_path)) == 1
    assert [sentence.partition(" on the bus was replaced")[0] for sentence in reader.said] == [
        f"the log replication/{SOURCE}"
    ]
    assert ReplicationBatch(tmp_path).at(SOURCE) == LogPosition(cast("int", new[-1].position), new[-1].log_id)


def test_two_collectors_of_one_name_are_told_and_one_of_them_is_refused(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    one, two = log(STORY[:20], new_log_id(None)), log(STORY[:20], new_log_id(None))
    mixed = [record for pair in zip(one, two, strict=True) for record in pair]
    batch.apply(rows(sent(mixed[:20])))
    at = ReplicationBatch(tmp_path).at(SOURCE)
    assert at == LogPosition(cast("int", two[9].position), two[0].log_id)
    # after the query was opened again, too
    batch = open_batch(tmp_path, reader)
    batch.apply(rows(sent(mixed[20:], first=20)))
    assert ReplicationBatch(tmp_path).at(SOURCE) == LogPosition(cast("int", two[19].position), two[0].log_id)
    assert next(sentence for sentence in reader.said if "two collectors" in sentence) == (
        f"two collectors ship the log replication/{SOURCE}: the records of the one that began first are refused; give "
        "each collector a name of its own (collect.collector), then start the job again"
    )
    assert len(missed(tmp_path)) == 1


def test_a_run_that_goes_on_is_the_same_log_also_if_the_one_before_is_not_named(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    first = new_log_id(None)
    second = new_log_id(first)
    before = log(STORY[:10], first)
    batch.apply(rows(sent(before)))
    batch.apply(rows(sent(log(STORY[10:], second, [second], at=cast("int", before[-1].end)), first=10)))
    assert changes(tmp_path) == expected_changes(STORY)
    assert reader.said == []


def test_what_comes_late_of_the_run_before_is_of_the_same_log(
    tmp_path: Path, reader: Reader, open_anywhere: OpenBatch
) -> None:
    """A broker that hung appends what the shipper sent before its collector was started again, and sent again since."""
    batch = open_anywhere(tmp_path, reader)
    first = new_log_id(None)
    second = new_log_id(first)
    before = log(STORY[:10], first)
    after = log(STORY[10:], second, [first, second], at=cast("int", before[-1].end))
    batch.apply(rows(sent([*before, *after[:4]])))
    batch.apply(rows(sent([*before[5:], *after[4:6], *before[8:]], first=14)))
    assert ReplicationBatch(tmp_path).at(SOURCE) == LogPosition(cast("int", after[5].position), second)
    batch.apply(rows(sent(before[9:], first=23)))
    batch = open_anywhere(tmp_path, reader)
    batch.apply(rows(sent(after[6:], first=24)))
    assert changes(tmp_path) == expected_changes(STORY)
    assert reader.said == []


def test_a_topic_that_is_read_again_from_its_beginning_ends_where_its_log_ends(
    tmp_path: Path, reader: Reader, open_anywhere: OpenBatch
) -> None:
    """Its id is another one, as of a mirror of the bus: its oldest records name no run that came later."""
    ids = [new_log_id(None)]
    for _ in range(2):
        ids.append(new_log_id(ids[-1]))
    records = list[Sent]()
    for number, some in enumerate((STORY[:10], STORY[10:20], STORY[20:])):
        begin = 0 if not records else cast("int", records[-1].end)
        records += log(some, ids[number], ids[: number + 1], at=begin)
    open_anywhere(tmp_path, reader).apply(rows(sent(records[:24])))
    open_anywhere(tmp_path, reader).apply(rows(sent(records)))
    assert ReplicationBatch(tmp_path).at(SOURCE) == LogPosition(cast("int", records[-1].position), ids[-1])
    assert changes(tmp_path)[-1:] == expected_changes(STORY)[-1:]
    assert not [sentence for sentence in reader.said if "two collectors" in sentence]


def test_positions_are_the_same_on_the_way_from_the_directory_to_kafka_and_back(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    run = new_log_id(None)
    next_run = new_log_id(run)
    first = log(STORY[:30], run, [run, next_run])
    whole = [*first, *log(STORY[30:], next_run, [run, next_run], at=cast("int", first[-1].end))]
    third = len(whole) // 3
    ReplicationBatch(tmp_path).apply(as_directory(whole[:third]))
    open_batch(tmp_path, reader).apply(rows(sent(whole[: 2 * third])))  # what the directory had is shipped, too
    ReplicationBatch(tmp_path).apply(as_directory(whole[third:]))
    assert changes(tmp_path) == expected_changes(STORY)
    assert (missed(tmp_path), reader.said) == ([], [])


def as_directory(records: Sequence[Sent]) -> pa.Table:
    """Give records as rows of the directory."""
    table = rows(records)
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def test_a_record_that_no_collector_has_written_is_in_quarantine_and_keeps_nothing_up(
    tmp_path: Path, reader: Reader, open_anywhere: OpenBatch
) -> None:
    foreign = Sent(None, None, None, None, None, None, b"hello", 1, 0)
    records = [*log(STORY, new_log_id(None)), foreign, foreign._replace(partition=0)]
    open_anywhere(tmp_path, reader).apply(rows(sent(records)))
    assert changes(tmp_path) == expected_changes(STORY)
    quarantined = sorted((row["source"], row["reason"], row["raw"]) for row in rows_of(tmp_path, "quarantine"))
    assert quarantined == [(f"kafka:{TOPIC}/{partition}", FOREIGN, b"hello") for partition in (0, 1)]


def test_what_was_cut_and_what_is_damaged_is_in_quarantine_with_its_reason(
    tmp_path: Path, reader: Reader, open_anywhere: OpenBatch
) -> None:
    records = log(STORY[:10], new_log_id(None))
    records[4] = records[4]._replace(payload=b'{"v":1', damage="a record of 5000 bytes is larger than its topic takes")
    open_anywhere(tmp_path, reader).apply(rows(sent(records)))
    (row,) = rows_of(tmp_path, "quarantine")
    assert (row["reason"], row["raw"]) == ("a record of 5000 bytes is larger than its topic takes", b'{"v":1')
    assert len(missed(tmp_path)) == 1


def test_a_topic_that_was_created_again_is_refused_until_its_query_begins_again(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    records = sent(log(STORY[:10], new_log_id(None)))
    batch.apply(rows(records))
    reader.identity_now = "id-2"
    reader._channels[Channel.REPLICATION].looked_at = float("-inf")
    reader.bytes_behind(Channel.REPLICATION, SOURCE, 0)
    with pytest.raises(IsrwatchError, match="was created again: it is read from its beginning"):
        batch.apply(rows(records))
    reader.start(Channel.REPLICATION, lambda _: -1)
    batch.apply(rows(records))
    assert changes(tmp_path) == expected_changes(STORY[:10])


def test_the_lag_counts_the_records_of_the_partition_that_were_not_read(
    tmp_path: Path, reader: Reader, open_batch: OpenBatch
) -> None:
    batch = open_batch(tmp_path, reader)
    records = sent(log(STORY[:10], new_log_id(None)))
    batch.apply(rows(records))
    assert reader.logs(Channel.REPLICATION) == [SOURCE]
    mean = sum(len(record.payload) for record in records) // 10
    assert reader.bytes_behind(Channel.REPLICATION, SOURCE, 0) == (records[-1].end, (1_000 - 10) * mean)


def test_samples_since_the_sources_were_stored_come_again_and_change_nothing(tmp_path: Path, reader: Reader) -> None:
    """Offsets and positions are stored together, so both lead to the same record."""
    from streaming.contracts.observations import SourceKind  # noqa: PLC0415
    from streaming.contracts.samples import LogDirectoryObserved  # noqa: PLC0415

    def sample(moment: int) -> LogDirectoryObserved:
        times = {"occurred_not_before": moment, "occurred_not_after": moment, "collected_at": moment}
        return LogDirectoryObserved(
            cluster_id="c", cluster="prod", source=SOURCE, source_kind=SourceKind.NONE, broker=1, log_dir="d",
            is_online=True, hosted_replicas=1, replica_bytes=1, **times,
        )  # type: ignore[arg-type]  # fmt: skip

    samples = SampleBatch(tmp_path, bus=reader)
    records = sent(log([sample(moment) for moment in range(1, 7)], new_log_id(None)))
    samples.apply(rows(records[:3]))
    store_progress(tmp_path, samples)
    samples.apply(rows(records[3:5]))
    again = SampleBatch(tmp_path, bus=reader)
    assert again.at(SOURCE) == LogPosition(cast("int", records[2].position), records[2].log_id)
    assert reader.start(Channel.SAMPLES, again.offset) == {0: 3, 1: 0}
    again.apply(rows(records[3:]))
    (row,) = rows_of(tmp_path, "log_directories")
    assert (row["collected_at"].microsecond, reader.said) == (6, [])
