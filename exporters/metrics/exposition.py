"""The response to a scrape, rendered by hand to stay fast at 100,000 partitions."""

# Theory of operation
#
# The cost of a scrape must follow what changed, not how large the cluster is. 100,000 partitions are many megabytes of
# lines, and between two scrapes few of them change. So lines are rendered when the tables change, kept as bytes and
# compressed once, and a scrape puts blocks together. Four caches lie above each other; each entry of one is used until
# its key differs:
#
#   | kept                          | of                   | key: rendered again when                                 |
#   |-------------------------------|----------------------|----------------------------------------------------------|
#   | ``TopicLines.pieces``         | topic, metric        | the topic is another object; its offsets are; other      |
#   |                               |                      | partitions are chosen (``Detail``); the watermark moved  |
#   |                               |                      | while an episode is open; unknown time was added         |
#   | ``ClusterLines`` parts        | 16 topics, metric    | the bytes of one of those topics changed, or their order |
#   | ``ClusterSampleLines``        | cluster, metric      | its rows are other objects, or a sample got too old, or  |
#   |                               |                      | young enough again after the clock was set back          |
#   | ``Outline`` (``prepared``)    | a kind of scrape     | the clusters were prepared again, the request differs,   |
#   |                               |                      | other inputs are stale, ``now`` is outside of its window |
#
# Keys compare identity, not content. That is sound because the read model never changes an object that it has handed
# out, and shares those that did not change. All lines of a cluster go when its name does: it is a label of each line.
#
# What is rendered when:
#   - by the refresher, when the tables changed (``prepare``): topics, samples, and their compressed bytes; then, if a
#     scrape may be near (``ScrapeTimes``), the outline of the kind of scrape that came last. When all offsets moved at
#     once, part of them is left for the next time (``in_steps``), so that a change of the state is not behind them.
#   - at a scrape (``render``): metrics of the moment (``AgeMetric``), health, broker series, the exporter's own
#     metrics, and the outline if none fits: the first scrape of its kind, or the first after an input got stale.
#
# Ages decide at the scrape, not in a cache. While an input is stale, the metrics that require it (``Freshness``) are
# left out, so that neither an alert nor a panel takes an old value for a current one; ages and counters stay. Each
# sample is judged by its own age, so a broker that hangs loses only its own series. An outline knows from when to when
# its samples are the right ones, so no scrape has to look at them.
#
# A scrape never waits for a table or for ``prepare``. It takes no lock; it reads ``_prepared`` once, and that is
# replaced as a whole. The refresher shows a snapshot only after it was prepared, so ``render`` finds it; it prepares by
# itself only for a caller that skipped this. ``prepare`` in turn calls ``give_way`` between any two topics, because
# both share the interpreter.
#
# Why the bytes equal those of a fresh rendering: a line depends on nothing but the key of its cache, the catalogue and
# the order, and the order is that of the catalogue, of cluster names and of topic names. Compressed blocks may be
# concatenated because each ends at a byte boundary (``compression``); two ways to cut the same lines into blocks give
# other compressed bytes and the same text. The one intended difference is ``in_steps``: some offsets are of the samples
# before until ``is_complete``.
#
# Invariants
#   1. The text of an incremental exposition is that of one rendered from scratch, whatever happened in between.
#      tests/exporters/metrics/test_exposition.py, tests/exporters/metrics/test_outline.py.
#   2. Steps end, and at their end the text is that of one step. tests/exporters/metrics/test_steps.py.
#   3. A scrape of a prepared snapshot renders no topic; the second of a kind renders ages of the catalogue only.
#      tests/exporters/metrics/test_exposition.py, tests/exporters/metrics/test_outline.py.
#   4. An older snapshot never replaces a newer one, and a scrape during ``prepare`` shows all topics of the one before.
#      tests/exporters/metrics/test_steps.py.
#   5. After an error in ``prepare`` no line of it is kept: the next one renders everything.
#      tests/exporters/metrics/test_exposition.py.
#   6. Every series occurs once, and the lines of a metric are consecutive. tests/exporters/metrics/test_exposition.py.

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block, merged
from exporters.metrics.metric import (
    AgeMetric,
    ClusterMetric,
    ExporterMetric,
    Freshness,
    JudgedMetric,
    Metric,
    MetricType,
    SampledMetric,
)
from exporters.metrics.prepared import ClusterAtScrape, Outline, PreparedCluster, PreparedSnapshot, ScrapeRequest
from exporters.metrics.render_cache import PER_TOPIC, SAMPLED_METRICS, ClusterLines, ClusterSampleLines
from exporters.metrics.sample_ages import oldest_ages, oldest_moment, stale_inputs
from exporters.metrics.series_filter import EVERYTHING, NO_DETAIL, SeriesFilter, choose
from exporters.metrics.text import Heading, end, metric_name, sample_lines
from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.conditions import DEFAULT_SETTINGS, ConditionInputs, job_reported_at
from exporters.read_model.snapshot import SECOND
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.settings import CollectSettings, ExportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from exporters.metrics.metric import Sample
    from exporters.metrics.series_filter import Detail
    from exporters.read_model.conditions import ConditionSettings
    from exporters.read_model.refresher import ExporterHealth
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot

DEFAULT_INTERVALS: Final = CollectSettings()
DEFAULT_EXPORT: Final = ExportSettings()
_TOPIC_INDEX: Final = {metric.name: index for index, metric in enumerate(PER_TOPIC)}


class Exposition:
    """Renders snapshots, and keeps the lines that did not change. Safe to call from any thread."""

    def __init__(
        self,
        stale_after_seconds: float,
        collect: CollectSettings = DEFAULT_INTERVALS,
        detail_limit: int = DEFAULT_EXPORT.detail_limit,
        chosen: SeriesFilter = EVERYTHING,
        conditions: ConditionSettings = DEFAULT_SETTINGS,
    ) -> None:
        """Start without rendered lines.

        A sample stays for two intervals of ``collect``, if that is longer than data may be stale. ``detail_limit`` is
        the most series of partitions besides those that every partition has.
        """
        self._stale_after = stale_after_seconds
        self.oldest: Final = oldest_ages(stale_after_seconds, collect)
        self._detail_limit = detail_limit
        self.chosen: Final = chosen
        self.conditions = conditions
        # By cluster id. Changed by ``prepare`` alone, under the lock; a cluster that is gone or renamed starts empty.
        self._lines: dict[str, tuple[ClusterLines, ClusterSampleLines]] = {}
        # Held for a whole preparation; a scrape of a prepared snapshot never takes it.
        self._lock = threading.Lock()
        self.give_way: Callable[[], None] = lambda: None  # called often while something is prepared
        # Replaced as a whole at the end of a preparation, after ``_last_outline``; its snapshot's number never falls.
        self._prepared: PreparedSnapshot | None = None
        # By cluster: since when series of partitions are left out. Replaced as a whole, too.
        self._left_out: dict[str, int] = {}
        # Replaced by scrapes and by preparations, without a lock: each reader asks ``is_of`` whether it fits.
        self._last_outline: Outline | None = None
        self._scrapes = ScrapeTimes()  # of whole scrapes only: a selection by name is no rhythm

    def prepare(self, snapshot: ReplicationSnapshot, now: int, *, in_steps: bool = False) -> PreparedSnapshot:
        """Render and compress what changed since the last snapshot, so that no scrape waits for it.

        ``in_steps`` leaves some of the work for the next time when all offsets moved, so that a change in the meantime
        is shown first.
        """
        with self._lock:
            try:
                prepared = self._rendered(snapshot, now, in_steps=in_steps)
                self._prepare_outline(prepared, now)
            except Exception:
                self._lines.clear()  # some are of this snapshot, some of the last
                raise
            left_out = (name for name, each in prepared.clusters.items() if each.detail.left_out)
            self._left_out = {name: self._left_out.get(name, now) for name in left_out}
            self._prepared = prepared
            return prepared

    def _rendered(self, snapshot: ReplicationSnapshot, now: int, *, in_steps: bool) -> PreparedSnapshot:
        last = self._prepared
        if last is not None and last.is_complete and last.snapshot.clusters is snapshot.clusters:
            return replace(last, snapshot=snapshot)  # only when it was read has changed
        for cluster_id in self._lines.keys() - snapshot.clusters.keys():
            del self._lines[cluster_id]
        by_name = clusters_by_name(snapshot)
        self.give_way()
        details = choose(by_name.values(), self._detail_limit, self.chosen.shows_topic)
        clusters = {name: self._prepare(cluster, details, now, in_steps=in_steps) for name, cluster in by_name.items()}
        return PreparedSnapshot(snapshot, clusters, all(topics.is_complete for topics, _ in self._lines.values()))

    def _prepare_outline(self, prepared: PreparedSnapshot, now: int) -> None:
        """Put together what the next scrape shows if it asks as the last one did, once that may be near."""
        last = self._last_outline
        if last is None or not self._scrapes.may_be_near(now):
            return
        clusters = prepared.at_scrape(last.request, self._stale_at(now))
        if not last.is_of(prepared, last.request, clusters, now):
            self.give_way()
            self._last_outline = self._outline(prepared, clusters, now, last.request).compressed()

    def _prepare(
        self, cluster: ClusterSnapshot, details: Mapping[str, Detail], now: int, *, in_steps: bool
    ) -> PreparedCluster:
        cluster_id = cluster.cluster.cluster_id
        detail = details.get(cluster_id, NO_DETAIL)
        topics, samples = self._lines.get(cluster_id, (None, None))
        if topics is None or samples is None or topics.name != cluster.name:  # the name is a label of every line
            topics = ClusterLines(cluster.name, self.chosen.shows_topic)
            samples = ClusterSampleLines(self.oldest, self.chosen)
            self._lines[cluster_id] = topics, samples
        topics.update(cluster, detail, in_steps=in_steps, give_way=self.give_way)
        samples.update(cluster, detail, now, self.give_way)
        return PreparedCluster(cluster, detail, topics.blocks, samples)

    def render(
        self, snapshot: ReplicationSnapshot, health: ExporterHealth, now: int, request: ScrapeRequest
    ) -> list[Block]:
        """Render the response to a scrape, with ages up to ``now``, in blocks of whole lines.

        The snapshot, unless it was prepared, or a newer one, is prepared now. The samples of a metric are consecutive,
        as the format demands, a header is only where samples follow. An unknown cluster gives the exporter's own
        metrics only.
        """
        prepared, request = self._prepared, replace(request, left_out=self.chosen.left_out)
        # A newer one was prepared since this scrape began: it must not be undone.
        if prepared is None or prepared.snapshot.number < snapshot.number:
            prepared = self.prepare(snapshot, now)
        clusters, outline = prepared.at_scrape(request, self._stale_at(now)), self._last_outline
        if outline is None or not outline.is_of(prepared, request, clusters, now):
            outline = self._outline(prepared, clusters, now, request)
            if not request.names:  # a few metrics are not what a server asks for again and again
                outline = self._last_outline = outline.compressed()
        if not request.names:
            self._scrapes.add(now)
        blocks: list[Block] = []
        for part in outline.parts:
            blocks += (part,) if isinstance(part, Block) else _cluster_blocks(part, clusters, now, request)
        every = [each.cluster for each in prepared.clusters.values()]
        blocks += judged_blocks(clusters, self.condition_inputs(every, health, now), request)
        blocks += broker_blocks(clusters, oldest_moment(self.oldest, BROKER_METRICS.name, now), request)
        left_out = {each.cluster.name: each.prepared.detail.left_out for each in clusters}
        series = sum(block.series for block in blocks)
        shown = tuple((each.cluster.name, int(len(clusters) == 1)) for each in clusters)
        health = replace(health, filters=self.chosen.patterns, families=self.chosen.families)
        health = replace(health, without_detail=left_out, drop_in_names=shown)
        blocks += exporter_blocks(health, series, request)
        return blocks + end(is_openmetrics=request.is_openmetrics)

    def condition_inputs(self, every: Iterable[ClusterSnapshot], health: ExporterHealth, now: int) -> ConditionInputs:
        """Return what conditions follow from besides the clusters that are asked about; ``every``: all clusters."""
        started = int(health.process.get("process_start_time_seconds", now / SECOND)) * SECOND
        return ConditionInputs(
            now=now,
            stale_after=self._stale_after,
            unreadable={
                each.table: started if each.age_seconds is None else now - int(each.age_seconds) * SECOND
                for each in health.tables
                if not each.is_readable
            },
            left_out=self._left_out,
            oldest=self.oldest,
            reported_at=job_reported_at(every),
            settings=self.conditions,
        )

    def _stale_at(self, now: int) -> Callable[[ClusterSnapshot], frozenset[Freshness]]:
        offsets_after = self.oldest[REPLICA_OFFSETS.name]
        return lambda cluster: stale_inputs(cluster, now, self._stale_after, offsets_after)

    def _outline(
        self, prepared: PreparedSnapshot, clusters: list[ClusterAtScrape], now: int, request: ScrapeRequest
    ) -> Outline:
        """Put together what scrapes show until a sample is too old or an input stale."""
        parts: list[Block | AgeMetric] = []
        run: list[Block] = []
        for metric in CATALOGUE:
            if not request.wants(metric.name):
                continue
            if isinstance(metric, AgeMetric):
                parts += (*merged(run), metric)
                run = []
            else:
                run += self._blocks(metric, clusters, now, request)
        parts += merged(run)
        shown = [each.prepared.samples.shown(metric) for metric in SAMPLED_METRICS for each in clusters]
        after = max((begin for begin, _ in shown), default=-math.inf)
        until = min((end for _, end in shown), default=math.inf)
        return Outline(prepared, request, tuple(each.stale for each in clusters), after, until, parts)

    def _blocks(
        self, metric: Metric, clusters: list[ClusterAtScrape], now: int, request: ScrapeRequest
    ) -> Iterator[Block]:
        """Yield the lines of one metric, of all clusters."""
        if isinstance(metric, ExporterMetric | JudgedMetric):
            return
        if metric.is_drop_in and len(clusters) != 1:  # without a label cluster, two clusters would collide
            return
        if isinstance(metric, ClusterMetric):
            yield from _cluster_blocks(metric, clusters, now, request)
            return
        shown = [each.prepared for each in clusters if each.shows(metric)]
        if isinstance(metric, SampledMetric):
            blocks = [each.samples.block(metric, each.cluster, each.detail, now) for each in shown]
        else:
            blocks = [each.topics[_TOPIC_INDEX[metric.name]] for each in shown]
        if any(block.series for block in blocks):
            yield HEADINGS[metric.name].block(is_openmetrics=request.is_openmetrics)
            yield from blocks


def _cluster_blocks(
    metric: ClusterMetric | AgeMetric, clusters: list[ClusterAtScrape], now: int, request: ScrapeRequest
) -> Iterator[Block]:
    shown = (each.cluster for each in clusters if each.shows(metric))
    if isinstance(metric, AgeMetric):
        return sample_blocks(metric, chain.from_iterable(metric.samples(cluster, now) for cluster in shown), request)
    since = clusters[0].counted_since if clusters else None
    created = None if since is None else since / SECOND
    return sample_blocks(metric, chain.from_iterable(map(metric.samples, shown)), request, created=created)


# Lines that are rendered at a scrape, or at every change of a cluster: of metrics that have few.


HEADINGS: Final = {metric.name: Heading(metric) for metric in CATALOGUE}
_OWN_NAMES: Final = frozenset(metric.name for metric in CATALOGUE)


def sample_blocks(
    metric: Metric,
    samples: Iterable[Sample],
    request: ScrapeRequest,
    *,
    heading: Heading | None = None,
    created: float | None = None,
) -> Iterator[Block]:
    """Render the lines of one metric; ``created``: when it was 0 if it is a counter, in seconds since 1970."""
    # Prometheus keeps each as one more series: only what has no other labels says it.
    is_dated = request.is_openmetrics and metric.kind is MetricType.COUNTER and {*metric.labels} <= {"cluster"}
    when = created if is_dated else None
    lines = [sample_lines(metric, values, value, when) for values, value in samples]
    if lines:
        yield (heading or HEADINGS[metric.name]).block(is_openmetrics=request.is_openmetrics)
        yield Block(("".join(lines).encode(),), len(lines) if when is None else 2 * len(lines))


def judged_blocks(clusters: list[ClusterAtScrape], inputs: ConditionInputs, request: ScrapeRequest) -> Iterator[Block]:
    """Render what is judged of each cluster, whether its state is stale or not."""
    selected = {each.cluster.name: each.cluster for each in clusters}
    for metric in CATALOGUE:
        if isinstance(metric, JudgedMetric) and request.wants(metric.name):
            yield from sample_blocks(metric, metric.samples(selected, inputs), request)


def broker_blocks(clusters: list[ClusterAtScrape], since: int, request: ScrapeRequest) -> list[Block]:
    """Render the metrics that the brokers expose themselves, under their own names.

    The freshness of each sample counts, not the cluster's: a sample that its broker does not renew disappears, as it
    would from a scrape of a broker that is down. A name that is ours or invalid would break the whole response.
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    for each in clusters:
        for sample in sorted(each.cluster.samples.broker_metrics or ()):
            name = sample.metric
            if sample.collected_at >= since and request.wants(name) and name not in _OWN_NAMES and metric_name(name):
                samples[name].append(((each.cluster.name, str(sample.broker)), sample.metric_value))
    blocks: list[Block] = []
    for name, rows in sorted(samples.items()):
        kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
        metric = Metric(
            name=name,
            kind=kind,
            labels=("cluster", "broker"),
            help="Metric of the broker itself.",
            source="broker_metrics.metric_value",
        )
        blocks += sample_blocks(metric, rows, request, heading=Heading(metric))
    return blocks


def exporter_blocks(health: ExporterHealth, series: int, request: ScrapeRequest) -> list[Block]:
    """Render the metrics of the exporter itself, which count the samples before them and their own."""
    own = [metric for metric in CATALOGUE if isinstance(metric, ExporterMetric) and request.wants(metric.name)]
    created = health.process.get("process_start_time_seconds")

    def blocks(shown: ExporterHealth) -> list[Block]:
        return [
            each for metric in own for each in sample_blocks(metric, metric.samples(shown), request, created=created)
        ]

    return blocks(replace(health, series=series + sum(block.series for block in blocks(health))))


# Time of the next scrape, so that its response is prepared shortly before, not at every commit.


LEAD_MICROS: Final = 2_000_000
"""Lead of the preparation before a scrape: the last commit of a job that commits once a second is included."""
_INTERVALS: Final = 4
"""So many of the last intervals are looked at: two servers that scrape in turn make unequal ones."""


class ScrapeTimes:
    """The times of the last scrapes, in UTC microseconds."""

    def __init__(self) -> None:
        """Start before the first scrape."""
        self._last: int | None = None
        self._intervals: deque[int] = deque(maxlen=_INTERVALS)

    def add(self, now: int) -> None:
        """Add a scrape."""
        if self._last is not None:
            self._intervals.append(abs(now - self._last))  # the clock may have been set back
        self._last = now

    def may_be_near(self, now: int) -> bool:
        """Return whether the next scrape may come within the lead: as soon after the last one as any did before."""
        if self._last is None:
            return False
        if not self._intervals:
            return True
        since = abs(now - self._last)
        return min(self._intervals) - LEAD_MICROS <= since <= max(self._intervals) + LEAD_MICROS
