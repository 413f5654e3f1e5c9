"""Versions of ``partition_changes`` whose state the rows still hold, and when they were committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import EXPIRED_VERSION
from streaming.delta.log.definitions import check_layout
from streaming.delta.log.queries import query
from streaming.delta.log.storage import open_table
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming.delta.store.place import Place

MOMENT: Final = "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
"""SQL of a time in UTC microseconds."""


def checked_version(tables: Place, version: int) -> int:
    """Return a version of ``partition_changes`` that was given, if the rows still hold its state.

    Raises:
        ConfigurationError: there is no such version, or it has expired; the sentence has those that can be given.
        TableRefused: the table has another layout than this program reads.
    """
    path = tables / PARTITION_CHANGES.name
    table = open_table(path)
    if table is None:
        raise ConfigurationError(f"{path} has no version yet; --as-of needs one")
    check_layout(table, PARTITION_CHANGES)
    oldest, newest = oldest_known(table), int(table.version())
    if not oldest <= version <= newest:
        raise ConfigurationError(f"--as-of {version}: {path} has the versions {oldest} to {newest}")
    return version


def oldest_known(table: DeltaTable) -> int:
    """Return the oldest version whose state the rows still hold: history before it has expired."""
    expired = table.transaction_version(EXPIRED_VERSION)
    return 0 if expired is None else int(expired)


def committed_at(table: DeltaTable, version: int) -> int | None:
    """Return when the newest change up to a version was committed, UTC microseconds; None where there is none."""
    moment = f"arrow_cast(max(committed_at), 'Int64') AS moment FROM rows WHERE version <= {version}"
    rows: list[dict[str, int | None]] = query(table, f"SELECT {moment}").to_pylist()
    return rows[0]["moment"]


def oldest_moment(table: DeltaTable, oldest: int) -> int | None:
    """Return the earliest time whose state is known, UTC microseconds; None while there are no rows.

    While no history has expired, the oldest version only created the table: the first version with rows is meant.
    """
    first = committed_at(table, oldest)
    if first is not None:
        return first
    moment = "arrow_cast(min(committed_at), 'Int64') AS moment FROM rows"
    rows: list[dict[str, int | None]] = query(table, f"SELECT {moment}").to_pylist()
    return rows[0]["moment"]


def newest_version_at(table: DeltaTable, moment: int) -> int | None:
    """Return the newest version committed by a time in UTC microseconds; None where there is none."""
    where = f"committed_at <= {MOMENT.format(moment)}"
    newest = query(table, f"SELECT max(version) AS version FROM rows WHERE {where}")  # noqa: S608 - our own columns
    rows: list[dict[str, int | None]] = newest.to_pylist()
    return rows[0]["version"]
