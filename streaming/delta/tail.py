"""The rows that each new version of a table added. The reading half of the tables: also the exporter's.

A version is a file of the Delta log, so an idle look costs one look-up of a name, and a new version costs its own rows
whatever the size of the table. Compaction and metadata add no rows (``dataChange`` is false, or there is no file).
Knows the definitions and pyarrow; writes nothing, and needs no lock against the writer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.contracts.columns import Table
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import arrow_schema
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from pathlib import Path

BEFORE_FIRST: Final = -1
"""The version that stands before the first one, and of a table that does not exist yet."""


class TailGap(IsrwatchError):
    """The rows after a version cannot be told any more: read the table anew."""


class ChangeTail:
    """Follows one table, version by version."""

    def __init__(self, path: Path, after_version: int = BEFORE_FIRST, table: Table = PARTITION_CHANGES) -> None:
        """Start after a version.

        Args:
            path: the folder of the table; it need not exist yet.
            after_version: newest version that the caller has read.
            table: the definition of the rows.
        """
        self._path = path
        self._schema = arrow_schema(table)
        self._version = after_version
        self._identity = self._identify(after_version)

    @property
    def version(self) -> int:
        """The newest version that was read."""
        return self._version

    def poll(self, to_version: int | None = None) -> list[tuple[int, pa.Table]]:
        """Read what the versions since the last call added, oldest first; those that added no row are left out.

        Args:
            to_version: where to stop; None reads everything there is.

        Raises:
            TailGap: a version or one of its files is gone, or the table was made anew. The tail stays where it was.
        """
        added: list[tuple[int, pa.Table]] = []
        version, identity = self._version, self._identity
        if identity is not None and self._identify(version) not in {identity, None}:
            raise TailGap(f"{self._path} was made anew")
        while to_version is None or version < to_version:
            rows = self._added_by(version + 1)
            if rows is None:
                break
            version += 1
            if rows.num_rows:
                added.append((version, rows))
        if version == self._version:
            self._check_still_there()
        else:
            identity = self._identify(version)
        self._version, self._identity = version, identity
        return added

    def _added_by(self, version: int) -> pa.Table | None:
        """Read the rows of one version; None while it does not exist."""
        try:
            commit = _entry(self._path, version).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        files = _files_added(commit, version)
        return pa.concat_tables([self._rows_of(file) for file in files]) if files else self._schema.empty_table()

    def _rows_of(self, file: dict[str, Any]) -> pa.Table:
        try:
            rows = pq.ParquetFile(self._path / unquote(file["path"])).read()
        except FileNotFoundError:
            raise TailGap(f"{self._path / unquote(file['path'])} was vacuumed before it was read") from None
        for name in set(file["partitionValues"]) - set(rows.column_names):  # Spark writes them into the files, too
            value = file["partitionValues"][name]
            constant = pa.scalar(value).cast(self._schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
        return rows.select(self._schema.names).cast(self._schema)

    def _identify(self, version: int) -> tuple[int, int] | None:
        try:
            status = _entry(self._path, version).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _check_still_there(self) -> None:
        """Notice a log that was cleaned beyond us, and a table that was made anew under our feet."""
        if self._version == BEFORE_FIRST and newest_checkpoint(self._path) is None:
            return
        if self._identity is None or self._identify(self._version) != self._identity:
            newest = newest_checkpoint(self._path)
            if newest is None or newest != self._version:
                raise TailGap(f"version {self._version + 1} of {self._path} is gone from its log")
            if self._identity is not None:
                raise TailGap(f"{self._path} was made anew")


def newest_checkpoint(path: Path) -> int | None:
    """Tell the version of the checkpoint that readers are pointed at; None for none."""
    try:
        return int(json.loads((path / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8"))["version"])
    except FileNotFoundError:
        return None


def has_moved(path: Path, version: int) -> bool:
    """Tell, by two look-ups of a name, whether a table has another version than the one that was read."""
    return _entry(path, version + 1).exists() or (version > BEFORE_FIRST and not _entry(path, version).exists())


def has_version(path: Path, version: int) -> bool:
    """Tell, by one look-up of a name, whether a version can be read."""
    return _entry(path, version).exists()


def oldest_version(path: Path) -> int | None:
    """Find the version from which on the log tells everything; None where there is no table."""
    versions = {int(entry.stem) for entry in (path / "_delta_log").glob("*.json") if entry.stem.isdecimal()}
    oldest = max(versions, default=None)
    while oldest is not None and oldest - 1 in versions:
        oldest -= 1
    return oldest


def newest_version(path: Path) -> int | None:
    """Tell the newest version of a table by the names in its log; None where there is none."""
    return max((int(entry.stem) for entry in (path / "_delta_log").glob("*[0-9].json")), default=None)


def _entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def rows_between(path: Path, after_version: int, to_version: int, table: Table = PARTITION_CHANGES) -> pa.Table:
    """Read the rows that the versions after one, up to another, added.

    Raises:
        TailGap: some of them are gone.
    """
    tail = ChangeTail(path, after_version, table)
    added = [rows for _, rows in tail.poll(to_version)]
    if tail.version < to_version:
        raise TailGap(f"version {tail.version + 1} of {path} is gone from its log")
    return pa.concat_tables(added) if added else arrow_schema(table).empty_table()


def files_between(path: Path, after_version: int, to_version: int) -> list[Path]:
    """Name the files that the versions after one, up to another, added, in the order of their rows.

    Raises:
        TailGap: some of these versions are gone.
    """
    found: list[Path] = []
    for version in range(after_version + 1, to_version + 1):
        try:
            commit = _entry(path, version).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise TailGap(f"version {version} of {path} is gone from its log") from None
        found += [path / unquote(file["path"]) for file in _files_added(commit, version)]
    return found


def _files_added(commit: str, version: int) -> list[dict[str, Any]]:
    """Name the files whose rows are new in a commit, in the order of their rows.

    Raises:
        TailGap: the commit rewrote rows, so which of them are new cannot be told.
    """
    actions = [json.loads(line) for line in commit.splitlines() if line]
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    if added and any(action.get("remove", {}).get("dataChange") for action in actions):
        raise TailGap(f"version {version} rewrote rows")
    return sorted(added, key=lambda file: sorted(file["partitionValues"].items()))
