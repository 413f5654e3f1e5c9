"""What tables in a store cost in requests: a look is one, and what was read or written once is not asked for again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from exporters.read_model.side_tables import SIDE_CONTENTS, SideTable
from streaming.contracts.observations import Channel
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes import reader as changes
from streaming.delta.changes.log import ChangeLog, in_commit
from streaming.delta.changes.reader import ChangeReader, rows_between
from streaming.delta.log import checkpoints, definitions, storage, table_log
from streaming.delta.log.followed import LOOKS_PER_CHECK, FollowedTable
from streaming.delta.log.maintenance import SMALL_BYTES, Maintenance, RetentionPolicy, compact
from streaming.delta.log.queries import read_all
from streaming.delta.log.storage import table_at
from streaming.delta.log.table_log import delete_log_before, newest_checkpoint
from streaming.delta.log.writer import APPEND, OVERWRITE, Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.store import announced
from streaming.delta.store.objects import get
from streaming.delta.store.place import Url, place_of
from tests.delta.test_change_log import changed
from tests.delta.test_maintenance import newest
from tests.stores.fault_proxy import FaultProxy, fault_proxy
from tests.stores.s3 import moto

pytestmark = [pytest.mark.process, pytest.mark.store]
Requests = Counter[tuple[str, str]]


class CountedStore:
    """A store behind a proxy that counts; each test has a folder of its own in it."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy, self._folders = proxy, 0

    def folder(self) -> Url:
        self._folders += 1
        place = place_of(f"{self._proxy.store.url}/tables-{self._folders}", self._proxy.store.options)
        assert isinstance(place, Url)
        return place

    @contextmanager
    def counted(self) -> Iterator[Requests]:
        """Give what is requested within the block, once it has ended; announcements are put by a timer."""
        before, counts = self._proxy.counts.copy(), Requests()
        yield counts
        counts.update(self._proxy.counts - before)
        del counts["PUT", "other"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedStore]:
    with moto(tmp_path_factory.mktemp("store")) as running, fault_proxy(running) as proxy:
        yield CountedStore(proxy)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_known_here(monkeypatch)


def nothing_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers not know what this process has committed, as if the job ran elsewhere."""
    monkeypatch.setattr(changes, "committed_here", lambda _: None)
    for module in (storage, table_log):
        monkeypatch.setattr(module, "recall", lambda _: None)


@pytest.mark.usefixtures("elsewhere")
def test_a_reader_elsewhere_looks_with_one_request_and_reads_a_commit_with_five(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SECONDS_BETWEEN_LOOKS", 0.0)
    directory, (_, rows) = store.folder(), changed()
    log = ChangeLog(directory)
    log.commit(rows, {"a": 1})
    reader = ChangeReader(directory / PARTITION_CHANGES.name)
    assert reader.poll()
    reader.rests()  # the check that is due now and then
    reader.poll()
    with store.counted() as looks:
        assert reader.rests()
        assert reader.poll() == []
    assert looks == {("GET", "entry"): 2}, "one for each look"
    log.commit(rows, {"a": 2})
    with store.counted() as reads:
        assert [version for version, _ in reader.poll()] == [2]
    assert reads == {("GET", "entry"): 2, ("GET", "data"): 1, ("HEAD", "entry"): 2}


def test_a_reader_in_the_process_of_the_writer_looks_without_a_request(store: CountedStore) -> None:
    directory, (_, rows) = store.folder(), changed()
    log = ChangeLog(directory)
    log.commit(rows, {"a": 1})
    reader = ChangeReader(directory / PARTITION_CHANGES.name)
    reader.poll()
    reader.poll()
    with store.counted() as looks:
        assert all(reader.rests() for _ in range(100))
    assert looks == {}
    log.commit(rows, {"a": 2})
    with store.counted() as reads:
        assert [version for version, _ in reader.poll()] == [2]
    assert reads == {}, "this process has written the entry and the file"


def test_a_few_versions_are_read_from_their_entries_and_the_table_is_not_opened(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_is_known_here(monkeypatch)
    directory, (_, rows) = store.folder(), changed()
    log, path = ChangeLog(directory), directory / PARTITION_CHANGES.name
    for position in range(1, 6):
        log.commit(rows, {"a": position})
    with store.counted() as reads:
        assert rows_between(path, 2, 5).num_rows == 3 * rows.num_rows
    assert reads == {("GET", "entry"): 3, ("GET", "data"): 3, ("HEAD", "entry"): 1}
    monkeypatch.undo()
    with store.counted() as reads:
        assert rows_between(path, 2, 5).num_rows == 3 * rows.num_rows
    assert reads == {}, "all of it is of this process"


@pytest.mark.usefixtures("elsewhere")
def test_a_new_version_of_a_table_is_an_entry_and_its_new_files(store: CountedStore) -> None:
    directory = store.folder()
    writer = Writer.opened(directory, REPLICA_OFFSETS)
    writer.write(newest(3), OVERWRITE, {})
    followed = FollowedTable.opened(directory, REPLICA_OFFSETS)
    assert followed is not None
    assert followed.rows(["topic", "partition"]).num_rows == 3
    with store.counted() as looks:
        assert not followed.follow()
    assert looks == {("GET", "entry"): 1, ("HEAD", "entry"): 1}
    with store.counted() as looks:
        assert not any(followed.follow(followed.version) for _ in range(LOOKS_PER_CHECK))
    assert looks == {("GET", "entry"): LOOKS_PER_CHECK, ("HEAD", "entry"): 1}, "as announced: nothing is new"
    added = writer.written(newest(5))
    version = writer.add_files(added, [], {})
    with store.counted() as reads:
        assert followed.follow(version)
        assert followed.rows(["topic", "partition"]).num_rows == 8
    assert reads == {("GET", "entry"): 1, ("GET", "data"): 1}, "the file that was read before is kept"
    writer.write(newest(2), OVERWRITE, {})
    assert followed.follow()
    assert followed.rows(["partition"])["partition"].to_pylist() == [0, 1]


def test_a_table_is_opened_again_once_the_next_entry_has_expired(store: CountedStore) -> None:
    directory = store.folder()
    writer = Writer.opened(directory, REPLICA_OFFSETS)
    writer.write(newest(1), OVERWRITE, {})
    followed = FollowedTable.opened(directory, REPLICA_OFFSETS)
    assert followed is not None
    for count in range(2, 6):
        writer.write(newest(count), OVERWRITE, {})
    writer.table.create_checkpoint()
    keeper = Maintenance(writer, RetentionPolicy(reader_minutes=-1))
    keeper.expire_log(time.time())
    assert followed.follow()
    assert (followed.version, followed.rows(["topic"]).num_rows) == (writer.version, 5)


def test_the_exporter_reads_a_table_of_samples_as_it_is_in_a_folder(store: CountedStore, tmp_path: Path) -> None:
    content = next(each for each in SIDE_CONTENTS if each.definition is REPLICA_OFFSETS)
    read: list[pa.Table] = []
    noted = type(content)(content.definition, lambda _, rows: read.append(rows) or _nothing, _nothing, content.columns)
    for directory in (store.folder(), tmp_path):
        Writer.opened(directory, REPLICA_OFFSETS).write(newest(4), OVERWRITE, {})
        SideTable(directory, noted).look()
    of_store, of_folder = read
    assert of_store.num_rows == 4
    assert of_store.select(of_folder.column_names).to_pylist() == of_folder.to_pylist()


def _nothing(_: object) -> None:
    """Take over nothing."""


def test_maintenance_of_what_this_process_has_committed_reads_no_entry(store: CountedStore) -> None:
    directory = store.folder()
    writer = Writer.opened(directory, REPLICA_OFFSETS)
    for _ in range(12):
        writer.write(newest(1), OVERWRITE, {})
    keeper = Maintenance(writer)
    keeper.expire_log(time.time())
    keeper.sweep(time.time())
    with store.counted() as requests:
        keeper.expire_log(time.time())
        keeper.sweep(time.time())
    assert requests["GET", "entry"] <= 1, "the first version, which defines the table"
    assert requests["HEAD", "entry"] <= 1
    assert requests["GET", "list"] <= 3


def test_a_checkpoint_reads_nothing_again_and_the_table_is_the_same(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "CHECKPOINTS_IN_STORES", 5)
    directory = store.folder()
    path, writer = directory / REPLICA_OFFSETS.name, Writer.opened(directory, REPLICA_OFFSETS)
    for number in range(1, 5):
        writer.write(newest(number), OVERWRITE, {})
    with store.counted() as first:
        writer.write(newest(5), OVERWRITE, {"position": 1})
    assert first["GET", "entry"] <= 1, "version 0, which defines the table"
    for number in range(6, 10):
        writer.write(newest(number), OVERWRITE, {})
    with store.counted() as second:
        writer.write(newest(10), OVERWRITE, {})
    assert second == {("PUT", "data"): 1, ("PUT", "entry"): 1, ("PUT", "log"): 2}
    assert newest_checkpoint(path) == 10
    delete_log_before(path, 10)
    opened = table_at(path)
    assert (opened.version(), read_all(opened).num_rows, opened.transaction_version("position")) == (10, 10, 1)
    other = Writer.opened(directory, REPLICA_OFFSETS)
    other.write(newest(1), OVERWRITE, {})
    for number in range(12, 16):
        other.write(newest(number), OVERWRITE, {})
    assert newest_checkpoint(path) == 15
    assert read_all(table_at(path)).num_rows == 15, "another writer began from the checkpoint"


def test_files_are_merged_without_reading_the_log_again(store: CountedStore) -> None:
    directory, (_, rows) = store.folder(), changed()
    log, writer = ChangeLog(directory), Writer.opened(directory, PARTITION_CHANGES)
    del log
    for version in range(1, 7):
        writer.write(in_commit(rows, version, 0), APPEND, {})
    compact(writer, SMALL_BYTES)
    for version in range(8, 12):
        writer.write(in_commit(rows, version, 0), APPEND, {})
    with store.counted() as requests:
        compact(writer, SMALL_BYTES)
    assert requests == {("PUT", "data"): 1, ("PUT", "entry"): 1}, "entries and files are of this process"
    assert len(writer.files()) == 1
    assert read_all(table_at(directory / PARTITION_CHANGES.name)).num_rows == 10 * rows.num_rows


def test_a_checkpoint_is_made_in_the_store_where_it_cannot_be_made_here(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(**_: str) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(definitions, "CHECKPOINTS_IN_STORES", 5)
    monkeypatch.setattr(checkpoints, "TemporaryDirectory", no_room)
    directory = store.folder()
    writer = Writer.opened(directory, REPLICA_OFFSETS)
    for number in range(1, 6):
        writer.write(newest(number), OVERWRITE, {})
    assert newest_checkpoint(directory / REPLICA_OFFSETS.name) == 5


def test_two_channels_that_one_thread_writes_do_not_race(store: CountedStore) -> None:
    directory = store.folder()
    first = ProgressTable(directory, Channel.REPLICATION)
    tables = [first, ProgressTable(directory, Channel.SAMPLES, shared=first)]
    for table in tables:
        table.replace([], None, {"offset": 1})
    with store.counted() as requests:
        for table in tables:
            table.replace([], None, {"offset": 2})
    assert requests == {("PUT", "entry"): 2}, "no entry that another one has come before, and nothing is read"


def test_a_burst_of_commits_is_announced_once_and_the_change_log_alone_never(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Callable[[], None]] = []
    monkeypatch.setattr(announced.threading, "Timer", lambda _, put: timers.append(put) or StoppedTimer())
    directory = store.folder()
    announced.announce(directory / PARTITION_CHANGES.name, 7)
    assert timers == [], "readers look for its versions themselves"
    for version in range(5):
        announced.announce(directory / REPLICA_OFFSETS.name, version)
        announced.announce(directory / "incidents", version)
    (put,) = timers
    put()
    assert json.loads(get(directory / announced.NAME)) == {"partition_changes": 7, "replica_offsets": 4, "incidents": 4}


class StoppedTimer:
    """A timer that never fires."""

    daemon = True

    def start(self) -> None:
        """Start nothing."""

    cancel = join = start
