"""The clusters, brokers and leases that planned work can be about: from the tables, and from the end of the bus.

The bus has what the job has not applied yet, such as a lease of a second ago, and it is all there is on a machine that
shares only the bus.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.changes.maintenance import announce
from streaming.contracts.codec import decode
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import BrokerObserved, Channel, SnapshotEnd, SourceKind
from streaming.contracts.state import BrokerState
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.delta.log.queries import open_ours, select
from streaming.delta.state import states_of
from streaming.errors import ConfigurationError, NewerFormat, Quarantined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.observations import Observation

# A full report of 1,000 topics is a tenth of it; the tables have the rest.
_TAIL_BYTES: Final = 4 << 20


@dataclass(slots=True)
class WatchedCluster:
    """One cluster; ``collected_at`` is when the newest of its observations on the bus was collected."""

    cluster_id: ClusterId
    name: str
    brokers: dict[BrokerId, BrokerState] = field(default_factory=dict)
    collected_at: int | None = None


def watched_clusters(bus: Path, tables: Path) -> list[WatchedCluster]:
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


def stored_brokers(tables: Path) -> list[BrokerState]:
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
                except (Quarantined, NewerFormat):
                    continue  # the job says so


def _apply(observed: Observation, cluster: WatchedCluster) -> None:
    if observed.authority is not SourceKind.NONE:
        cluster.collected_at = max(cluster.collected_at or 0, observed.collected_at)
    if isinstance(observed, BrokerObserved | SnapshotEnd):
        for number in (observed.broker,) if isinstance(observed, BrokerObserved) else observed.brokers:
            state = BrokerState(cluster_id=observed.cluster_id, cluster=observed.cluster, broker=number)
            cluster.brokers.setdefault(number, state)
    elif isinstance(observed, MaintenanceObserved) and observed.broker in cluster.brokers:
        step = announce(cluster.brokers[observed.broker], observed, None)
        if step is not None:
            cluster.brokers[observed.broker] = step[0]
