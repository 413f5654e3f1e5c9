"""Retention by days: which rows expire, and which must stay so that the state of each retained day can be rebuilt.

In ``replication_events`` whole days are deleted. In ``partition_changes`` the newest row of each key stays at any age:
these rows are the state at the beginning of the first retained day, so ``--as-of`` reaches back to that day.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.state import ClusterState
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
    SOURCE_PROGRESS,
)
from streaming.delta.log.definitions import APPEND_ONLY, arrow_schema, redefined
from streaming.delta.log.queries import query, quoted
from streaming.delta.log.storage import in_schema, open_table, read_file
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version, is_dropped, structs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.log.writer import Writer
    from streaming.delta.store.place import Place

EXPIRED: Final = "expired"
"""Transaction with the first day, in days since 1970, that is completely retained."""
EXPIRED_VERSION: Final = "expired/version"
"""Transaction with the version up to which changes are missing: the state as of an older version is unknown."""
UNREAD: Final = "expired/unread"
"""Transaction with the version up to which changes have expired: a reader that has not reached it cannot continue."""
_NEEDED: Final = (REPLICATION_EVENTS, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)
"""The tables that follow the changes and that the job needs to start: all but the incidents."""
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_COLUMNS: Final = quoted(arrow_schema(PARTITION_CHANGES).names)
_KEY_OF_CHANGE: Final = (
    "cluster_id, subject, topic_id, \"partition\", broker, CASE subject WHEN 'source' THEN source END"
)
"""The key of a change, in SQL: the last row of each key is its state."""


def newest_changes(table: DeltaTable, where: str) -> pa.Table:
    """Read the newest row of each key among some rows of ``partition_changes``."""
    rows = query(
        table,
        f"SELECT {_COLUMNS} FROM (SELECT *, row_number() OVER (PARTITION BY {_KEY_OF_CHANGE} "  # noqa: S608 - our own names
        f"ORDER BY version DESC, ordinal DESC) AS age FROM rows WHERE {where}) WHERE age = 1",
    )
    return rows.cast(arrow_schema(PARTITION_CHANGES))


def expire_days(writer: Writer, before: dt.date) -> None:
    """Delete the rows of the days before a given one."""
    _allow_deletion(writer)
    writer.exchange((), _files_before(writer, before), {EXPIRED: _days(before)}, is_new_data=True)


def expire_changes(directory: Place, writer: Writer, before: dt.date) -> None:
    """Replace the changes of the days before a given one by the newest of each key, without expired tombstones.

    Changes that a derived table has not read yet stay, so a job that was down for longer than the history loses
    nothing. ``incidents`` is the exception, because its query may be off for good: it holds changes back only as long
    as history is kept.
    """
    table = writer.table
    upto = _expirable_upto(directory, table, before)
    old = f"date < '{before.isoformat()}' AND version <= {upto}"
    kept = _without_dropped_tombstones(newest_changes(table, old))
    counted = query(table, f"SELECT count(*) AS rows, max(version) AS version FROM rows WHERE {old}").to_pylist()[0]  # noqa: S608 - our own names
    if counted["rows"] == kept.num_rows:
        return
    _allow_deletion(writer)
    # These never go back, even if the rows left before them are older.
    version, unread = (
        max(counted["version"], writer.transaction_version(name) or 0) for name in (EXPIRED_VERSION, UNREAD)
    )
    expired = {EXPIRED: _days(before), EXPIRED_VERSION: version, UNREAD: unread}
    replace_up_to(writer, _files_before(writer, before), upto, kept, expired)


def replace_up_to(
    writer: Writer, files: Iterable[str], upto: int, kept: pa.Table, transactions: Mapping[str, int]
) -> None:
    """Replace the rows up to a version in some files of ``partition_changes`` by others; raises as ``write`` does.

    Files that begin after the version stay; the same commit stores ``transactions``.
    """
    bounds = pa.table(writer.table.get_add_actions(flatten=True))
    lowest = dict(zip(bounds["path"].to_pylist(), _column(bounds, "min.version"), strict=True))
    highest = dict(zip(bounds["path"].to_pylist(), _column(bounds, "max.version"), strict=True))
    gone = [name for name in files if (least := lowest[name]) is None or least <= upto]
    schema, added = arrow_schema(PARTITION_CHANGES), [kept] if kept.num_rows else []
    for name in gone:
        if (most := highest[name]) is None or most > upto:
            rows = in_schema(read_file(writer.path, name), schema, writer.files()[name].partition)
            later = rows.filter(pc.greater(rows["version"], upto))
            added += [later] if later.num_rows else []
    writer.exchange(added, gone, transactions, is_new_data=True)


def _column(bounds: pa.Table, name: str) -> list[int | None]:
    return list(bounds[name].to_pylist()) if name in bounds.column_names else [None] * bounds.num_rows


def _files_before(writer: Writer, day: dt.date) -> list[str]:
    """Name the files with the rows of the days before a given one, which is how both tables are partitioned."""
    return [name for name, file in writer.files().items() if file.partition["date"] < day.isoformat()]


def unread_upto(directory: Place) -> int:
    """Return the version up to which changes have expired, read or unread; -1 for none."""
    changes = open_table(directory / PARTITION_CHANGES.name)
    version = None if changes is None else changes.transaction_version(UNREAD)
    return BEFORE_FIRST if version is None else int(version)


def _expirable_upto(directory: Place, table: DeltaTable, before: dt.date) -> int:
    """Return the version up to which changes may expire."""
    needed = min(_read_by(directory, each) for each in _NEEDED)
    incidents = _read_by(directory, INCIDENTS)
    if incidents >= needed:
        return needed
    midnight = f"arrow_cast('{before.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    waited = f"SELECT max(version) AS version FROM rows WHERE committed_at < {midnight}"  # noqa: S608 - a date
    waited_upto = query(table, waited)["version"][0].as_py()
    return min(needed, max(incidents, BEFORE_FIRST if waited_upto is None else int(waited_upto)))


def _without_dropped_tombstones(newest: pa.Table) -> pa.Table:
    """Leave out the tombstones whose totals the rows of their clusters contain already."""
    for cluster in structs_of(ClusterState, newest, "cluster_after"):
        if cluster is not None:
            deleted, changed = (pc.struct_field(newest["after"], name) for name in ("is_deleted", "changed_at"))
            newest = newest.filter(pc.invert(is_dropped(cluster, newest["cluster_id"], deleted, changed)))
    return newest


def _read_by(directory: Place, definition: Table) -> int:
    name = definition.name
    opened = open_table(directory / name)
    if opened is None:  # without the incidents query there is no such table, and it must not block; all others exist
        return (1 << 62) if name == INCIDENTS.name else BEFORE_FIRST
    return as_of_version(opened)


def _allow_deletion(writer: Writer) -> None:
    if writer.table.metadata().configuration.get(APPEND_ONLY) == "true":
        writer.add_files((), (), {}, definition=(redefined(writer.table, {APPEND_ONLY: "false"}),))


def _days(day: dt.date) -> int:
    return (day - _FIRST_DAY).days
