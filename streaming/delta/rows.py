"""Changes as rows of ``partition_changes``, and rows as state again. The two directions of one projection."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from streaming.changes.change import Change, Subject
from streaming.changes.state import (
    BrokerState,
    ClusterState,
    ConfigKey,
    MinIsr,
    PartitionState,
    ReplicationState,
    SourceState,
)
from streaming.contracts.columns import (
    BROKER_STATE,
    CLUSTER_STATE,
    OCCURRENCE,
    PARTITION_IDENTITY,
    PARTITION_STATE,
    SOURCE_STATE,
)
from streaming.contracts.observations import Authority, ConfigOrigin
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import arrow_schema
from streaming.delta.partitions import partitions_of, partitions_told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.changes.change import Event

EPOCH: Final = dt.date(1970, 1, 1)
MICROS_A_DAY: Final = 86_400_000_000
_SCHEMA: Final = arrow_schema(PARTITION_CHANGES)
_STATE_COLUMNS: Final = {
    PartitionState: PARTITION_STATE,
    BrokerState: BROKER_STATE,
    ClusterState: CLUSTER_STATE,
    SourceState: SOURCE_STATE,
}


def day(micros: int) -> dt.date:
    """Give the UTC day of a moment."""
    return EPOCH + dt.timedelta(days=micros // MICROS_A_DAY)


def changes_to_arrow(changes: Iterable[Change]) -> pa.Table:
    """Write changes as rows of ``partition_changes``, in their order."""
    rows = list(changes)
    return pa.Table.from_arrays([_column(field, rows) for field in _SCHEMA], schema=_SCHEMA)


def _column(field: pa.Field, rows: Sequence[Change]) -> pa.Array:
    """Write one column: column by column costs a tenth of row by row."""
    if field.name in _STATES:
        return _states([getattr(change, field.name) for change in rows], field.type)
    if field.name in _OF_CHANGE:
        return pa.array([_OF_CHANGE[field.name](change) for change in rows], field.type)
    if field.name in _OF_OBSERVATION:
        return pa.array([getattr(change.observation, field.name) for change in rows], field.type)
    return pa.array([getattr(change, field.name) for change in rows], field.type)


def _states(states: Sequence[Any], kind: pa.StructType) -> pa.Array:
    """Write states as structs, null where there is none."""
    present = [state for state in states if state is not None]
    fields = list(kind)
    arrays = [pa.array([getattr(state, field.name, None) for state in present], field.type) for field in fields]
    numbers = itertools.count()
    return pa.StructArray.from_arrays(arrays, fields=fields).take(
        pa.array([None if state is None else next(numbers) for state in states], pa.int64())
    )


def _of_partition(name: str) -> Callable[[Change], Any]:
    return lambda change: None if change.after is None else getattr(change.after, name)


def _event(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event": event.event,
        "event_broker": event.event_broker,
        "detail": event.detail,
    }


def state_row(state: PartitionState | BrokerState | ClusterState | SourceState | None) -> dict[str, Any] | None:
    """Project a state on its columns."""
    if state is None:
        return None
    return {column.name: getattr(state, column.name, None) for column in _STATE_COLUMNS[type(state)]}


def _cluster_row(change: Change) -> dict[str, Any] | None:
    row = state_row(change.cluster_after)
    if row is not None:
        row["topic_min_isr"] = min_isr_rows(change.min_isr)
    return row


_STATES: Final = frozenset({"before", "after", "broker_after", "source_after"})
_OF_OBSERVATION: Final = frozenset(
    {"cluster_id", "cluster", "authority", "sequence", *(column.name for column in OCCURRENCE)}
)
_OF_CHANGE: Final[Mapping[str, Callable[[Change], Any]]] = {
    "date": lambda change: day(change.observation.occurred_not_after),
    **{column.name: _of_partition(column.name) for column in PARTITION_IDENTITY},
    "broker": lambda change: None if change.broker_after is None else change.broker_after.broker,
    "offset": lambda change: getattr(change.observation, "metadata_offset", None),
    "events": lambda change: [_event(event) for event in change.events],
    "cluster_after": _cluster_row,
}


def min_isr_rows(known: Iterable[tuple[ConfigKey, MinIsr]]) -> list[dict[str, Any]]:
    """Write configured minima as the structs of ``topic_min_isr``."""
    return [
        {"topic": key.topic, "origin": key.origin, "min_isr": told.min_isr, "offset": told.offset}
        for key, told in known
    ]


def read_all(table: DeltaTable) -> pa.Table:
    """Read a whole table, timestamps as microseconds."""
    return plain(read_typed(table))


def read_typed(table: DeltaTable) -> pa.Table:
    """Read a whole table in the types of our schemas; through DataFusion, which follows every table feature."""
    found = pa.table(QueryBuilder().register("whole", table).execute("select * from whole"))
    return found.cast(pa.schema([pa.field(item.name, _large_free(item.type)) for item in found.schema]))


def _large_free(kind: pa.DataType) -> pa.DataType:
    """Spell views and large types, DataFusion's own, as the types of our schemas."""
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _large_free(item.type)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_large_free(kind.value_type))
    return kind


def replay(state: ReplicationState, rows: pa.Table) -> None:
    """Apply rows of ``partition_changes`` to a state: the state after a row is what the row says."""
    is_partition = pc.equal(rows["subject"], Subject.PARTITION)
    put_partitions(state, plain(partitions_told(rows, 0)))
    for row in plain(rows.filter(pc.invert(is_partition))).to_pylist():
        _REPLAY[Subject(row["subject"])](state, row)


def plain(rows: pa.Table) -> pa.Table:
    """Turn timestamps into microseconds, within structs, too."""
    return rows.cast(pa.schema([pa.field(item.name, plain_type(item.type)) for item in rows.schema]))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Give the same type with whole numbers for timestamps."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, plain_type(item.type)) for item in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return kind


def _replay_broker(state: ReplicationState, row: Mapping[str, Any]) -> None:
    put_broker(state, {**row, **row["broker_after"]})


def _replay_cluster(state: ReplicationState, row: Mapping[str, Any]) -> None:
    put_cluster(state, {**row, **row["cluster_after"]})


def _replay_source(state: ReplicationState, row: Mapping[str, Any]) -> None:
    put_source(state, {**row, **row["source_after"]})


_REPLAY: Final = {
    Subject.BROKER: _replay_broker,
    Subject.CLUSTER: _replay_cluster,
    Subject.SOURCE: _replay_source,
}


def put_partitions(state: ReplicationState, rows: pa.Table) -> None:
    """Read the states of partitions from rows, the newest of a partition last."""
    for partition in partitions_of(rows):
        state.put_partition(partition)


def put_broker(state: ReplicationState, row: Mapping[str, Any]) -> None:
    """Read a broker's state from the columns of one row."""
    broker = BrokerState(**_arguments(BrokerState, row))
    state.brokers[broker.cluster_id, broker.broker] = broker


def put_cluster(state: ReplicationState, row: Mapping[str, Any]) -> None:
    """Read a cluster's state and the configured minima that the row brings."""
    arguments = _arguments(ClusterState, row)
    cluster = ClusterState(**{**arguments, "authority": Authority(row["authority"])})
    state.put_cluster(cluster)
    for told in row["topic_min_isr"] or ():
        key = ConfigKey(cluster.cluster_id, told["topic"], ConfigOrigin(told["origin"]))
        state.min_isr[key] = MinIsr(told["min_isr"], told["offset"])


def put_source(state: ReplicationState, row: Mapping[str, Any]) -> None:
    """Read how far a source came; its watermark is its cluster's, too."""
    source = SourceState(**{**_arguments(SourceState, row), "authority": Authority(row["authority"])})
    state.sources[source.cluster_id, source.source] = source
    state.watch(source)


def _arguments(cls: type[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        item.name: tuple(value) if isinstance(value := row.get(item.name), list) else value
        for item in fields(cls)
        if item.name in row and (row[item.name] is not None or item.default is None)
    }
