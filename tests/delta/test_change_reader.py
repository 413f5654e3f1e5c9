"""Following the changes by version from the rows: whatever happened to the log and the files, each row comes once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import replace_up_to
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted, rows_between
from streaming.delta.log import storage
from streaming.delta.log.definitions import APPEND_ONLY, STATISTICS_PROPERTY, arrow_schema, create_or_upgrade
from streaming.delta.log.maintenance import Maintenance, RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.storage import read_versions
from streaming.delta.log.table_log import BEFORE_FIRST, has_moved
from streaming.delta.log.writer import Writer
from streaming.errors import TableUnreadable
from tests.delta.test_change_log import changed
from tests.delta.written_changes import commit, expire_log, rows
from tests.examples import examples
from tests.plugins.table_writes import delete_old_files, merge_files, set_properties, write, writer_of

SCHEMA = arrow_schema(PARTITION_CHANGES)


def topics(added: Iterable[tuple[int, pa.Table]]) -> list[tuple[int, list[str]]]:
    return [(version, table.column("topic").to_pylist()) for version, table in added]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / PARTITION_CHANGES.name


@pytest.fixture
def table(path: Path) -> DeltaTable:
    return create_or_upgrade(path.parent, PARTITION_CHANGES)


def test_a_table_that_does_not_exist_yet_has_no_rows_and_is_followed_once_it_does(path: Path) -> None:
    reader = ChangeReader(path)
    assert (reader.poll(), reader.version) == ([], BEFORE_FIRST)
    table = create_or_upgrade(path.parent, PARTITION_CHANGES)
    assert (reader.poll(), reader.version) == ([], 0)
    commit(table, "a")
    assert topics(reader.poll()) == [(1, ["a"])]


def test_each_poll_gives_the_rows_since_the_last_with_every_column(path: Path, table: DeltaTable) -> None:
    reader = ChangeReader(path)
    commit(table, "a", "b")
    commit(table, "c")
    added = reader.poll()
    assert topics(added) == [(1, ["a", "b"]), (2, ["c"])]
    assert [part for _, part in added] == [rows(1, "a", "b"), rows(2, "c")]
    assert (reader.poll(), reader.version) == ([], 2)


def test_of_some_clusters_only_files_that_may_have_them_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, changes = changed()
    log = ChangeLog(tmp_path)
    for name in ("a", "b", "c"):
        column = pa.repeat(pa.scalar(name), changes.num_rows).cast(changes.schema.field("cluster_id").type)
        place = changes.schema.get_field_index("cluster_id")
        log.commit(changes.set_column(place, changes.schema.field("cluster_id"), column), {name: 1})
    opened: list[str] = []
    monkeypatch.setattr(
        "streaming.delta.changes.reader.read_versions",
        lambda *given: (opened.append(given[1]), read_versions(*given))[1],
    )
    found = rows_between(tmp_path / PARTITION_CHANGES.name, BEFORE_FIRST, log.version, {"b", "d"})
    assert (found.num_rows, set(found["cluster_id"].to_pylist())) == (changes.num_rows, {"b"})
    days = len(set(changes["date"].to_pylist()))
    assert len(opened) == days
    assert rows_between(tmp_path / PARTITION_CHANGES.name, BEFORE_FIRST, log.version).num_rows == 3 * changes.num_rows


def test_some_columns_and_fields_are_read_as_with_all_of_them(path: Path) -> None:
    _, changes = changed()
    log = ChangeLog(path.parent)
    log.commit(changes, {"a": 1})
    whole = ChangeReader(path).poll()
    asked = ("source_after.observed_until", "after.leader", "cause")
    (version, part), (_, every) = ChangeReader(path, columns=asked).poll()[0], whole[0]
    assert version == log.version
    assert part.schema.names == ["version", "ordinal", "cluster_id", "cause", "after", "source_after"]
    assert part["cause"].to_pylist() == every["cause"].to_pylist()
    leaders = [None if after is None else {"leader": after["leader"]} for after in every["after"].to_pylist()]
    assert part["after"].to_pylist() == leaders
    assert {None} < {each and each["observed_until"] for each in part["source_after"].to_pylist()}


def test_an_idle_look_opens_no_file(path: Path, table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(table, "a")
    reader = ChangeReader(path)
    reader.poll()
    monkeypatch.setattr("streaming.delta.changes.reader.open_table", _never)
    monkeypatch.setattr("streaming.delta.changes.reader.read_versions", _never)
    monkeypatch.setattr(DeltaTable, "update_incremental", _never)
    assert (reader.poll(), reader.version) == ([], 1)


def _never(*_: object) -> None:
    raise AssertionError("an idle look has to look up names only")


def test_only_files_with_new_rows_are_read(path: Path, table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in "abc":
        commit(table, topic)
    read: list[str] = []

    def read_versions(path: Path, file: str, *given: Any) -> pa.Table:
        read.append(file)
        return storage.read_versions(path, file, *given)

    monkeypatch.setattr("streaming.delta.changes.reader.read_versions", read_versions)
    assert topics(ChangeReader(path, 2).poll()) == [(3, ["c"])]
    assert len(read) == 1


def test_a_poll_up_to_a_version_stops_there_and_the_next_one_goes_on(path: Path, table: DeltaTable) -> None:
    for topic in "abcd":
        commit(table, topic)
    reader = ChangeReader(path)
    assert topics(reader.poll(2)) == [(1, ["a"]), (2, ["b"])]
    assert topics(reader.poll(1)) == []
    assert topics(reader.poll(3)) == [(3, ["c"])]
    assert topics(reader.poll()) == [(4, ["d"])]


def test_an_empty_entry_of_the_log_is_a_version_without_rows(path: Path, table: DeltaTable) -> None:
    commit(table, "a")
    reader = ChangeReader(path)
    reader.poll()
    (path / "_delta_log" / f"{2:020}.json").touch()
    assert (reader.poll(), reader.version) == ([], DeltaTable(str(path)).version())
    commit(DeltaTable(str(path)), "b")
    assert topics(reader.poll()) == topics(ChangeReader(path, 2).poll()) == [(3, ["b"])]


@pytest.mark.parametrize("entry", [b'{"add":{"pa', b"\xff"])
def test_a_damaged_entry_is_refused_in_a_sentence(path: Path, table: DeltaTable, entry: bytes) -> None:
    commit(table, "a")
    reader = ChangeReader(path)
    reader.poll()
    (path / "_delta_log" / f"{2:020}.json").write_bytes(entry)
    with pytest.raises(TableUnreadable, match=r"cannot read the table .*partition_changes"):
        reader.poll()
    assert reader.version == 1


def test_a_gap_in_the_log_is_refused_in_a_sentence_without_the_insides_of_delta(path: Path, table: DeltaTable) -> None:
    for topic in "abc":
        commit(table, topic)
    (path / "_delta_log" / f"{2:020}.json").unlink()
    with pytest.raises(TableUnreadable, match=r"found gap: ParsedLogPath \S+1.json and \S+3.json; repair") as refused:
        ChangeReader(path).poll()
    assert len(str(refused.value)) < 600


def test_what_was_compacted_with_rows_that_were_read_comes_without_them(path: Path, table: DeltaTable) -> None:
    for topic in ("a", "b", "c"):
        commit(table, topic)
    merge_files(table)
    delete_old_files(table)
    newest = commit(table, "d")
    assert len(list(path.rglob("date=*/*.parquet"))) == 2
    assert topics(ChangeReader(path, 1).poll()) == [(2, ["b"]), (3, ["c"]), (newest, ["d"])]
    assert topics(ChangeReader(path).poll()) == [(1, ["a"]), (2, ["b"]), (3, ["c"]), (newest, ["d"])]


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_table_that_was_made_anew_is_refused_however_far_it_is(path: Path, table: DeltaTable, commits: int) -> None:
    commit(table, "a")
    reader = ChangeReader(path)
    reader.poll()
    path.rename(path.with_name("moved away"))
    with pytest.raises(ChangesRestarted, match="gone"):
        reader.poll()
    anew = create_or_upgrade(path.parent, PARTITION_CHANGES)
    for _ in range(2):
        with pytest.raises(ChangesRestarted, match="was recreated"):
            reader.poll()
    for topic in "xy"[:commits]:
        commit(anew, topic)
    for _ in range(2):
        with pytest.raises(ChangesRestarted, match="was recreated"):
            reader.poll()
    assert reader.version == 1


@pytest.mark.parametrize("commits", [0, 1, 2, 3])
def test_a_table_restored_from_a_copy_is_refused_even_grown_since(path: Path, table: DeltaTable, commits: int) -> None:
    commit(table, "a")
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    commit(table, "b")
    commit(table, "c")
    reader = ChangeReader(path)
    reader.poll()
    shutil.rmtree(path)
    copy.rename(path)
    restored = DeltaTable(str(path))
    for topic in "xyz"[:commits]:
        commit(restored, topic)

    for _ in range(2):
        with pytest.raises(ChangesRestarted, match=r"restored from an older copy|version 3 of .* was replaced"):
            reader.poll()
    assert reader.version == 3


def test_a_reader_that_begins_after_more_than_there_is_is_refused(path: Path, table: DeltaTable) -> None:
    commit(table, "a")
    with pytest.raises(ChangesRestarted, match="restored from an older copy"):
        ChangeReader(path, 2).poll()
    path.rename(path.with_name("moved away"))
    with pytest.raises(ChangesRestarted, match="gone"):
        ChangeReader(path, 2).poll()


@pytest.mark.parametrize("is_mixed", [False, True])
def test_files_without_statistics_are_read_as_well(path: Path, table: DeltaTable, *, is_mixed: bool) -> None:
    if is_mixed:
        commit(table, "a")
    set_properties(table, {STATISTICS_PROPERTY: "cluster"})
    without = commit(table, "b")
    commit(table, "c")
    if is_mixed:
        set_properties(table, {STATISTICS_PROPERTY: "version"})
        commit(table, "d")
    files = pa.table(table.get_add_actions(flatten=True))
    assert ("max.version" in files.column_names) is is_mixed
    read = [topic for _, names in topics(ChangeReader(path).poll()) for topic in names]
    assert read == (list("abcd") if is_mixed else ["b", "c"])
    assert rows_between(path, without - 1, without).column("topic").to_pylist() == ["b"]


def test_rows_between_two_versions_are_one_table_in_order(path: Path, table: DeltaTable) -> None:
    for topic in ("a", "b", "c"):
        commit(table, topic)
    assert rows_between(path, 1, 3).column("topic").to_pylist() == ["b", "c"]
    assert rows_between(path, 3, 3).equals(SCHEMA.empty_table())


def test_rows_up_to_a_version_that_is_not_there_are_refused(path: Path, table: DeltaTable) -> None:
    commit(table, "a")
    with pytest.raises(ChangesRestarted, match="no version 5"):
        rows_between(path, 0, 5)


def test_a_table_has_moved_when_it_has_a_newer_version_or_is_gone(path: Path, table: DeltaTable) -> None:
    assert has_moved(path, BEFORE_FIRST)
    assert not has_moved(path, 0)
    commit(table, "a")
    assert has_moved(path, 0)
    path.rename(path.with_name("moved away"))
    assert has_moved(path, 1)
    assert not has_moved(path, BEFORE_FIRST)


def test_a_table_whose_first_entries_expired_has_moved_for_who_has_not_seen_it(path: Path, table: DeltaTable) -> None:
    for topic in "abc":
        commit(table, topic)
    expire_log(table, path, before=3)
    assert has_moved(path, BEFORE_FIRST)
    assert has_moved(path, 0)
    assert not has_moved(path, 3)


def test_a_file_that_holds_its_partition_too_as_spark_writes_it_is_read_the_same(path: Path, table: DeltaTable) -> None:
    commit(table, "a", "b")
    expected = rows_between(path, 0, 1)
    (file,) = path.glob("date=*/*.parquet")
    pq.write_table(expected, file)
    assert rows_between(path, 0, 1) == expected


def test_the_last_versions_of_a_large_file_are_read_without_all_of_it_in_memory(path: Path, table: DeltaTable) -> None:
    commit(table, *(f"topic-{number}" for number in range(2_000)))
    (first,) = table.file_uris()
    many = pa.concat_tables([pq.ParquetFile(first).read()] * 100)
    numbers = pa.array(range(many.num_rows), pa.int64())
    many = many.set_column(many.schema.get_field_index("version"), many.schema.field("version"), numbers)
    pq.write_table(many, path / "large.parquet")
    reading = (
        "import sys; from pathlib import Path; import pyarrow as pa;"
        "from streaming.delta.log.storage import read_versions;"
        f"rows = read_versions(Path(sys.argv[1]), 'large.parquet', {many.num_rows - 11}, {many.num_rows - 2});"
        "print(rows['version'].to_pylist(), ';', pa.default_memory_pool().max_memory())"
    )
    said = subprocess.run([sys.executable, "-c", reading, path], check=True, capture_output=True, text=True).stdout
    versions, _, at_most = said.partition(";")

    assert json.loads(versions) == list(range(many.num_rows - 10, many.num_rows - 1))
    assert int(at_most) < many.nbytes / 3


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.integers(-2, 2), min_size=0, max_size=4)),
    st.tuples(st.just("poll"), st.none() | st.integers(0, 12)),
    st.tuples(st.just("rewrite"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["compact", "property", "expire", "restart", "statistics"]), st.none()),
)


class Followed:
    """A table that is written, tidied up and followed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / PARTITION_CHANGES.name
        self.table = create_or_upgrade(directory, PARTITION_CHANGES)
        set_properties(self.table, {APPEND_ONLY: "false"})
        self.reader = ChangeReader(self.path)
        self.written: list[pa.Table] = []
        self.read: list[tuple[int, pa.Table]] = []

    def commit(self, days: list[int]) -> None:
        version = self.table.version() + 1
        fresh = rows(version, *((f"{version}-{number}", day) for number, day in enumerate(days)))
        write(self.table, fresh)
        self.written += [fresh] * bool(days)

    def poll(self, upto: int | None) -> None:
        self.read += self.reader.poll(upto)

    def compact(self, _: None) -> None:
        merge_files(self.table)

    def rewrite(self, upto: int) -> None:
        """Write the rows up to a version anew, as their expiry does; files may hold later ones, too."""
        writer = writer_of(self.table)
        kept = select(self.table, PARTITION_CHANGES, f"version <= {upto}")
        replace_up_to(writer, [*writer.files()], upto, kept, {})
        self.table = writer.table

    def property(self, _: None) -> None:
        set_properties(self.table, {"delta.checkpointInterval": "20"})

    def statistics(self, _: None) -> None:
        set_properties(self.table, {STATISTICS_PROPERTY: "cluster"})

    def expire(self, _: None) -> None:
        """Delete the log but for its newest entry, and the files that only what is gone has named."""
        expire_log(self.table, self.path, before=self.table.version())
        self.table = DeltaTable(str(self.path))
        keeper = Maintenance(Writer(self.table, self.path), RetentionPolicy(reader_minutes=0))
        keeper.sweep(time.time())
        keeper.sweep(time.time())

    def restart(self, _: None) -> None:
        self.reader = ChangeReader(self.path, self.reader.version)


@settings(max_examples=examples(20))
@given(st.lists(STEPS, max_size=12))
def test_however_polls_are_cut_each_row_comes_once_and_in_order(steps: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        followed = Followed(Path(directory))
        for name, argument in steps:
            getattr(followed, name)(argument)
        followed.poll(None)
        assert followed.reader.version == followed.table.version()
        assert [part for _, part in followed.read] == followed.written
        assert [version for version, _ in followed.read] == [part["version"][0].as_py() for part in followed.written]
