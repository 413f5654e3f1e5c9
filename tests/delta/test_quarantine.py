"""The table of unparseable records: bounded by maintenance, however many streams append to it and however late."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.contracts.tables import QUARANTINE
from streaming.delta import quarantine
from streaming.delta.definitions import arrow_schema
from streaming.delta.maintenance import RetentionPolicy
from streaming.delta.quarantine import Quarantine, Refused
from streaming.delta.writer import APPEND, Writer
from streaming.errors import TableRefused
from tests.delta.test_maintenance import age, data_files, versions_in_log
from tests.jobs.driver.test_batch import rows

if TYPE_CHECKING:
    from pathlib import Path

A_MINUTE = RetentionPolicy(reader_minutes=1)
AT_ONCE = RetentionPolicy(reader_minutes=0)
RECORDS = 90
EACH = 30


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.maintenance.COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr("streaming.delta.maintenance.SECONDS_BETWEEN_SWEEPS", 0.0)


def record(position: int) -> Refused:
    return Refused(source="s", position=position, reason="torn", raw=b"?" * 100)


def quarantined(directory: Path) -> list[tuple[str, int]]:
    return sorted((row["channel"], row["position"]) for row in rows(directory, "quarantine"))


def test_its_log_and_its_files_stay_few_and_every_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / QUARANTINE.name
    quarantine = Quarantine(tmp_path, Channel.OFFSETS, A_MINUTE)
    began = time.time()
    for number in range(RECORDS):
        age(path, seconds=20)
        monkeypatch.setattr("streaming.delta.maintenance.time.time", lambda number=number: began + number)
        (path / f"part-{number}-torn.parquet").write_bytes(b"a write that was never committed")
        assert quarantine.add([record(number)], Micros(1)).total() == 1

    assert versions_in_log(path)[0] > 0
    assert len(versions_in_log(path)) < 70, "of a minute, and back to a checkpoint"
    assert len(data_files(path)) < RECORDS + 60 + 2 * 5, "what was never committed is swept a minute later"
    assert quarantined(tmp_path) == [("offsets", number) for number in range(RECORDS)]


def test_a_writer_that_was_suspended_until_the_log_it_has_read_expired_goes_on(tmp_path: Path) -> None:
    suspended = Quarantine(tmp_path, Channel.REPLICATION, AT_ONCE)
    assert suspended.add([record(0)], Micros(1)).total() == 1
    read = DeltaTable(str(tmp_path / QUARANTINE.name)).version()
    busy = Quarantine(tmp_path, Channel.OFFSETS, AT_ONCE)
    for number in range(RECORDS):
        busy.add([record(number)], Micros(1))
    assert versions_in_log(tmp_path / QUARANTINE.name)[0] > read

    assert suspended.add([record(0), record(1)], Micros(1)).total() == 1
    assert busy.add([record(RECORDS - 1), record(RECORDS)], Micros(1)).total() == 1

    expected = [("offsets", number) for number in range(RECORDS + 1)] + [("replication", 0), ("replication", 1)]
    assert quarantined(tmp_path) == expected


def test_streams_that_append_and_tidy_up_at_once_keep_every_record_once(tmp_path: Path) -> None:
    """A lost race of maintenance is no failure, nor is a log that expires between the look at it and the commit."""

    def write(channel: str) -> int:
        quarantine = Quarantine(tmp_path, channel, AT_ONCE)
        return sum(quarantine.add([record(number)], Micros(1)).total() for number in range(EACH))

    with ThreadPoolExecutor() as threads:
        written = list(threads.map(write, Channel))

    assert quarantined(tmp_path) == sorted((channel, number) for channel in Channel for number in range(EACH))
    assert sum(written) == len(Channel) * EACH


def test_a_writer_whose_version_was_taken_and_expired_since_is_refused_like_any_other(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, Channel.OFFSETS, AT_ONCE)
    quarantine.add([record(0)], Micros(1))
    table = DeltaTable(str(tmp_path / QUARANTINE.name))
    late = Writer(table)
    for number in range(1, RECORDS):
        quarantine.add([record(number)], Micros(1))
    assert versions_in_log(tmp_path / QUARANTINE.name)[0] > table.version()

    with pytest.raises(TableRefused, match="another job writes"):
        late.write(arrow_schema(QUARANTINE).empty_table(), APPEND, {})

    assert quarantined(tmp_path) == [("offsets", number) for number in range(RECORDS)]


def test_a_log_that_expires_between_two_looks_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, other = (Quarantine(tmp_path, channel, AT_ONCE) for channel in (Channel.OFFSETS, Channel.METRICS))
    late.add([record(0)], Micros(1))
    look = quarantine.applied_position

    def interrupted(table: DeltaTable, log: str) -> int:
        monkeypatch.setattr(quarantine, "applied_position", look)
        for number in range(RECORDS):
            other.add([record(number)], Micros(1))
        return look(table, log)

    monkeypatch.setattr(quarantine, "applied_position", interrupted)

    assert late.add([record(1)], Micros(1)).total() == 1
    assert [number for channel, number in quarantined(tmp_path) if channel == Channel.OFFSETS] == [0, 1]
