"""Maintenance of a table by its only writer, which bounds disk use and the cost of commits and reads.

- Each commit lists ``_delta_log`` and reads the list of data files, so both are kept short.
- Small files are compacted in two steps: often into medium files, and rarely those into large ones.
- Data files stay for ``reader_minutes`` after a version removed them: a reader has that long to read a version that it
  has opened. Log entries stay as long, but at most ``LOG_ENTRIES``, because each commit lists them all. Followers need
  neither for longer: they select rows by version (``changes.reader``).

The only clock is that of the store, which dates each entry: a round comes right after a commit, so the newest entry has
the present time. The clock of the job may be years ahead: of the two, the earlier one says what history expires.

Readers ignore compaction (``dataChange`` is false). Depends on no row.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from streaming.delta.log.durable import flushed_version
from streaming.delta.log.storage import data_files, delete_files, in_schema, read_file, writing
from streaming.delta.log.table_log import delete_log_before, files_in_log, written_at
from streaming.delta.store.place import Url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltalake import DeltaTable

    from streaming.delta.log.writer import Writer

COMMITS_BETWEEN_ROUNDS: Final = 50
ROUNDS_BETWEEN_LARGE: Final = 20
SMALL_BYTES: Final = 512 * 1024
LARGE_BYTES: Final = 32 * 1024 * 1024
LOG_ENTRIES: Final = 300
"""There are up to 400: these, 50 until the next round, 50 back to a checkpoint. Listing 500 takes a millisecond."""
LOG_ENTRIES_OF_STORES: Final = 900
"""One request lists them; no writer makes as many in the time in which a commit needs no proof (``writer``)."""
SECONDS_BETWEEN_SWEEPS: Final = 60.0
SECONDS_BETWEEN_SWEEPS_OF_STORES: Final = 900.0
"""A sweep lists the whole table three times, and of what it deletes a store keeps no more meanwhile than it costs."""
SECONDS_BETWEEN_EXPIRIES: Final = 3600.0


def wall_clock() -> int:
    """Return the time in UTC microseconds."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Retention of history and old files.

    Attributes:
        days: of history, by the column ``date``; 0 for all.
        reader_minutes: how long the files of older versions stay for readers that have opened one.
        clock: returns the time by which history expires, in UTC microseconds.
    """

    days: int = 0
    reader_minutes: float = 10.0
    clock: Callable[[], int] = wall_clock

    @classmethod
    def of_seconds(cls, history: float, reader_time: float) -> RetentionPolicy:
        """Return the policy of two durations: history is kept in whole days, an infinite one for good."""
        days = 0 if math.isinf(history) else math.ceil(history / 86_400)
        return cls(days, reader_time / 60)


KEEP_ALL: Final[RetentionPolicy] = RetentionPolicy()


def expires_by(writer: Writer, policy: RetentionPolicy) -> int:
    """Return the time by which history of a table expires, in UTC microseconds.

    Of the clock of the job, and that of the store, which dates the newest entry of the table, the earlier one: what a
    clock that is ahead deletes is gone.
    """
    now, written = policy.clock(), written_at(writer.path, writer.version)
    return now if written is None else min(now, int(written * 1_000_000))


class Maintenance:
    """Counts the commits of one table, and runs a round of maintenance when one is due."""

    def __init__(self, writer: Writer, policy: RetentionPolicy = KEEP_ALL) -> None:
        self._writer, self._path, self._policy = writer, writer.path, policy
        self._commits = 0
        self._unreferenced_since: dict[str, float] = {}
        self._swept = time.monotonic()
        self._old = -1  # a version below which the next search need not look
        self._between_sweeps = SECONDS_BETWEEN_SWEEPS
        if isinstance(self._path, Url):
            self._between_sweeps = SECONDS_BETWEEN_SWEEPS_OF_STORES

    def after_commit(self) -> None:
        """Count a commit; run a round if one is due, which may add versions to the table."""
        self._commits += 1
        is_sweep_due = time.monotonic() - self._swept >= self._between_sweeps
        if is_sweep_due or self._commits % COMMITS_BETWEEN_ROUNDS == 0:
            with writing(str(self._path)):
                self._round()

    def _round(self) -> None:
        now = written_at(self._path, self._writer.version)
        if now is None:  # another writer of the table is far ahead
            return
        self.expire_log(now)
        if time.monotonic() - self._swept >= self._between_sweeps:
            self.sweep(now)

    def expire_log(self, now: float) -> None:
        """Delete the log entries that were superseded more than ``reader_minutes`` ago, and those above the limit."""
        since = now - self._policy.reader_minutes * 60
        newest, made = self._writer.version, self._writer.entries
        before, after = self._old, newest + 1
        # A binary search; deleted entries count as old. If a clock was set back, it may end early: then more stays.
        while after - before > 1:
            middle = (before + after) // 2
            written = made[middle].written(now) if middle in made else written_at(self._path, middle)
            if written is not None and written > since:
                after = middle
            else:
                before = middle
        if isinstance(self._path, Url):  # each step is a request, unless this process has made the version
            self._old = before
        flushed = flushed_version(self._path)
        most = LOG_ENTRIES_OF_STORES if isinstance(self._path, Url) else LOG_ENTRIES
        limit = max(0, before, newest - most)
        if flushed is not None:  # one earlier, because its checkpoint may be younger than its mark, and torn
            limit = min(limit, max(0, flushed - 1))
        self._unreferenced_since |= delete_log_before(self._path, limit, made, now)

    def sweep(self, now: float) -> None:
        """Delete the data files that no version in the log has needed for ``reader_minutes``.

        Invariant: a file that an entry of the log has added or removed stays, so a flushed version can be read even
        after later ones were cut off (``durable``). If the log does not say when a file was removed, the time counts
        from the sweep that first finds it unneeded: a writer has that long to commit a file that it has written.
        """
        self._swept = time.monotonic()
        paths = list(self._writer.files())
        needed = files_in_log(self._path, self._writer.entries) | {*paths, *(unquote(path) for path in paths)}
        unneeded = {file: self._unreferenced_since.get(file, now) for file in data_files(self._path) - needed}
        expired = {file for file, since in unneeded.items() if since < now - self._policy.reader_minutes * 60}
        delete_files(self._path, expired)
        self._unreferenced_since = {file: since for file, since in unneeded.items() if file not in expired}


class AppendMaintenance(Maintenance):
    """Maintenance of an append-only table: it is also compacted, and its history expires."""

    def __init__(
        self,
        writer: Writer,
        expire: Callable[[Writer, dt.date], None],
        policy: RetentionPolicy = KEEP_ALL,
        apart: Apart | None = None,
    ) -> None:
        """Maintain a table: ``expire`` deletes the rows of the days before a given one.

        The rows of ``apart`` get files of their own when they are compacted.
        """
        super().__init__(writer, policy)
        self._expire, self._apart = expire, apart
        self._expired_at = -math.inf

    def _round(self) -> None:
        is_large = self._commits % (COMMITS_BETWEEN_ROUNDS * ROUNDS_BETWEEN_LARGE) == 0
        target = LARGE_BYTES if is_large else SMALL_BYTES
        compact(self._writer, target, self._apart)
        now = self._policy.clock() / 1e6
        is_recent = 0 <= now - self._expired_at < SECONDS_BETWEEN_EXPIRIES  # a clock may be set back
        if self._policy.days and not is_recent:
            self._expired_at = now
            today = dt.datetime.fromtimestamp(expires_by(self._writer, self._policy) / 1e6, dt.UTC).date()
            self.expire_history(today - dt.timedelta(days=self._policy.days))
        super()._round()

    def expire_history(self, before: dt.date) -> None:
        """Delete the days before a given one, if there are any."""
        if any(day["date"] < before.isoformat() for day in self._writer.table.partitions()):
            self._expire(self._writer, before)


# Compaction of an append-only table: small files of a day into larger ones, at exactly the next version or not at all.
#
# delta-rs' own ``optimize.compact`` does not check for conflicts when it tries again: if two writers compact the same
# files, both commit, and every row is there twice. So our writer exchanges the files in one commit.


_PARTITION: Final = "date"
_ROW_BYTES: Final = 1024  # a compressed row with long lists; most take a tenth


class Apart(NamedTuple):
    """Rows whose column has a value get files of their own; no value of the column is greater.

    Then the statistics of files say which have such rows only, and which have none.
    """

    column: str
    value: str

    def kind_of(self, file: Mapping[str, Any]) -> str:
        """Return whether a file has only such rows, none, or both; "" if its statistics do not say."""
        lowest, highest = (file.get(f"{end}.{self.column}") for end in ("min", "max"))
        if lowest is None or highest is None:
            return ""
        return "only" if lowest == self.value else "none" if highest < self.value else _BOTH

    def split(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield such rows, and the others, if there are any."""
        is_apart = pc.fill_null(pc.equal(rows[self.column], self.value), fill_value=False)
        yield from (part for part in (rows.filter(is_apart), rows.filter(pc.invert(is_apart))) if part.num_rows)


_BOTH: Final = "both"


def compact(writer: Writer, target: int, apart: Apart | None = None) -> None:
    """Merge the files that are smaller than a size, day by day, in one commit, if there are any.

    The rows of ``apart`` get files of their own.

    Raises:
        TableRefused: another writer came first; nothing was done.
    """
    table = writer.described
    bins = list(_bins(table, target, apart))
    if not bins:
        return
    schema = pa.schema(table.schema().to_arrow())

    def merged(files: list[dict[str, Any]]) -> Iterator[pa.Table]:
        rows = pa.concat_tables(
            in_schema(read_file(writer.path, file["path"]), schema, {_PARTITION: _day(file)}) for file in files
        )
        if apart is not None and any(apart.kind_of(file) == _BOTH for file in files):
            yield from apart.split(rows)
        else:
            yield rows

    rows = (part for files in bins for part in merged(files))
    writer.exchange(rows, [file["path"] for files in bins for file in files], is_new_data=False)


def _bins(table: DeltaTable, target: int, apart: Apart | None) -> Iterator[list[dict[str, Any]]]:
    """Yield groups of files to merge: of one day and kind, ordered by version, up to the target size together."""

    def kind_of(file: dict[str, Any]) -> tuple[str, str]:
        return _day(file), "" if apart is None else apart.kind_of(file)

    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    files.sort(key=lambda file: (kind_of(file), file.get("min.version") or 0, file["modification_time"]))
    merged: list[dict[str, Any]] = []
    size = 0
    for file in (file for file in files if file["size_bytes"] < target):
        if merged and (size + _merged_bytes(file) > target or kind_of(file) != kind_of(merged[0])):
            if len(merged) > 1:
                yield merged
            merged, size = [], 0
        merged.append(file)
        size += _merged_bytes(file)
    if len(merged) > 1:
        yield merged


def _merged_bytes(file: dict[str, Any]) -> int:
    """Estimate what a file adds to a merged one; most of a small file is its schema."""
    size, rows = file["size_bytes"], file.get("num_records")
    return int(size if rows is None else min(size, rows * _ROW_BYTES))


def _day(file: dict[str, Any]) -> str:
    return str(file[f"partition.{_PARTITION}"])
