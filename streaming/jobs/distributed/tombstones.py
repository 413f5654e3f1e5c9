"""Tombstones that expire, as in the driver mode: executors add up totals, the driver gives them to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.changes.change import Change
from streaming.changes.replaced_log import newest_of
from streaming.changes.tombstones import DAY, due
from streaming.contracts.events import Subject
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.contracts.totals import TOTALS
from streaming.jobs.distributed.rows import state_of
from streaming.jobs.distributed.state import ORDER
from streaming.jobs.distributed.topic_buckets import looked_up, newest_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.state import ClusterState, SourceState

_KEY: Final = PARTITION_STATE_TABLE.key
_MICROS: Final = 1_000_000


def days_of(sources: Iterable[SourceState]) -> frozenset[tuple[str, str, int]]:
    """Return the day up to which each source has ordered its cluster: tombstones are looked for when one begins."""
    return frozenset(
        (source.cluster_id, source.source, (source.observed_until or 0) // DAY)
        for source in sources
        if source.authority is not SourceKind.NONE
    )


def tombstones_expired(few: DataFrame, partitions: DataFrame) -> list[Change]:
    """Return one change per cluster of which tombstones have expired that were there until now.

    Args:
        few: rows of clusters, brokers and sources, as ``StateRows.at`` returns them.
        partitions: rows of partitions.
    """
    state = state_of(few.toArrow())
    until: dict[str, Micros] = {
        cluster_id: moment
        for cluster_id, cluster in state.clusters.items()
        if (moment := due(None, cluster)) is not None and moment > (cluster.tombstones_until or 0)
    }
    if not until:
        return []
    dropped: dict[str, int] = {cluster.cluster_id: cluster.tombstones_until or 0 for cluster in state.clusters.values()}
    newest = newest_by(partitions.select(*_KEY, "after", *ORDER), _KEY, [F.col(name) for name in ORDER])
    tombstones = newest.select("cluster_id", "after.*").where("is_deleted")
    expired = tombstones.where(has_expired(until) & ~has_expired(dropped))
    sums = (F.sum(F.round(F.col(name) * _MICROS).cast("decimal(38,0)")).alias(name) for name in TOTALS)
    return [
        _moved(
            row.asDict(), state.clusters[row["cluster_id"]]._replace(tombstones_until=until[row["cluster_id"]]), state
        )
        for row in expired.groupBy("cluster_id").agg(*sums).collect()
    ]


def has_expired(until: Mapping[str, int]) -> Column:
    """Return whether a row of ``partition_state`` is a tombstone that its cluster has dropped."""
    moment = F.timestamp_micros(looked_up(F.col("cluster_id"), until, 0))
    return F.col("is_deleted") & (F.coalesce(F.col("changed_at"), F.timestamp_micros(F.lit(1 << 60))) <= moment)


def _moved(micros: Mapping[str, int], cluster: ClusterState, state: ReplicationState) -> Change:
    """Add the totals of tombstones to the cluster; seconds stay whole microseconds."""
    totals = {f"expired_{name}": getattr(cluster, f"expired_{name}") + int(micros[name]) / _MICROS for name in TOTALS}
    whole = {name: type(getattr(cluster, name))(round(total, 6)) for name, total in totals.items()}
    primary = max(
        (
            source
            for source in state.sources.values()
            if (source.cluster_id, source.authority) == (cluster.cluster_id, cluster.authority)
        ),
        key=lambda source: source.observed_until or 0,
    )
    return Change(subject=Subject.CLUSTER, observation=newest_of(primary), cluster_after=cluster._replace(**whole))
