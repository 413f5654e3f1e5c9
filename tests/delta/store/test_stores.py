"""Every store does the same: the six verbs, what the job writes, what readers see, what a kill leaves.

A folder and a server of S3 are tried in every run, the others in the long one.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.read_model.reader import TablesReader
from streaming.commands import app
from streaming.contracts.tables import TABLES
from streaming.delta.backup import back_up, restore
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import rows_between
from streaming.delta.log.queries import open_ours, read_all
from streaming.delta.log.storage import table_at
from streaming.delta.log.table_log import actions_of, is_whole
from streaming.delta.store import objects
from streaming.delta.store.lease import (
    FOLDER,
    NONE_YET,
    NUMBERS_LEFT,
    JobLease,
    LeaseWatch,
    newest_number,
    numbers_below,
)
from streaming.delta.store.objects import create, delete, get, head, names_below, prove_exclusive, put
from streaming.delta.store.place import Place, Url, at_once, place_of
from streaming.errors import TableRefused
from tests.delta.store.test_lease import Clock
from tests.delta.test_change_log import changed
from tests.plugins.played import play
from tests.stores.azure import azurite
from tests.stores.hdfs import hdfs
from tests.stores.s3 import moto, versitygw
from tests.stores.store import Store

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
pytestmark = [pytest.mark.process, pytest.mark.store]
Start = Callable[[Path], AbstractContextManager[Store]]
REMOTE: dict[str, Start] = {"moto": moto, "versitygw": versitygw, "azurite": azurite, "hdfs": hdfs}
LONG = [pytest.param(name, marks=pytest.mark.long) for name in REMOTE if name != "moto"]


class Running:
    """The stores that tests of this file have asked for: each is started once."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack, self._roots = folder, stack, dict[str, Place]()

    def root(self, name: str) -> Place:
        if name not in self._roots:
            folder = self._folder / name
            if name == "folder":
                self._roots[name] = folder
            else:
                store = self._stack.enter_context(REMOTE[name](folder))
                self._roots[name] = place_of(f"{store.url}/root", store.options)
        return self._roots[name]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(tmp_path_factory.mktemp("stores"), stack)


@pytest.fixture(params=["folder", "moto", *LONG])
def root(request: pytest.FixtureRequest, running: Running) -> Place:
    """A place of each kind."""
    return running.root(request.param)


@pytest.fixture
def place(root: Place, request: pytest.FixtureRequest) -> Place:
    """A folder of its own for each test."""
    return root / f"test-{abs(hash(request.node.nodeid))}"


@pytest.fixture(params=["moto", *LONG])
def store(request: pytest.FixtureRequest, running: Running) -> Url:
    """A place of its own in each store, for what is compared with a folder."""
    root = running.root(request.param)
    assert isinstance(root, Url)
    return root / f"test-{abs(hash(request.node.nodeid))}"


def test_what_is_created_is_there_whole_and_is_created_once(place: Place) -> None:
    name = place / "_delta_log" / "00000000000000000000.json"
    assert head(name) is None
    with pytest.raises(FileNotFoundError):
        get(name)
    assert create(name, b"first")
    assert not create(name, b"second")
    assert get(name) == b"first"
    status = head(name)
    assert status is not None
    assert status.size == len(b"first")


def test_what_is_put_replaces_what_was_there_and_is_another_object(place: Place) -> None:
    name, content = place / "hint", b"x" * 300_000
    put(name, b"old")
    before = head(name)
    put(name, content)
    after = head(name)
    assert get(name) == content
    assert before is not None
    assert after is not None
    assert before.identity != after.identity
    assert abs(after.modified_at - before.modified_at) < 60


def test_names_come_in_order_from_every_folder(place: Place) -> None:
    assert names_below(place) == []
    for name in ("b", "a", "date=2026-11-28/part-1.parquet", "a-b/c"):
        put(place / name, b"")
    put(place.parent / f"{place.name}-another" / "x", b"")
    assert names_below(place) == ["a", "a-b/c", "b", "date=2026-11-28/part-1.parquet"]
    assert names_below(place / "date=2026-11-28") == ["part-1.parquet"]


def test_what_is_deleted_is_gone_and_may_be_deleted_and_created_again(place: Place) -> None:
    name = place / "a"
    delete(name)
    put(name, b"1")
    delete(name)
    assert head(name) is None
    assert create(name, b"2")


def test_of_many_writers_of_a_name_one_wins_and_no_reader_sees_a_part(place: Place) -> None:
    writers, rounds = 4, 5
    together, contents = Barrier(writers + 1), {bytes([number]) * 50_000 for number in range(writers)}

    def write(number: int, turn: int) -> bool:
        together.wait(30)
        return create(place / str(turn), bytes([number]) * 50_000)

    def read(turn: int) -> bytes | None:
        together.wait(30)
        for _ in range(200):
            try:
                return get(place / str(turn))
            except FileNotFoundError:
                continue
        return None

    won: Counter[int] = Counter()
    with ThreadPoolExecutor(writers + 1) as threads:
        for turn in range(rounds):
            outcomes = [threads.submit(write, number, turn) for number in range(writers)]
            seen = threads.submit(read, turn)
            won[turn] = sum(outcome.result() for outcome in outcomes)
            assert seen.result() in {None, *contents}
    assert won == Counter(dict.fromkeys(range(rounds), 1))


def test_a_store_proves_itself_and_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "ROUNDS", 5)
    prove_exclusive(place)
    assert names_below(place) == []


SCENARIO, SECONDS = "under_min_isr", 12
OF_THE_CLOCK = {"committed_at", "quarantined_at", "applied_at", "updated_at"}


def rows_of(place: Place) -> dict[str, list[str]]:
    """Every row of every table, but for the times of our own clock."""
    tables = {name: open_ours(place, definition) for name, definition in TABLES.items()}
    return {
        name: sorted(
            repr({key: row[key] for key in row if key not in OF_THE_CLOCK}) for row in read_all(table).to_pylist()
        )
        for name, table in tables.items()
        if table is not None
    }


def changes_of(place: Place) -> list[str]:
    """Every change, but for the number and the time of its commit."""
    rows = read_all(table_at(place / "partition_changes")).to_pylist()
    return sorted(
        repr({key: row[key] for key in row if key not in {"version", "ordinal", *OF_THE_CLOCK}}) for row in rows
    )


def seen(place: Place) -> list[Any]:
    clusters = TablesReader(place).refresh().clusters.values()
    return [(each.cluster, each.totals, each.brokers, each.departures, each.sources) for each in clusters]


@pytest.fixture(scope="module")
def in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a play that never left its folder."""
    folder = tmp_path_factory.mktemp("folder") / "tables"
    play(folder, SCENARIO, seconds=SECONDS, project_every=4)
    return folder


def test_the_job_writes_and_readers_and_commands_see_what_they_do_in_a_folder(
    store: Url, in_a_folder: Path, tmp_path: Path
) -> None:
    play(store, SCENARIO, seconds=SECONDS, project_every=4)
    assert rows_of(store) == rows_of(in_a_folder)
    assert seen(store) == seen(in_a_folder) != []
    versions = [table_at(place / "partition_changes").version() for place in (store, in_a_folder)]
    assert versions[0] == versions[1]
    commands_read(store, tmp_path)


@pytest.mark.long
def test_tables_move_by_a_backup_from_a_folder_to_a_store_within_it_and_back(
    store: Url, in_a_folder: Path, tmp_path: Path
) -> None:
    first, last, again = tmp_path / "first", tmp_path / "last", store.parent / f"{store.name}-again"
    play(first, SCENARIO, seconds=1)
    back_up(first, store, NOW)
    play(store, SCENARIO, seconds=4)
    assert back_up(store, again, NOW) == restore(again, last)
    play(last, SCENARIO, seconds=SECONDS)
    assert changes_of(last) == changes_of(in_a_folder)
    assert seen(last) == seen(in_a_folder) != []


def commands_read(place: Url, folder: Path) -> None:
    config = folder / "isrwatch.toml"
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in place.options]
    config.write_text("\n".join([f'[tables]\ndirectory = "{place}"', "[tables.storage]", *lines]))
    for command in (["state"], ["events"], ["tables"]):
        done = CliRunner().invoke(app, [*command, "--config", str(config), "-o", "json"])
        assert done.exit_code == 0, done.output
        assert done.stdout.strip() not in {"", "[]"}


@pytest.mark.parametrize("point", ["file", pytest.param("draft", marks=pytest.mark.long), "after"])
def test_a_writer_killed_at_any_step_leaves_a_version_whole_or_none(store: Url, point: str) -> None:
    """The same in a folder is in ``tests/end_to_end/test_kills.py``."""
    if point == "draft" and not store.text.startswith("hdfs"):
        point = "file"  # an object of such a store has its name from the beginning, and is whole
    script = Path(__file__).with_name("killed_writer.py")
    done = subprocess.run(
        [sys.executable, script, str(store), point, "3"],
        check=False,
        capture_output=True,
        env={**os.environ, "OPTIONS": json.dumps(dict(store.options)), "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    path, versions = store / "partition_changes", 3 if point == "after" else 2
    log = ChangeLog(store)
    assert (log.version, log.at("a").position) == (versions, versions)
    assert actions_of(path, versions + 1) == []
    assert all(is_whole(path, version) for version in range(1, versions + 1))
    _, rows = changed()
    assert log.commit(rows, {"a": 4}) == versions + 1
    assert rows_between(path, -1, versions + 1).num_rows == (versions + 1) * rows.num_rows


def test_of_two_jobs_the_one_that_comes_second_stops(place: Place) -> None:
    _, rows = changed()
    first, second = ChangeLog(place), ChangeLog(place)
    first.commit(rows, {"a": 1})
    with pytest.raises(TableRefused, match="another job writes"):
        second.commit(rows, {"a": 1})
    assert rows_between(place / "partition_changes", -1, 1).num_rows == rows.num_rows


def test_files_without_a_commit_are_swept_in_time(place: Place) -> None:
    ChangeLog(place)
    path = place / "partition_changes"
    put(path / "date=2026-11-28" / "part-of-nothing.parquet", b"")
    assert "date=2026-11-28/part-of-nothing.parquet" in names_below(path)


def test_a_standby_takes_a_lapsed_lease_and_its_numbers_do_not_accumulate(place: Place) -> None:
    clock = Clock()
    active, folder = JobLease(place / FOLDER, 15.0), place / FOLDER
    assert newest_number(folder) == NONE_YET
    active.take()
    watch = LeaseWatch(JobLease(folder, 15.0), clock)
    assert not watch.take_if_lapsed()
    for _ in range(2 * NUMBERS_LEFT):
        active.renew()
        clock.now += 5
        assert not watch.take_if_lapsed()
    assert len(numbers_below(folder)) == NUMBERS_LEFT
    for _ in range(100):
        clock.now += 2
        if watch.take_if_lapsed():
            break
    with pytest.raises(TableRefused, match="has taken over"):
        active.renew()


def test_what_waits_for_a_store_waits_at_once_and_a_folder_is_read_in_order() -> None:
    together = Barrier(4)
    place = place_of("s3://bucket/tables")
    assert at_once(place, lambda number: (together.wait(10), number)[1], range(4)) == [0, 1, 2, 3]
    begun = list[int]()
    assert at_once(Path(), lambda number: (begun.append(number), number)[1], range(4)) == begun == [0, 1, 2, 3]
