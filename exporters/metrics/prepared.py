"""A snapshot rendered before a scrape asks for it, and the part of it that is shown at the time of a scrape."""

# Theory of operation
#
# Three steps from a snapshot to a response; ``exposition`` has the whole theory.
#
#   ``PreparedSnapshot``  what depends on the tables alone. Made once per snapshot, by the refresher.
#   ``ClusterAtScrape``   what the moment adds: which inputs are stale. Made at each scrape, at no cost per partition.
#   ``Outline``           the catalogue in its order, as blocks, with a hole for each metric of the moment. Made for a
#                         kind of scrape, and used while ``is_of`` holds.
#
# Invariants
#   1. Values of this module are never changed after they were made. ``PreparedCluster.samples`` alone is shared with
#      the next preparation, which may replace lines in it: a scrape at that moment may show samples that are newer than
#      the topics next to them, and its outline is not used again, because the clusters are others then.
#      Lines of older rows never replace them. tests/exporters/metrics/test_outline.py.
#   2. An outline shows every sample that is young enough at any moment in ``(after, until]``, and no other.
#      tests/exporters/metrics/test_outline.py.
#   3. The parts of an outline, with its holes filled, are what a rendering without outline gives at that moment.
#      tests/exporters/metrics/test_outline.py.

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
    """One cluster whose lines are rendered and compressed, but for the few that depend on the time of a scrape."""

    cluster: ClusterSnapshot
    detail: Detail
    # One block per metric of ``PER_TOPIC``, in that order; a later preparation makes another list.
    topics: Sequence[Block]
    # Shared with later preparations of the cluster, and with scrapes that find a sample too old: both replace lines.
    samples: ClusterSampleLines


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot whose lines are rendered, and its clusters by their unique names.

    It is not complete while offsets of the samples before are shown of some topics.
    """

    snapshot: ReplicationSnapshot
    # The same object as before exactly when nothing was rendered since: ``Outline.is_of`` compares identity.
    clusters: Mapping[str, PreparedCluster]
    # While it is False the refresher prepares the same snapshot again at once, until a step leaves nothing.
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
    """The response to scrapes of one kind, with a place for each metric that depends on the moment.

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
    # In the order of the clusters that the request selects; one that got fresh or stale makes the outline useless.
    stale: tuple[frozenset[Freshness], ...]
    # Invariant: after < until, unless a sample is younger than one that was left out; then no moment fits.
    after: float
    until: float
    # In the order of the catalogue; an ``AgeMetric`` stands where its lines go.
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


# Selection of one scrape.


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """Selection of one scrape, by cluster (None: all) and by names of metrics, and its format.

    Without names, all metrics are rendered but those left out.
    """

    cluster: str | None = None
    names: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    is_openmetrics: bool = False

    def wants(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return (not self.names or name in self.names) and name not in self.left_out
