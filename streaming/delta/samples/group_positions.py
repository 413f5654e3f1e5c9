"""The rule of ``contracts.group_positions`` on Arrow columns, for a million rows at once. A test compares both.

Each step of the rule is a column. What it takes of the sample before is the row above; what carries over is the last
row of the key that said it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.group_positions import MOVING, GroupPosition
from streaming.delta.samples.runs import carried, shifted, where

if TYPE_CHECKING:
    from collections.abc import Mapping

_ZERO: Final = pa.scalar(0, pa.int64())


class _Samples(NamedTuple):
    """The samples of every key in order of time, in one chunk, times in microseconds.

    Attributes:
        columns: by name.
        is_same: whether a row has the same key as the row above.
        is_known: whether a row was computed before, and keeps its position; it is the first of its key, or late.
        offset: the first offset that the group has not passed.
        is_unmoved: whether it is that of the row above.
    """

    columns: Mapping[str, pa.Array]
    is_same: pa.Array
    is_known: pa.Array
    offset: pa.Array
    is_unmoved: pa.Array

    def kept(self, name: str, computed: pa.Array) -> pa.Array:
        """Return what known rows have, and what was computed of the others."""
        return pc.if_else(self.is_known, self.columns[name], computed)

    def carried(self, name: str, computed: pa.Array) -> pa.Array:
        """Return the same; where it is null, it is that of the row above, if this has the same key."""
        values = self.kept(name, computed)
        begins = pc.or_(pc.or_(self.is_known, pc.invert(self.is_same)), values.is_valid())
        return carried(begins, values)


def with_positions(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Table:
    """Compute the positions of rows of ``group_offsets``: twin of ``group_positions.position_after``.

    Args:
        rows: samples by key, then by time, in one chunk; times are microseconds.
        is_same: whether a row has the same key as the row above.
        is_known: whether a row was computed before, and keeps its position.
    """
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    at = columns["collected_at"]
    is_same = pc.and_(is_same, pc.less_equal(pc.subtract(at, shifted(at)), MOVING).fill_null(False))
    offset = pc.coalesce(columns["committed_offset"], columns["start_offset"])
    is_unmoved = pc.and_(is_same, pc.equal(offset, shifted(offset)).fill_null(False))
    samples = _Samples(columns, is_same, is_known, offset, is_unmoved)
    for name, column in _computed(samples).items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(place), column.cast(rows.schema.field(place).type))
    return rows


def _computed(samples: _Samples) -> dict[str, pa.Array]:
    columns, is_new = samples.columns, pc.invert(samples.is_known)
    passed = pc.max_element_wise(samples.offset, columns["log_start_offset"], skip_nulls=False)
    lag, stable_lag = (_lag(samples, passed, end) for end in ("high_watermark", "last_stable_offset"))
    deleted_to = _deleted_to(samples)
    records_lost, lost_at = _lost(samples, deleted_to)
    before = shifted(samples.offset)
    is_ahead = pc.or_(before.is_null(), pc.greater(samples.offset, before).fill_null(False))
    moved = pc.and_(pc.and_(samples.is_same, is_new), pc.and_(samples.offset.is_valid(), is_ahead))
    since, end = _standing(samples, stable_lag)
    held = pc.less(columns["last_stable_offset"], columns["high_watermark"]).fill_null(False)
    was_held = samples.carried("is_transactional", where(held, held)).fill_null(False)
    computed = (
        samples.kept("lag", lag),
        samples.kept("stable_lag", stable_lag),
        _beyond(samples),
        records_lost,
        lost_at,
        deleted_to,
        samples.carried("committed_at", where(moved, columns["collected_at"])),
        samples.carried("owned_at", where(columns["member"].is_valid(), columns["collected_at"])),
        since,
        end,
        samples.kept("is_transactional", was_held),
    )
    return dict(zip(GroupPosition._fields, computed, strict=True))


def _lag(samples: _Samples, passed: pa.Array, end: str) -> pa.Array:
    distance = pc.max_element_wise(pc.subtract(samples.columns[end], passed), _ZERO, skip_nulls=False)
    counted = samples.columns["lag"]
    is_counted = pc.and_(counted.is_valid(), samples.columns[end].is_valid())
    shared = where(is_counted, pc.min_element_wise(counted, distance))
    return pc.if_else(samples.columns["committed_offset"].is_valid(), distance, shared)


def _deleted_to(samples: _Samples) -> pa.Array:
    """Return the largest log start so far; as a rule the newest, since log starts only grow."""
    values = samples.carried("deleted_to", samples.columns["log_start_offset"])
    begins = pc.or_(samples.is_known, pc.invert(samples.is_same))
    if not pc.any(pc.and_(pc.invert(begins), pc.less(values, shifted(values)).fill_null(False))).as_py():
        return values
    # Runs become ever later ranges of numbers, so that one running maximum serves all of them.
    ranks = pc.rank(values.fill_null(-1), tiebreaker="dense").cast(pa.int64())
    order = pc.add(pc.multiply(pc.cumulative_sum(begins.cast(pa.int64())), len(values) + 1), ranks)
    return carried(pc.equal(order, pc.cumulative_max(order)), values)


def _beyond(samples: _Samples) -> pa.Array:
    columns = samples.columns
    committed, end = columns["committed_offset"], columns["high_watermark"]
    before = where(samples.is_same, shifted(committed))
    is_one_clock = pc.equal(columns["source"], shifted(columns["source"])).fill_null(False)
    is_later = pc.greater_equal(columns["positions_at"], shifted(columns["collected_at"])).fill_null(False)
    is_ordered = pc.and_(pc.and_(is_one_clock, is_later), before.is_valid())
    smaller = pc.min_element_wise(committed, before, skip_nulls=False)
    exceeding = pc.max_element_wise(pc.subtract(smaller, end), _ZERO, skip_nulls=False)
    is_within = pc.less_equal(committed, end)
    claimed = pc.if_else(is_within, pc.subtract(end, end), where(is_ordered, exceeding))
    is_carried = pc.and_(claimed.is_null(), pc.and_(end.is_valid(), pc.equal(committed, before).fill_null(False)))
    values = samples.kept("beyond", claimed)
    return carried(pc.or_(samples.is_known, pc.invert(is_carried)), values)


def _lost(samples: _Samples, deleted_to: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Add up by how much log starts rose unread, since the sample of the key that said how much that was."""
    columns, is_new = samples.columns, pc.invert(samples.is_known)
    committed, log_start = columns["committed_offset"], columns["log_start_offset"]
    is_read = pc.and_(is_new, pc.and_(committed.is_valid(), log_start.is_valid()))
    distance = pc.max_element_wise(pc.subtract(log_start, committed), _ZERO, skip_nulls=False)
    first = samples.carried("records_lost", where(is_read, distance))
    has_before = pc.and_(samples.is_same, pc.and_(shifted(first).is_valid(), shifted(deleted_to).is_valid()))
    read = pc.max_element_wise(committed, where(samples.is_same, shifted(committed)), shifted(deleted_to))
    rose = pc.subtract(log_start, read)
    rise = pc.if_else(pc.and_(is_read, has_before), pc.max_element_wise(rose, _ZERO), _ZERO).fill_null(0)
    is_base = pc.or_(samples.is_known, pc.invert(has_before))
    total = pc.cumulative_sum(rise)
    base = carried(is_base, pc.if_else(samples.is_known, columns["records_lost"], where(is_read, distance)))
    lost = pc.add(base, pc.subtract(total, carried(is_base, total)))
    rose_at = where(pc.and_(pc.greater(rise, 0), pc.invert(is_base)), columns["collected_at"])
    return lost, samples.carried("lost_at", rose_at)


def _standing(samples: _Samples, stable_lag: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return since when the offset stands still below the last stable offset; a sample without one says nothing."""
    columns, is_known = samples.columns, samples.is_known
    said = pc.if_else(is_known, columns["standing_since"].is_valid(), pc.greater(stable_lag, 0))
    stands = carried(pc.or_(said.is_valid(), pc.invert(samples.is_unmoved)), said).fill_null(False)
    begins = pc.or_(is_known, pc.invert(pc.and_(samples.is_unmoved, shifted(stands))))
    since, end = (
        carried(begins, samples.kept(name, columns[value]))
        for name, value in (("standing_since", "collected_at"), ("standing_end", "last_stable_offset"))
    )
    return where(stands, since), where(stands, end)
