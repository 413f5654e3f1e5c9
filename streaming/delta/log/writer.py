"""One writer per table: each commit is made exactly on top of the version that its writer read last.

A commit is never rebased. If another writer has committed in between, this one must stop, because its rows were derived
from a version that is no longer the newest. Each commit carries its writer's generation, which distinguishes writers.
Depends on Delta's commits, on no row.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, unquote

from deltalake import ColumnProperties, CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from streaming.delta.log.definitions import STATISTICS_PROPERTY
from streaming.delta.log.storage import adopt_file, new_scratch, path_of
from streaming.delta.log.table_lock import writing
from streaming.delta.log.table_log import actions_of
from streaming.errors import IsrwatchError, TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

GENERATION: Final = "generation"
Mode = Literal["append", "overwrite"]
OVERWRITE: Final = "overwrite"
APPEND: Final = "append"
SMALL_ROWS: Final = 500
KEPT_ROWS: Final = 5_000
_SMALL_FILES: Final = WriterProperties(
    compression="SNAPPY",
    default_column_properties=ColumnProperties(dictionary_enabled=False, statistics_enabled="CHUNK"),
)
"""With over a hundred columns a file of few rows is mostly per-column pages, so these files have as few as possible."""
_LARGE_FILES: Final = WriterProperties(compression="SNAPPY")


class Writer:
    """The only writer of a table. It stops as soon as another writer has committed."""

    def __init__(self, table: DeltaTable) -> None:
        """Take the next generation; the table holds it from the first commit of this writer on."""
        self._table = table
        self._generation = _next_generation(table)
        self._kept: dict[int, pa.Table] | None = None

    def keep_rows(self) -> None:
        """Keep the rows of small commits, ``KEPT_ROWS`` at most, so that compaction need not read them back."""
        self._kept = {}

    def take_kept(self) -> dict[int, pa.Table]:
        """Return the kept rows by version, and forget them."""
        if self._kept is None:
            return {}
        kept, self._kept = self._kept, {}
        return kept

    def write(
        self, rows: pa.Table, mode: Mode, transactions: Mapping[str, int], info: Mapping[str, str] | None = None
    ) -> int:
        """Commit rows at exactly the next version; return that version.

        Args:
            rows: in the table's schema.
            mode: ``OVERWRITE`` or ``APPEND``.
            transactions: numbers by name that the same commit stores in the table.
            info: what the commit says of itself (``commitInfo`` in its log entry).

        Raises:
            TableRefused: another writer came first; nothing was written.
            IsrwatchError: the disk is full, or refuses.
        """
        with self._committing() as expected, writing(self._table.table_uri):
            write_deltalake(
                self._table, rows, mode=mode, commit_properties=self._properties(transactions, info),
                writer_properties=_SMALL_FILES if rows.num_rows <= SMALL_ROWS else _LARGE_FILES,
            )  # fmt: skip
        if self._table.version() != expected:
            raise AssertionError(f"committed version {self._table.version()} on top of {expected - 1}")
        if self._kept is not None and rows.num_rows + sum(each.num_rows for each in self._kept.values()) <= KEPT_ROWS:
            self._kept[expected] = rows
        return expected

    def replace_where(self, rows: pa.Table, where: str, transactions: Mapping[str, int]) -> None:
        """Replace the rows that match a predicate by others that match it, too, at exactly the next version.

        Raises:
            TableRefused: another writer came first; nothing was done.
        """
        self.tidy(
            lambda properties: write_deltalake(
                self._table, rows, mode=OVERWRITE, predicate=where, commit_properties=properties
            ),
            transactions,
        )

    def tidy(self, work: Callable[[CommitProperties], object], transactions: Mapping[str, int] | None = None) -> None:
        """Commit maintenance exactly on top of the version that this writer read last.

        Args:
            work: makes the commit, if there is anything to do, with these properties.
            transactions: numbers by name that the same commit stores in the table.

        Raises:
            TableRefused: another writer came first; nothing was done.
        """
        with self._committing():
            work(self._properties(transactions or {}))

    @contextmanager
    def _committing(self) -> Iterator[int]:
        """Give the version of the next commit. After an error look whether it was made all the same.

        It is whole or not there, but an error after it (a checkpoint on a full disk, say) hides that it was made.
        """
        expected: int = self._table.version() + 1
        try:
            yield expected
        except (DeltaError, IsrwatchError) as error:
            if self._has_committed(expected):
                self._table.load_as_version(expected)
                return
            if isinstance(error, DeltaError):
                self._check_race(error, expected)
            raise

    def _has_committed(self, version: int) -> bool:
        made = [action["txn"] for action in actions_of(path_of(self._table), version) if "txn" in action]
        return any((each["appId"], each["version"]) == (GENERATION, self._generation) for each in made)

    def _properties(self, transactions: Mapping[str, int], info: Mapping[str, str] | None = None) -> CommitProperties:
        written = [Transaction(name, value) for name, value in {**transactions, GENERATION: self._generation}.items()]
        custom = None if info is None else dict(info)
        return CommitProperties(max_commit_retries=0, app_transactions=written, custom_metadata=custom)

    def _check_race(self, error: DeltaError, expected: int) -> None:
        """Refuse a writer whose version was taken.

        Where the log entries since have expired, delta-rs does not see a conflict but fails to read them.
        """
        if isinstance(error, CommitFailedError) or DeltaTable(self._table.table_uri).version() >= expected:
            raise self._refused(f"version {expected} exists already") from error

    def check_ours(self) -> None:
        """Check that the newest commit is of this writer or of an earlier one, before the table is opened again.

        Raises:
            TableRefused: a later writer has committed.
        """
        self._table.update_incremental()
        if (self._table.transaction_version(GENERATION) or 0) > self._generation:
            raise self._refused("that job started later")

    def _refused(self, why: str) -> TableRefused:
        return lost_race(self._table.table_uri, why)


def _next_generation(table: DeltaTable) -> int:
    """Return the generation of a writer that opens a table now.

    Generations are microseconds since 1970, so two writers that open a table one after the other get different ones.
    """
    return max(int(table.transaction_version(GENERATION) or 0) + 1, time.time_ns() // 1000)


def lost_race(uri: str, why: str) -> TableRefused:
    """Return the error of a writer that is not the only one."""
    return TableRefused(
        f"another job writes {uri} ({why}); stop one of the two, "
        "then start this one again: it continues where the other stopped"
    )


# Exchanges data files of a table for others in one commit, at exactly the next version or not at all.
#
# The files are written first, in the table's layout and with its statistics; then one commit without retries adds
# them and removes the others.


_FILES: Final = WriterProperties(compression="ZSTD")


def exchange_files(
    table: DeltaTable,
    added: Iterable[pa.Table],
    removed: Iterable[Mapping[str, Any]],
    properties: CommitProperties,
    *,
    is_new_data: bool,
) -> list[list[str]]:
    """Add rows, each table of them in files of its own, and remove files; return the names of the files of each.

    Args:
        table: afterwards it stands at the new version.
        added: rows in the schema of the table.
        removed: ``path``, ``size_bytes`` and ``partition.<column>`` of files, as ``get_add_actions(flatten=True)``.
        properties: of the commit, with no retry.
        is_new_data: whether the rows are others than those of the removed files.

    Raises:
        CommitFailedError: another writer came first; nothing was done.
    """
    path, metadata = path_of(table), table.metadata()
    scratch, partitions = new_scratch(path), list(metadata.partition_columns)
    statistics = {STATISTICS_PROPERTY: metadata.configuration.get(STATISTICS_PROPERTY)}
    adds: list[list[AddAction]] = []
    for number, rows in enumerate(added):
        write_deltalake(
            str(scratch), rows, mode="append", partition_by=partitions, writer_properties=_FILES,
            configuration=statistics if number == 0 else None,
        )  # fmt: skip
        written = (action["add"] for action in actions_of(scratch, number) if "add" in action)
        adds.append([_adopted(scratch, path, add, is_new_data=is_new_data) for add in written])
    moment, version = int(time.time() * 1000), int(table.version()) + 1
    removes = [
        RemoveAction(
            file["path"], is_new_data, moment, file["size_bytes"],
            {name: str(file[f"partition.{name}"]) for name in partitions},
        )
        for file in removed
    ]  # fmt: skip
    actions: list[AddAction | RemoveAction] = [*chain.from_iterable(adds), *removes]
    table.create_write_transaction(
        actions, mode="append", schema=table.schema(), partition_by=partitions, commit_properties=properties
    )
    table.load_as_version(version)  # not the newest one: another writer may commit right behind
    return [[add.path for add in of_rows] for of_rows in adds]


def _adopted(scratch: Path, path: Path, add: dict[str, Any], *, is_new_data: bool) -> AddAction:
    adopt_file(scratch, path, unquote(add["path"]))
    return AddAction(
        path=quote(unquote(add["path"]), safe="/="),
        size=add["size"],
        partition_values=add["partitionValues"],
        modification_time=add["modificationTime"],
        data_change=is_new_data,
        stats=add["stats"],
    )
