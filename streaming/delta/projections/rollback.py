"""Derived tables that are ahead of the change log: rolled back to what it holds, or set aside to be derived again."""

# Theory of operation
#
# The second step of a start, behind ``cut_unflushed``; ``delta.log.durable`` has the whole theory.
#
# A derived table is ahead where the change log alone was brought back from an older copy, or was cut while the table
# had no mark yet. The later versions of the change log will be written again, with other changes, so nothing of what
# followed from the old ones may stay. Where there is no change log at all nothing is touched: then it is the one that
# must be brought back.
#
# Invariants, all of them tried by tests/delta/test_rollback.py
#   1. Afterwards no derived table that can be read is ahead of the change log. One that cannot be read is left to the
#      query that writes it: it alone stops.
#   2. A table is cut only to a version that is whole: its log entry and all of its data files are there. If there is
#      none, it is set aside and not deleted.
#   3. The mark of a table never names a version behind its end (``mark_again``).

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.durable import ORDER, cutting, mark_again
from streaming.delta.log.storage import has_all_files, open_table, set_aside, sole_writer
from streaming.delta.log.table_log import BEFORE_FIRST, delete_log_after, has_entry, log_entries, newest_version
from streaming.delta.state import as_of_version
from streaming.delta.store.place import at_once
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming.delta.store.place import Place


def roll_back(directory: Place, queries: Collection[str] = ()) -> list[str]:
    """Roll back the tables that are ahead of the change log; before any of them is opened. Return their names.

    None of the queries that may write them may be running.

    Raises:
        TableRefused: tables must be rolled back, and another job writes some of them.
    """
    with cutting(directory):
        newest = newest_version(directory / PARTITION_CHANGES.name)
        ahead = [] if newest == BEFORE_FIRST else _ahead(directory, newest)
        if ahead:
            with sole_writer(directory, queries):
                for name in ahead:
                    _roll_back_to(directory / name, newest)
        return ahead


def _ahead(directory: Place, newest: int) -> list[str]:
    return [name for name in at_once(directory, partial(_name_if_ahead, directory, newest), ORDER) if name]


def _name_if_ahead(directory: Place, newest: int, name: str) -> str | None:
    with suppress(TableUnreadable):  # only the query that writes a damaged table is to stop
        table = open_table(directory / name)
        as_of = newest if table is None else as_of_version(table)
        # A job that is being superseded may still commit: what a table follows from is there before the table. And a
        # listing may lack what was written last, so the entry itself is looked up.
        changes = directory / PARTITION_CHANGES.name
        if as_of > newest and as_of > newest_version(changes) and not has_entry(changes, as_of):
            return name
    return None


def _roll_back_to(path: Place, upto: int) -> None:
    """Cut a table back to its newest version that is not ahead and still whole; set it aside if there is none."""
    versions = sorted((version for _, version in log_entries(path) if version is not None), reverse=True)
    for version in versions:
        if _is_usable(path, version, upto):
            delete_log_after(path, version)
            mark_again(path, version)
            return
    set_aside(path)


def _is_usable(path: Place, version: int, upto: int) -> bool:
    try:
        table = open_table(path, version)
    except TableUnreadable:  # what it begins with has expired
        return False
    return table is not None and as_of_version(table) <= upto and has_all_files(path, table)
