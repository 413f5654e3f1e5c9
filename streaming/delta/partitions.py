"""Rows of ``partition_state``, computed in Arrow: the newest ``after`` of each key replaces the row of the table.

What grows with the cluster is processed by Arrow, which releases Python's interpreter lock meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.events import Subject
from streaming.contracts.state import PARTITION_STATE
from streaming.contracts.tables import AS_OF, PARTITION_STATE_TABLE
from streaming.delta.arrow_values import last_of_each, numbered
from streaming.delta.definitions import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.state import ClusterState

_SCHEMA: Final = arrow_schema(PARTITION_STATE_TABLE)
_KEY: Final = list(PARTITION_STATE_TABLE.key)
_OF_STATE: Final = frozenset(column.name for column in PARTITION_STATE)
_AS_OF: Final = AS_OF[0].name


def states_after(changes: pa.Table, version: int) -> pa.Table:
    """Return the state that each change of a partition left behind, in order, as rows of ``partition_state``."""
    of_partitions = changes.filter(pc.equal(changes["subject"], Subject.PARTITION))
    columns = [_column(name, of_partitions, version) for name in _SCHEMA.names]
    return pa.Table.from_arrays(columns, names=_SCHEMA.names).cast(_SCHEMA)


def _column(name: str, changes: pa.Table, version: int) -> Any:  # noqa: ANN401 - pyarrow ships no types
    if name == _AS_OF:
        return pa.repeat(pa.scalar(version, pa.int64()), changes.num_rows)
    return pc.struct_field(changes["after"], name) if name in _OF_STATE else changes[name]


def newest_partitions(before: pa.Table, after: pa.Table, version: int) -> pa.Table:
    """Replace rows by the newest row of their key.

    Args:
        before: one row per key.
        after: later rows, the newest of a key last.
        version: the version of ``partition_changes`` up to which all rows are computed then.
    """
    last = last_of_each(after, _KEY)
    kept = numbered(before, _KEY).join(last.select(_KEY), keys=_KEY, join_type="left anti")["row"]
    rows = pa.concat_tables([before.take(kept), after.take(last["row"])])
    place = rows.schema.get_field_index(_AS_OF)
    return rows.set_column(place, _SCHEMA.field(_AS_OF), pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))


def without_tombstones(rows: pa.Table, clusters: Iterable[ClusterState]) -> pa.Table:
    """Leave out the tombstones that their clusters have dropped (``ClusterState.has_expired``)."""
    for cluster in clusters:
        if cluster.tombstones_until is not None:
            until = pa.scalar(cluster.tombstones_until, pa.timestamp("us", tz="UTC"))
            gone = pc.and_(rows["is_deleted"], pc.less_equal(rows["changed_at"], until))
            gone = pc.and_(gone, pc.equal(rows["cluster_id"], cluster.cluster_id))
            rows = rows.filter(pc.invert(pc.fill_null(gone, fill_value=False)))
    return rows
