"""Newest samples, taken over into a draft: replica offsets and broker metrics, and how far the sources are applied."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from exporters.read_model.snapshot import BrokerMetric, PartitionOffsets, ReplicaOffsets
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.contracts.state import SourceLag, SourceState
from streaming.delta.arrow_values import columns_of, rows_as
from streaming.delta.state_rows import states_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from exporters.read_model.draft import SnapshotDraft


class SampleRow(NamedTuple):
    """Whose sample it is, who took it, and when."""

    cluster_id: str
    cluster: str
    collected_at: int
    source: str


class PartitionKey(NamedTuple):
    """The partition of a replica."""

    topic_id: str
    partition: int


def put_offsets(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``replica_offsets``."""
    columns = columns_of(rows, (*SampleRow._fields, *PartitionKey._fields, *ReplicaOffsets._fields))
    samples = rows_as(SampleRow, columns, rows.num_rows)
    keys = rows_as(PartitionKey, columns, rows.num_rows)
    replicas = rows_as(ReplicaOffsets, columns, rows.num_rows)
    clusters: dict[str, dict[str, PartitionOffsets]] = defaultdict(lambda: defaultdict(dict))
    newest: dict[tuple[str, str], int] = {}
    for sample, key, replica in zip(samples, keys, replicas, strict=True):
        newest[sample[:2]] = max(sample.collected_at, newest.get(sample[:2], 0))
        partitions = clusters[sample.cluster_id][key.topic_id]
        partitions[key.partition] = (*partitions.get(key.partition, ()), replica)
    _put_progress(draft, Channel.OFFSETS, samples)
    for (cluster_id, name), asked_at in newest.items():
        draft.cluster(cluster_id, name).put_offsets(clusters[cluster_id], asked_at)


def put_broker_metrics(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``broker_metrics``."""
    columns = columns_of(rows, (*SampleRow._fields, *BrokerMetric._fields))
    samples = rows_as(SampleRow, columns, rows.num_rows)
    metrics = rows_as(BrokerMetric, columns, rows.num_rows)
    clusters: dict[str, list[BrokerMetric]] = defaultdict(list)
    newest: dict[str, SampleRow] = {}
    for sample, metric in zip(samples, metrics, strict=True):
        clusters[sample.cluster_id].append(metric)
        newest[sample.cluster_id] = max(sample, newest.get(sample.cluster_id, sample), key=attrgetter("collected_at"))
    _put_progress(draft, Channel.METRICS, samples)
    for cluster_id, sample in newest.items():
        measured = tuple(sorted(clusters[cluster_id]))
        draft.cluster(cluster_id, sample.cluster).put_broker_metrics(measured)


def put_progress(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``source_progress``."""
    channels = rows["channel"].to_pylist()
    for channel, state, lag in zip(channels, states_of(SourceState, rows), states_of(SourceLag, rows), strict=True):
        draft.cluster(state.cluster_id, state.cluster).put_source(state, channel, lag)


def drop_offsets(draft: SnapshotDraft) -> None:
    """Forget the offsets of every cluster."""
    for cluster in draft.every_cluster():
        cluster.put_offsets({}, None)


def drop_broker_metrics(draft: SnapshotDraft) -> None:
    """Forget what the brokers of every cluster measured."""
    for cluster in draft.every_cluster():
        cluster.put_broker_metrics(())


def drop_lags(draft: SnapshotDraft) -> None:
    """Forget how far the job is behind every source."""
    for cluster in draft.every_cluster():
        cluster.drop_lags()


def _put_progress(draft: SnapshotDraft, channel: Channel, samples: Iterable[SampleRow]) -> None:
    newest: dict[tuple[str, str, str], int] = {}
    for sample in samples:
        key = (sample.cluster_id, sample.cluster, sample.source)
        newest[key] = max(sample.collected_at, newest.get(key, 0))
    for (cluster_id, name, source), moment in newest.items():
        draft.cluster(cluster_id, name).put_sample_time(channel.value, source, Micros(moment))
