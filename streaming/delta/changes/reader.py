"""Follows ``partition_changes`` by version: reads the rows after a version from the data files, and their events."""

# Theory of operation
#
# All tables rely on one rule: the state at version N is a derived table as of version M plus the changes of the
# versions M + 1 to N. Every derived table stores its M (``as_of_version``); the job rebuilds its state that way when it
# starts, and the exporter follows the job that way. So all of them need the same thing: the rows after a version,
# completely, once, in order.
#
# Delta's log seems to offer that: read the entries after M and the files that they add. But entries expire after
# minutes (``log.maintenance``), and compaction replaces files, after which an old entry names deleted files. A reader
# that slept for a day would lose rows without noticing. So each row of ``partition_changes`` carries the version of its
# commit and its place within it (``ordinal``). Compaction copies rows with their version, and retention leaves those
# that a derived table has not read (``changes.history``). The version in the row decides; log and statistics only say
# which files need not be opened.
#
# A poll reads:
#   - if there is nothing new, the identity of the last entry (of a file, inode and time) and the name of the next one;
#     it opens nothing;
#   - if the last entry is still there and unchanged, the entries after it, which name the new files. It skips entries
#     that add no rows (compaction, properties, expiry), and the version moves past them;
#   - on the first poll, or if the last entry has expired, the table: the statistics (``min.version``, ``max.version``)
#     of all its files select those that may have rows in the interval. A file without statistics may have any.
#     Compacted files have old and new rows, so the reader filters rows by version in either case.
#
# A version number alone does not identify a table. A folder that was restored from a copy, or deleted and created
# again, grows past the old number with different content. So the reader remembers the table's id and the identity of
# the entry it read last. If the entry or the id has changed, or the table is shorter, it raises ``ChangesRestarted``
# and keeps its version; the owner reads everything again. It cannot notice a copy that has the same id, has grown past
# our version, and has expired our entry; that takes more than ``LOG_ENTRIES`` commits between two polls.
#
# Invariants
#   1. Polls return every row of the versions up to ``version`` exactly once, in the order of (version, ordinal).
#      tests/delta/test_change_reader.py.
#   2. Neither compaction nor expiry of Delta's log loses or repeats a row. tests/delta/test_change_reader.py,
#      tests/delta/test_maintenance.py.
#   3. Version and identity move together, and only once all rows were read: a poll that raises can be repeated.
#   4. An idle poll opens no file. tests/delta/test_change_reader.py.
#   5. The reader writes nothing and takes no lock: if a file it needs vanishes, it raises ``TableUnreadable``.

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.columns import EVENT
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS
from streaming.delta.log.cluster_files import of_clusters
from streaming.delta.log.definitions import arrow_schema, check_layout
from streaming.delta.log.storage import in_schema, open_table, read_versions
from streaming.delta.log.table_log import BEFORE_FIRST, entry_actions, files_added, has_moved, identity_of
from streaming.delta.store.announced import committed_here
from streaming.delta.store.place import Url
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from deltalake import DeltaTable

    from streaming.delta.store.place import Place

SECONDS_BETWEEN_HEARTBEATS: Final = 20.0
"""Seconds between rounds in which derived tables follow commits that contain only heartbeats."""
SECONDS_BETWEEN_HEARTBEATS_IN_STORES: Final = 60.0
"""The same where each of these commits is requests."""
SECONDS_BETWEEN_LOOKS: Final = 0.25
"""Seconds between looks for a new version in a store, where each look is a request: 345,600 a day."""
SECONDS_BETWEEN_CHECKS: Final = 30.0
_OURS: Final = ("committed by this process",)
"""In place of the identity of an entry, until it is checked."""
_FEW_VERSIONS: Final = 30
"""Versions whose entries cost fewer requests to a store than opening the table."""
SCHEMA: Final = arrow_schema(PARTITION_CHANGES)
_ORDER: Final = [("version", "ascending"), ("ordinal", "ascending")]
_ALWAYS: Final = ("version", "ordinal", "cluster_id")


class ChangesRestarted(IsrwatchError):
    """The table that was read so far was recreated, or restored from an older copy."""


class ChangeReader:
    """Follows the change log; see the theory of operation. Not thread-safe."""

    def __init__(
        self,
        path: Place,
        after_version: int = BEFORE_FIRST,
        clusters: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Start after a version; the folder of ``partition_changes`` need not exist yet.

        It reads all clusters, or some by id, and all columns, or some besides those that order rows; a field of a
        struct as ``after.leader``.
        """
        self.path = path
        self._columns = None if columns is None else [*_ALWAYS, *columns]
        self._schema = SCHEMA if self._columns is None else _part_of_schema(self._columns)
        self._clusters = None if clusters is None else sorted(clusters)
        # Id of the table that was opened first; None before that.
        self.table_id: str | None = None
        self.created_at: int | None = None  # UTC microseconds; all counters of the tables were 0 then
        # Identity of the log entry of ``version``; None before the first poll that read something, or if it expired.
        self._identity: tuple[object, ...] | None = None
        # The caller has every row up to it. Never falls; moves only at the end of ``poll``.
        self.version = after_version
        # When the next look in a store is due, where each is a request, and when the entry read last is checked again.
        self._look_at = self._check_at = 0.0
        self._is_due = self._must_check = True
        self._seen: tuple[int, list[dict[str, Any]]] | None = None  # a version that a look has found, and its actions

    def is_worth_a_poll(self) -> bool:
        """Return whether a poll would return rows, or raise.

        Looks up two names; in a store one request each ``SECONDS_BETWEEN_LOOKS``.
        """
        if not isinstance(self.path, Url):
            return self.version > BEFORE_FIRST and has_moved(self.path, self.version)
        self._is_due = self._is_due or self._identity is None or self._has_looked()
        return self._is_due

    def rests(self) -> bool:
        """Return whether the table is in a store, and no look was due or has found anything."""
        return isinstance(self.path, Url) and not self.is_worth_a_poll()

    def _has_looked(self) -> bool:
        """Look for the next entry, if that is due; now and then the entry that was read last must be checked, too."""
        now, committed = time.monotonic(), committed_here(self.path)
        if now >= self._check_at:
            self._check_at, self._must_check = now + SECONDS_BETWEEN_CHECKS, True
            return True
        if committed is not None:
            return committed > self.version
        return now >= self._look_at and self._entry_after(self.version) is not None

    def _entry_after(self, version: int) -> list[dict[str, Any]] | None:
        """Read the entry that follows a version, once; None if there is none, or none was committed by this process."""
        if self._seen is None or self._seen[0] != version + 1:
            if version == committed_here(self.path):
                return None
            self._look_at = time.monotonic() + SECONDS_BETWEEN_LOOKS  # this is one
            actions = entry_actions(self.path, version + 1)
            self._seen = None if actions is None else (version + 1, actions)
        return None if self._seen is None else self._seen[1]

    def poll(self, to_version: int | None = None) -> list[tuple[int, pa.Table]]:
        """Return the rows that each version since the last call added, oldest first, without versions that added none.

        Raises:
            ChangesRestarted: the versions read so far are not those of this table. The reader keeps its version.
            TableRefused: the table has another layout than this program reads.
            TableUnreadable: a file is damaged or missing.
        """
        if to_version is None and self.rests():
            return []
        upto, self._is_due = 1 << 62 if to_version is None else to_version, False
        if self._is_unchanged():
            newest, files = self._files_in_log(upto)
        else:
            newest, files = self._files_by_statistics(upto)
        if newest <= self.version:
            return []
        parts = [self._rows_of(file, date, newest) for file, date in files]
        rows = _in_order(pa.concat_tables([part for part in parts if part.num_rows] or [self._schema.empty_table()]))
        is_ours = committed_here(self.path) is not None
        self.version, self._identity = newest, _OURS if is_ours else identity_of(self.path, newest)
        return by_version(rows)

    def _is_unchanged(self) -> bool:
        """Return whether the entry that was read last is there as it was; one of this process is rarely asked for."""
        if self._identity is None or (committed_here(self.path) is not None and not self._must_check):
            return self._identity is not None
        self._must_check, present = False, identity_of(self.path, self.version)
        self._identity = present if self._identity == _OURS and present is not None else self._identity
        return present == self._identity

    def _files_in_log(self, upto: int) -> tuple[int, list[tuple[str, str]]]:
        """Follow the log entry by entry; neither compaction nor the expiry of history adds rows."""
        version, files = self.version, []
        while version < upto and (actions := self._entry_after(version)) is not None:
            version += 1
            files += files_added(actions)
        return version, files

    def _files_by_statistics(self, upto: int) -> tuple[int, list[tuple[str, str]]]:
        """Open the table; in a store a few versions up to a given one are read from their entries, if all are there."""
        is_short = BEFORE_FIRST < self.version < upto <= self.version + _FEW_VERSIONS
        if is_short and isinstance(self.path, Url) and self._identity is None:
            few = self._files_in_log(upto)
            if few[0] == upto:
                return few
        table = open_table(self.path)
        if table is None:
            if self.version > BEFORE_FIRST:
                raise ChangesRestarted(f"{self.path} is gone")
            return BEFORE_FIRST, []
        check_layout(table, PARTITION_CHANGES)
        table_id = str(table.metadata().id)
        if self.table_id not in {None, table_id} or table.version() < self.version:
            raise ChangesRestarted(f"{self.path} was recreated or restored from an older copy")
        if self._identity is not None and identity_of(self.path, self.version) is not None:
            raise ChangesRestarted(f"version {self.version} of {self.path} was replaced")
        self.table_id, created_ms = table_id, table.metadata().created_time
        self.created_at = None if created_ms is None else 1000 * created_ms
        newest = min(upto, int(table.version()))
        return newest, _files_with(table, self.version, newest, self._clusters)

    def _rows_of(self, file: str, date: str, upto: int) -> pa.Table:
        rows = read_versions(self.path, file, self.version, upto, self._columns)
        if self._clusters is not None:  # file by file: the rows of all clusters may not fit into memory
            rows = of_clusters(rows, self._clusters)
        return in_schema(rows, self._schema, {"date": date})


def _part_of_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns and fields of structs, each ordered as in the table."""
    fields_of: defaultdict[str, set[str]] = defaultdict(set)
    for column in columns:
        name, _, field = column.partition(".")
        fields_of[name].add(field)
    parts = [(field, fields_of[field.name] - {""}) for field in SCHEMA if field.name in fields_of]
    return pa.schema([
        field.with_type(pa.struct([each for each in field.type if each.name in chosen])) if chosen else field
        for field, chosen in parts
    ])  # fmt: skip


def _in_order(rows: pa.Table) -> pa.Table:
    """Sort rows by version and ordinal, unless they are the ordered rows of one commit."""
    bounds = pc.min_max(rows["version"]).as_py()
    if bounds["min"] == bounds["max"]:
        steps = pc.min(pc.pairwise_diff(rows["ordinal"].combine_chunks())).as_py()
        if steps is None or steps > 0:
            return rows
    return rows.sort_by(_ORDER)


def _files_with(table: DeltaTable, after: int, upto: int, clusters: Sequence[str] | None) -> list[tuple[str, str]]:
    """List the files that may have rows of the versions in ``(after, upto]`` and of these (sorted) clusters, or of all.

    A file without statistics may have any rows.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    if "max.version" in files.column_names:
        is_late = pc.fill_null(pc.greater(files["max.version"], after), fill_value=True)
        is_early = pc.fill_null(pc.less_equal(files["min.version"], upto), fill_value=True)
        files = files.filter(pc.and_(is_late, is_early))
    if clusters is not None and "max.cluster_id" in files.column_names:
        bounds = zip(files["min.cluster_id"].to_pylist(), files["max.cluster_id"].to_pylist(), strict=True)
        files = files.filter(pa.array([_may_have(clusters, *bound) for bound in bounds], pa.bool_()))
    dates = (str(date) for date in files["partition.date"].to_pylist())
    return list(zip(files["path"].to_pylist(), dates, strict=True))


def _may_have(clusters: Sequence[str], lowest: str | None, highest: str | None) -> bool:
    """Return whether one of these sorted clusters is within the bounds of a file."""
    if lowest is None or highest is None:
        return True
    place = bisect_left(clusters, lowest)
    return place < len(clusters) and clusters[place] <= highest


def by_version(rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """Split ordered rows by version."""
    versions = rows["version"].combine_chunks()
    ends = pc.run_end_encode(versions, run_end_type=pa.int64())
    begin, parts = 0, []
    for version, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        parts.append((version, rows.slice(begin, end - begin)))
        begin = end
    return parts


def rows_between(path: Place, after_version: int, to_version: int, clusters: Collection[str] | None = None) -> pa.Table:
    """Read the rows that the versions in ``(after_version, to_version]`` added, in order, of some clusters or of all.

    Raises:
        ChangesRestarted: the table does not reach ``to_version``.
    """
    reader = ChangeReader(path, after_version, clusters)
    rows = [part for _, part in reader.poll(to_version)]
    if reader.version < to_version:
        raise ChangesRestarted(f"{path} has no version {to_version}; it was restored from an older copy")
    return pa.concat_tables(rows) if rows else SCHEMA.empty_table()


# Changes as rows of ``replication_events``: one row per event.


_EVENTS: Final = arrow_schema(REPLICATION_EVENTS)
_OF_EVENT: Final = frozenset(column.name for column in EVENT)
# By column, where a change has it: the struct, and the field within it.
_OF_STATE: Final = {
    "leader_before": ("before", "leader"),
    "leader_after": ("after", "leader"),
    "isr_before": ("before", "isr"),
    "isr_after": ("after", "isr"),
    "leader_epoch": ("after", "leader_epoch"),
    "partition_epoch": ("after", "partition_epoch"),
}


def events_of(changes: pa.Table) -> pa.Table:
    """Explode rows of ``partition_changes`` into their events, in order."""
    lists = changes["events"].combine_chunks()
    events, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
    columns = [_column(name, changes, owners, events) for name in _EVENTS.names]
    return pa.Table.from_arrays(columns, names=_EVENTS.names).cast(_EVENTS)


def _column(name: str, changes: pa.Table, owners: pa.Array, events: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Take one column at a time: whole rows contain two states each, which events do not have."""
    if name in _OF_EVENT:
        return pc.struct_field(events, name)
    if name in _OF_STATE:
        part, field = _OF_STATE[name]
        return pc.struct_field(changes[part], field).take(owners)
    return changes[name].take(owners)
