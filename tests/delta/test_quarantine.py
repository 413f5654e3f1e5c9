"""The table of unparseable records: bounded by maintenance, however many streams append to it and however late."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.contracts.tables import QUARANTINE
from streaming.delta import quarantine
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.table_log import written_at
from streaming.delta.log.writer import APPEND, Writer
from streaming.delta.quarantine import (
    FILES_BEFORE_CONDENSING,
    KEPT_BYTES,
    KEPT_DAYS,
    KEPT_RECORDS,
    Quarantine,
    ReasonKey,
    RefusedRecord,
    as_rows,
    condensed,
    count_row,
)
from streaming.errors import TableRefused
from tests.delta.test_maintenance import age, data_files, versions_in_log
from tests.jobs.shards.test_batch import rows

A_MINUTE = RetentionPolicy(reader_minutes=1)
AT_ONCE = RetentionPolicy(reader_minutes=0)
RECORDS = 90
EACH = 30


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.log.maintenance.COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr("streaming.delta.log.maintenance.SECONDS_BETWEEN_SWEEPS", 0.0)


def record(position: int) -> RefusedRecord:
    return RefusedRecord(source="s", log_id=1, position=position, reason="torn", raw=b"?" * 100)


def quarantined(directory: Path) -> dict[str, int]:
    """How many records of each channel there are; those kept whole stand first, and once."""
    counts: Counter[str] = Counter()
    for row in rows(directory, "quarantine"):
        counts[row["channel"]] += row["records"]
    for channel, records in counts.items():
        assert kept(directory, channel) == list(range(min(KEPT_RECORDS, records)))
    return dict(counts)


def kept(directory: Path, channel: str) -> list[int]:
    table = rows(directory, "quarantine")
    return sorted(row["position"] for row in table if row["raw"] is not None and row["channel"] == channel)


def by_clock(now: float, path: Path, version: int) -> float | None:
    """Return the time of an entry; that of the newest one is the present."""
    return now if version == max(versions_in_log(path)) else written_at(path, version)


def test_log_and_files_stay_few_and_each_record_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / QUARANTINE.name
    quarantine = Quarantine(tmp_path, Channel.SAMPLES, A_MINUTE)
    began = time.time()
    for number in range(RECORDS):
        age(path, seconds=20)
        monkeypatch.setattr("streaming.delta.log.maintenance.written_at", partial(by_clock, began + number))
        (path / f"part-{number}-torn.parquet").write_bytes(b"a write that was never committed")
        assert quarantine.add([record(number)], Micros(1)).total() == 1
    assert versions_in_log(path)[0] > 0
    assert len(versions_in_log(path)) < 70, "of a minute, and back to a checkpoint"
    assert len(data_files(path)) < RECORDS + 60 + 2 * 5, "what was never committed is swept a minute later"
    assert quarantined(tmp_path) == {"samples": RECORDS}


def test_a_writer_that_was_suspended_until_the_log_it_has_read_expired_goes_on(tmp_path: Path) -> None:
    suspended = Quarantine(tmp_path, Channel.REPLICATION, AT_ONCE)
    assert suspended.add([record(0)], Micros(1)).total() == 1
    read = DeltaTable(str(tmp_path / QUARANTINE.name)).version()
    busy = Quarantine(tmp_path, Channel.SAMPLES, AT_ONCE)
    for number in range(RECORDS):
        busy.add([record(number)], Micros(1))
    assert versions_in_log(tmp_path / QUARANTINE.name)[0] > read
    assert suspended.add([record(0), record(1)], Micros(1)).total() == 1
    assert busy.add([record(RECORDS - 1), record(RECORDS)], Micros(1)).total() == 1
    assert quarantined(tmp_path) == {"samples": RECORDS + 1, "replication": 2}


def test_streams_that_append_and_tidy_up_at_once_count_every_record_once(tmp_path: Path) -> None:
    """Each channel in two jobs. A lost race of maintenance, or a log that expires before the commit, is no failure."""

    def write(channel: str) -> int:
        quarantine = Quarantine(tmp_path, channel, AT_ONCE)
        return sum(quarantine.add([record(number)], Micros(1)).total() for number in range(EACH))

    with ThreadPoolExecutor() as threads:
        written = list(threads.map(write, [*Channel, *Channel]))
    assert quarantined(tmp_path) == dict.fromkeys(Channel, EACH)
    assert sum(written) == len(Channel) * EACH


def test_a_writer_whose_version_was_taken_and_expired_since_is_refused_like_any_other(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, Channel.SAMPLES, AT_ONCE)
    quarantine.add([record(0)], Micros(1))
    late = Writer.opened(tmp_path, QUARANTINE)
    for number in range(1, RECORDS):
        quarantine.add([record(number)], Micros(1))
    assert versions_in_log(tmp_path / QUARANTINE.name)[0] > late.version
    with pytest.raises(TableRefused, match="another job writes"):
        late.write(arrow_schema(QUARANTINE).empty_table(), APPEND, {})
    assert quarantined(tmp_path) == {"samples": RECORDS}


def test_files_that_expire_before_they_are_read_are_read_as_they_are_now(tmp_path: Path) -> None:
    late, other = (Quarantine(tmp_path, channel, AT_ONCE) for channel in (Channel.SAMPLES, Channel.REPLICATION))
    late.add([record(0)], Micros(1))
    for number in range(RECORDS):
        other.add([record(number)], Micros(1))
    assert late.by_source() == {"s": 1}


def test_a_log_that_expires_between_looks_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, other = (Quarantine(tmp_path, channel, AT_ONCE) for channel in (Channel.SAMPLES, Channel.REPLICATION))
    late.add([record(0)], Micros(1))
    look = quarantine.applied_position

    def interrupted(table: DeltaTable, log: str) -> int:
        monkeypatch.setattr(quarantine, "applied_position", look)
        for number in range(RECORDS):
            other.add([record(number)], Micros(1))
        return look(table, log)

    monkeypatch.setattr(quarantine, "applied_position", interrupted)

    assert late.add([record(1)], Micros(1)).total() == 1
    assert quarantined(tmp_path) == {"samples": 2, "replication": RECORDS}


DAY = 86_400_000_000


def odd(
    position: int, source: str = "s", reason: str = "not JSON: odd", size: int = 10, log_id: int = 1
) -> RefusedRecord:
    return RefusedRecord(source=source, log_id=log_id, position=position, reason=reason, raw=b"x" * size)


def test_of_a_source_and_kind_of_reason_the_first_records_are_kept_whole_and_the_others_counted(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, Channel.REPLICATION)
    refused = [odd(number, reason=f"not JSON: {number}") for number in range(1_000)]
    refused += [odd(2_000, reason="unknown kind 'dream'"), odd(5, source="other")]

    assert quarantine.add(refused, Micros(DAY)) == {"s": 1_001, "other": 1}

    found = [
        (row["source"], row["reason_kind"], row["position"], row["records"], row["raw"] is None, row["reason"])
        for row in rows(tmp_path, "quarantine")
        if row["position"] >= KEPT_RECORDS - 1 or row["source"] == "other"
    ]
    assert sorted(found) == [
        ("other", "json", 5, 1, False, "not JSON: odd"),
        ("s", "json", 19, 1, False, "not JSON: 19"),
        ("s", "json", 999, 980, True, "not JSON: 999"),
        ("s", "unknown_kind", 2_000, 1, False, "unknown kind 'dream'"),
    ]
    assert quarantine.by_source() == {"s": 1_001, "other": 1}


def test_what_comes_again_in_another_cut_is_neither_kept_nor_counted_twice(tmp_path: Path) -> None:
    refused = [odd(number) for number in range(200)]
    fresh = [
        Quarantine(tmp_path, Channel.REPLICATION).add(refused[begin:end], Micros(DAY)).total()
        for begin, end in ((0, 70), (0, 50), (30, 120), (100, 200), (0, 200))
    ]
    assert fresh == [70, 0, 50, 80, 0]
    assert Quarantine(tmp_path, Channel.REPLICATION).by_source() == {"s": 200}
    assert kept(tmp_path, Channel.REPLICATION) == list(range(KEPT_RECORDS))


def test_what_comes_again_of_a_log_that_was_left_counts_once_and_the_same_positions_of_another_one_count(
    tmp_path: Path,
) -> None:
    batches = ((1, 0, 70), (2, 0, 50), (1, 0, 90), (2, 30, 60), (1, 0, 90), (2, 0, 60))
    fresh = [
        Quarantine(tmp_path, Channel.SAMPLES).add([odd(at, log_id=run) for at in range(begin, end)], Micros(DAY))["s"]
        for run, begin, end in batches
    ]
    assert fresh == [70, 50, 20, 10, 0, 0]
    assert Quarantine(tmp_path, Channel.SAMPLES).by_source() == {"s": 150}


def test_large_records_are_kept_up_to_a_size_and_the_first_one_always(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, Channel.REPLICATION)
    quarantine.add([odd(0, size=2 * KEPT_BYTES), odd(1)], Micros(DAY))
    quarantine.add([odd(number, source="t", size=KEPT_BYTES // 3) for number in range(9)], Micros(DAY))
    whole = [(row["source"], row["raw_bytes"]) for row in rows(tmp_path, "quarantine") if row["raw"] is not None]
    assert sorted(whole) == [("s", 2 * KEPT_BYTES), *[("t", KEPT_BYTES // 3)] * 3]
    assert quarantine.by_source() == {"s": 2, "t": 9}


def test_a_write_finds_as_few_rows_and_files_as_long_ago_also_if_the_job_restarts_often(tmp_path: Path) -> None:
    sizes = []
    for number in range(2 * FILES_BEFORE_CONDENSING):
        if number % 7 == 0:
            quarantine = Quarantine(tmp_path, Channel.REPLICATION, AT_ONCE)
        quarantine.add([odd(number)], Micros(DAY))
        table = DeltaTable(str(tmp_path / QUARANTINE.name))
        sizes.append((len(table.file_uris()), pa.table(table.get_add_actions())["num_records"]))
    assert max(files for files, _ in sizes) < FILES_BEFORE_CONDENSING
    assert max(sum(records.to_pylist()) for _, records in sizes) < FILES_BEFORE_CONDENSING + KEPT_RECORDS + 1
    assert Quarantine(tmp_path, Channel.REPLICATION).by_source() == {"s": len(sizes)}


def test_a_record_is_counted_instead_when_its_time_is_over_and_makes_room_for_a_new_one(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, Channel.REPLICATION, RetentionPolicy(days=7))
    quarantine.add([odd(number) for number in range(KEPT_RECORDS)], Micros(DAY))
    quarantine.add([odd(100)], Micros(7 * DAY))
    quarantine.add([odd(101)], Micros(9 * DAY))
    assert kept(tmp_path, Channel.REPLICATION) == [*range(KEPT_RECORDS), 101]
    table = DeltaTable(str(tmp_path / QUARANTINE.name)).to_pyarrow_table()
    few = condensed(table, 7, 9 * DAY).to_pylist()
    assert [(row["position"], row["records"], row["raw"] is None) for row in few] == [
        (101, 1, False), (100, KEPT_RECORDS + 1, True),
    ]  # fmt: skip
    assert len(condensed(table, 0, KEPT_DAYS * DAY)) == KEPT_RECORDS + 1, "without days: a month"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.sampled_from(["json", "field"]),
            st.integers(1, 9), st.booleans(), st.integers(0, 60), st.integers(0, KEPT_BYTES // 2),
        ),
        max_size=60,
    ),
    st.integers(0, 30),
)  # fmt: skip
def test_merging_rows_changes_no_sum_and_no_newest_time_and_again_changes_nothing(
    made: list[tuple[str, str, int, bool, int, int]], days: int
) -> None:
    table = as_rows(
        {
            **count_row(ReasonKey("replication", source, kind), position, "why", 1 if whole else records, day * DAY),
            **({"raw": b"x" * size, "raw_bytes": size} if whole else {}),
        }
        for position, (source, kind, records, whole, day, size) in enumerate(made)
    )
    few = condensed(table, days, 60 * DAY)

    def sums(rows_of: pa.Table) -> dict[tuple[str, str], tuple[int, datetime]]:
        keys = rows_of.group_by(["source", "reason_kind"]).aggregate([("records", "sum"), ("quarantined_at", "max")])
        return {
            (row["source"], row["reason_kind"]): (row["records_sum"], row["quarantined_at_max"])
            for row in keys.to_pylist()
        }

    assert sums(few) == sums(table)
    assert len(few) <= 4 * (KEPT_RECORDS + 1)
    assert condensed(few, days, 60 * DAY).equals(few)
