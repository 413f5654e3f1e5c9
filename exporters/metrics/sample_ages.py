"""Until which age state and samples are exposed, and how old the newest sample of each table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, AgeMetric, Freshness
from exporters.read_model.snapshot import SECOND
from streaming.contracts import sample_tables as tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.metrics.metric import Sample
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.settings import CollectSettings

# A sample is taken once per interval, and the job needs a moment to write it: after two intervals one was missed.
INTERVALS: Final = 2.0
_INTERVAL_OF: Final = {
    tables.REPLICA_OFFSETS.name: "offsets_interval",
    tables.GROUPS.name: "groups_interval",
    tables.GROUP_OFFSETS.name: "groups_interval",
    tables.LOG_DIRECTORIES.name: "directories_interval",
    tables.QUORUM_MEMBERS.name: "quorum_interval",
    tables.TRANSACTIONS.name: "transactions_interval",
    tables.TOPIC_SETTINGS.name: "config_interval",
    tables.BROKER_SETTINGS.name: "config_interval",
    tables.BROKER_FEATURES.name: "config_interval",
    tables.BROKER_SPEED.name: "offsets_interval",
    tables.BROKER_METRICS.name: "broker_metrics_interval",
    tables.ISR_RECONCILIATION.name: "broker_metrics_interval",
}
# The times of a reconciliation are those of other samples.
_TABLES: Final = tuple(table for table in _INTERVAL_OF if table != tables.ISR_RECONCILIATION.name)


def oldest_ages(stale_after: float, collect: CollectSettings) -> Mapping[str, float]:
    """Return up to which age samples are exposed, in seconds, by table.

    An interval that is longer than ``stale_after`` must not make its samples come and go.
    """
    return {table: max(stale_after, INTERVALS * getattr(collect, interval)) for table, interval in _INTERVAL_OF.items()}


def oldest_moment(ages: Mapping[str, float], table: str, now: int) -> int:
    """Return from when on samples of a table are exposed at ``now``; UTC microseconds."""
    return now - int(ages[table] * SECOND)


def stale_inputs(
    cluster: ClusterSnapshot, now: int, stale_after: float, offsets_after: float | None = None
) -> frozenset[Freshness]:
    """Return the inputs of a cluster that are older than ``stale_after`` seconds at ``now`` (UTC microseconds).

    Without a fresh primary source every input is stale: offsets and advice refer to the partitions it observes. Age is
    measured from the newest observation, not from the newest commit: a job that commits the backlog of an hour ago is
    writing, and its state is still an hour old. Exactly ``stale_after`` is still fresh, as in the alert; of offsets
    ``offsets_after``.
    """
    if cluster.is_stale(now, stale_after):
        return frozenset({Freshness.STATE, Freshness.OFFSETS, Freshness.ADVICE})
    advised_until = None if cluster.advice is None else cluster.advice.until
    newest = {
        Freshness.OFFSETS: (cluster.offsets_at, offsets_after or stale_after),
        Freshness.ADVICE: (advised_until, stale_after),
    }
    return frozenset(
        freshness for freshness, (at, oldest) in newest.items() if at is None or (now - at) / SECOND > oldest
    )


def _ages(cluster: ClusterSnapshot, now: int) -> Iterator[Sample]:
    for table, at in cluster.newest_samples().items():
        yield (cluster.name, table), max(0, now - at) / SECOND


SAMPLE_AGE_METRICS: Final = (
    AgeMetric(
        name=f"{OWN_PREFIX}newest_sample_age_seconds",
        labels=("cluster", "table"),
        help="Time since the newest sample of the table was collected; absent while the table has none.",
        source=", ".join(f"{table}.collected_at" for table in _TABLES),
        samples=_ages,
    ),
)
