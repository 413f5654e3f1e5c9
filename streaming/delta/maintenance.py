"""Maintenance of a table by its only writer, so that the cost of commits and reads and the disk use stay bounded.

- Each commit lists ``_delta_log`` and reads the list of data files, so both are kept short.
- Small files are compacted in two sizes: often into small ones, rarely those into large ones.
- Data files stay for ``reader_minutes`` after a version removed them, on every table: a reader has that long to read a
  version that it has opened. Log entries stay as long, but at most ``LOG_ENTRIES``, because each commit lists them all.
  No one needs either longer: followers select rows by version (``change_reader``).

Readers ignore compaction (``dataChange`` is false). Depends on no row.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from streaming.delta.compaction import compact
from streaming.delta.durable import flushed_version
from streaming.delta.storage import data_files, delete_files
from streaming.delta.table_lock import writing
from streaming.delta.table_log import committed_after, delete_log_before, files_in_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.delta.writer import Writer

COMMITS_BETWEEN_ROUNDS: Final = 50
ROUNDS_BETWEEN_LARGE: Final = 20
SMALL_BYTES: Final = 512 * 1024
LARGE_BYTES: Final = 32 * 1024 * 1024
LOG_ENTRIES: Final = 300
"""Up to 400 lie there: these, 50 until the next round, 50 back to a checkpoint. Listing 500 takes a millisecond."""
SECONDS_BETWEEN_SWEEPS: Final = 60.0
SECONDS_BETWEEN_EXPIRIES: Final = 3600.0


def wall_clock() -> int:
    """Return the time in UTC microseconds."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long history and old files are retained.

    Attributes:
        days: of history, by the column ``date``; 0 for all.
        reader_minutes: how long the files of older versions stay, for readers that have opened one.
        clock: the time in UTC microseconds, by which history expires.
    """

    days: int = 0
    reader_minutes: float = 10.0
    clock: Callable[[], int] = wall_clock


KEEP_ALL: Final = RetentionPolicy()


class Maintenance:
    """Counts the commits of one table, and runs a round of maintenance when one is due."""

    def __init__(self, table: DeltaTable, path: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Maintain the log and the files of a table.

        Args:
            table: as its writer holds it.
            path: its folder.
            policy: how long history and old files are retained.
        """
        self._table, self._path, self._policy = table, path, policy
        self._commits = 0
        self._unreferenced_since: dict[str, float] = {}
        self._swept = time.monotonic()

    def after_commit(self) -> None:
        """Count one commit; run a round if one is due, which may add versions to the table."""
        self._commits += 1
        is_sweep_due = time.monotonic() - self._swept >= SECONDS_BETWEEN_SWEEPS
        if is_sweep_due or self._commits % COMMITS_BETWEEN_ROUNDS == 0:
            with writing(self._table.table_uri):
                self._round()

    def _round(self) -> None:
        self.expire_log()
        if time.monotonic() - self._swept >= SECONDS_BETWEEN_SWEEPS:
            self.sweep()

    def expire_log(self) -> None:
        """Delete the log entries that were superseded more than ``reader_minutes`` ago, and those above the limit."""
        since = time.time() - self._policy.reader_minutes * 60
        newest = int(self._table.version())
        before, after = -1, newest + 1
        # A binary search; deleted entries count as old. Where a clock was set back it may end earlier: more stays.
        while after - before > 1:
            middle = (before + after) // 2
            if committed_after(self._path, middle, since):
                after = middle
            else:
                before = middle
        flushed = flushed_version(self._path)
        limit = max(0, before, newest - LOG_ENTRIES)
        if flushed is not None:  # before it, because its checkpoint may be younger than its mark, and torn
            limit = min(limit, max(0, flushed - 1))
        self._unreferenced_since |= delete_log_before(self._path, limit)

    def sweep(self) -> None:
        """Delete the data files that no version in the log has needed for ``reader_minutes``.

        Invariant: what an entry of the log has added or removed stays, so a flushed version can be read although later
        ones are cut off (``durable``). Every other file is deleted that long after its removal. Where the log does not
        say when that was, it counts from the sweep that first finds the file unneeded: a writer that has written a file
        and not yet committed it has that long to do so, and at least until the next sweep.
        """
        self._swept = time.monotonic()
        now = time.time()
        paths = self._table.get_add_actions()["path"].to_pylist()
        needed = files_in_log(self._path) | {*paths, *(unquote(path) for path in paths)}
        unneeded = {file: self._unreferenced_since.get(file, now) for file in data_files(self._path) - needed}
        expired = {file for file, since in unneeded.items() if since < now - self._policy.reader_minutes * 60}
        delete_files(self._path, expired)
        self._unreferenced_since = {file: since for file, since in unneeded.items() if file not in expired}


class AppendMaintenance(Maintenance):
    """Maintenance of a table that is appended to: it is also compacted, and its history expires."""

    def __init__(
        self,
        table: DeltaTable,
        path: Path,
        writer: Writer,
        expire: Callable[[DeltaTable, Writer, dt.date], None],
        policy: RetentionPolicy = KEEP_ALL,
    ) -> None:
        """Maintain the table as its only writer.

        Args:
            table: as its writer holds it.
            path: its folder.
            writer: makes the commits.
            expire: deletes the rows of the days before a given one.
            policy: how long history and old files are retained.
        """
        super().__init__(table, path, policy)
        self._writer, self._expire = writer, expire
        writer.keep_rows()
        self._expired_at = -math.inf

    def _round(self) -> None:
        is_large = self._commits % (COMMITS_BETWEEN_ROUNDS * ROUNDS_BETWEEN_LARGE) == 0
        target = LARGE_BYTES if is_large else SMALL_BYTES
        self._writer.tidy(partial(compact, self._table, self._path, target, self._writer.take_kept()))
        now = self._policy.clock() / 1e6
        is_recent = 0 <= now - self._expired_at < SECONDS_BETWEEN_EXPIRIES  # a clock may be set back
        if self._policy.days and not is_recent:
            self._expired_at = now
            today = dt.datetime.fromtimestamp(now, dt.UTC).date()
            self.expire_history(today - dt.timedelta(days=self._policy.days))
        super()._round()

    def expire_history(self, before: dt.date) -> None:
        """Delete the days before a given one, if there are any."""
        if any(day["date"] < before.isoformat() for day in self._table.partitions()):
            self._expire(self._table, self._writer, before)
