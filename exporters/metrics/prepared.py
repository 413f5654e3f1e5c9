"""What is rendered of a snapshot before a scrape asks for it, and what of it is shown at the time of a scrape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exporters.metrics.compression import Block
from exporters.metrics.metric import AgeMetric, Freshness, Metric
from exporters.read_model.snapshot import ReplicationSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from exporters.metrics.render_cache import ClusterSampleLines
    from exporters.metrics.series_filter import Detail
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

    def at_scrape(
        self, request: ScrapeRequest, stale: Callable[[ClusterSnapshot], frozenset[Freshness]]
    ) -> list[ClusterAtScrape]:
        """Return the clusters that a scrape selects; ``stale`` returns the inputs of one that are stale."""
        return [
            ClusterAtScrape(each, stale(each.cluster), self.snapshot.counted_since)
            for name, each in self.clusters.items()
            if request.cluster in {None, name}
        ]


@dataclass(frozen=True, slots=True)
class ClusterAtScrape:
    """One cluster at the time of a scrape; metrics that require one of the ``stale`` inputs are left out.

    ``counted_since``: when its counters were 0, UTC microseconds; None is unknown.
    """

    prepared: PreparedCluster
    stale: frozenset[Freshness]
    counted_since: int | None

    @property
    def cluster(self) -> ClusterSnapshot:
        """Its snapshot."""
        return self.prepared.cluster

    def shows(self, metric: Metric) -> bool:
        """Return whether the input that a metric requires is fresh."""
        return metric.freshness not in self.stale


@dataclass(frozen=True, slots=True)
class Outline:
    """What scrapes of one kind show, but for what depends on the moment: of that it has the places.

    Attributes:
        prepared: what they are of.
        request: what they select.
        stale: the stale inputs of each cluster.
        after: the moment, in UTC microseconds, up to which a sample that is not in it is young enough.
        until: the moment, in UTC microseconds, after which a sample in it is too old.
        parts: lines, and metrics that are to be rendered at a scrape.
    """

    prepared: PreparedSnapshot
    request: ScrapeRequest
    stale: tuple[frozenset[Freshness], ...]
    after: float
    until: float
    parts: Sequence[Block | AgeMetric]

    def is_of(
        self, prepared: PreparedSnapshot, request: ScrapeRequest, clusters: Sequence[ClusterAtScrape], now: int
    ) -> bool:
        """Return whether it is what a scrape shows at a moment in UTC microseconds."""
        is_same = self.prepared.clusters is prepared.clusters and self.request == request
        return is_same and self.after < now <= self.until and self.stale == tuple(each.stale for each in clusters)

    def compressed(self) -> Outline:
        """Return the same with few blocks, and what a compressed response needs of each computed."""
        parts: list[Block | AgeMetric] = []
        run: list[Block] = []
        for part in self.parts:
            if isinstance(part, Block):
                part.checksum()
                run.append(part)
            else:
                parts += (Block.of(run), part)
                run = []
        return replace(self, parts=(*parts, Block.of(run)))


# What one scrape selects.


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """What one scrape selects, and its format.

    Attributes:
        cluster: by name; None: all.
        names: of metrics; empty: all but those left out.
        left_out: names of metrics.
        is_openmetrics: whether the format is OpenMetrics, not the text format.
    """

    cluster: str | None = None
    names: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    is_openmetrics: bool = False

    def wants(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return (not self.names or name in self.names) and name not in self.left_out
