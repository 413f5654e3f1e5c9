from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import SourceLag, SourceState
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.progress import ProgressTable
from streaming.errors import TableRefused
from tests.jobs.driver.test_batch import rows

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 15


def row(position: int) -> tuple[SourceState, SourceLag]:
    return SourceState(ClusterId("c"), "main", "s", SourceKind.POLL, position=position), SourceLag(restarts=position)


def positions(directory: Path) -> dict[str, list[int]]:
    found = rows(directory, "source_progress")
    return {
        channel: [row["position"] for row in found if row["channel"] == channel]
        for channel in sorted({row["channel"] for row in found})
    }


def test_a_channel_replaces_its_own_rows_only(tmp_path: Path) -> None:
    offsets, metrics = ProgressTable(tmp_path, Channel.OFFSETS), ProgressTable(tmp_path, Channel.METRICS)
    offsets.replace([row(1)], None)
    metrics.replace([row(2)], None)
    offsets.replace([row(3)], None)
    assert positions(tmp_path) == {"metrics": [2], "offsets": [3]}
    assert ProgressTable(tmp_path, Channel.OFFSETS).sources() == [row(3)[0]]
    assert [found["restarts"] for found in rows(tmp_path, "source_progress") if found["channel"] == "offsets"] == [3]


def test_channels_written_at_once_by_several_jobs_lose_nothing(tmp_path: Path) -> None:
    def write(channel: Channel) -> None:
        table = ProgressTable(tmp_path, channel)
        for number in range(ROUNDS):
            table.replace([row(number)], number if channel is Channel.REPLICATION else None)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, Channel))
    assert positions(tmp_path) == {channel: [ROUNDS - 1] for channel in sorted(Channel)}
    assert ProgressTable(tmp_path, Channel.REPLICATION).as_of_version == ROUNDS - 1


def test_of_two_writers_of_one_channel_the_second_is_told(tmp_path: Path) -> None:
    first, second = ProgressTable(tmp_path, Channel.OFFSETS), ProgressTable(tmp_path, Channel.OFFSETS)
    first.replace([row(1)], None)
    first.replace([row(2)], None)
    with pytest.raises(TableRefused, match="another job writes the channel offsets"):
        second.replace([row(9)], None)
    assert positions(tmp_path) == {"offsets": [2]}


def test_a_writer_that_was_suspended_until_its_log_expired_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.delta.log.maintenance.COMMITS_BETWEEN_ROUNDS", 5)
    keep = RetentionPolicy(reader_minutes=0)
    suspended, busy = ProgressTable(tmp_path, Channel.OFFSETS, keep), ProgressTable(tmp_path, Channel.METRICS, keep)
    suspended.replace([row(1)], None)
    for number in range(30):
        busy.replace([row(number)], None)
    entries = tmp_path / "source_progress" / "_delta_log"
    assert not (entries / f"{1:020}.json").exists()

    suspended.replace([row(2)], None)
    busy.replace([row(30)], None)

    assert positions(tmp_path) == {"metrics": [30], "offsets": [2]}
