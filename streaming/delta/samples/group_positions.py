"""The rule of ``contracts.group_positions`` on Arrow columns, for a million rows at once. A test compares both.

Each step of the rule is a column. What it takes of the sample before is the row above; what carries over is the last
row of the key that said it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.group_positions import (
    A_MARKER,
    CLOCKS_DIFFER,
    MIXED,
    MOVING,
    REMEMBERED,
    RESTARTING,
    RESTS,
    STABLE,
    GroupPosition,
)
from streaming.delta.samples.runs import carried, shifted, where

if TYPE_CHECKING:
    from collections.abc import Mapping

_ZERO: Final = pa.scalar(0, pa.int64())


class _Samples(NamedTuple):
    """The samples of every key in order of time, in one chunk, times in microseconds.

    Attributes:
        columns: by name.
        is_same: whether a row has the same key as the row above.
        is_back: whether it has that after a silence, for which only commits and the last loss are remembered.
        is_known: whether a row was computed before, and keeps its position; it is the first of its key, or late.
        offset: the first offset that the group has not passed.
        is_unmoved: whether it is that of the row above.
    """

    columns: Mapping[str, pa.Array]
    is_same: pa.Array
    is_back: pa.Array
    is_known: pa.Array
    offset: pa.Array
    is_unmoved: pa.Array

    def kept(self, name: str, computed: pa.Array) -> pa.Array:
        """Return what known rows have, and what was computed of the others."""
        return pc.if_else(self.is_known, self.columns[name], computed)

    def carried(self, name: str, computed: pa.Array, continues: pa.Array | None = None) -> pa.Array:
        """Return the same; where it is null, it is that of the row above, if this continues it: has the same key."""
        values, continues = self.kept(name, computed), self.is_same if continues is None else continues
        begins = pc.or_(pc.or_(self.is_known, pc.invert(continues)), values.is_valid())
        return carried(begins, values)


def with_positions(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Table:
    """Compute the positions of rows of ``group_offsets``: twin of ``group_positions.position_after``.

    The rows are samples by key, then by time, in one chunk. ``is_same``: a row has the same key as the row above;
    ``is_known``: it was computed before, and keeps its position.
    """
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    at = columns["collected_at"]
    gap = pc.subtract(at, shifted(at))
    is_back = pc.and_(is_same, pc.less_equal(gap, REMEMBERED).fill_null(False))
    is_same = pc.and_(is_same, pc.less_equal(gap, MOVING).fill_null(False))
    is_back = pc.and_(is_back, pc.invert(is_same))
    offset = pc.coalesce(columns["committed_offset"], columns["start_offset"])
    is_unmoved = pc.and_(is_same, pc.equal(offset, shifted(offset)).fill_null(False))
    samples = _Samples(columns, is_same, is_back, is_known, offset, is_unmoved)
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
    since, end, rises = _standing(samples, stable_lag)
    held = pc.less(columns["last_stable_offset"], columns["high_watermark"]).fill_null(False)
    seen = pc.or_(held, columns["is_transactional"].fill_null(False))
    was_seen = samples.carried("is_transactional", where(seen, seen)).fill_null(False)
    owned_at = samples.carried("owned_at", where(columns["member"].is_valid(), columns["collected_at"]))
    continues = pc.or_(samples.is_same, pc.and_(samples.is_back, shifted(owned_at).is_null()))
    committed_at = samples.carried("committed_at", where(moved, columns["collected_at"]), continues)
    waits = pc.subtract(columns["collected_at"], shifted(since)).fill_null(0)
    waited = samples.carried("waited", where(moved, waits))
    usual_wait = where(moved, pc.min_element_wise(waited, shifted(waited), skip_nulls=False))
    is_new_position = pc.invert(pc.or_(samples.is_same, samples.is_known))
    watched_since = samples.carried("watched_since", where(is_new_position, columns["collected_at"]))
    came = pc.max_element_wise(committed_at, watched_since)
    computed = (
        samples.kept("lag", lag),
        samples.kept("stable_lag", stable_lag),
        _beyond(samples),
        records_lost,
        lost_at,
        deleted_to,
        committed_at,
        owned_at,
        since,
        end,
        samples.kept("is_transactional", was_seen),
        rises,
        _rests(samples, moved, was_seen),
        watched_since,
        samples.carried("committed_before", where(moved, shifted(committed_at)), continues),
        waited,
        samples.carried("usual_wait", usual_wait),
        samples.carried("left_at", where(_is_left(columns, owned_at), columns["collected_at"])),
        _readable_at(samples, came, pc.or_(moved, is_new_position)),
    )
    return dict(zip(GroupPosition._fields, computed, strict=True))


def _is_left(columns: Mapping[str, pa.Array], owned_at: pa.Array) -> pa.Array:
    is_away = pc.greater(pc.subtract(columns["collected_at"], owned_at), RESTARTING).fill_null(True)
    is_stable = pc.equal(columns["group_state"], STABLE).fill_null(False)
    has_left = pc.if_else(pc.greater(columns["members"], 0), is_stable, is_away)
    return pc.and_(columns["member"].is_null(), has_left).fill_null(False)


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
    return lost, samples.carried("lost_at", rose_at, pc.or_(samples.is_same, samples.is_back))


def _standing(samples: _Samples, stable_lag: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return since when the offset stands still, up to where that shows nothing, and how often more has come since.

    A sample without a last stable offset says nothing.
    """
    columns, is_known, is_unmoved = samples.columns, samples.is_known, samples.is_unmoved
    stable, ends = columns["last_stable_offset"], columns["high_watermark"]
    is_unread = pc.greater(stable_lag, 0)
    is_all_passed = pc.equal(stable_lag, 0).fill_null(False)
    # What the offset passed last: everything, of which nothing was open; or up to the first sample with more.
    is_open = pc.less(stable, ends).fill_null(False)
    passed_to = where(pc.and_(is_all_passed, pc.invert(is_open)), stable)
    begins = pc.or_(is_known, pc.or_(pc.invert(is_unmoved), is_all_passed))
    end = carried(begins, samples.kept("standing_end", passed_to))
    first_unread = pc.and_(pc.and_(is_unread.fill_null(False), pc.invert(is_known)), end.is_null())
    is_first = _first_of(first_unread, begins)
    end = carried(pc.or_(begins, is_first), pc.if_else(is_first, stable, end))
    rose = pc.and_(pc.and_(is_unread, is_unmoved), pc.greater(stable, shifted(stable)))
    rose = pc.and_(rose.fill_null(False), pc.invert(pc.or_(is_first, begins)))
    counts = where(pc.or_(is_all_passed, is_first), pa.scalar(0, pa.int64()))
    was_counted = pc.and_(is_known, columns["standing_end"].is_valid())  # null in rows of an older job
    counts = pc.if_else(was_counted, columns["standing_rises"].fill_null(0), samples.kept("standing_rises", counts))
    rises = _counted(counts, rose, pc.or_(begins, is_first))
    can_be_read = pc.or_(pc.greater(stable_lag, A_MARKER), pc.greater(stable, end).fill_null(False))
    said = pc.if_else(is_known, columns["standing_since"].is_valid(), pc.and_(is_unread, can_be_read))
    stands = carried(pc.or_(said.is_valid(), pc.invert(is_unmoved)), said).fill_null(False)
    was = pc.and_(is_unmoved, shifted(stands).fill_null(False))
    since = carried(pc.or_(is_known, pc.invert(was)), samples.kept("standing_since", columns["collected_at"]))
    return where(stands, since), end, rises


def _first_of(some: pa.Array, begins: pa.Array) -> pa.Array:
    """Return which rows are the first such ones since a run began."""
    count = pc.cumulative_sum(some.cast(pa.int64()))
    before = pc.subtract(count, some.cast(pa.int64()))
    return pc.and_(some, pc.equal(before, carried(begins, before)))


def _counted(base: pa.Array, counts: pa.Array, begins: pa.Array) -> pa.Array:
    """Add up what counts since a run began with a number."""
    total = pc.cumulative_sum(counts.cast(pa.int64()))
    return pc.add(carried(begins, base), pc.subtract(total, carried(begins, total)))


def _readable_at(samples: _Samples, came: pa.Array, is_new: pa.Array) -> pa.Array:
    """Return the first sample with a proof since an offset is there."""
    proof = samples.columns["readable_at"]
    counts = pc.greater_equal(proof, pc.add(came, CLOCKS_DIFFER)).fill_null(False)
    values = samples.kept("readable_at", where(counts, samples.columns["collected_at"]))
    begins = pc.or_(samples.is_known, is_new)
    before = carried(begins, values)
    is_first = _first_of(pc.and_(pc.and_(counts, pc.invert(begins)), before.is_null()), begins)
    return carried(pc.or_(begins, is_first), values)


def _rests(samples: _Samples, moved: pa.Array, was_seen: pa.Array) -> pa.Array:
    """Count how often the offset moved to the last stable one, up to ``RESTS``, since it moved right before it.

    The count begins again when the first transaction was seen, and ends where plain records come among them.
    """
    distance = where(moved, pc.subtract(samples.columns["last_stable_offset"], samples.offset))
    rests, is_before = (pc.equal(distance, each).fill_null(False) for each in (0, A_MARKER))
    is_first = pc.and_(was_seen, pc.invert(shifted(was_seen).fill_null(False)))
    begins = pc.or_(pc.or_(is_before, is_first), pc.or_(samples.is_known, pc.invert(samples.is_same)))
    base = pc.if_else(samples.is_known, samples.columns["rests"].fill_null(0), _ZERO)
    counted = pc.min_element_wise(
        _counted(base, pc.and_(rests, pc.invert(begins)), begins), pa.scalar(RESTS, pa.int64())
    )
    return samples.kept("rests", pc.if_else(_is_mixed(samples, was_seen), pa.scalar(MIXED, pa.int64()), counted))


def _is_mixed(samples: _Samples, was_seen: pa.Array) -> pa.Array:
    """Return whether a plain record was seen since a transaction was: a single offset, and nothing open around it."""
    stable, end = samples.columns["last_stable_offset"], samples.columns["high_watermark"]
    is_free = pc.greater_equal(stable, end).fill_null(False)
    begins = pc.or_(samples.is_known, pc.invert(samples.is_same))
    is_single = pc.equal(pc.subtract(stable, shifted(stable)), A_MARKER).fill_null(False)
    is_plain = pc.and_(pc.and_(is_single, was_seen), pc.and_(is_free, shifted(is_free).fill_null(False)))
    before = pc.and_(samples.is_known, pc.equal(samples.columns["rests"], MIXED).fill_null(False))
    return pc.greater(_counted(before.cast(pa.int64()), pc.and_(is_plain, pc.invert(begins)), begins), 0)
