"""Upgrade to layout 2: every change carries its commit's version, its order in that commit, and the commit time.

Rows of layout 1 had none of these. For versions whose log entries still exist they are read from the log, exactly.
Older rows were compacted, and theirs are estimated: the rows of each key are ordered as in layout 1 (change number,
times, epochs), the keys are merged by time, and the rows are distributed over the versions before the log. Layout 1
kept its log back to the oldest version of a derived table, so every row that is still to be read by one is exact.
"""

from __future__ import annotations

import datetime as dt
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.contracts.sample_tables import ISR_RECONCILIATION
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE, REPLICATION_EVENTS
from streaming.delta.change_rows import MICROS_PER_DAY, OF_COMMIT, UNCOMMITTED, day
from streaming.delta.definitions import APPEND_ONLY, arrow_schema
from streaming.delta.history import EXPIRED, EXPIRED_VERSION, UNREAD, read_by_followers, read_by_needed
from streaming.delta.layout_2_expired import ExpiredStates
from streaming.delta.quarantine_rows import condensed, reason_kind
from streaming.delta.queries import query, quoted
from streaming.delta.storage import data_files, read_file
from streaming.delta.table_log import actions_of, committed_at, files_added, oldest_readable
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_CHANGES: Final = arrow_schema(PARTITION_CHANGES)
_EVENTS: Final = arrow_schema(REPLICATION_EVENTS)
_QUARANTINE: Final = arrow_schema(QUARANTINE)
_KEY: Final = ("cluster_id", "subject", "topic_id", "partition", "broker", "of_source")
# The order of the rows of one key in layout 1: partitions count their changes, all others are ordered by time.
_ORDER: Final = (
    "after.change_number", "occurred_not_after", "collected_at", "cluster_after.controller_epoch",
    "cluster_after.has_baseline", "sequence", "offset",
)  # fmt: skip
_ORDERING_COLUMNS: Final = ("cluster_id", "subject", "topic_id", "partition", "broker", "source", *_ORDER)
_WITHOUT_RETRY: Final = CommitProperties(max_commit_retries=0)


def add_versions(directory: Path, table: DeltaTable) -> None:
    """Rewrite all changes with their versions, in one commit."""
    if {field.name for field in table.schema().fields} >= set(OF_COMMIT):
        return  # an earlier upgrade was interrupted directly after this commit
    path = directory / PARTITION_CHANGES.name
    begin, end = _first_exact(directory, int(table.version())), int(table.version())
    # delta-rs reads the rows while it writes them and must not be called meanwhile, so the files are listed first.
    before = _files_before_log(path, begin)
    parts = chain(_before_log(path, begin, before), _in_log(path, begin, end))
    expired = table.transaction_version(EXPIRED)
    if expired is None:
        _overwrite(table, pa.RecordBatchReader.from_batches(_CHANGES, _batches(parts)), {UNREAD: begin - 1})
        return
    first_day = day(expired * MICROS_PER_DAY)
    states = ExpiredStates(directory, first_day)
    kept = _not_expired(first_day, read_by_followers(directory, ISR_RECONCILIATION), parts)
    rows = pa.RecordBatchReader.from_batches(_CHANGES, _batches(chain(states.rows, kept)))
    _overwrite(table, rows, {EXPIRED_VERSION: states.version, UNREAD: begin - 1})


def _first_exact(directory: Path, end: int) -> int:
    """Return the first version of which, and of every later one, all files are there: their rows keep their versions.

    Layout 1 kept the files that its log names, but VACUUM deletes those that were compacted meanwhile.

    Raises:
        TableRefused: a file of the newest version is gone, or one that a derived table has still to read.
    """
    path = directory / PARTITION_CHANGES.name
    there, oldest = data_files(path), oldest_readable(path)
    for begin in range(oldest, end + 1):
        added = (file for version in range(begin, end + 1) for file in files_added(actions_of(path, version)))
        if {unquote(file) for file, _ in chain(added, _files_before_log(path, begin))} <= there:
            break
    else:
        raise TableRefused(f"{path} lacks data files; bring back the whole folder of the tables from a copy")
    if begin > oldest and read_by_needed(directory) < begin - 1:
        raise TableRefused(
            f"{path} lacks data files that tables derived from it have still to read (before version {begin}); bring "
            "back the whole folder of the tables from a copy"
        )
    return begin


def events_with_versions(directory: Path, table: DeltaTable) -> None:
    """Rewrite all events with the version of their change; it is 0 if that change has expired."""
    if {field.name for field in table.schema().fields} >= {"version", "ordinal"}:
        return
    changes = DeltaTable(str(directory / PARTITION_CHANGES.name))
    owners = query(changes, "SELECT version, ordinal, events FROM rows WHERE cardinality(events) > 0")
    lists = owners["events"].combine_chunks()
    parents = pc.list_parent_indices(lists)
    ids = pc.struct_field(pc.list_flatten(lists), "event_id")
    names = [name for name in _EVENTS.names if name in {field.name for field in table.schema().fields}]
    events = query(table, f"SELECT {quoted(names)} FROM rows ORDER BY occurred_not_after")  # noqa: S608 - our own columns
    owner = pc.take(parents, pc.index_in(events["event_id"].combine_chunks(), value_set=ids))
    columns = {name: events[name] for name in names}
    columns["version"] = pc.fill_null(pc.take(owners["version"].combine_chunks(), owner), 0)
    columns["ordinal"] = pc.fill_null(pc.take(owners["ordinal"].combine_chunks(), owner), 0)
    _overwrite(table, _as(_EVENTS, pa.table(columns)))


def refused_with_counts(_: Path, table: DeltaTable) -> None:
    """Give every refused record its kind of reason, and count those that are not kept whole any more."""
    if "records" in {field.name for field in table.schema().fields}:
        return
    rows = query(table, "SELECT * FROM rows")
    kinds = [reason_kind(reason) for reason in rows["reason"].to_pylist()]
    rows = rows.append_column("reason_kind", pa.array(kinds, pa.string()))
    rows = rows.append_column("records", pa.repeat(1, len(rows)).cast(pa.int64()))
    sizes = pc.fill_null(pc.binary_length(rows["raw"]), 0)
    rows = rows.append_column("raw_bytes", sizes.cast(pa.int64()))
    newest = pc.max(rows["quarantined_at"].cast(pa.int64())).as_py() or 0
    _overwrite(table, condensed(_as(_QUARANTINE, rows), 0, newest))


def _overwrite(
    table: DeltaTable, rows: pa.Table | pa.RecordBatchReader, transactions: Mapping[str, int] | None = None
) -> None:
    table.alter.set_table_properties({APPEND_ONLY: "false"}, commit_properties=_WITHOUT_RETRY)
    written = [Transaction(name, value) for name, value in (transactions or {}).items()]
    properties = CommitProperties(max_commit_retries=0, app_transactions=written)
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)


def _batches(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for rows in parts:
        yield from _as(_CHANGES, rows).to_batches()


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Give rows the columns of today; one of a layout after this is null, as are new fields of structs."""
    present = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _not_expired(first_day: dt.date, read: int, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows that have not expired: old log entries still add files of days that were deleted later.

    Layout 1 deleted what a follower had still to read from the table, but not from its log: rows after the version
    ``read`` stay, whatever their day is.
    """
    for rows in parts:
        is_kept = pc.greater_equal(rows["date"], pa.scalar(first_day))
        yield rows.filter(pc.or_(is_kept, pc.greater(rows["version"], read)))


def _in_log(path: Path, begin: int, end: int) -> Iterator[pa.Table]:
    """Read the rows that each version in the log added."""
    for version in range(begin, end + 1):
        actions = actions_of(path, version)
        moment = committed_at(path, version, actions)
        ordinal = 0
        for file, date in files_added(actions):
            rows = _rows_of_file(path, file, date)
            count = rows.num_rows
            yield _with_commit(rows, [version] * count, range(ordinal, ordinal + count), [moment] * count)
            ordinal += count


def _files_before_log(path: Path, begin: int) -> list[tuple[str, str]]:
    """List the files, with dates, whose rows are older than the log: present at ``begin``, but not added by it."""
    added = {file for file, _ in files_added(actions_of(path, begin))}
    files = pa.table(DeltaTable(str(path), version=begin).get_add_actions(flatten=True))
    file_dates = zip(files["path"].to_pylist(), files["partition.date"].to_pylist(), strict=True)
    return [(file, str(date)) for file, date in file_dates if file not in added]


def _before_log(path: Path, begin: int, files: list[tuple[str, str]]) -> Iterator[pa.Table]:
    """Read the rows that are older than the log, with estimated versions, all of them before ``begin``."""
    ranks = _estimated_order([_order_columns_of(path, file, number) for number, (file, _) in enumerate(files)])
    groups = len({moment for _, moment, _ in ranks.values()})
    for number, (file, date) in enumerate(files):
        rows = _rows_of_file(path, file, date)
        rank_of_row = [ranks[number, row] for row in range(rows.num_rows)]
        versions = [group * begin // groups for group, _, _ in rank_of_row]
        moments = [moment for _, moment, _ in rank_of_row]
        yield _with_commit(rows, versions, [rank for _, _, rank in rank_of_row], moments)


def _estimated_order(files: list[pa.Table]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Order rows; return for each (file, row): the rank of its time, that time, and its rank among all rows."""
    if not files:
        return {}
    rows = pa.concat_tables(files)
    rows = rows.sort_by([(name, "ascending") for name in (*_KEY, *_ORDER)])
    moments: list[int] = []
    keys = zip(*(rows[name].to_pylist() for name in (*_KEY, "collected_at")), strict=True)
    for _, of_key in groupby(keys, key=lambda row: row[:-1]):
        newest = 0
        for *_, collected_at in of_key:  # the times of a key never decrease, whatever its sources' clocks were
            newest = max(newest, collected_at)
            moments.append(newest)
    rows = rows.append_column("moment", pa.array(moments, pa.int64())).append_column(
        "nth", pa.array(range(len(moments)))
    )
    rows = rows.sort_by([("moment", "ascending"), ("nth", "ascending")])
    columns = (rows[name].to_pylist() for name in ("file", "row", "moment"))
    ranks: dict[tuple[int, int], tuple[int, int, int]] = {}
    group, last = -1, None
    for rank, (file, row, moment) in enumerate(zip(*columns, strict=True)):
        group, last = group + (moment != last), moment
        ranks[file, row] = (group, moment, rank)
    return ranks


def _order_columns_of(path: Path, file: str, number: int) -> pa.Table:
    """Read the columns of one file that order its rows."""
    rows = read_file(path, file, _ORDERING_COLUMNS).flatten()
    is_source = pc.equal(rows["subject"], "source")
    columns = {name: rows[name] for name in (*_KEY[:-1], *_ORDER)}
    columns = {
        name: pc.fill_null(column.cast(pa.int64()), -1) if name in _ORDER else column
        for name, column in columns.items()
    }
    columns["of_source"] = pc.if_else(is_source, rows["source"], "")
    columns["file"] = pa.array([number] * rows.num_rows, pa.int64())
    columns["row"] = pa.array(range(rows.num_rows), pa.int64())
    return pa.table(columns)


def _rows_of_file(path: Path, file: str, date: str) -> pa.Table:
    rows = read_file(path, file)
    if "date" not in rows.column_names:
        rows = rows.append_column("date", pa.repeat(pa.scalar(date), rows.num_rows).cast(pa.date32()))
    return _as(UNCOMMITTED, rows)


def _with_commit(rows: pa.Table, versions: list[int], ordinals: Any, moments: list[int]) -> pa.Table:  # noqa: ANN401 - any numbers
    return (
        rows.append_column("version", pa.array(versions, pa.int64()))
        .append_column("ordinal", pa.array(ordinals, pa.int64()))
        .append_column("committed_at", pa.array(moments, pa.int64()).cast(_CHANGES.field("committed_at").type))
    )
