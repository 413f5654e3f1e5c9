"""The next snapshot, made from the last: only what is touched is copied. Knows values, no Arrow and no files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from exporters.advice import Advice
from exporters.snapshot import (
    BrokerMetric,
    Cluster,
    ClusterSnapshot,
    Partition,
    PartitionOffsets,
    SourceProgress,
    Tally,
    Topic,
    Totals,
)
from streaming.contracts.health import states_of
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import Authority
from streaming.contracts.totals import seconds_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.advice import BrokerAdvice, ClusterTimes
    from exporters.snapshot import Broker


class ClusterDraft:
    """One cluster's next snapshot."""

    def __init__(self, last: ClusterSnapshot) -> None:
        """Start from the last snapshot."""
        self._last = last
        self._cluster = last.cluster
        self._topics = dict(last.topics)
        self._opened: dict[str, dict[int, Partition]] = {}
        self._names: dict[str, str] = {}
        self._brokers = dict(last.brokers)
        self._totals = Counter(last.totals._asdict())
        self._departures = {broker: Counter(causes) for broker, causes in last.departures.items()}
        self._sources = dict(last.sources)
        self._states = Counter(last.tally.states)
        self._led = Counter(last.tally.led)
        self._hosted = Counter(last.tally.hosted)
        self._in_sync = Counter(last.tally.in_sync)
        self._offsets = last.offsets
        self._offsets_at = last.offsets_at
        self._broker_metrics = last.broker_metrics
        self._advice = last.advice
        self._times = last.times

    def put_partition(self, partition: Partition) -> None:
        """Take over a partition's state; a tombstone removes it."""
        partitions = self._partitions_of(partition.topic_id)
        before = partitions.pop(partition.partition, None)
        if before is not None:
            self._count(before, -1)
        if partition.is_deleted:
            return
        after = partition if before is None else _never_back(before, partition, self._last.watermark)
        partitions[partition.partition] = after
        self._names[partition.topic_id] = partition.topic
        self._count(after, 1)

    def put_broker(self, broker: Broker) -> None:
        """Take over a broker's state."""
        self._brokers[broker.broker] = broker

    def put_cluster(self, cluster: Cluster) -> None:
        """Take over the cluster's row; its watermark only moves forward."""
        watermark = _later(cluster.authority_watermark, self._cluster.authority_watermark)
        self._cluster = cluster._replace(authority_watermark=watermark)
        for source in self._sources.values():
            self._watch(source)

    def put_source(self, source: SourceProgress) -> None:
        """Take over how far a source came; what a later row told already stays, and so does what this does not tell."""
        key = (source.channel, source.source)
        known = self._sources.get(key, source)
        told = source.over(known)
        if (known.observed_until or 0) > (told.observed_until or 0):
            told = told._replace(
                **{name: getattr(known, name) for name in ("position", "observed_until", "collected_at")}
            )
        self._sources[key] = told
        self._watch(told)

    def put_totals(self, totals: Totals) -> None:
        """Start the totals from the cluster's row."""
        self._totals = Counter({name: count or 0 for name, count in totals._asdict().items()})

    def add_totals(self, before: Totals, after: Totals) -> None:
        """Add what one change counted."""
        for name, was, now in zip(Totals._fields, before, after, strict=True):
            self._totals[name] += now - was

    def put_departures(self, broker: int, causes: Mapping[str, int]) -> None:
        """Start a broker's departures from its row."""
        self._departures[broker] = Counter(causes)

    def add_departure(self, broker: int, cause: str) -> None:
        """Count one broker that left an ISR."""
        self._departures.setdefault(broker, Counter())[cause] += 1

    def put_offsets(self, offsets: Mapping[str, PartitionOffsets], asked_at: int) -> None:
        """Take over the newest offsets; topics whose offsets are the same keep their object."""
        self._offsets_at = asked_at
        last = self._last.offsets
        self._offsets = {
            topic_id: last[topic_id] if last.get(topic_id) == partitions else partitions
            for topic_id, partitions in offsets.items()
        }

    def put_broker_metrics(self, samples: tuple[BrokerMetric, ...]) -> None:
        """Take over the newest samples."""
        self._broker_metrics = samples

    def put_advice(self, brokers: Mapping[int, BrokerAdvice], version: int) -> None:
        """Take over the advice about every broker, true of a version of the changes."""
        self._advice = Advice(brokers, version, None if self._advice is None else self._advice.until)
        self._date_advice()

    def put_times(self, times: ClusterTimes) -> None:
        """Take over the times of all partitions; they only grow."""
        self._times = times.over(self._times)
        self._date_advice()

    def finish(self) -> ClusterSnapshot:
        """Give the next snapshot; the draft must not be used after."""
        for topic_id, partitions in self._opened.items():
            if partitions:
                name = self._names.get(topic_id) or self._topics[topic_id].topic
                self._topics[topic_id] = Topic(topic_id, name, partitions)
            else:
                self._topics.pop(topic_id, None)
        return replace(
            self._last,
            cluster=self._cluster,
            topics=self._topics,
            brokers=self._brokers,
            totals=Totals(**self._totals),
            departures=self._departures,
            tally=Tally(self._states, self._led, self._hosted, self._in_sync),
            sources=self._sources,
            offsets=self._offsets,
            offsets_at=self._offsets_at,
            broker_metrics=self._broker_metrics,
            advice=self._advice,
            times=self._times,
        )

    def _partitions_of(self, topic_id: str) -> dict[int, Partition]:
        opened = self._opened.get(topic_id)
        if opened is None:
            known = self._topics.get(topic_id)
            opened = self._opened[topic_id] = dict(known.partitions) if known else {}
        return opened

    def _count(self, partition: Partition, step: int) -> None:
        for state in states_of(partition):
            self._states[state] += step
        for broker in partition.replicas:
            self._hosted[broker] += step
        for broker in partition.isr:
            self._in_sync[broker] += step
        if partition.leader != NO_LEADER:
            self._led[partition.leader] += step

    def _date_advice(self) -> None:
        """Tell up to when the advice is true: the cluster's row of the same version, or of one before, says that."""
        advice, times = self._advice, self._times
        if advice is not None and times is not None and times.as_of_version <= advice.as_of_version:
            self._advice = replace(advice, until=_later(times.authority_watermark, advice.until))

    def _watch(self, source: SourceProgress) -> None:
        """Move the watermark up to what a source of the cluster's authority has seen."""
        cluster = self._cluster
        if source.authority == cluster.authority and source.authority not in {None, Authority.NONE}:
            watermark = _later(cluster.authority_watermark, source.observed_until)
            self._cluster = cluster._replace(authority_watermark=watermark)


def _later(one: int | None, other: int | None) -> int | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)


def _never_back(before: Partition, after: Partition, watermark: int | None) -> Partition:
    """Keep the told seconds from going back where an episode ended before the moment they were told up to.

    A source gives the end of an episode after the watermark, by contract; but a counter that goes back by a
    millisecond reads as a restart, so a scrape must not depend on it.
    """
    told = (
        (before.offline_seconds, before.offline_since, after.offline_seconds, after.offline_since),
        (
            before.under_replicated_seconds,
            before.under_replicated_since,
            after.under_replicated_seconds,
            after.under_replicated_since,
        ),
        (
            before.under_min_isr_seconds,
            before.under_min_isr_since,
            after.under_min_isr_seconds,
            after.under_min_isr_since,
        ),
    )
    lost = [seconds_until(*one[:2], watermark) - seconds_until(*one[2:], watermark) for one in told]
    if max(lost) <= 0 and before.unknown_seconds <= after.unknown_seconds:
        return after
    return after._replace(
        offline_seconds=after.offline_seconds + max(0.0, lost[0]),
        under_replicated_seconds=after.under_replicated_seconds + max(0.0, lost[1]),
        under_min_isr_seconds=after.under_min_isr_seconds + max(0.0, lost[2]),
        unknown_seconds=max(before.unknown_seconds, after.unknown_seconds),
    )
