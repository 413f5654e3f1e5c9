"""Tables that keep the newest row of a key: replica offsets, broker metrics.

The rows live in memory, as Arrow, and the table is overwritten, with the positions of the sources in the same commit.
They are samples: the next one replaces them, so no history is kept here. Of two samples of one moment the first stays,
so what comes again changes nothing. A sample that is older than one before it in its log, because a clock was set back,
is left out, however the log is cut into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.sample_tables import BROKER_SPEED, TOPIC_SETTINGS
from streaming.delta import lag
from streaming.delta.arrow_types import NAME
from streaming.delta.arrow_values import plain_type
from streaming.delta.broker_speeds import with_rounds
from streaming.delta.definitions import arrow_schema
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.positions import NO_LOG_IDS, StoredPositions
from streaming.delta.queries import read_all
from streaming.delta.slopes import with_slopes
from streaming.delta.topic_rules import rules_of_topics
from streaming.delta.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.columns import Table


_SECOND: Final = 1_000_000
BEHIND_SINCE: Final = "behind_since"
_LARGEST: Final = 1 << 62


class NewestRows:
    """The one writer of such a table."""

    def __init__(self, directory: Path, table: Table, policy: RetentionPolicy = KEEP_ALL) -> None:
        self._definition = table
        self._table = create_or_upgrade(directory, table)
        self._writer = Writer(self._table)
        self.applied = StoredPositions(self._table)
        self._maintenance = Maintenance(self._table, directory / table.name, policy)
        # Names are numbered, times are microseconds.
        schema = arrow_schema(table)
        self._schema = pa.schema([_in_memory(item) for item in schema])
        self._plain = pa.schema([pa.field(item.name, plain_type(item.type)) for item in schema])
        self._on_disk = pa.schema([
            memory.with_nullable(item.nullable) if pa.types.is_dictionary(memory.type) else item
            for item, memory in zip(schema, self._schema, strict=True)
        ])  # fmt: skip
        self._rows = read_all(self._table).select(self._schema.names).cast(self._schema)

    def __len__(self) -> int:
        """Count the rows."""
        return int(self._rows.num_rows)

    @property
    def rows(self) -> pa.Table:
        """What the table holds, times in microseconds."""
        return self._rows.cast(self._plain)

    @property
    def sources(self) -> set[str]:
        """The sources of its rows."""
        return set(pc.unique(self._rows["source"]).to_pylist())

    @property
    def positions(self) -> dict[str, int]:
        """The positions of the sources that reported since the start."""
        return self.applied.positions

    def position(self, source: str) -> int:
        """Return the position of the last applied observation of a source, -1 for none."""
        return self.applied.position(source)

    def check_ours(self) -> None:
        """Check that no other writer has claimed the table.

        Raises:
            TableRefused: another one has.
        """
        self._writer.check_ours()

    def forget(self, sources: Iterable[str]) -> None:
        """Drop the rows of sources; the next write leaves them out."""
        is_theirs = pc.is_in(self._rows["source"].cast(pa.string()), pa.array([*sources], pa.string()))
        self._rows = self._rows.filter(pc.invert(is_theirs))

    def store_positions(self, sources: Iterable[str]) -> None:
        """Write the table as it is, with the positions that these sources have gone back to."""
        now_at = {source: self.applied.at(source) for source in sources}
        log_ids = {source: at.log_id for source, at in now_at.items() if at.log_id is not None}
        moved = self.applied.transactions({source: at.position for source, at in now_at.items()}, log_ids)
        self._writer.write(self._rows.cast(self._on_disk), OVERWRITE, moved)

    def put(self, samples: pa.Table, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> None:
        """Apply newer samples and write the whole table; without any, remember the positions until the next time.

        Args:
            samples: columns of the table by name, times in microseconds; what is absent is null.
            positions: last position of every source in them.
            log_ids: of the logs that have one.
        """
        if samples.num_rows:
            reported = pa.table(_all_columns(samples, self._definition.name, self._schema), schema=self._schema)
            rows = self._merged(reported)
            self._rows = remembered(rows, reported, self._definition.forgotten_after * _SECOND)
            if len(self) < rows.num_rows:
                self._rows = self._rows.cast(self._plain).cast(self._schema)  # drops the names of what was forgotten
            self._writer.write(self._rows.cast(self._on_disk), OVERWRITE, self.applied.transactions(positions, log_ids))
            self._maintenance.after_commit()
        self.applied.move(positions, log_ids)

    def _merged(self, reported: pa.Table) -> pa.Table:
        """Return the newest row of each key, without what is gone; a row without a key says that there is nothing."""
        key, reporter = self._definition.key, self._definition.reporter
        if not reporter:
            return merged(self._rows, reported, self._definition)
        samples = reported.filter(reported[key[-1]].is_valid())
        rows = newest(self._rows, samples, key) if samples.num_rows else self._rows
        return without_gone(rows, reported, reporter)


def without_gone(rows: pa.Table, reported: pa.Table, reporter: str) -> pa.Table:
    """Drop the rows that a newer answer of their reporter leaves out; a row without a reporter stays.

    Args:
        rows: the newest of each key.
        reported: what has come since the last time, answers without samples among it.
        reporter: the column of who answered.
    """
    answers = pa.concat_tables([rows, reported]).unify_dictionaries().combine_chunks()
    number, moment = key_numbers(answers, ["cluster_id", "source", reporter]), answers["collected_at"].combine_chunks()
    last = pa.table({"number": number, "moment": moment}).group_by("number").aggregate([("moment", "max")])
    place = pc.index_in(number, last["number"].combine_chunks())
    is_there = pc.greater_equal(moment, last["moment_max"].combine_chunks().take(place))
    stays = pc.or_(is_there, answers[reporter].combine_chunks().is_null()).slice(0, rows.num_rows)
    return rows if pc.all(stays).as_py() else rows.filter(stays)


def merged(current: pa.Table, reported: pa.Table, definition: Table) -> pa.Table:
    """Return the newest row of each key of a table; see :func:`newest`. Speeds are compared, round by round."""
    if definition.name == BROKER_SPEED.name:
        return with_rounds(current, reported, definition.forgotten_after * _SECOND)
    return newest(current, reported, definition.key)


def newest(current: pa.Table, reported: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the newest row of each key; of equally old ones the first, and the current one before a reported one.

    Args:
        current: at most one row per key.
        reported: any number per key, those of one source in the order of its log.
        key: names of columns.
    """
    rows = pa.concat_tables([current, reported]).unify_dictionaries().combine_chunks()
    number, moment, row = _by_key_and_time(rows, key)
    if pc.any(pc.and_(_is_as_above(number), pc.less(row, lag.shifted(row)).fill_null(False))).as_py():
        rows = _without_late(rows, key)
        number, moment, row = _by_key_and_time(rows, key)
    again = pc.and_(_is_as_above(number), _is_as_above(moment))
    if pc.any(again).as_py():
        number, row = number.filter(pc.invert(again)), row.filter(pc.invert(again))
    rows = rows.take(row).combine_chunks()
    is_same, is_known = _is_as_above(number), pc.less(row, current.num_rows)
    if BEHIND_SINCE in rows.column_names:
        since = lag.behind_since(rows, is_same, is_known)
        rows = rows.set_column(rows.column_names.index(BEHIND_SINCE), BEHIND_SINCE, since)
    rows = with_slopes(rows, is_same, is_known)
    return rows.filter(pa.concat_arrays([pc.invert(is_same).slice(1), pa.array([True])]))


def _by_key_and_time(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return key number, time and place of each row, in the order of keys and times; equal ones as they are."""
    number, moment = key_numbers(rows, key), rows["collected_at"].combine_chunks()
    order = _sorted(number, moment)
    return number.take(order), moment.take(order), order


def _sorted(first: pa.Array, second: pa.Array) -> pa.Array:
    table = pa.table({"first": first, "second": second})
    return pc.sort_indices(table, [("first", "ascending"), ("second", "ascending")]).cast(pa.int64())


def _without_late(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Leave out each row that is older than one of its key and its source above it."""
    log, moment, row = key_numbers(rows, [*key, "source"]), rows["collected_at"].combine_chunks(), range(len(rows))
    by_log = _sorted(log, pa.array(row))
    begin = pc.rank(log.take(by_log), tiebreaker="dense").cast(pa.int64())
    time = pc.rank(moment.take(by_log), tiebreaker="dense").cast(pa.int64())
    # Of each log later than every time of the logs above it, so one running maximum is that of every log.
    time = pc.add(pc.multiply(begin, len(rows) + 1), time)
    is_late = pc.less(time, lag.shifted(pc.cumulative_max(time))).fill_null(False)
    return rows.filter(pc.invert(is_late.take(pc.sort_indices(by_log))))


def key_numbers(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Number the rows by key: equal keys have equal numbers."""
    numbers, bound = pa.repeat(0, rows.num_rows), 1
    for name in key:
        column = rows[name].combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        size = len(encoded.dictionary) + 1  # one for null
        if bound * size > _LARGEST:
            dense = numbers.dictionary_encode()
            numbers, bound = dense.indices.cast(pa.int64()), len(dense.dictionary)
        numbers = pc.add(pc.multiply(numbers, size), encoded.indices.cast(pa.int64()).fill_null(size - 1))
        bound *= size
    return numbers


def remembered(rows: pa.Table, reported: pa.Table, forgotten_after: int) -> pa.Table:
    """Drop what its source has left out since: a hung broker's last answer is no newest sample.

    Args:
        rows: the newest of each key.
        reported: what has come since the last time; also answers without samples say how late it is.
        forgotten_after: microseconds.
    """
    mask, moments = None, [each.select(["cluster_id", "collected_at"]) for each in (rows, reported)]
    newest_of = (
        pa.concat_tables(moments).unify_dictionaries().group_by("cluster_id").aggregate([("collected_at", "max")])
    )
    for cluster_id, moment in zip(*(newest_of[name].to_pylist() for name in newest_of.column_names), strict=True):
        other = pc.not_equal(rows["cluster_id"], cluster_id)
        kept = pc.or_(other, pc.greater_equal(rows["collected_at"], moment - forgotten_after))
        mask = kept if mask is None else pc.and_(mask, kept)
    return rows if mask is None or pc.all(mask).as_py() else rows.filter(mask)


def _is_as_above(column: pa.Array) -> pa.Array:
    return pc.equal(column, lag.shifted(column)).fill_null(False)


def _all_columns(samples: pa.Table, name: str, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """Return every column of a table: those of the samples, those computed from them where they are not, and nulls."""
    columns = dict(zip(samples.column_names, samples.columns, strict=True))
    for distance, (begin, end) in lag.DISTANCES.get(name, {}).items():
        computed = lag.distance(columns[begin], columns[end])
        columns[distance] = pc.coalesce(columns[distance], computed) if distance in columns else computed
    if name == TOPIC_SETTINGS.name:
        columns |= rules_of_topics(columns)
    nothing = (item for item in schema if item.name not in columns)
    columns |= {item.name: pa.nulls(samples.num_rows, item.type) for item in nothing}
    return {item.name: columns[item.name].cast(item.type) for item in schema}


def _in_memory(item: pa.Field) -> pa.Field:
    if pa.types.is_string(item.type):
        return pa.field(item.name, NAME)
    return pa.field(item.name, plain_type(item.type))
