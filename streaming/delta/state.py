"""Reads the state: *state = the state tables + the changes after them*.

The job's fold and the exporter's snapshots both start this way. Each state table has the version of the change log up
to which it was computed; the versions differ if the job was killed between two tables. So each part gets only the
changes after its own version. Later rows of a key replace earlier ones.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import count
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.columns import DISKLESS_TOPICS, TOPIC_MIN_ISR
from streaming.contracts.events import Cause, Subject
from streaming.contracts.observations import DISKLESS, MIN_ISR, Channel, ConfigOrigin, SourceKind
from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, PartitionState, SourceState
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.log.queries import ALL, columns_of, last_of_each, open_ours, select, struct_columns
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.delta.log.commit import StoresTransactions
    from streaming.delta.store.place import Place

# With fewer rows, choosing the newest costs more than reading them all.
WORTH_CHOOSING: Final = 500
Configs = tuple[tuple[ConfigKey, ConfigValue], ...]


class StateHolder(Protocol):
    """Receives a state: ``ReplicationState`` in the job, ``SnapshotDraft`` in the exporter."""

    def put_cluster(self, cluster: ClusterState, configs: Configs) -> None:
        """Set a cluster, and the configured values in its row."""

    def put_broker(self, broker: BrokerState) -> None:
        """Set a broker."""

    def put_partition(self, partition: PartitionState) -> None:
        """Set a partition, or its tombstone."""

    def put_source(self, source: SourceState) -> None:
        """Set how far a source was applied; this may advance the watermarks of its cluster."""


class TotalsHolder(StateHolder, Protocol):
    """Receives a state and the number of ISR removals per broker and cause."""

    def put_partitions(self, rows: pa.Table) -> None:
        """Set the partitions of ``partition_state``, tombstones included."""

    def add_isr_removals(self, cluster_id: ClusterId, cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count how often a broker was removed from an ISR, for one cause."""


class StateVersions(NamedTuple):
    """The version of ``partition_changes`` up to which each part of a state was computed."""

    partitions: int = BEFORE_FIRST
    brokers: int = BEFORE_FIRST
    clusters: int = BEFORE_FIRST
    sources: int = BEFORE_FIRST

    def oldest(self) -> int:
        """Return the version after which the changes must be read."""
        return min(self)


def as_of_version(table: StoresTransactions) -> int:
    """Return the version of ``partition_changes`` up to which a derived table was computed, as its commit says."""
    version = table.transaction_version(PARTITION_CHANGES.name)
    return BEFORE_FIRST if version is None else int(version)


def load_state(directory: Place, holder: TotalsHolder, where: str = ALL) -> StateVersions:
    """Read the state tables into a holder; clusters first, because their rows say which tombstones are dropped.

    ``where`` is SQL over ``cluster_id`` that selects clusters.
    """
    clusters, clusters_as_of = _read(directory, CLUSTER_STATE_TABLE, where)
    for cluster, configured in _clusters(clusters, states_of(ClusterState, clusters)):
        holder.put_cluster(cluster, configured)
    brokers, brokers_as_of = _read(directory, BROKER_STATE_TABLE, where)
    removals = brokers["isr_departures"].to_pylist()
    for broker, causes in zip(states_of(BrokerState, brokers), removals, strict=True):
        holder.put_broker(broker)
        for each in causes or ():
            cause = each["cause"] or Cause.UNKNOWN.value
            holder.add_isr_removals(broker.cluster_id, broker.cluster, broker.broker, cause, each["departures"])
    partitions, partitions_as_of = _read(directory, PARTITION_STATE_TABLE, where)
    holder.put_partitions(partitions)
    sources, sources_as_of = _read(directory, SOURCE_PROGRESS, where)
    for source in states_of(SourceState, sources.filter(pc.equal(sources["channel"], Channel.REPLICATION.value))):
        holder.put_source(source)
    return StateVersions(partitions_as_of, brokers_as_of, clusters_as_of, sources_as_of)


def _read(directory: Place, definition: Table, where: str) -> tuple[pa.Table, int]:
    """Read rows of a state table, and the version of the change log up to which it was computed."""
    table = open_ours(directory, definition)
    if table is None:
        return select(None, definition), BEFORE_FIRST
    return select(table, definition, where), as_of_version(table)


def apply_changes(holder: StateHolder, rows: pa.Table, as_of: StateVersions | None = None) -> None:
    """Apply rows of ``partition_changes``, in their order; each row has the state after its change.

    ``as_of`` are the versions that the holder contains already.
    """
    subjects = set(pc.unique(rows["subject"]).to_pylist())
    for subject, (part, column, cls, apply) in _PARTS.items():
        if subject.value not in subjects:
            continue
        # Filtering copies rows, and a row has two states of a partition, so select the columns to read first.
        own = rows.select([name for name in rows.column_names if name in {"version", column, *cls._fields}])
        fresh = own.filter(pc.equal(rows["subject"], subject.value)) if len(subjects) > 1 else own
        apply(holder, fresh if as_of is None else _after(fresh, getattr(as_of, part)))


def is_dropped(cluster: ClusterState, cluster_ids: pa.Array, is_deleted: pa.Array, changed_at: pa.Array) -> pa.Array:
    """Return, per row, whether it is a tombstone that its cluster has dropped (``ClusterState.has_expired``)."""
    until = pa.scalar(cluster.tombstones_until, pa.timestamp("us", tz="UTC"))
    is_over = pc.and_(is_deleted, pc.less_equal(changed_at, until))
    return pc.fill_null(pc.and_(is_over, pc.equal(cluster_ids, cluster.cluster_id)), fill_value=False)


def _after(rows: pa.Table, version: int) -> pa.Table:
    is_after = pc.greater(rows["version"], version)
    return rows if pc.all(is_after).as_py() else rows.filter(is_after)


def _clusters(rows: pa.Table, clusters: Iterable[ClusterState | None]) -> Iterable[tuple[ClusterState, Configs]]:
    columns = rows.select(list(CONFIG_COLUMNS)).to_pylist()
    for cluster, configs in zip(clusters, columns, strict=True):
        if cluster is not None:
            yield cluster, tuple(configs_of(cluster.cluster_id, configs))


def _apply_clusters(holder: StateHolder, rows: pa.Table) -> None:
    columns = {name: pc.struct_field(rows["cluster_after"], name) for name in CONFIG_COLUMNS}
    for cluster, configured in _clusters(pa.table(columns), structs_of(ClusterState, rows, "cluster_after")):
        holder.put_cluster(cluster, configured)


def _apply_brokers(holder: StateHolder, rows: pa.Table) -> None:
    for broker in structs_of(BrokerState, rows, "broker_after"):
        if broker is not None:
            holder.put_broker(broker)


def _apply_partitions(holder: StateHolder, rows: pa.Table) -> None:
    for partition in structs_of(PartitionState, _newest_of_each(rows), "after"):
        if partition is not None:
            holder.put_partition(partition)


def _newest_of_each(rows: pa.Table) -> pa.Table:
    """Leave out the states of partitions that later rows replace: in a storm each partition changes again and again."""
    if rows.num_rows < WORTH_CHOOSING:
        return rows
    newest = last_of_each(rows, list(PARTITION_STATE_TABLE.key))["row"]
    return rows if len(newest) == rows.num_rows else rows.take(newest.take(pc.sort_indices(newest)))


def _apply_sources(holder: StateHolder, rows: pa.Table) -> None:
    for source in structs_of(SourceState, rows, "source_after"):
        if source is not None:
            holder.put_source(source)


# The part of ``StateVersions``, the column with the state after a change, and the class of that state.
_PARTS: Final[Mapping[Subject, tuple[str, str, Any, Any]]] = {
    Subject.CLUSTER: ("clusters", "cluster_after", ClusterState, _apply_clusters),
    Subject.BROKER: ("brokers", "broker_after", BrokerState, _apply_brokers),
    Subject.PARTITION: ("partitions", "after", PartitionState, _apply_partitions),
    Subject.SOURCE: ("sources", "source_after", SourceState, _apply_sources),
}


def count_isr_removals(holder: TotalsHolder, rows: pa.Table, as_of: StateVersions) -> None:
    """Count the brokers that left an ISR in changes that the holder has not counted yet."""
    fresh = _after(rows.select(["version", *_OF_REMOVALS]), as_of.brokers)
    for cluster_id, cluster, broker, cause in _removals(fresh):
        holder.add_isr_removals(cluster_id, cluster, broker, cause, 1)


def isr_removals(rows: pa.Table) -> Counter[tuple[ClusterId, BrokerId, str]]:
    """Count the brokers that left an ISR in rows of ``partition_changes``, by cluster, broker and cause."""
    return Counter((cluster_id, broker, cause) for cluster_id, _, broker, cause in _removals(rows))


def _removals(rows: pa.Table) -> Iterator[tuple[ClusterId, str, BrokerId, str]]:
    """Yield cluster id, cluster, broker and cause of each removal."""
    removed = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows["left_isr"]), 0), 0))
    columns = (removed[name].to_pylist() for name in _OF_REMOVALS)
    for cluster_id, cluster, brokers, cause in zip(*columns, strict=True):
        for broker in brokers:
            yield cluster_id, cluster, broker, cause or Cause.UNKNOWN.value


_OF_REMOVALS: Final = ("cluster_id", "cluster", "left_isr", "cause")


# States as rows, and rows as states: the only encoder and decoder of ``contracts.state``.
#
# The fields of a class say what is written and read, so no field can be forgotten: a missing column is an error, never
# a silent null. A null reads as the default of its field; without a default the row is damaged.


S = TypeVar("S", bound=tuple[Any, ...])


def states_to_arrow(states: Sequence[Any], kind: pa.StructType, **others: Sequence[Any]) -> pa.Array:
    """Write states as structs, null for None.

    The struct's fields are fields of their class, or in ``others``, with a value per state that is not None.
    """
    present = [state for state in states if state is not None]
    names = present[0]._fields if present else [field.name for field in kind]
    columns = {**dict(zip(names, zip(*present, strict=True), strict=False)), **others}
    arrays = [pa.array(columns[field.name] if present else [], field.type) for field in kind]
    numbers = count()
    places = [None if state is None else next(numbers) for state in states]
    return pa.StructArray.from_arrays(arrays, fields=list(kind)).take(pa.array(places, pa.int64()))


def states_of(cls: type[S], rows: pa.Table) -> Iterator[S]:
    """Read each row as a state; its columns are the fields of the class.

    Raises:
        KeyError: the rows lack a column.
        TableUnreadable: a row has null where a state must have a value.
    """
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    columns = columns_of(rows, names)
    _check_required(cls, columns)
    return _made(cls, columns)


def structs_of(cls: type[S], rows: pa.Table, column: str) -> Iterator[S | None]:
    """Read a struct column as states, None for null; fields that the struct lacks are columns of the rows.

    Raises:
        KeyError: neither the struct nor the rows have a field of the class.
        TableUnreadable: a struct has null where a state must have a value.
    """
    structs = rows.column(column).combine_chunks()
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    within = {field.name for field in structs.type} & set(names)
    columns = {**columns_of(rows, set(names) - within), **struct_columns(rows, column, within)}
    states = _made(cls, columns)
    if not structs.null_count:
        _check_required(cls, columns)
        return states
    return (state if valid else None for state, valid in zip(states, structs.is_valid().to_pylist(), strict=True))


def fields_of(cls: type[S], rows: pa.Table, names: Iterable[str]) -> dict[str, list[Any]]:
    """Read some fields of rows of states, field by field; ``KeyError`` if the rows lack a column."""
    readers, columns = _readers(cls), columns_of(rows, names)
    return {name: readers[name](columns[name]) for name in names}


def _check_required(cls: Any, columns: Mapping[str, list[Any]]) -> None:  # noqa: ANN401 - any of the state classes
    for name in _required(cls):
        if None in columns[name]:
            raise TableUnreadable(
                f"cannot read a row: it has no {name}, which every {cls.__name__} has; bring back the whole folder of "
                "the tables from one copy"
            )


@cache
def _required(cls: Any) -> tuple[str, ...]:  # noqa: ANN401 - any of the state classes
    """Name the fields that every row must have."""
    hints = get_type_hints(cls)
    return tuple(
        name for name in cls._fields if name not in cls._field_defaults and NoneType not in get_args(hints[name])
    )


def _made(cls: Any, columns: Mapping[str, list[Any]]) -> Iterator[Any]:  # noqa: ANN401 - any of the state classes
    readers = _readers(cls)
    return map(cls._make, zip(*(readers[name](columns[name]) for name in cls._fields), strict=True))


@cache
def _readers(cls: Any) -> dict[str, Callable[[list[Any]], list[Any]]]:  # noqa: ANN401 - any of the state classes
    """Return, per field, a function that converts the values of its column."""
    hints = get_type_hints(cls)
    defaults = cls._field_defaults
    return {name: _reader(_enum_of(hints[name]), defaults.get(name)) for name in cls._fields}


def _enum_of(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    return next((kind for kind in (hint, *get_args(hint)) if kind in {SourceKind, ConfigOrigin}), None)


def _reader(enum: Any, default: Any) -> Callable[[list[Any]], list[Any]]:  # noqa: ANN401 - a default of any type
    if enum is not None:
        return lambda values: [default if value is None else enum(value) for value in values]
    if default is None:
        return lambda values: values
    return lambda values: [default if value is None else value for value in values] if None in values else values


# The columns of a cluster that hold the values of one configuration each: that configuration, and the value's field.
CONFIG_COLUMNS: Final = {TOPIC_MIN_ISR.name: (MIN_ISR, "min_isr"), DISKLESS_TOPICS.name: (DISKLESS, "is_diskless")}


def config_columns(configs: Iterable[tuple[ConfigKey, ConfigValue]]) -> dict[str, list[dict[str, Any]]]:
    """Write configured values as structs, by column of ``CONFIG_COLUMNS``."""
    rows = list(configs)
    return {
        column: [
            {"topic": key.topic, "origin": key.origin, field: config.value, "offset": config.offset}
            for key, config in rows
            if key.key == configuration
        ]
        for column, (configuration, field) in CONFIG_COLUMNS.items()
    }


def configs_of(
    cluster_id: ClusterId, columns: Mapping[str, Iterable[Mapping[str, Any]] | None]
) -> Iterator[tuple[ConfigKey, ConfigValue]]:
    """Read the structs in the ``CONFIG_COLUMNS`` of one cluster."""
    for column, (configuration, field) in CONFIG_COLUMNS.items():
        for row in columns[column] or ():
            key = ConfigKey(cluster_id, row["topic"], ConfigOrigin(row["origin"]), configuration)
            yield key, ConfigValue(row[field], row["offset"])
