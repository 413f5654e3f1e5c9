"""``past_states``: the whole state about once a day, from which a state of the past is rebuilt with few changes."""

# Theory of operation
#
# The state at a moment is the newest row of each key among the changes that had occurred by then. To read them all
# takes longer the longer history is, so the job writes a *base* about once a day: the state tables as of a version,
# with the newest time at which any change up to it can have occurred. So for every later moment
#
#     state = the newest base whose changes had all occurred by then + the changes after its version that had, too
#
# - A base is a copy of the state tables at a moment at which all of them are of one version. It is one commit, which
#   names that version, as those of every derived table do: a base that is ahead of the change log is cut off with them
#   (``projections.rollback``), and so is one that a power cut may have damaged.
# - It needs nothing of the base before, and nothing needs it: where one is missing or damaged, an older one is used, or
#   the changes from the beginning. Pages of the files have checksums, so a damaged one is noticed.
# - Bases take at most ``SHARE`` of what the change log takes. A base that would pass it is left out, and tried again
#   later: then little has changed since the last one. Compaction and expiry make the change log smaller afterwards; so
#   bases are removed that are the closest to their neighbours.
# - A base expires with the changes of its day: the newest rows of each key, which stay of those, are the state at the
#   begin of the first day that is retained.
#
# Invariant: for any history, bases, expiry and damage the state at a moment is that of the changes alone.
# tests/delta/test_bases.py.

from __future__ import annotations

import datetime as dt
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from streaming.contracts.events import Subject
from streaming.contracts.identifiers import DAY
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    PAST_STATES,
)
from streaming.delta.log.cluster_files import read_files
from streaming.delta.log.commit import Packing
from streaming.delta.log.copies import AT_ONCE
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy, expires_by
from streaming.delta.log.storage import in_schema, open_table, read_file, set_aside
from streaming.delta.log.writer import Writer
from streaming.errors import TableRefused, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from deltalake import DeltaTable

    from streaming.delta.store.place import Place

SHARE: Final = 0.1
"""Share of the bytes of the change log that bases take at most."""
SECONDS_BETWEEN_LOOKS: Final = 3600.0
ROWS_OF_FILE: Final = 65_536
"""The rows of clusters are put into files of at least so many: a page of one cluster reads one file."""
SCHEMA: Final = arrow_schema(PAST_STATES)
_log: Final = logging.getLogger(__name__)
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_STRUCT_OF: Final = {
    Subject.PARTITION: (PARTITION_STATE_TABLE, "after"),
    Subject.BROKER: (BROKER_STATE_TABLE, "broker_after"),
    Subject.CLUSTER: (CLUSTER_STATE_TABLE, "cluster_after"),
}


class Base(NamedTuple):
    """One base: the version it is of, the newest time of its changes in UTC microseconds, and its files."""

    version: int
    newest: int
    files: tuple[BaseFile, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


class BaseFile(NamedTuple):
    """A file of a base, by its name in the log; bytes, rows, and the clusters that it may have rows of."""

    path: str
    size: int
    rows: int
    lowest: str
    highest: str


def bases_of(table: DeltaTable) -> list[Base]:
    """List the bases of ``past_states``, oldest first. A file without statistics is none: another program wrote it."""
    files = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", "min.cluster_id", "max.cluster_id")
    bases: dict[tuple[int, int], list[BaseFile]] = {}
    if "max.version" not in files.column_names:
        return []
    moments = files["max.occurred_not_after"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    for version, newest, *file in zip(
        files["max.version"].to_pylist(), moments, *(files[name].to_pylist() for name in names), strict=True
    ):
        if None not in (version, newest, *file):
            bases.setdefault((version, newest), []).append(BaseFile(*file))
    return [Base(*key, tuple(sorted(some))) for key, some in sorted(bases.items())]


def read_base(path: Place, base: Base, clusters: Collection[str] | None = None) -> pa.Table:
    """Read the rows of a base, of some clusters or of all.

    Raises:
        TableUnreadable: a file is damaged, shortened or missing.
    """
    chosen = None if clusters is None else pa.array(sorted(clusters), pa.string())
    files = [
        file for file in base.files if clusters is None or any(file.lowest <= each <= file.highest for each in clusters)
    ]

    def read(file: BaseFile) -> pa.Table:
        rows = read_file(path, file.path)
        if rows.num_rows != file.rows:
            raise TableUnreadable(
                f"cannot read the table {path}: {file.path} has {rows.num_rows} rows, not {file.rows}"
            )
        if chosen is not None:
            rows = rows.filter(pc.is_in(rows["cluster_id"], chosen))
        return in_schema(rows, SCHEMA, {"date": _day(base.newest).isoformat()})

    if not files or isinstance(path, Path):
        return pa.concat_tables([SCHEMA.empty_table(), *map(read, files)])
    with ThreadPoolExecutor(min(len(files), AT_ONCE)) as pool:  # each waits for the store
        return pa.concat_tables([SCHEMA.empty_table(), *pool.map(read, files)])


class PastStates:
    """The only writer of ``past_states``."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the table below a directory.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._directory, self._policy = directory, policy
        self._writer = _opened(directory)
        self._maintenance = Maintenance(self._writer, policy)
        self._looked_at, self._looked_on, self._needed = -math.inf, _FIRST_DAY, 0

    def after_round(self, version: int, clusters: pa.Table, brokers: pa.Table, partitions: Iterable[str]) -> None:
        """Write a base if one is due, after all state tables were written up to a version.

        That another job has written one meanwhile, or that a table cannot be read, costs this base.
        """
        newest = pc.max(clusters["watermark"].cast(pa.int64())).as_py()
        if newest is None or not self._is_due(_day(newest)):
            return
        self._looked_at, self._looked_on = time.monotonic(), _day(newest)
        try:
            self._step(version, newest, lambda: self._written(version, newest, clusters, brokers, partitions))
            self._maintenance.after_commit()
        except (TableRefused, TableUnreadable, DeltaError) as error:
            _log.warning("no state was added to %s for pages of the past: %s", self._writer.path, error)
            with suppress(DeltaError):
                self._writer.look_again()

    def _is_due(self, day: dt.date) -> bool:
        return day > self._looked_on or time.monotonic() - self._looked_at >= SECONDS_BETWEEN_LOOKS

    def _step(self, version: int, newest: int, write: Callable[[], list[dict[str, Any]]]) -> None:
        """Remove the bases that expired or have no room any more; add one if the last one is of an earlier day."""
        bases = bases_of(self._writer.table)
        room = round(SHARE * bytes_of(open_table(self._directory / PARTITION_CHANGES.name)))
        gone = self._expired(bases)
        kept = [base for base in bases if base not in gone]
        while kept and sum(base.size for base in kept) > room:
            gone.append(_closest(kept))
            kept.remove(gone[-1])
        room -= sum(base.size for base in kept)
        added: list[dict[str, Any]] = []
        if (not bases or _day(bases[-1].newest) < _day(newest)) and self._needed <= room:
            added = write()
            self._needed = sum(each["size"] for each in added)
            added = added if self._needed <= room else []  # the files that were written are swept
        if added or gone:
            names = [file.path for base in gone for file in base.files]
            self._writer.add_files(added, names, {PARTITION_CHANGES.name: version} if added else {})

    def _expired(self, bases: Iterable[Base]) -> list[Base]:
        if not self._policy.days:
            return []
        first = _day(expires_by(self._writer, self._policy)) - dt.timedelta(days=self._policy.days)
        return [base for base in bases if _day(base.newest) < first]

    def _written(
        self, version: int, newest: int, clusters: pa.Table, brokers: pa.Table, partitions: Iterable[str]
    ) -> list[dict[str, Any]]:
        """Write the files of a base: cluster by cluster, so that not all partitions are in memory at once."""
        of_base = version, newest
        pieces = chain(
            [_rows(Subject.CLUSTER, clusters, *of_base), _rows(Subject.BROKER, brokers, *of_base)],
            (_rows(Subject.PARTITION, rows, *of_base) for rows in self._partitions(partitions)),
        )
        return [add for rows in _in_files(pieces) for add in self._writer.written(rows, Packing.STATE)]

    def _partitions(self, files: Iterable[str]) -> Iterator[pa.Table]:
        path = self._directory / PARTITION_STATE_TABLE.name
        for file in sorted(files):  # in folders by cluster
            yield read_files(path, PARTITION_STATE_TABLE, [file])


def _opened(directory: Place) -> Writer:
    """Open or create the table. One that cannot be read is set aside: it holds nothing that only it has."""
    try:
        return Writer.opened(directory, PAST_STATES)
    except TableUnreadable as error:
        aside = set_aside(directory / PAST_STATES.name)
        _log.warning("%s; it was moved to %s, and is written from now on again", error, aside)
        return Writer.opened(directory, PAST_STATES)


def _rows(subject: Subject, states: pa.Table, version: int, newest: int) -> pa.Table:
    """Return rows of a state table as rows of a base."""
    _, column = _STRUCT_OF[subject]
    count = states.num_rows
    kind = SCHEMA.field(column).type
    structs = pa.StructArray.from_arrays(
        [states[field.name].combine_chunks().cast(field.type) for field in kind], fields=list(kind)
    )
    values: dict[str, Any] = {
        "date": pa.scalar(_day(newest), pa.date32()),
        "version": pa.scalar(version, pa.int64()),
        "occurred_not_after": pa.scalar(newest, SCHEMA.field("occurred_not_after").type),
        "subject": pa.scalar(subject.value, pa.string()),
    }
    columns = [
        structs
        if field.name == column
        else pa.repeat(values[field.name], count)
        if field.name in values
        else states[field.name]
        if field.name in states.column_names
        else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _in_files(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held, count = list[pa.Table](), 0
    for piece in pieces:
        held.append(piece)
        count += piece.num_rows
        if count >= ROWS_OF_FILE:
            yield pa.concat_tables(held)
            held, count = [], 0
    if count:
        yield pa.concat_tables(held)


def _closest(bases: list[Base]) -> Base:
    """Return the base without which the longest way from one to the next grows least; the newest one last."""
    ends = [-1, *(base.version for base in bases), math.inf]
    return min(bases, key=lambda base: ends[bases.index(base) + 2] - ends[bases.index(base)])


def bytes_of(table: DeltaTable | None) -> int:
    """Return the bytes of the data files of a table; none if there is no table."""
    return 0 if table is None else int(pc.sum(pa.table(table.get_add_actions())["size_bytes"]).as_py() or 0)


def _day(micros: int) -> dt.date:
    return _FIRST_DAY + dt.timedelta(days=micros // DAY)
