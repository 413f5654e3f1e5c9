from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.observations import Channel
from streaming.delta.progress import ProgressTable
from streaming.errors import TableRefused
from tests.jobs.test_batch import rows

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 15


def row(position: int) -> dict[str, Any]:
    return {"cluster_id": "c", "cluster": "main", "source": "s", "position": position}


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
    assert [each["position"] for each in ProgressTable(tmp_path, Channel.OFFSETS).rows()] == [3]


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
