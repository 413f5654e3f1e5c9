"""Compaction of an append-only table: small files of a day into larger ones, at exactly the next version or not at all.

delta-rs' own ``optimize.compact`` looks for no conflict and tries again: of two writers that compact the same files,
both commit, and every row is there twice. So the files are exchanged by one commit without retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.delta.file_exchange import exchange_files
from streaming.delta.storage import read_file
from streaming.delta.table_log import actions_of, files_added

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from deltalake import CommitProperties, DeltaTable

_PARTITION: Final = "date"
_ROW_BYTES: Final = 1024  # a compressed row with long lists; most take a tenth


def compact(
    table: DeltaTable, path: Path, target: int, kept: Mapping[int, pa.Table], properties: CommitProperties
) -> None:
    """Merge the files that are smaller than a size, day by day, in one commit; nothing where there is nothing to merge.

    Args:
        table: partitioned by ``date``; afterwards it stands at the new version.
        path: its folder.
        target: in bytes.
        kept: rows that versions added, as far as the writer still has them; the others are read.
        properties: of the commit, with no retry.

    Raises:
        CommitFailedError: another writer came first; nothing was done.
    """
    bins = list(_bins(table, target))
    if not bins:
        return
    schema = pa.schema(table.schema().to_arrow())
    rows_of = dict(_kept_by_file(path, kept))
    merged = (_rows_of(path, files, rows_of, schema) for files in bins)
    removed = [file for files in bins for file in files]
    exchange_files(table, merged, removed, properties, is_new_data=False)


def _bins(table: DeltaTable, target: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the files that become one: of one day, in the order of their versions, up to the size together."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files.sort(key=lambda file: (_day(file), file.get("min.version") or 0, file["modification_time"]))
    merged: list[dict[str, Any]] = []
    size = 0
    for file in (file for file in files if file["size_bytes"] < target):
        if merged and (size + _merged_bytes(file) > target or _day(file) != _day(merged[0])):
            if len(merged) > 1:
                yield merged
            merged, size = [], 0
        merged.append(file)
        size += _merged_bytes(file)
    if len(merged) > 1:
        yield merged


def _merged_bytes(file: dict[str, Any]) -> int:
    """Estimate what a file adds to the one it is merged into: a small one is little more than its schema."""
    size, rows = file["size_bytes"], file.get("num_records")
    return int(size if rows is None else min(size, rows * _ROW_BYTES))


def _day(file: dict[str, Any]) -> str:
    return str(file[f"partition.{_PARTITION}"])


def _kept_by_file(path: Path, kept: Mapping[int, pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of files by their names in the log, where one file holds all that a version added."""
    for version, rows in kept.items():
        added = files_added(actions_of(path, version))
        if len(added) == 1:
            yield added[0][0], rows


def _rows_of(path: Path, files: list[dict[str, Any]], kept: Mapping[str, pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the rows of files of one day; columns that were added after them are null."""
    day = pa.scalar(_day(files[0])).cast(schema.field(_PARTITION).type)
    parts = [schema.empty_table()]
    for file in files:
        rows = kept[file["path"]] if file["path"] in kept else read_file(path, file["path"])
        if _PARTITION not in rows.column_names:  # Spark writes the partition's value into the file, too
            rows = rows.append_column(_PARTITION, pa.repeat(day, rows.num_rows))
        parts.append(rows)
    return pa.concat_tables(parts, promote_options="permissive").select(schema.names).cast(schema)
