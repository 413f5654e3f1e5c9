"""Exporters of a store look where a newer version was announced, and now and then everywhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.sandbox.waiting import wait_until
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.store.announced import (
    NAME,
    SECONDS_BETWEEN_GETS,
    SECONDS_BETWEEN_LOOKS,
    AnnouncedVersions,
    announce,
    finish_announcements,
)
from streaming.delta.store.objects import delete, get, names_below, put
from streaming.delta.store.place import Url, place_of
from tests.delta.test_change_log import changed
from tests.stores.s3 import moto
from tests.stores.store import Store

pytestmark = [pytest.mark.process, pytest.mark.store]
TABLE = "partition_changes"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with moto(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def directory(store: Store, tmp_path: Path) -> Url:
    """A place of its own for each test."""
    place = place_of(f"{store.url}/{tmp_path.name}", store.options)
    assert isinstance(place, Url)
    return place


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_look_follows_an_announcement_within_seconds_and_is_spared_without(directory: Url) -> None:
    clock = Clock()
    versions = AnnouncedVersions(directory, clock)
    assert versions.is_worth_a_look(TABLE, 5), "nothing was ever looked at"
    assert not versions.is_worth_a_look(TABLE, 5)
    announce(directory / TABLE, 6)
    announce(directory / "topics", 1)
    wait_until(lambda: names_below(directory) == [NAME], "the announcement is put", seconds=10)
    clock.now += SECONDS_BETWEEN_GETS
    assert versions.is_worth_a_look(TABLE, 5)
    assert versions.is_worth_a_look(TABLE, 5), "as long as it was not read"
    assert not versions.is_worth_a_look(TABLE, 6)
    assert not versions.is_worth_a_look(TABLE, 7), "an older announcement says nothing"


def test_a_job_that_stops_announces_its_last_versions_at_once_and_leaves_no_thread(directory: Url) -> None:
    announce(directory / "topics", 7)
    finish_announcements()
    assert json.loads(get(directory / NAME)) == {"topics": 7}
    assert [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)] == []
    finish_announcements()


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"partition_changes": "x"}', b"[1]"])
def test_without_a_good_announcement_each_table_is_looked_at_now_and_then(
    directory: Url, content: bytes | None
) -> None:
    clock = Clock()
    if content is None:
        delete(directory / NAME)
    else:
        put(directory / NAME, content)
    versions = AnnouncedVersions(directory, clock)
    looks = []
    for _ in range(100):
        looks.append(versions.is_worth_a_look(TABLE, 5))
        clock.now += 1
    assert sum(looks) == 1 + (100 - 1) // SECONDS_BETWEEN_LOOKS


def test_a_reader_of_a_store_finds_each_commit_and_rests_between_looks(directory: Url) -> None:
    _, rows = changed()
    log, reader = ChangeLog(directory), ChangeReader(directory / TABLE)
    assert reader.poll() == []
    for version in range(1, 4):
        log.commit(rows, {"a": version})
        wait_until(reader.is_worth_a_poll, "a look is due", seconds=5)
        assert [(number, part.num_rows) for number, part in reader.poll()] == [(version, rows.num_rows)]
        assert not reader.is_worth_a_poll(), "a look costs a request"
        assert reader.poll() == []
