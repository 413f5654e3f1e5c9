"""Tally of rows of ``partition_state``, counted column by column, without an object per partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.state import COUNTS, EPISODES, SECONDS, UNKNOWN, PartitionState
from streaming.contracts.tally import MICROS_OF_TOTALS, Shape
from streaming.delta.state import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.tally import Tally

_CLUSTER: Final = "cluster_id"
# The begins of 5,200 open episodes would be too many for 64 bits: each is 1.8e15 microseconds.
_ANY_SUM: Final = pa.decimal128(38, 0)
_STORED: Final = tuple(name for name in Shape._fields if name != "is_first")


def add_rows(tally: Tally, rows: pa.Table) -> None:
    """Add partitions to a tally as if each was added alone."""
    for cluster_id, shapes, totals in counted(rows):
        tally.add_counted(cluster_id, shapes, totals)


def counted(rows: pa.Table) -> Iterator[tuple[ClusterId, Counter[tuple[Any, ...]], dict[str, int]]]:
    """Yield of each cluster how many partitions have each shape, and the sums of their totals, as a tally adds them."""
    totals = dict(_totals(rows))
    for cluster_id, shapes in _shapes(rows).items():
        yield cluster_id, shapes, totals[cluster_id]


def _shapes(rows: pa.Table) -> dict[ClusterId, Counter[tuple[Any, ...]]]:
    """Count the partitions of each shape."""
    keys = pa.table({
        _CLUSTER: rows[_CLUSTER],
        "is_first": pc.equal(rows["partition"], 0),
        **{name: _hashable(rows[name].combine_chunks()) for name in _STORED},
    })  # fmt: skip
    row = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)), 1)
    groups = keys.append_column("row", row).group_by(keys.column_names).aggregate([("row", "min"), ("row", "count")])
    firsts = rows.take(groups["row_min"])
    columns = fields_of(PartitionState, firsts, _STORED)
    shapes = zip(groups["is_first"].to_pylist(), *(columns[name] for name in _STORED), strict=True)
    counts: defaultdict[ClusterId, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for cluster_id, shape, count in zip(
        groups[_CLUSTER].to_pylist(), shapes, groups["row_count"].to_pylist(), strict=True
    ):
        counts[cluster_id][shape] += count
    return counts


def _hashable(column: pa.Array) -> pa.Array:
    """Return a column that Arrow can group by: for lists, the bytes of their values."""
    if not pa.types.is_list(column.type):
        return column
    width = column.type.value_type.bit_width // 8
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.multiply(pc.cumulative_sum(lengths), width)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    values = pa.concat_arrays([column.flatten()])  # a copy, so that its buffer begins with the first value
    lists = pa.Array.from_buffers(pa.large_binary(), len(column), [None, offsets.buffers()[1], values.buffers()[1]])
    return pc.if_else(column.is_valid(), lists, None)  # no list is not an empty one


def _totals(rows: pa.Table) -> Iterator[tuple[ClusterId, dict[str, int]]]:
    """Yield, per cluster, the sums of the totals, under the names of a tally."""
    columns = {name: rows[name] for name in COUNTS}
    columns |= {
        name: pc.round(pc.multiply(rows[name], pa.scalar(float(MICROS_OF_TOTALS)))).cast(pa.int64()) for name in SECONDS
    }
    unobserved = pc.fill_null(rows["unobserved_micros"], 0)
    columns |= {
        f"{name}_seconds/since": pc.subtract(rows[f"{name}_since"].cast(pa.int64()), unobserved) for name in EPISODES
    }
    columns |= {f"{UNKNOWN}/since": pc.if_else(rows["is_deleted"], 0, unobserved)}
    columns = {name: column.cast(_ANY_SUM) for name, column in columns.items()}
    sums = [(name, "sum") for name in columns]
    open_ones = [(f"{name}_seconds/since", "count") for name in EPISODES]
    by_cluster = pa.table({_CLUSTER: rows[_CLUSTER], **columns}).group_by(_CLUSTER).aggregate([*sums, *open_ones])
    for row in by_cluster.to_pylist():
        totals = {name: int(row[f"{name}_sum"] or 0) for name in columns}
        totals |= {f"{name}_seconds/open": row[f"{name}_seconds/since_count"] for name in EPISODES}
        yield row[_CLUSTER], totals
