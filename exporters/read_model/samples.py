"""Newest samples, and how far the job has applied each source: read from rows, then taken over into a draft.

Reading grows with the rows, and needs no draft: it may be done beside the thread that follows the changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.cluster_samples import LaggingReplica, PartitionOffsets, ReplicaOffsets, TopicSize
from exporters.read_model.messages_in import messages_in
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel
from streaming.contracts.state import SourceLag, SourceState
from streaming.delta.log.queries import columns_of, plain, rows_as
from streaming.delta.state import states_of

if TYPE_CHECKING:
    from exporters.read_model.draft import SnapshotDraft

Put = Callable[["SnapshotDraft"], None]
"""Takes over what was read of a table into the draft of a snapshot."""


class SampleOwner(NamedTuple):
    """Whose sample it is."""

    cluster_id: str
    cluster: str


class PartitionKey(NamedTuple):
    """The partition of a replica."""

    topic_id: str
    partition: int


SAMPLED: Final = ("collected_at", "source")
OFFSETS_COLUMNS: Final = (
    *SampleOwner._fields, *SAMPLED, *PartitionKey._fields, *ReplicaOffsets._fields, *LaggingReplica._fields,
    "log_end_offset", "size_bytes",
)  # fmt: skip
_LOG_COLUMNS: Final = ("topic_id", "partition", "broker", "log_start_offset", "log_end_offset", "size_bytes")


def read_rows(rows: pa.Table, name: str, row: type[Any], channel: Channel) -> Put:
    """Read the whole of a table of samples, of the clusters whose state is there.

    Args:
        rows: of the table.
        name: of the table, and of the field of ``ClusterSamples``.
        row: what is read of each.
        channel: that the samples came on.

    Returns:
        what takes them over.
    """
    owners, of_cluster = _by_cluster(rows, row)
    samples = {cluster_id: tuple(each) for cluster_id, each in of_cluster.items()}
    put_progress_of_samples = _read_progress(channel, rows)

    def put(draft: SnapshotDraft) -> None:
        put_progress_of_samples(draft)
        for cluster_id in {*draft.last.clusters, *draft.drafts}:
            if cluster_id in owners:
                draft.cluster(cluster_id, owners[cluster_id]).put_samples(**{name: samples[cluster_id]})
            else:
                _put_nothing(draft, cluster_id, name)

    return put


def drop_rows(draft: SnapshotDraft, *names: str) -> None:
    """Forget the samples of some tables, of every cluster."""
    for cluster in draft.every_cluster():
        cluster.put_samples(**dict.fromkeys(names))


def _put_nothing(draft: SnapshotDraft, cluster_id: str, name: str) -> None:
    """Leave a cluster without samples; one that had none is not touched, since a draft copies what it holds."""
    last = draft.last.clusters.get(cluster_id)
    if cluster_id in draft.drafts:
        draft.drafts[cluster_id].put_samples(**{name: ()})
    elif last is not None and getattr(last.samples, name) != ():
        draft.cluster(cluster_id, last.name).put_samples(**{name: ()})


def read_offsets(rows: pa.Table) -> Put:
    """Read the whole of ``replica_offsets``; return what takes it over into a draft."""
    columns = columns_of(rows, (*SampleOwner._fields, *PartitionKey._fields, *ReplicaOffsets._fields))
    owners = rows_as(SampleOwner, columns, rows.num_rows)
    keys = rows_as(PartitionKey, columns, rows.num_rows)
    replicas = rows_as(ReplicaOffsets, columns, rows.num_rows)
    clusters: dict[SampleOwner, dict[str, PartitionOffsets]] = defaultdict(lambda: defaultdict(dict))
    for owner, key, replica in zip(owners, keys, replicas, strict=True):
        partitions = clusters[owner][key.topic_id]
        partitions[key.partition] = (*partitions.get(key.partition, ()), replica)
    put_progress_of_samples = _read_progress(Channel.OFFSETS, rows)
    lagging, asked_at, sizes = _lagging(rows), _asked_at(rows), _sizes(rows)
    logs = {owner: _logs(rows, owner.cluster_id) for owner in clusters}

    def put(draft: SnapshotDraft) -> None:
        put_progress_of_samples(draft)
        for owner, offsets in clusters.items():
            of_cluster, cluster = asked_at[owner.cluster_id], draft.cluster(*owner)
            cluster.put_offsets(offsets, max(of_cluster.values()))
            cluster.put_samples(
                lagging_replicas=tuple(lagging.get(owner.cluster_id, ())),
                broker_offsets_at=tuple(sorted(of_cluster.items())),
                topic_sizes=tuple(sizes.get(owner.cluster_id, ())),
                replica_logs=logs[owner],
                messages_in=messages_in(cluster.samples.messages_in, cluster.samples.replica_logs, logs[owner]),
            )

    return put


def drop_offsets(draft: SnapshotDraft) -> None:
    """Forget the offsets of every cluster."""
    for cluster in draft.every_cluster():
        cluster.put_offsets({}, None)
    drop_rows(draft, "lagging_replicas", "broker_offsets_at", "topic_sizes", "replica_logs", "messages_in")


def put_progress(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``source_progress``."""
    channels = rows["channel"].to_pylist()
    for channel, state, lag in zip(channels, states_of(SourceState, rows), states_of(SourceLag, rows), strict=True):
        draft.cluster(state.cluster_id, state.cluster).put_source(state, channel, lag)


def drop_lags(draft: SnapshotDraft) -> None:
    """Forget how far the job is behind every source."""
    for cluster in draft.every_cluster():
        cluster.drop_lags()


def _lagging(rows: pa.Table) -> dict[str, list[LaggingReplica]]:
    """Return the replicas that are behind; one that only lacks what came since the look before is not."""
    is_lagging = pc.less(rows["behind_since"], rows["collected_at"]).fill_null(False)
    return _by_cluster(rows.filter(is_lagging), LaggingReplica)[1]


def _asked_at(rows: pa.Table) -> dict[str, dict[int, int]]:
    newest: dict[str, dict[int, int]] = defaultdict(dict)
    for row in _aggregated(rows, ["cluster_id", "broker"], [("collected_at", "max")]):
        newest[row["cluster_id"]][row["broker"]] = row["collected_at_max"]
    return newest


def _sizes(rows: pa.Table) -> dict[str, list[TopicSize]]:
    sizes: dict[str, list[TopicSize]] = defaultdict(list)
    sized = rows.filter(rows["size_bytes"].is_valid())
    for row in _aggregated(
        sized, ["cluster_id", "topic_id", "topic"], [("size_bytes", "sum"), ("collected_at", "max")]
    ):
        size = TopicSize(row["topic_id"], row["topic"], row["size_bytes_sum"], row["collected_at_max"])
        sizes[row["cluster_id"]].append(size)
    return sizes


def _logs(rows: pa.Table, cluster_id: str) -> pa.Table:
    of_cluster = rows.filter(pc.equal(rows["cluster_id"], cluster_id)).select([*_LOG_COLUMNS, "collected_at"])
    return plain(of_cluster)


def _aggregated(rows: pa.Table, keys: list[str], sums: list[tuple[str, str]]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = plain(rows.group_by(keys).aggregate(sums)).to_pylist()
    return result


def _by_cluster(rows: pa.Table, row: type[Any]) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Return the name of each cluster and its rows, by its id."""
    columns = columns_of(rows, (*SampleOwner._fields, *row._fields))
    names: dict[str, str] = {}
    of_cluster: dict[str, list[Any]] = defaultdict(list)
    owners = rows_as(SampleOwner, columns, rows.num_rows)
    for owner, sample in zip(owners, rows_as(row, columns, rows.num_rows), strict=True):
        names[owner.cluster_id] = owner.cluster
        of_cluster[owner.cluster_id].append(sample)
    return names, of_cluster


def _read_progress(channel: Channel, rows: pa.Table) -> Put:
    newest = []
    if "source" in rows.column_names:
        newest = _aggregated(rows, [*SampleOwner._fields, "source"], [("collected_at", "max")])

    def put(draft: SnapshotDraft) -> None:
        for row in newest:
            if row["cluster_id"] in {*draft.last.clusters, *draft.drafts}:
                cluster = draft.cluster(row["cluster_id"], row["cluster"])
                cluster.put_sample_time(channel.value, row["source"], Micros(row["collected_at_max"]))

    return put
