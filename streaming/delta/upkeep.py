"""Upkeep of a table by its one writer, so that commits, reads and the disk stay flat however long it is written.

- Each commit lists ``_delta_log`` and goes through the files that are there: so both are kept few, by number.
- Small files are compacted in two sizes: often into small ones, rarely those into large ones.
- A file is deleted when no version that the log still tells needs it, and did not a round before either: whoever has
  opened a version has that long to read it.

Readers ignore compaction (``dataChange`` is false). What a derived table has still to read of the truth is never
expired. Knows the files of Delta, no row.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from streaming.delta.definitions import APPEND_ONLY, EXPIRED
from streaming.delta.tail import newest_checkpoint
from streaming.delta.writing import writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from deltalake import CommitProperties, DeltaTable

    from streaming.delta.writer import Writer

COMMITS_BETWEEN_ROUNDS: Final = 50
ROUNDS_BETWEEN_LARGE: Final = 20
SMALL_BYTES: Final = 512 * 1024
LARGE_BYTES: Final = 32 * 1024 * 1024
SECONDS_KEPT: Final = 60.0
"""Of a table that is overwritten: a reader that has opened a version finishes within this and the time of a round."""
SECONDS_BETWEEN_SWEEPS: Final = 60.0
SECONDS_BETWEEN_EXPIRIES: Final = 3600.0
_FIRST_DAY: Final = dt.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Keep:
    """What stays of the past of a table that is appended to.

    Attributes:
        days: of history, by the column ``date``; 0 for ever.
        versions: that the log tells, for readers that are behind and for ``--as-of``.
    """

    days: int = 0
    versions: int = 500


EVERYTHING: Final = Keep()


class Upkeep:
    """Counts the commits of one table, and tidies it up when it is due."""

    def __init__(
        self,
        table: DeltaTable,
        path: Path,
        versions: int | None = None,
        needed: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Tidy up the log and the files of a table.

        Args:
            table: as its writer holds it.
            path: its folder.
            versions: how many of them stay; None: those of the last minutes, of a table that is overwritten.
            needed: gives the oldest version whose log others still need; None: nobody needs any.
        """
        self._table, self._path, self._versions, self._needed = table, path, versions, needed
        self._commits = 0
        self._unneeded: set[Path] = set()
        self._swept = time.monotonic()

    def after_commit(self) -> None:
        """Count one commit; tidy up when it is due, which may move the table's version."""
        self._commits += 1
        if self._is_due():
            with writing(self._table.table_uri):
                self._round()

    def _is_due(self) -> bool:
        is_old = self._versions is None and time.monotonic() - self._swept >= SECONDS_BETWEEN_SWEEPS
        return is_old or self._commits % COMMITS_BETWEEN_ROUNDS == 0

    def _round(self) -> None:
        self.expire_log()
        if time.monotonic() - self._swept >= SECONDS_BETWEEN_SWEEPS:
            self.sweep()

    def expire_log(self) -> None:
        """Delete what the log tells of versions that nobody needs, up to a checkpoint, which tells their sum."""
        begin = self._first_kept()
        needed = self._needed()
        begin = begin if needed is None else min(begin, needed)
        log = self._path / "_delta_log"
        checkpoints = {_version(file) for file in log.glob("*.checkpoint*.parquet")}
        begin = min(begin, newest_checkpoint(self._path) or 0)  # the one that readers are pointed at
        begin = max((version for version in checkpoints if version <= begin), default=0)
        for file in log.iterdir():
            if _version(file) < begin:
                file.unlink(missing_ok=True)

    def _first_kept(self) -> int:
        """Find the oldest version to keep: by number, or the one that was the newest some minutes ago."""
        if self._versions is not None:
            return max(0, int(self._table.version()) - self._versions)
        since = time.time() - SECONDS_KEPT
        version = self._table.version()
        while version > 0 and _is_newer(_entry(self._path, version), since):
            version -= 1
        return version

    def sweep(self) -> None:
        """Delete the files that no version needs which the log tells, and that none needed at the last sweep."""
        self._swept = time.monotonic()
        needed = set(self._named_by_the_log())
        paths = self._table.get_add_actions()["path"].to_pylist()
        needed |= {*paths, *(unquote(path) for path in paths)}  # an escaped name stays, whoever has unescaped it
        unneeded = {file for file in self._path.rglob("*.parquet") if _inside(self._path, file) not in needed}
        unneeded = {file for file in unneeded if not _inside(self._path, file).startswith("_")}
        for file in unneeded & self._unneeded:
            file.unlink(missing_ok=True)
        self._unneeded = unneeded - self._unneeded

    def _named_by_the_log(self) -> Iterable[str]:
        """Name every file that a version which the log tells has added or removed: all that is not there now."""
        for file in sorted((self._path / "_delta_log").glob("*.json")):
            for line in _read(file).splitlines():
                action = json.loads(line) if '"path"' in line else {}
                for kind in ("add", "remove"):
                    if kind in action:
                        yield unquote(action[kind]["path"])


class AppendUpkeep(Upkeep):
    """Of a table that is appended to: compacts it, and keeps its log by number of versions."""

    def __init__(
        self,
        table: DeltaTable,
        path: Path,
        writer: Writer,
        keep: Keep = EVERYTHING,
        needed: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Tidy up as the one writer.

        Args:
            table: as its writer holds it.
            path: its folder.
            writer: makes the commits.
            keep: what stays of the past.
            needed: gives the oldest version whose log others still need; None: nobody needs any.
        """
        super().__init__(table, path, keep.versions, needed)
        self._writer, self._keep = writer, keep
        self._expired = -SECONDS_BETWEEN_EXPIRIES

    def _round(self) -> None:
        is_large = self._commits % (COMMITS_BETWEEN_ROUNDS * ROUNDS_BETWEEN_LARGE) == 0
        self._writer.tidy(lambda properties: self._compact(LARGE_BYTES if is_large else SMALL_BYTES, properties))
        if self._keep.days and time.monotonic() - self._expired >= SECONDS_BETWEEN_EXPIRIES:
            self.expire_history(dt.datetime.now(dt.UTC).date() - dt.timedelta(days=self._keep.days))
        super()._round()

    def expire_history(self, before: dt.date) -> None:
        """Drop the days before one. What derived tables have still to read stays, in files that the log names."""
        self._expired = time.monotonic()
        if not any(day["date"] < before.isoformat() for day in self._table.partitions()):
            return
        if self._table.metadata().configuration.get(APPEND_ONLY) == "true":
            self._writer.tidy(
                lambda properties: self._table.alter.set_table_properties(
                    {APPEND_ONLY: "false"}, commit_properties=properties
                )
            )
        self._writer.tidy(
            lambda properties: self._table.delete(f"date < '{before.isoformat()}'", commit_properties=properties),
            {EXPIRED: (before - _FIRST_DAY).days},
        )

    def _compact(self, target: int, properties: CommitProperties) -> dict[str, Any]:
        return self._table.optimize.compact(target_size=target, commit_properties=properties)


def _entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def _version(file: Path) -> int:
    told = file.name.lstrip(".").split(".", 1)[0]  # ".N.json.crc" is Hadoop's
    return int(told) if told.isdecimal() else 1 << 62


def _is_newer(file: Path, since: float) -> bool:
    try:
        return file.stat().st_mtime > since
    except FileNotFoundError:
        return False


def _read(entry: Path) -> str:
    try:
        return entry.read_text(encoding="utf-8")
    except FileNotFoundError:  # another writer of the same table has expired it
        return ""


def _inside(path: Path, file: Path) -> str:
    return file.relative_to(path).as_posix()
