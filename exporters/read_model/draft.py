"""The next snapshot, made from the last: a draft per cluster that is touched. Knows values, no files.

A draft is what ``streaming.delta.state`` reads a state into.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from exporters.read_model.snapshot import (
    RECENT_MICROS,
    Advice,
    ClusterIncidents,
    ClusterSnapshot,
    ClusterTotals,
    PartitionCounts,
    ReplicationSnapshot,
    SourceProgress,
    TopicPartitions,
)
from streaming.contracts import health
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import EPISODES, ClusterState, PartitionState, SourceLag, SourceState, later
from streaming.contracts.tally import COLUMN_OF_STATE
from streaming.delta.incidents.closed import expired_counts
from streaming.delta.state import states_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from deltalake import DeltaTable

    from exporters.read_model.cluster_samples import ClusterSamples, PartitionOffsets
    from exporters.read_model.snapshot import BrokerAdvice, ClusterTimes, EventRow
    from streaming.contracts.conditions import Spell
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
    from streaming.contracts.sampled_conditions import SampledSpell
    from streaming.contracts.state import BrokerState, ObservedTime
    from streaming.delta.incidents.closed import IncidentCounts
    from streaming.delta.state import Configs


@dataclass(slots=True)
class SnapshotDraft:
    """The next snapshot."""

    last: ReplicationSnapshot
    drafts: dict[str, ClusterDraft] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    incidents: Mapping[str, ClusterIncidents] | None = None
    conditions: Mapping[str, tuple[Spell, ...]] = field(default_factory=dict)
    sampled_conditions: Mapping[str, tuple[SampledSpell, ...]] = field(default_factory=dict)
    expired_incidents: IncidentCounts = field(default_factory=Counter)
    counted_since: int | None = None
    keeps_counters: bool = True
    """Exposed counters never go back; a state of the past is shown as its rows have it."""

    def __post_init__(self) -> None:
        """Keep incidents and conditions until others are put, and since when is counted."""
        self.incidents = self.last.incidents
        self.conditions, self.sampled_conditions = self.last.conditions, self.last.sampled_conditions
        self.counted_since = self.last.counted_since

    def cluster(self, cluster_id: str, name: str) -> ClusterDraft:
        """Open the draft of one cluster."""
        draft = self.drafts.get(cluster_id)
        if draft is None:
            last = self.last.clusters.get(cluster_id)
            empty = ClusterState(cluster_id, name)  # type: ignore[arg-type]  # an id of a table is an id
            draft = self.drafts[cluster_id] = ClusterDraft(
                last or ClusterSnapshot(cluster=empty), keeps_counters=self.keeps_counters
            )
        return draft

    def put_cluster(self, cluster: ClusterState, _configs: Configs) -> None:
        """Take over a cluster."""
        self.cluster(cluster.cluster_id, cluster.cluster).put_cluster(cluster)

    def put_broker(self, broker: BrokerState) -> None:
        """Take over a broker."""
        self.cluster(broker.cluster_id, broker.cluster).put_broker(broker)

    def put_partitions(self, rows: pa.Table) -> None:
        """Take over the rows of ``partition_state``."""
        for partition in states_of(PartitionState, rows):
            self.put_partition(partition)

    def put_partition(self, partition: PartitionState) -> None:
        """Take over a partition; a tombstone, too."""
        self.cluster(partition.cluster_id, partition.cluster).put_partition(partition)

    def put_source(self, source: SourceState) -> None:
        """Take over how far a source of replication was applied."""
        self.cluster(source.cluster_id, source.cluster).put_source(source)

    def add_isr_removals(self, cluster_id: ClusterId, cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count removals of a broker from ISRs."""
        self.cluster(cluster_id, cluster).add_isr_removals(broker, cause, count)

    def count_expired_incidents(self, table: DeltaTable) -> None:
        """Take over how many closed incidents of each cluster the table does not hold any more."""
        self.expired_incidents = expired_counts(table, {*self.last.clusters, *self.drafts})

    def put_incidents(self, incidents: Mapping[str, ClusterIncidents] | None) -> None:
        """Take over those of every cluster; a cluster that is not named has none, None is unknown of all."""
        self.incidents = incidents
        list(self.every_cluster())

    def put_conditions(self, spells: Mapping[str, tuple[Spell, ...]]) -> None:
        """Take over the spells of every cluster; a cluster that is not named has none."""
        before, self.conditions = self.conditions, spells
        for cluster_id, cluster in self.last.clusters.items():
            if cluster.conditions_until is not None or before.get(cluster_id, ()) != spells.get(cluster_id, ()):
                self.cluster(cluster_id, cluster.name).conditions_until = None

    def put_sampled_conditions(self, spells: Mapping[str, tuple[SampledSpell, ...]]) -> None:
        """Take over what lasts of what samples show, of every cluster; a cluster that is not named has nothing."""
        before, self.sampled_conditions = self.sampled_conditions, spells
        for cluster_id, cluster in self.last.clusters.items():
            if before.get(cluster_id, ()) != spells.get(cluster_id, ()):
                self.cluster(cluster_id, cluster.name)

    def stop_conditions(self) -> None:
        """Keep the spells of every cluster, as of the time up to which they could be read."""
        for cluster in self.every_cluster():
            cluster.stop_conditions()

    def every_cluster(self) -> Iterator[ClusterDraft]:
        """Open the draft of every cluster, those of the last snapshot included."""
        for cluster_id, cluster in self.last.clusters.items():
            self.cluster(cluster_id, cluster.name)
        yield from self.drafts.values()

    def finish(self, version: int, read_at: int, keep_events: int) -> ReplicationSnapshot:
        """Return the next snapshot; the draft must not be used after."""
        finished = {cluster_id: self._finished(cluster_id, read_at) for cluster_id in self.drafts}
        return ReplicationSnapshot(
            clusters={**self.last.clusters, **finished} if finished else self.last.clusters,
            version=version,
            read_at=read_at,
            recent_events=(*self.last.recent_events, *self.events)[-keep_events:] if self.events
            else self.last.recent_events,
            incidents=self.incidents,
            conditions=self.conditions,
            sampled_conditions=self.sampled_conditions,
            counted_since=self.counted_since,
        )  # fmt: skip

    def _finished(self, cluster_id: str, read_at: int) -> ClusterSnapshot:
        incidents = None if self.incidents is None else self.incidents.get(cluster_id, ClusterIncidents())
        finished, last = self.drafts[cluster_id].finish(), self.last.clusters.get(cluster_id)
        is_same = last is not None and last.watermark == finished.watermark
        watermark_read_at = last.watermark_read_at if last is not None and is_same else read_at
        return replace(
            finished,
            incidents=incidents,
            conditions=self.conditions.get(cluster_id, ()),
            sampled_conditions=self.sampled_conditions.get(cluster_id, ()),
            watermark_read_at=watermark_read_at,
        )


# One cluster's next snapshot: only what is touched is copied, the rest is shared with the last one.


_SECONDS_OF: Final = attrgetter(*(f"{name}_seconds" for name in EPISODES))
_SINCE_OF: Final = attrgetter(*(f"{name}_since" for name in EPISODES))


class ClusterDraft:
    """The next snapshot of one cluster."""

    def __init__(self, last: ClusterSnapshot, *, keeps_counters: bool = True) -> None:
        """Start from the last snapshot."""
        self._last, self._keeps_counters = last, keeps_counters
        self._cluster = last.cluster
        self._topics = dict(last.topics)
        self._opened: dict[str, MutableMapping[int, PartitionState]] = {}
        self._are_topics_put = False
        self._names: dict[str, str] = {}
        self._unsettled = dict(last.unsettled)
        self._recent = dict(last.recent)
        self._tombstones = dict(last.tombstones)
        self._tally = last.tally.copy()
        self._brokers = dict(last.brokers)
        self._isr_removals = (
            None if last.departures is None else {broker: Counter(causes) for broker, causes in last.departures.items()}
        )
        self._sources = dict(last.sources)
        self._offsets = last.offsets
        self._offsets_at = last.offsets_at
        self._samples = last.samples
        self._advice = last.advice
        self._times = last.times
        self._isr_meters = last.isr_meters
        self.conditions_until = last.conditions_until

    def put_partition(self, partition: PartitionState) -> None:
        """Take over a partition's state; a tombstone leaves the topic, and stays in the totals until it is dropped."""
        key = partition.topic_id, partition.partition
        partitions = self._partitions_of(partition.topic_id)
        before = partitions.pop(partition.partition, None) or self._tombstones.pop(key, None)
        self._unsettled.pop(key, None)
        self._recent.pop(key, None)
        if before is not None and not partition.is_deleted and self._keeps_counters:
            partition = _never_back(before, partition, self._last.cluster.observed)
        if partition.is_deleted and self._cluster.has_expired(partition):
            if before is not None:
                self._tally.forget([before])
            return
        self._tally.replace(before, partition)
        if partition.is_deleted:
            self._tombstones[key] = partition
            return
        partitions[partition.partition] = partition
        if _is_unsettled(partition):
            self._unsettled[key] = partition
        if partition.changed_at is not None:
            self._recent[key] = partition
        self._names[partition.topic_id] = partition.topic

    def put_topics(self, topics: Mapping[str, TopicPartitions]) -> None:
        """Take over whole topics that it has no partitions of; they are counted apart (``put_counted``)."""
        self._topics.update(topics)
        self._are_topics_put = True

    def put_counted(self, shapes: Mapping[tuple[Any, ...], int], totals: Mapping[str, int]) -> None:
        """Take over the counts of whole topics, as ``Tally.add_counted`` does."""
        self._tally.add_counted(self._cluster.cluster_id, shapes, totals)

    def put_unsettled(self, partition: PartitionState) -> None:
        """Take over that a partition of whole topics is offline, short of replicas, or on the move."""
        self._unsettled[partition.topic_id, partition.partition] = partition

    def put_recent(self, partition: PartitionState) -> None:
        """Take over that a partition of whole topics changed lately."""
        self._recent[partition.topic_id, partition.partition] = partition

    def put_broker(self, broker: BrokerState) -> None:
        """Take over a broker's state."""
        self._brokers[broker.broker] = broker

    def put_cluster(self, cluster: ClusterState) -> None:
        """Take over the cluster's row; its watermarks only move forward, and it drops tombstones."""
        self._cluster = cluster.not_before(self._cluster)
        expired = {key: each for key, each in self._tombstones.items() if self._cluster.has_expired(each)}
        self._tally.forget(expired.values())
        for key in expired:
            del self._tombstones[key]
        for source in self._sources.values():
            self._watch(source)

    @property
    def cluster_id(self) -> ClusterId:
        """Kafka's id of the cluster."""
        return self._cluster.cluster_id

    @property
    def watermark(self) -> int:
        """Newest time of its primary source; 0 before there is any."""
        return self._cluster.primary_watermark or 0

    def observe_until(self, moment: Micros) -> None:
        """Let the cluster be observed up to a moment of the past, whatever was reported since."""
        self._cluster = self._cluster._replace(watermark=moment, primary_watermark=moment)

    def put_source(
        self, state: SourceState, channel: str = Channel.REPLICATION.value, lag: SourceLag | None = None
    ) -> None:
        """Take over how far a source came. Nothing goes back; a lag that is not given stays."""
        before = self._sources.get((channel, state.source))
        if before is not None:
            state = _newest(channel, before.state, state)
            lag = before.lag if lag is None else lag
        progress = SourceProgress(channel, state, lag or SourceLag())
        self._sources[channel, state.source] = progress
        self._watch(progress)

    def put_sample_time(self, source: str, moment: Micros) -> None:
        """Take over that a source of samples reported at a moment; that says nothing else of it."""
        channel = Channel.SAMPLES.value
        before = self._sources.get((channel, source))
        unheard = SourceState(self._cluster.cluster_id, self._cluster.cluster, source, SourceKind.NONE)
        progress = before or SourceProgress(channel, unheard, is_counted=False)
        if (progress.state.observed_until or 0) < moment:
            state = progress.state._replace(observed_until=moment, collected_at=moment)
            self._sources[channel, source] = progress._replace(state=state)

    def add_isr_removals(self, broker: int, cause: str, count: int) -> None:
        """Count removals of a broker from ISRs."""
        if self._isr_removals is not None:
            self._isr_removals.setdefault(broker, Counter())[cause] += count

    def drop_isr_removals(self) -> None:
        """Count no more: how often brokers left ISRs before is unknown."""
        self._isr_removals = None

    def drop_lags(self) -> None:
        """Forget how far the job is behind each source; of samples, how much was counted, too."""
        for key, source in self._sources.items():
            is_counted = source.channel == Channel.REPLICATION and source.is_counted
            self._sources[key] = source._replace(lag=SourceLag(), is_counted=is_counted)

    def put_offsets(self, offsets: Mapping[str, PartitionOffsets], asked_at: int | None) -> None:
        """Take over the newest offsets; topics whose offsets are the same keep their object."""
        self._offsets_at = asked_at
        last = self._last.offsets
        self._offsets = {
            topic_id: last[topic_id] if last.get(topic_id) == partitions else partitions
            for topic_id, partitions in offsets.items()
        }

    @property
    def samples(self) -> ClusterSamples:
        """The newest samples so far."""
        return self._samples

    def put_samples(self, **rows: Any) -> None:  # noqa: ANN401 - each field of ClusterSamples has its own type
        """Take over the newest samples of some tables."""
        self._samples = self._samples._replace(**rows)

    def put_advice(self, brokers: Mapping[int, BrokerAdvice], version: int) -> None:
        """Take over the advice about every broker, true of a version of the changes."""
        self._advice = Advice(brokers, version, None if self._advice is None else self._advice.until)
        self._date_advice()

    def put_times(self, times: ClusterTimes) -> None:
        """Take over the times of all partitions; they only grow."""
        self._times = times.over(self._times)
        self._date_advice()

    def put_isr_meters(self, meters: Mapping[int, tuple[int, int]]) -> None:
        """Take over how often each leader changed an ISR."""
        self._isr_meters = meters

    def stop_conditions(self) -> None:
        """Let nothing begin or end of what the spells say, from the last snapshot on."""
        if self.conditions_until is None:
            self.conditions_until = self._last.observed_until

    def drop_advice(self) -> None:
        """Forget the advice."""
        self._advice = None

    def drop_times(self) -> None:
        """Forget the times."""
        self._times = None

    def finish(self) -> ClusterSnapshot:
        """Return the next snapshot; the draft must not be used after."""
        for topic_id, partitions in self._opened.items():
            if partitions:
                name = self._names.get(topic_id) or self._topics[topic_id].topic
                self._topics[topic_id] = TopicPartitions(topic_id, name, partitions)
            else:
                self._topics.pop(topic_id, None)
        has_partitions = self._opened or self._are_topics_put
        return replace(
            self._last,
            cluster=self._cluster,
            topics=self._topics if has_partitions else self._last.topics,
            unsettled=self._unsettled if has_partitions else self._last.unsettled,
            recent=self._recent_ones(),
            tombstones=self._tombstones,
            brokers=self._brokers,
            totals=self._totals(),
            departures=self._isr_removals,
            counts=self._counts(),
            tally=self._tally,
            sources=self._sources,
            offsets=self._offsets,
            offsets_at=self._offsets_at,
            samples=self._samples,
            advice=self._advice,
            times=self._times,
            isr_meters=self._isr_meters,
            conditions_until=self.conditions_until,
        )

    def _recent_ones(self) -> dict[tuple[str, int], PartitionState]:
        """Drop what is recent no more: the first ones, since changes come in their order; any of a table's rows."""
        recent, since = self._recent, (self._cluster.primary_watermark or 0) - RECENT_MICROS
        if not self._last.topics:
            by_time = sorted(recent.items(), key=lambda item: item[1].changed_at or 0)
            return {key: each for key, each in by_time if (each.changed_at or 0) >= since}
        while recent and (recent[oldest := next(iter(recent))].changed_at or 0) < since:
            del recent[oldest]
        return recent

    def _totals(self) -> ClusterTotals:
        cluster = self._cluster
        return ClusterTotals(*(
            int(self._tally.total(cluster.cluster_id, name, cluster.observed)) + getattr(cluster, f"expired_{name}")
            for name in ClusterTotals._fields
        ))  # fmt: skip

    def _counts(self) -> PartitionCounts:
        cluster_id = self._cluster.cluster_id
        return PartitionCounts(
            {state: self._tally.of_cluster(cluster_id, COLUMN_OF_STATE[state]) for state in health.STATES},
            self._tally.by_broker(cluster_id, "led_partitions"),
            self._tally.by_broker(cluster_id, "hosted_partitions"),
            self._tally.by_broker(cluster_id, "in_sync_partitions"),
        )

    def _partitions_of(self, topic_id: str) -> MutableMapping[int, PartitionState]:
        opened = self._opened.get(topic_id)
        if opened is None:
            topic = self._topics.get(topic_id)
            partitions: Mapping[int, PartitionState] = topic.partitions if topic else {}
            opened = self._opened[topic_id] = cast("MutableMapping[int, PartitionState]", copy(partitions))
        return opened

    def _date_advice(self) -> None:
        """Set up to when the advice is true: the cluster's row of the same version, or of one before, says that."""
        advice, times = self._advice, self._times
        if advice is not None and times is not None and times.as_of_version <= advice.as_of_version:
            self._advice = replace(advice, until=later(times.primary_watermark, advice.until))

    def _watch(self, source: SourceProgress) -> None:
        """Move the cluster's watermarks up to what a source of replication has observed."""
        cluster, state = self._cluster, source.state
        if source.channel == Channel.REPLICATION and state.observed_until is not None:
            is_primary = state.source_kind is cluster.primary_source and state.source_kind is not SourceKind.NONE
            self._cluster = cluster.with_watermark(state.observed_until, is_primary=is_primary)


def _is_unsettled(partition: PartitionState) -> bool:
    return bool(
        partition.is_offline
        or partition.is_under_replicated
        or partition.is_under_min_isr
        or partition.adding_replicas
        or partition.removing_replicas
    )


def _newest(channel: str, before: SourceState, after: SourceState) -> SourceState:
    """Choose between two states of a source: the changes and ``source_progress`` are each true of a version.

    A sample gives its time, and no more, before ``source_progress`` counts it: there the times are kept apart.
    """
    if channel == Channel.REPLICATION:
        is_newer = before.log_id == after.log_id and before.position > after.position
        return before if is_newer else after
    if (before.observed_until or 0) > (after.observed_until or 0):
        return after._replace(observed_until=before.observed_until, collected_at=before.collected_at)
    return after


def _never_back(before: PartitionState, after: PartitionState, observed: ObservedTime) -> PartitionState:
    """Keep the exposed seconds from going back where an episode ended before the moment they were counted up to.

    A source gives the end of an episode after the watermark, by contract; but a counter that goes back by a
    millisecond reads as a restart, so a scrape must not depend on it.
    """
    times = zip(EPISODES, _SECONDS_OF(before), _SECONDS_OF(after), _SINCE_OF(before), _SINCE_OF(after), strict=True)
    lost = {
        episode: by
        for episode, had, has, began, begins in times
        # The seconds of an open episode, or one that only began, grow with those that are closed.
        if (had > has or (began is not None and began != begins))
        and (by := _exposed(before, episode, observed) - _exposed(after, episode, observed)) > 0
    }
    if not lost and before.unknown_seconds <= after.unknown_seconds:
        return after
    regained = {f"{episode}_seconds": getattr(after, f"{episode}_seconds") + by for episode, by in lost.items()}
    return after._replace(**regained, unknown_seconds=max(before.unknown_seconds, after.unknown_seconds))


def _exposed(partition: PartitionState, episode: str, observed: ObservedTime) -> float:
    return observed.seconds_in(partition, f"{episode}_seconds")
