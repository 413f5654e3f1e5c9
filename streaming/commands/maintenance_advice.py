"""Objections in the tables to stopping a broker now, for a person who announces work on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.changes.advice.restart_safety import keeps_quorum, with_fresh_quorum, with_running_voters
from streaming.changes.maintenance import announce, is_down
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import SECOND
from streaming.contracts.observations import BrokerObserved, Channel, MaintenanceObserved, SnapshotEnd, SourceKind
from streaming.contracts.state import BrokerState, ClusterState, SourceLag, SourceState
from streaming.contracts.stop_effects import WOULD_GO_OFFLINE, WOULD_GO_UNDER_MIN_ISR, loss_by_stops
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE, SOURCE_PROGRESS
from streaming.delta.log.queries import open_ours, query, quoted, select
from streaming.delta.state import states_of
from streaming.errors import ConfigurationError, InvalidObservation, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.observations import Observation
    from streaming.delta.store.place import Place

_REPLICATION: Final = f"channel = '{Channel.REPLICATION}'"
# A stop that was safe longer ago than this may not be any more.
FRESH_SECONDS: Final = 60
_LOSSES: Final = {WOULD_GO_UNDER_MIN_ISR: "refuse writes with acks=all", WOULD_GO_OFFLINE: "be offline"}


class _Shape(NamedTuple):
    """The columns of ``partition_state`` on which it depends what a stop costs."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_isr_effective: int | None
    is_offline: bool
    is_under_min_isr: bool | None
    leader: int
    min_isr_by_replica: tuple[int, ...] | None = None


def stop_warnings(tables: Place, brokers: Sequence[BrokerState], now: int) -> Iterator[str]:
    """Return a sentence about each broker of one cluster that is not known to be safe to stop, and one about all.

    Several that are safe one by one may not be so at once. A machine that shares only the bus has no tables, and says
    nothing. A broker that is not up is stopped already.

    Raises:
        TableUnreadable: one of the tables is damaged.
    """
    table = open_ours(tables, BROKER_STATE_TABLE)
    if table is None:
        return
    cluster_id, numbers = brokers[0].cluster_id, sorted(one.broker for one in brokers)
    up = {one.broker for one in brokers if not is_down(one)}
    unknown = set(up)
    observed, why = _observed_until(tables, cluster_id), ""
    if observed is None:
        why = "the tables have no state of its cluster"
    elif now - observed > FRESH_SECONDS * SECOND:
        why = f"the tables are {(now - observed) // SECOND:,} s old"
    elif not _is_written(tables, cluster_id):
        why = "the job does not write the tables of its state, and its log says why"
    if why:
        yield f"whether broker {', '.join(map(str, numbers))} can be stopped is unknown: {why}"
        return
    for row in select(table, BROKER_STATE_TABLE).sort_by("broker").to_pylist():
        if row["cluster_id"] != cluster_id or row["broker"] not in up:
            continue
        unknown.discard(row["broker"])
        if not row["is_safe_to_stop"]:
            certainty = "known to be " if row["is_safe_to_stop"] is None else ""
            yield f"broker {row['broker']} is not {certainty}safe to stop now: {row['restart_reason']}"
    yield from (f"whether broker {one} can be stopped is unknown: the tables lack it" for one in sorted(unknown))
    if len(up) > 1 and (lost := list(_lost_at_once(tables, cluster_id, up))):
        yield f"brokers {', '.join(map(str, sorted(up)))} are not safe to stop at once: {', '.join(lost)}"


def _lost_at_once(tables: Place, cluster_id: ClusterId, brokers: AbstractSet[BrokerId]) -> Iterator[str]:
    """Return what would be lost if some brokers, which are all up, stopped together."""
    ours = f"cluster_id = '{cluster_id.replace(chr(39), chr(39) * 2)}'"
    states = list(states_of(BrokerState, select(open_ours(tables, BROKER_STATE_TABLE), BROKER_STATE_TABLE, ours)))
    others = {one.broker for one in states if not is_down(one)} - brokers
    lost: Counter[str | None] = Counter()
    for shape, count in _shapes(tables, ours):
        lost[loss_by_stops(shape, brokers, others)] += count
    for loss, words in _LOSSES.items():
        if lost[loss]:
            yield f"{lost[loss]:,} {'partition' if lost[loss] == 1 else 'partitions'} would {words}"
    clusters = states_of(ClusterState, select(open_ours(tables, CLUSTER_STATE_TABLE), CLUSTER_STATE_TABLE, ours))
    running = (with_running_voters(with_fresh_quorum(cluster), states) for cluster in clusters)
    if any(keeps_quorum(brokers, cluster) is False for cluster in running):
        yield "the controller quorum would lose its majority"


def _shapes(tables: Place, where: str) -> Iterator[tuple[_Shape, int]]:
    """Count the partitions that are alike: there may be a million, of a few shapes."""
    table = open_ours(tables, PARTITION_STATE_TABLE)
    if table is None:
        return
    existing = {field.name for field in table.schema().fields}  # the job adds a new column at its start
    columns = quoted(existing.intersection(_Shape._fields))
    counted = query(
        table,
        f"SELECT {columns}, count(*) AS partitions FROM rows "  # noqa: S608 - our own columns
        f"WHERE {where} AND is_deleted IS NOT TRUE AND is_diskless IS NOT TRUE GROUP BY {columns}",
    )
    for row in counted.to_pylist():
        count = row.pop("partitions")
        yield _Shape(**row), count


def _observed_until(tables: Place, cluster_id: ClusterId) -> int | None:
    """Return up to when the state in the tables is observed; of announcements nothing follows."""
    sources = states_of(SourceState, _progress(tables))
    return max(
        (
            source.observed_until
            for source in sources
            if source.cluster_id == cluster_id
            and source.source_kind is not SourceKind.NONE
            and source.observed_until is not None
        ),
        default=None,
    )


def _is_written(tables: Place, cluster_id: ClusterId) -> bool:
    """Return whether the job writes the state tables; it may continue with what is observed while it cannot."""
    rows = _progress(tables)
    written = zip(states_of(SourceState, rows), states_of(SourceLag, rows), strict=True)
    return all(lag.is_query_up is not False for source, lag in written if source.cluster_id == cluster_id)


def _progress(tables: Place) -> pa.Table:
    return select(open_ours(tables, SOURCE_PROGRESS), SOURCE_PROGRESS, _REPLICATION)


# The clusters, brokers and leases that planned work can be about: from the tables, and from the end of the bus.
#
# The bus has what the job has not applied yet, such as a lease of a second ago, and it is all there is on a machine
# that shares only the bus.


# A full report of 1,000 topics is a tenth of it; the tables have the rest.
_TAIL_BYTES: Final = 4 << 20


@dataclass(slots=True)
class WatchedCluster:
    """One cluster; ``collected_at`` is when the newest of its observations on the bus was collected."""

    cluster_id: ClusterId
    name: str
    brokers: dict[BrokerId, BrokerState] = field(default_factory=dict)
    collected_at: int | None = None


def watched_clusters(bus: Path, tables: Place) -> list[WatchedCluster]:
    """Return every cluster that is watched.

    Raises:
        TableUnreadable: the table of brokers is damaged.
        ConfigurationError: the bus is a file.
    """
    clusters: dict[ClusterId, WatchedCluster] = {}
    for broker in stored_brokers(tables):
        cluster = clusters.setdefault(broker.cluster_id, WatchedCluster(broker.cluster_id, broker.cluster))
        cluster.brokers[broker.broker] = broker
    for observed in sorted(_on_the_bus(bus), key=lambda item: item.occurred_not_after):
        cluster = clusters.setdefault(observed.cluster_id, WatchedCluster(observed.cluster_id, observed.cluster))
        _apply(observed, cluster)
    return sorted(clusters.values(), key=lambda cluster: cluster.name)


def chosen_cluster(clusters: Sequence[WatchedCluster], name_or_id: str | None) -> WatchedCluster:
    """Return the cluster of a name or id; without one, the only one.

    Raises:
        ConfigurationError: there is none, or there are several and none was named.
    """
    if not clusters:
        raise ConfigurationError(
            "no cluster has been observed yet: start isrwatch collect first, or point bus.directory (--bus) at its bus"
        )
    names = ", ".join(cluster.name for cluster in clusters)
    matching = [
        cluster for cluster in clusters if name_or_id is None or name_or_id in {cluster.name, cluster.cluster_id}
    ]
    if not matching:
        raise ConfigurationError(f"there is no cluster {name_or_id}; the clusters are: {names}")
    if len(matching) > 1:
        ids = ", ".join(f"{cluster.name} ({cluster.cluster_id})" for cluster in matching)
        raise ConfigurationError(f"there are several clusters: {ids}; name one by its id with --cluster")
    return matching[0]


def chosen_brokers(cluster: WatchedCluster, numbers: Iterable[int]) -> list[BrokerState]:
    """Return brokers by their ids.

    Raises:
        ConfigurationError: the cluster has no such broker.
    """
    by_id = {int(number): broker for number, broker in cluster.brokers.items()}
    for number in numbers:
        if number not in by_id:
            existing = ", ".join(map(str, sorted(by_id))) or "not known yet"
            raise ConfigurationError(f"cluster {cluster.name} has no broker {number}; its brokers are: {existing}")
    return [by_id[number] for number in dict.fromkeys(numbers)]


def stored_brokers(tables: Place) -> list[BrokerState]:
    """Return every broker of the tables, none where there are no tables.

    Raises:
        TableUnreadable: the table of brokers is damaged.
    """
    table = open_ours(tables, BROKER_STATE_TABLE)
    return [] if table is None else list(states_of(BrokerState, select(table, BROKER_STATE_TABLE)))


def _on_the_bus(bus: Path) -> Iterator[Observation]:
    """Read the newest observations of each source."""
    reader, channel = DirectoryReader(bus), Channel.REPLICATION
    starts = reader.start_positions(channel)
    for source, end in reader.end_positions(channel).items():
        start = starts.get(source, end)
        if end - start > _TAIL_BYTES:
            start = reader.frame_start(channel, source, start, end - _TAIL_BYTES) or start
        for item in reader.read(channel, source, start, end):
            if isinstance(item, BusFrame):
                try:
                    yield decode(item.payload)
                except (InvalidObservation, NewerFormat):
                    continue  # the job says so


def _apply(observed: Observation, cluster: WatchedCluster) -> None:
    if observed.source_kind is not SourceKind.NONE:
        cluster.collected_at = max(cluster.collected_at or 0, observed.collected_at)
    if isinstance(observed, BrokerObserved | SnapshotEnd):
        for number in (observed.broker,) if isinstance(observed, BrokerObserved) else observed.brokers:
            state = BrokerState(cluster_id=observed.cluster_id, cluster=observed.cluster, broker=number)
            cluster.brokers.setdefault(number, state)
    elif isinstance(observed, MaintenanceObserved) and observed.broker in cluster.brokers:
        step = announce(cluster.brokers[observed.broker], observed, None)
        if step is not None:
            cluster.brokers[observed.broker] = step[0]
