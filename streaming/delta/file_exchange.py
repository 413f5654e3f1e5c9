"""Exchanges data files of a table for others in one commit, at exactly the next version or not at all.

The files are written beside the table, in its layout and with its statistics; then one commit without retries adds them
and removes the others.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from deltalake import WriterProperties, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from streaming.delta.definitions import STATISTICS_PROPERTY
from streaming.delta.storage import adopt_file, new_scratch, path_of
from streaming.delta.table_log import actions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

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
    table.load_as_version(version)  # not the newest one: whoever commits right behind is another writer
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
