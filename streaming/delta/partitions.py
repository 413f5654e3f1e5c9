"""Rows of ``partition_state``, in Arrow all the way: newest ``after`` of each key, and rows as states again.

What grows with the cluster is moved by Arrow, which leaves Python free meanwhile. Equal values of a million rows become
one Python object each. Knows Arrow, the definitions and the state.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.change import Subject
from streaming.changes.state import PartitionState
from streaming.contracts.columns import PARTITION_STATE
from streaming.contracts.tables import AS_OF, PARTITION_STATE_TABLE
from streaming.delta.definitions import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.state import ClusterState

_SCHEMA: Final = arrow_schema(PARTITION_STATE_TABLE)
_KEY: Final = list(PARTITION_STATE_TABLE.key)
_OF_STATE: Final = frozenset(column.name for column in PARTITION_STATE)
_AS_OF: Final = AS_OF[0].name
_ROW: Final = "row"


def partitions_told(changes: pa.Table, version: int) -> pa.Table:
    """Give what each change of a partition left behind, in order, as rows of ``partition_state``."""
    told = changes.filter(pc.equal(changes["subject"], Subject.PARTITION))
    columns = [_column(name, told, version) for name in _SCHEMA.names]
    return pa.Table.from_arrays(columns, names=_SCHEMA.names).cast(_SCHEMA)


def _column(name: str, told: pa.Table, version: int) -> Any:  # noqa: ANN401 - pyarrow ships no types
    if name == _AS_OF:
        return pa.repeat(pa.scalar(version, pa.int64()), told.num_rows)
    return pc.struct_field(told["after"], name) if name in _OF_STATE else told[name]


def newest_partitions(known: pa.Table, told: pa.Table, version: int) -> pa.Table:
    """Lay the newest row of each key over what was known.

    Args:
        known: one row a key.
        told: later rows, the newest of a key last.
        version: the version of ``partition_changes`` that all rows are true of then.
    """
    last = _numbered(told).group_by(_KEY).aggregate([(_ROW, "max")])
    replaced = _numbered(known).join(last.select(_KEY), keys=_KEY, join_type="left anti")[_ROW]
    rows = pa.concat_tables([known.take(replaced), told.take(last[f"{_ROW}_max"])])
    place = rows.schema.get_field_index(_AS_OF)
    return rows.set_column(place, _SCHEMA.field(_AS_OF), pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))


def without_tombstones(rows: pa.Table, clusters: Iterable[ClusterState]) -> pa.Table:
    """Leave out the tombstones whose time is over (``ClusterState.has_expired``)."""
    for cluster in clusters:
        if cluster.tombstones_until is not None:
            until = pa.scalar(cluster.tombstones_until, pa.timestamp("us", tz="UTC"))
            gone = pc.and_(rows["is_deleted"], pc.less_equal(rows["changed_at"], until))
            gone = pc.and_(gone, pc.equal(rows["cluster_id"], cluster.cluster_id))
            rows = rows.filter(pc.invert(pc.fill_null(gone, fill_value=False)))
    return rows


def _numbered(rows: pa.Table) -> pa.Table:
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return rows.select(_KEY).append_column(_ROW, pc.subtract(pc.cumulative_sum(ones), 1))


def partitions_of(rows: pa.Table) -> Iterator[PartitionState]:
    """Read rows as states.

    Args:
        rows: columns of ``partition_state``, times as microseconds.
    """
    told = [item for item in fields(PartitionState) if item.name in rows.schema.names]
    names = [item.name for item in told]
    defaults = {item.name: item.default for item in told if item.default not in {MISSING, None}}
    columns = (_values(rows[name], defaults.get(name)) for name in names)
    for values in zip(*columns, strict=True):
        yield PartitionState(**dict(zip(names, values, strict=True)))


def _values(column: pa.ChunkedArray, default: Any) -> list[Any]:  # noqa: ANN401 - a column of any type
    """Give the values of a column, equal ones as one object; lists become tuples."""
    if pa.types.is_list(column.type):
        shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        tuples = (default if value is None else tuple(value) for value in column.to_pylist())
        return [value if value is None else shared.setdefault(value, value) for value in tuples]
    values: list[Any] = []
    for chunk in column.dictionary_encode().chunks:
        distinct = [default if value is None else value for value in chunk.dictionary.to_pylist()]
        values += [default if index is None else distinct[index] for index in chunk.indices.to_pylist()]
    return values
