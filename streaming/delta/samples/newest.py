"""Tables that keep the newest row of each key, such as replica offsets and broker metrics.

The rows are in memory, as Arrow, and without history: the next sample replaces them. Of two samples with the same time
the first stays, so repeated samples change nothing. A sample that is older than an earlier one in its log, because a
clock was set back, is left out, however the log is cut into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.slow_brokers import UNKNOWN_SPEED, BrokerSpeed, SpeedSample, after_round
from streaming.contracts.durability import TopicDurability
from streaming.contracts.group_positions import REMEMBERED
from streaming.contracts.identifiers import SECOND
from streaming.contracts.sample_tables import BROKER_SPEED, KEPT_AT, TOPIC_SETTINGS
from streaming.contracts.slopes import BYTES_WINDOW, LAG_WINDOW
from streaming.contracts.topic_roles import consequence, role_of
from streaming.delta.log.arrow_types import NAME
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import plain_type
from streaming.delta.samples.group_positions import with_positions
from streaming.delta.samples.runs import carried, row_numbers, shifted, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.columns import Table

BEHIND_SINCE: Final = "behind_since"
DELETED_TO: Final = "deleted_to"
_LARGEST: Final = 1 << 62


class Newest:
    """The newest rows of a table in memory, for all clusters or for some."""

    def __init__(self, definition: Table, rows: pa.Table) -> None:
        """Begin with the rows of the table; times are microseconds."""
        self.definition = definition
        schema = arrow_schema(definition)
        self._schema = pa.schema([_in_memory(item) for item in schema])
        self._plain = pa.schema([pa.field(item.name, plain_type(item.type)) for item in schema])
        self._on_disk = pa.schema([
            memory.with_nullable(item.nullable) if pa.types.is_dictionary(memory.type) else item
            for item, memory in zip(schema, self._schema, strict=True)
        ])  # fmt: skip
        self._rows = rows.select(self._schema.names).cast(self._schema)
        self._left = self._rows.slice(0, 0)  # positions that another block, or coordinator, may have, or a later one

    def __len__(self) -> int:
        """Count the rows."""
        return int(self._rows.num_rows)

    @property
    def rows(self) -> pa.Table:
        """The rows, times in microseconds."""
        return self._rows.cast(self._plain)

    @property
    def numbered(self) -> pa.Table:
        """The rows, times in microseconds, except that names are numbered."""
        return self._rows

    @property
    def on_disk(self) -> pa.Table:
        """The rows in the schema of the table, except that names are numbered."""
        return self._rows.cast(self._on_disk)

    @property
    def sources(self) -> set[str]:
        """The sources of the rows."""
        return set(pc.unique(self._rows["source"]).to_pylist())

    def forget(self, sources: Iterable[str]) -> None:
        """Drop the rows of sources; the next write leaves them out."""
        is_theirs = pc.is_in(self._rows["source"].cast(pa.string()), pa.array([*sources], pa.string()))
        self._rows, self._left = self._rows.filter(pc.invert(is_theirs)), self._rows.slice(0, 0)

    def take(self, samples: pa.Table) -> None:
        """Apply samples, with times in microseconds; missing columns are null."""
        reported = self.reported(samples)
        rows = self._merged(reported)
        self._rows = remembered(rows, reported, self.definition.forgotten_after * SECOND)
        if len(self) < rows.num_rows:
            if DELETED_TO in self._schema.names:
                forgotten = rows.filter(pc.invert(_is_in(rows, self._rows, self.definition.key)))
                self._left = pa.concat_tables([self._left, forgotten]).unify_dictionaries().combine_chunks()
            self._rows = self._rows.cast(self._plain).cast(self._schema)  # drops the names of dropped rows

    def reported(self, samples: pa.Table) -> pa.Table:
        """Return samples with the columns of the rows, as if each were the first of its key."""
        return pa.table(_all_columns(samples, self.definition.name, self._schema), schema=self._schema)

    def _merged(self, reported: pa.Table) -> pa.Table:
        """Return the newest row of each key that still exists."""
        key, reporter = self.definition.key, self.definition.reporter
        if not reporter:
            return merged(self._rows, reported, self.definition)
        samples = reported.filter(reported[self.definition.sampled_by].is_valid())
        if DELETED_TO in self._schema.names:
            return self._with_positions(samples, reported)
        rows = newest(self._rows, samples, key) if samples.num_rows else self._rows
        return without_gone(rows, reported, self.definition)

    def _with_positions(self, samples: pa.Table, reported: pa.Table) -> pa.Table:
        """Return the newest rows; a group that moves to another coordinator continues with the position that it had."""
        key, left = self.definition.key, self._left
        before = pa.concat_tables([self._rows, left]).unify_dictionaries().combine_chunks() if len(left) else self._rows
        rows = newest(before, samples, key) if len(samples) else before
        if len(left):
            is_left = _is_in(rows, left, [*key, "collected_at"])
            left, rows = rows.filter(is_left), rows.filter(pc.invert(is_left))
        present = without_gone(rows, reported, self.definition)
        if len(present) < len(rows):
            gone = rows.filter(pc.invert(_is_in(rows, present, key)))
            if len(marks := ended(reported, self.definition)):
                gone = gone.filter(pc.invert(_is_in(gone, marks, ["cluster_id", self.definition.kept_by])))
            left = pa.concat_tables([left, gone]).unify_dictionaries().combine_chunks()
        self._left = remembered(left, reported, REMEMBERED) if len(left) else left
        return without_replaced(present)


def _is_in(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return which rows have the key of another row."""
    both = pa.concat_tables([rows.select(key), others.select(key)]).unify_dictionaries()
    numbers = key_numbers(both, key)
    return pc.is_in(numbers[: len(rows)], value_set=numbers[len(rows) :])


def without_gone(rows: pa.Table, reported: pa.Table, definition: Table) -> pa.Table:
    """Drop the rows that a newer answer of their reporter leaves out and does not keep; without a reporter a row stays.

    ``reported`` has answers without samples as well, and what answers keep.
    """
    reporter = definition.reporter
    if definition.kept_by:
        rows = with_kept(rows, reported, definition)
    answers = pa.concat_tables([rows, reported]).unify_dictionaries().combine_chunks()
    number, moment = key_numbers(answers, ["cluster_id", "source", reporter]), answers["collected_at"].combine_chunks()
    last = pa.table({"number": number, "moment": moment}).group_by("number").aggregate([("moment", "max")])
    place = pc.index_in(number, last["number"].combine_chunks())
    there = pc.max_element_wise(moment, answers[KEPT_AT].combine_chunks()) if definition.kept_by else moment
    is_there = pc.greater_equal(there, last["moment_max"].combine_chunks().take(place))
    stays = pc.or_(is_there, answers[reporter].combine_chunks().is_null()).slice(0, rows.num_rows)
    return rows if pc.all(stays).as_py() else rows.filter(stays)


def without_replaced(rows: pa.Table) -> pa.Table:
    """Drop the rows of topics that were created again under their names: their reporter may not be there to say so."""
    of_topic, of_id = (key_numbers(rows, ["cluster_id", name]) for name in ("topic", "topic_id"))
    if pc.count_distinct(of_id).as_py() <= pc.count_distinct(of_topic).as_py():
        return rows
    samples = pa.table({"topic": of_topic, "id": of_id, "at": rows["collected_at"].combine_chunks()})
    by_id = samples.group_by(["topic", "id"]).aggregate([("at", "max")])
    in_order = by_id.sort_by([("at_max", "descending")])
    newest_ids = in_order.group_by("topic", use_threads=False).aggregate([("id", "first")])
    return rows.filter(pc.is_in(of_id, value_set=newest_ids["id_first"].combine_chunks()))


def with_kept(rows: pa.Table, reported: pa.Table, definition: Table) -> pa.Table:
    """Note in rows the time of newer answers that keep them; other blocks of such an answer may come with the next."""
    by = ["cluster_id", "source", definition.reporter, definition.kept_by]
    marks = reported.filter(_is_mark(reported, definition, is_ended=False))
    if not len(marks):
        return rows
    numbers = key_numbers(pa.concat_tables([rows.select(by), marks.select(by)]).unify_dictionaries(), by)
    at = marks["collected_at"].combine_chunks()
    newest_marks = pa.table({"number": numbers[len(rows) :], "at": at}).group_by("number").aggregate([("at", "max")])
    place = pc.index_in(numbers[: len(rows)], value_set=newest_marks["number"].combine_chunks())
    at, before = newest_marks["at_max"].combine_chunks().take(place), rows[KEPT_AT].combine_chunks()
    is_newer = pc.greater(at, rows["collected_at"].combine_chunks()).fill_null(False)
    kept_at = pc.if_else(is_newer, pc.max_element_wise(at, before), before)
    return rows.set_column(rows.column_names.index(KEPT_AT), rows.schema.field(KEPT_AT), kept_at)


def ended(reported: pa.Table, definition: Table) -> pa.Table:
    """Return the rows that name groups of which what their answer leaves out is gone."""
    return reported.filter(_is_mark(reported, definition, is_ended=True))


def _is_mark(reported: pa.Table, definition: Table, *, is_ended: bool) -> pa.ChunkedArray:
    """Return which rows name what an answer keeps, or what it ends."""
    is_mark = pc.and_(reported[definition.sampled_by].is_null(), reported[definition.kept_by].is_valid())
    if "group_state" not in reported.column_names:
        return pc.and_(is_mark, not is_ended)
    of_mark = reported["group_state"].is_valid()
    return pc.and_(is_mark, of_mark if is_ended else pc.invert(of_mark))


def merged(current: pa.Table, reported: pa.Table, definition: Table) -> pa.Table:
    """Return the newest row of each key (:func:`newest`); broker speeds are compared round by round."""
    if definition.name == BROKER_SPEED.name:
        return with_rounds(current, reported, definition.forgotten_after * SECOND)
    return newest(current, reported, definition.key)


def newest(current: pa.Table, reported: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the newest row of each key; of rows with one time the first, and current ones before reported ones."""
    rows = pa.concat_tables([current, reported]).unify_dictionaries().combine_chunks()
    number, moment, row = _by_key_and_time(rows, key)
    if pc.any(pc.and_(_is_as_above(number), pc.less(row, shifted(row)).fill_null(False))).as_py():
        rows = _without_late(rows, key)
        number, moment, row = _by_key_and_time(rows, key)
    again = pc.and_(_is_as_above(number), _is_as_above(moment))
    if pc.any(again).as_py():
        number, row = number.filter(pc.invert(again)), row.filter(pc.invert(again))
    rows = rows.take(row).combine_chunks()
    is_same, is_known = _is_as_above(number), pc.less(row, current.num_rows)
    if BEHIND_SINCE in rows.column_names:
        since = behind_since(rows, is_same, is_known)
        rows = rows.set_column(rows.column_names.index(BEHIND_SINCE), BEHIND_SINCE, since)
    if DELETED_TO in rows.column_names:
        rows = with_positions(rows, is_same, is_known)
    rows = with_slopes(rows, is_same, is_known)
    return rows.filter(pa.concat_arrays([pc.invert(is_same).slice(1), pa.array([True])]))


def _by_key_and_time(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return key number, time and index of each row, stably sorted by key and time."""
    number, moment = key_numbers(rows, key), rows["collected_at"].combine_chunks()
    order = _sorted(number, moment)
    return number.take(order), moment.take(order), order


def _sorted(first: pa.Array, second: pa.Array) -> pa.Array:
    table = pa.table({"first": first, "second": second})
    return pc.sort_indices(table, [("first", "ascending"), ("second", "ascending")]).cast(pa.int64())


def _without_late(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Leave out each row that is older than an earlier row of its key and source."""
    log, moment, row = key_numbers(rows, [*key, "source"]), rows["collected_at"].combine_chunks(), range(len(rows))
    by_log = _sorted(log, pa.array(row))
    begin = pc.rank(log.take(by_log), tiebreaker="dense").cast(pa.int64())
    time = pc.rank(moment.take(by_log), tiebreaker="dense").cast(pa.int64())
    # Times of each log become later than all those of the logs above, so one running maximum serves all logs.
    time = pc.add(pc.multiply(begin, len(rows) + 1), time)
    is_late = pc.less(time, shifted(pc.cumulative_max(time))).fill_null(False)
    return rows.filter(pc.invert(is_late.take(pc.sort_indices(by_log))))


def key_numbers(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return a number per row, which is equal for equal keys."""
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
    """Drop rows that are too old, such as the last answer of a hung broker.

    ``reported`` has answers without samples as well, which give the present time of their cluster.
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
    return pc.equal(column, shifted(column)).fill_null(False)


def _all_columns(samples: pa.Table, name: str, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    """Return every column of a table: from the samples, computed from them, or null."""
    columns = dict(zip(samples.column_names, samples.columns, strict=True))
    for distance, (begin, end) in DISTANCES.get(name, {}).items():
        columns[distance] = lag_distance(columns[begin], columns[end])
    if name == TOPIC_SETTINGS.name:
        columns |= rules_of_topics(columns)
    nothing = (item for item in schema if item.name not in columns)
    columns |= {item.name: pa.nulls(samples.num_rows, item.type) for item in nothing}
    return {item.name: columns[item.name].cast(item.type) for item in schema}


def _in_memory(item: pa.Field) -> pa.Field:
    if pa.types.is_string(item.type):
        return pa.field(item.name, NAME)
    return pa.field(item.name, plain_type(item.type))


# Rows of ``broker_speed``: the newest round of samples, and what ``changes.advice.slow_brokers`` concludes from it.
#
# The rows contain its memory of earlier rounds, so it continues after a restart.


if TYPE_CHECKING:
    Row = dict[str, Any]
    Rows = dict[int, Row]
    """The rows of one cluster, by broker."""

TAKES_OVER_AFTER: Final = 30_000_000
"""Microseconds until another source may add rounds: seen from elsewhere, other response times are usual."""
# Field of a conclusion -> column.
_COLUMN_OF: Final = {
    "is_slow": "is_slow",
    "is_overloaded": "is_overloaded",
    "scores": "signal_scores",
    "since": "slow_since",
    "reasons": "slow_reasons",
    "responses": "response_history",
    "behind": "behind_history",
    "appends": "append_history",
}


def with_rounds(current: pa.Table, reported: pa.Table, forgotten_after: int) -> pa.Table:
    """Apply rounds of samples to rows, one per broker; a round that is not newer changes nothing.

    After ``forgotten_after`` microseconds without a sample a broker starts over.
    """
    clusters: dict[str, Rows] = {}
    for row in current.to_pylist():
        clusters.setdefault(row["cluster_id"], {})[row["broker"]] = row
    for (cluster_id, source, at), samples in _rounds(reported.to_pylist()):
        rows = clusters.setdefault(cluster_id, {})
        last = max(rows.values(), key=lambda row: int(row["collected_at"]), default=None)
        if last is None or at > last["collected_at"] + (0 if source == last["source"] else TAKES_OVER_AFTER):
            remembered = {broker: row for broker, row in rows.items() if at - row["collected_at"] <= forgotten_after}
            clusters[cluster_id] = remembered | _concluded(remembered, samples, at)
    merged = [row for rows in clusters.values() for row in rows.values()]
    return pa.Table.from_pylist(merged, schema=current.schema)


def _rounds(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str, int], Rows]]:
    """Yield each round, as cluster, source, time and samples; a broker has one sample in each.

    Two rounds may have one time, because a clock was set back: they are two, as if they had come in two batches.
    """
    key: tuple[str, str, int] | None = None
    samples: Rows = {}
    for row in rows:
        of = row["cluster_id"], row["source"], row["collected_at"]
        if key is not None and (of != key or row["broker"] in samples):
            yield key, samples
            samples = {}
        key = of
        samples[row["broker"]] = row
    if key is not None:
        yield key, samples


def _concluded(rows: Rows, samples: Rows, at: Any) -> Rows:  # noqa: ANN401 - microseconds, out of Arrow
    before = {broker: _speed(row) for broker, row in rows.items()}
    measured = {
        broker: SpeedSample(**{name: row[name] for name in SpeedSample._fields}) for broker, row in samples.items()
    }
    speeds: Mapping[Any, BrokerSpeed] = after_round(before, measured, at)  # type: ignore[arg-type]
    return {
        broker: {
            **row,
            "slow_score": speeds[broker].score,
            **{column: getattr(speeds[broker], name) for name, column in _COLUMN_OF.items()},
        }
        for broker, row in samples.items()
    }


def _speed(row: Row) -> BrokerSpeed:
    stored = {name: row[column] for name, column in _COLUMN_OF.items()}
    for name, empty in UNKNOWN_SPEED._asdict().items():
        stored[name] = tuple(stored[name] or ()) if isinstance(empty, tuple) else stored[name]
    return BrokerSpeed(**stored)


# The rule of ``contracts.slopes`` on Arrow columns, folded over the samples of each key. A property test compares both.


class SlopeColumns(NamedTuple):
    """The columns of one slope, and of the time left at that pace.

    Attributes:
        value: what is measured.
        window: microseconds.
        per_second, since, since_value: the slope.
        seconds: time left.
        left: what ``per_second`` uses up if ``is_filling``, else its negative.
    """

    value: str
    window: int
    per_second: str
    since: str
    since_value: str
    seconds: str
    left: str
    is_filling: bool


_LAG: Final = SlopeColumns(
    "lag", LAG_WINDOW, "lag_per_second", "lag_measured_since", "lag_measured_from",
    seconds="seconds_until_caught_up", left="lag", is_filling=False,
)  # fmt: skip
_BYTES: Final = SlopeColumns(
    "used_bytes", BYTES_WINDOW, "bytes_per_second", "bytes_measured_since", "bytes_measured_from",
    seconds="seconds_until_full", left="usable_bytes", is_filling=True,
)  # fmt: skip


def with_slopes(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Table:
    """Compute the slopes that a table has columns for.

    The rows are samples by key, then by time, in one chunk. ``is_same``: a row has the same key as the row above;
    ``is_known``: it was computed before, and keeps its slope.
    """
    for columns in (_LAG, _BYTES):
        if columns.per_second in rows.column_names:
            for name, column in _slope(rows, columns, is_same, is_known):
                rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _slope(
    rows: pa.Table, columns: SlopeColumns, is_same: pa.Array, is_known: pa.Array
) -> Iterator[tuple[str, pa.Array]]:
    """Twin of ``slopes.slope_after``: yield the columns."""
    at, value = (rows[name].combine_chunks() for name in ("collected_at", columns.value))
    stored = {name: rows[name].combine_chunks() for name in (columns.since, columns.since_value, columns.per_second)}
    exists, window = value.is_valid(), pc.divide(at, columns.window)
    follows = pc.and_(pc.and_(is_same, pc.invert(is_known)), pc.and_(exists, shifted(exists)))
    is_first = pc.invert(pc.and_(follows, pc.equal(window, shifted(window)).fill_null(False)))
    since = carried(is_first, pc.if_else(is_known, pc.coalesce(stored[columns.since], at), at))
    since_value = carried(is_first, pc.if_else(is_known, pc.coalesce(stored[columns.since_value], value), value))
    elapsed = pc.subtract(at, shifted(since))
    is_measured = pc.and_(follows, pc.greater_equal(elapsed, columns.window // 2).fill_null(False))
    moved = pc.subtract(value, shifted(since_value)).cast(pa.float64(), safe=False)
    measured = pc.divide(moved, pc.divide(elapsed.cast(pa.float64()), float(SECOND)))
    before = pc.if_else(is_known, stored[columns.per_second], pa.scalar(None, pa.float64()))
    per_second = carried(pc.or_(is_measured, pc.invert(follows)), pc.if_else(is_measured, measured, before))
    yield columns.since, where(exists, since)
    yield columns.since_value, where(exists, since_value)
    yield columns.per_second, where(exists, per_second)
    yield columns.seconds, _seconds_left(rows[columns.left].combine_chunks(), per_second, is_filling=columns.is_filling)


def _seconds_left(left: pa.Array, per_second: pa.Array, *, is_filling: bool) -> pa.Array:
    """Twin of ``slopes.seconds_left``."""
    pace = per_second if is_filling else pc.negate(per_second)
    lasts = pc.and_(pc.greater(left, 0).fill_null(False), pc.greater(pace, 0).fill_null(False))
    return where(lasts, pc.divide(left.cast(pa.float64(), safe=False), pace))


# The lag rules of ``contracts.health`` on Arrow columns, for a million rows at once. A property test compares both.


# Column -> (begin, end): its value is end - begin, at least 0.
DISTANCES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "replica_offsets": {"lag": ("log_end_offset", "leader_log_end_offset")},
    "log_directories": {"used_bytes": ("usable_bytes", "total_bytes")},
}


def lag_distance(begin: pa.Array, end: pa.Array) -> pa.Array:
    """Twin of ``health.lag``."""
    return pc.max_element_wise(pc.subtract(end, begin), pa.scalar(0, pa.int64()), skip_nulls=False)


def behind_since(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Array:
    """Return ``behind_since`` of each row: twin of ``health.behind_since``, folded over the samples of every replica.

    The rows are samples by replica, then by time, in one chunk; ``is_same`` and ``is_known`` as of :func:`with_slopes`.
    """
    columns = {item.name: rows[item.name].combine_chunks() for item in rows.schema}
    is_behind = pc.greater(columns["lag"], 0).fill_null(False)
    was_behind = pc.and_(is_same, shifted(is_behind))
    had_all = pc.greater_equal(columns["log_end_offset"], shifted(columns["leader_log_end_offset"]))
    begins = pc.or_(is_known, pc.if_else(was_behind, had_all.fill_null(False), pa.scalar(True)))
    begun = pc.cumulative_max(pc.if_else(begins, row_numbers(rows.num_rows), pa.scalar(0, pa.int64())))
    since = pc.if_else(is_known, columns["behind_since"], columns["collected_at"])
    return pc.if_else(is_behind, since.take(begun), pa.scalar(None, since.type))


# Rules of ``contracts.topic_roles`` and ``contracts.durability`` as Arrow columns of ``topic_settings``.


_DEPENDS_ON: Final = ("topic", "replication_factor", "min_isr", "allows_unclean_election", "cleanup_policy")


def rules_of_topics(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
    """Return the columns of ``topic_settings`` that follow from others."""
    rows = zip(*(columns[name].to_pylist() for name in _DEPENDS_ON), strict=True)
    topics = [TopicDurability(*row) for row in rows]
    roles = [role_of(topic.topic) for topic in topics]
    return {
        "role": pa.chunked_array([pa.array(roles, pa.string())]),
        "consequence": pa.chunked_array([pa.array([role and consequence(role) for role in roles], pa.string())]),
        "weaknesses": pa.chunked_array([pa.array([topic.weaknesses() for topic in topics], pa.list_(pa.string()))]),
    }
