"""New events as they are committed: whatever happens to the files, each once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.recorded_events import history
from exporters.terminal.follow import EventFollower
from tests.plugins.played import play
from tests.plugins.table_writes import merge_files


def never(gap: Exception) -> None:
    raise AssertionError(gap)


def ids(rows: Any) -> list[str]:
    return [row["event_id"] for row in rows]


def truth_of(tables: Path) -> DeltaTable:
    return DeltaTable(str(tables / "partition_changes"))


class Growing:
    """Tables that come to be version by version, as copies of finished ones."""

    def __init__(self, finished: Path, directory: Path) -> None:
        self.directory = directory
        self._log = directory / "partition_changes" / "_delta_log"
        self._rest = directory.parent / "rest"
        shutil.copytree(finished, directory)
        self._rest.mkdir()
        for entry in self._log.iterdir():
            shutil.move(entry, self._rest / entry.name)
        shutil.rmtree(directory / "replication_events")
        self.version = -1

    def grow(self, to: int) -> None:
        while self.version < to:
            self.version += 1
            shutil.move(self._rest / f"{self.version:020}.json", self._log / f"{self.version:020}.json")


def test_events_come_with_the_commit_that_brings_them(played_tables: Callable[..., Path], tmp_path: Path) -> None:
    finished = played_tables("under_min_isr", "broker_loss")
    growing = Growing(finished, tmp_path / "tables")
    follower = EventFollower(growing.directory, EventFilter(), None, never)
    seen: list[str] = []
    for version in range(-1, truth_of(finished).version() + 1):
        growing.grow(version)
        new = ids(follower.poll())
        assert follower.poll() == []
        seen += new
    assert sorted(seen) == sorted(ids(history(finished, EventFilter())))


def test_it_begins_with_the_newest_old_ones_and_filters_what_comes(
    played_tables: Callable[..., Path], tmp_path: Path
) -> None:
    finished = played_tables("under_min_isr", "broker_loss")
    wanted = EventFilter(clusters=("broker_loss",))
    everything = ids(history(finished, wanted))
    assert ids(EventFollower(finished, wanted, 5, never).poll()) == everything[-5:]
    growing = Growing(finished, tmp_path / "tables")
    follower = EventFollower(growing.directory, wanted, 0 or None, never)
    follower.poll()
    growing.grow(truth_of(finished).version())
    assert sorted(ids(follower.poll())) == sorted(everything)


def test_compaction_brings_nothing_again_and_loses_nothing(played_tables: Callable[..., Path], tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(played_tables("under_min_isr", "broker_loss"), tables)
    follower = EventFollower(tables, EventFilter(), None, never)
    assert follower.poll()
    table = truth_of(tables)
    merge_files(table)
    assert follower.poll() == []
    assert truth_of(tables).version() == table.version()


def test_tables_that_are_made_anew_are_followed_from_their_beginning(tmp_path: Path) -> None:
    tables, gaps = tmp_path / "tables", []
    play(tables, "broker_loss", seconds=12, project_every=5)
    follower = EventFollower(tables, EventFilter(), None, gaps.append)
    before = ids(follower.poll())
    shutil.rmtree(tables)
    play(tables, "broker_loss", seconds=16, project_every=5)
    assert follower.poll() == []
    assert len(gaps) == 1
    again = ids(follower.poll())
    assert set(before) & set(again) == set()
    assert sorted(before + again) == sorted(ids(history(tables, EventFilter())))
