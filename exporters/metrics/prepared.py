"""What is rendered of a snapshot before a scrape asks for it, and what of it is shown at the time of a scrape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporters.metrics.metric import Freshness, Metric
from exporters.read_model.snapshot import SECOND, ReplicationSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporters.metrics.compression import Block
    from exporters.metrics.detail import Detail
    from exporters.metrics.sample_render_cache import ClusterSampleLines
    from exporters.read_model.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class PreparedCluster:
    """One cluster whose lines are rendered and compressed, but for the few that depend on the time of a scrape.

    Attributes:
        cluster: its snapshot.
        detail: the partitions that have series of their own.
        topics: the lines of its topics, by metric of ``PER_TOPIC``.
        samples: the lines of its samples.
    """

    cluster: ClusterSnapshot
    detail: Detail
    topics: Sequence[Block]
    samples: ClusterSampleLines


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot whose lines are rendered.

    Attributes:
        snapshot: the snapshot.
        clusters: by their unique names.
        is_complete: False while offsets of the samples before are shown of some topics.
    """

    snapshot: ReplicationSnapshot
    clusters: Mapping[str, PreparedCluster]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class ClusterAtScrape:
    """One cluster at the time of a scrape; metrics that require one of the ``stale`` inputs are left out."""

    prepared: PreparedCluster
    stale: frozenset[Freshness]

    @property
    def cluster(self) -> ClusterSnapshot:
        """Its snapshot."""
        return self.prepared.cluster

    def shows(self, metric: Metric) -> bool:
        """Return whether the input that a metric requires is fresh."""
        return metric.freshness not in self.stale


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
