"""Newest samples, and how far the job has applied each source: read from rows, then taken over into a draft.

Reading grows with the rows, and needs no draft: it may be done in parallel to the thread that follows the changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.cluster_samples import LaggingReplica, PartitionOffsets, ReplicaOffsets, TopicSize
from streaming.contracts.events import OF_LEADERS
from streaming.contracts.identifiers import Micros
from streaming.contracts.state import SourceLag, SourceState
from streaming.delta.log.queries import columns_of, plain, rows_as
from streaming.delta.state import states_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.read_model.draft import SnapshotDraft

Put = Callable[["SnapshotDraft"], None]
"""Takes over what was read of a table into the draft of a snapshot."""


class SampleOwner(NamedTuple):
    """Owner of a sample."""

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


def read_rows(rows: pa.Table, name: str, row: type[Any]) -> Put:
    """Read a table of samples, of the clusters whose state is there; return what takes over a ``row`` of each."""
    owners, of_cluster = _by_cluster(rows, row)
    samples = {cluster_id: tuple(each) for cluster_id, each in of_cluster.items()}
    put_progress_of_samples = _read_progress(rows)

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
    """Read all of ``replica_offsets``; return what takes it over into a draft."""
    columns = columns_of(rows, (*SampleOwner._fields, *PartitionKey._fields, *ReplicaOffsets._fields))
    owners = rows_as(SampleOwner, columns, rows.num_rows)
    keys = rows_as(PartitionKey, columns, rows.num_rows)
    replicas = rows_as(ReplicaOffsets, columns, rows.num_rows)
    clusters: dict[SampleOwner, dict[str, PartitionOffsets]] = defaultdict(lambda: defaultdict(dict))
    for owner, key, replica in zip(owners, keys, replicas, strict=True):
        partitions = clusters[owner][key.topic_id]
        partitions[key.partition] = (*partitions.get(key.partition, ()), replica)
    put_progress_of_samples = _read_progress(rows)
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
    """Take over all of ``source_progress``."""
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


def _read_progress(rows: pa.Table) -> Put:
    newest = []
    if "source" in rows.column_names:
        newest = _aggregated(rows, [*SampleOwner._fields, "source"], [("collected_at", "max")])

    def put(draft: SnapshotDraft) -> None:
        for row in newest:
            if row["cluster_id"] in {*draft.last.clusters, *draft.drafts}:
                cluster = draft.cluster(row["cluster_id"], row["cluster"])
                cluster.put_sample_time(row["source"], Micros(row["collected_at_max"]))

    return put


# The ISR changes that each leader made, counted as its own meters count them.
#
# ``IsrShrinksPerSec`` and ``IsrExpandsPerSec`` of ``ReplicaManager`` count, on the leader, each change that it asked
# the controller for and got (``Partition.maybeShrinkIsr``, ``maybeExpandIsr``); what the controller does on its own
# moves no meter. A broker counts fewer than it made: a change that it learns from the metadata log, before the
# controller's answer to its request, it takes for another's (``Partition.submitAlterPartition``). That is often so
# where controller and broker are one node.
#
# No table has these counts, so they begin at 0 with the process that reads, as those of a broker do.


_OF_LEADERS: Final = pa.array(sorted(OF_LEADERS))


class IsrMeters:
    """Counts the changes of every version once, however often the tables are read again."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._version: int | None = None
        self._counts: dict[str, Mapping[int, tuple[int, int]]] = {}

    def follow(self, rows: pa.Table, version: int) -> None:
        """Count the changes up to a version; those of the first call were made before this process began to count.

        Rows that were counted before do not count again.
        """
        if self._version is not None:
            fresh = rows.filter(pc.greater(rows["version"], self._version))
            shrinks, expands = _shrinks(fresh), _expands(fresh)
            for cluster_id in {cluster_id for cluster_id, _ in (*shrinks, *expands)}:
                counts = dict(self._counts.get(cluster_id, {}))
                for broker in {broker for each, broker in (*shrinks, *expands) if each == cluster_id}:
                    before, key = counts.get(broker, (0, 0)), (cluster_id, broker)
                    counts[broker] = before[0] + shrinks[key], before[1] + expands[key]
                self._counts[cluster_id] = counts
        self._version = version

    def put_into(self, draft: SnapshotDraft) -> None:
        """Take over the counts of every cluster whose last snapshot has others."""
        for cluster_id, counts in self._counts.items():
            last = draft.last.clusters.get(cluster_id)
            if last is not None and last.isr_meters is not counts:
                draft.cluster(cluster_id, last.name).put_isr_meters(counts)
            elif cluster_id in draft.drafts:
                draft.drafts[cluster_id].put_isr_meters(counts)


def _shrinks(rows: pa.Table) -> Counter[tuple[str, int]]:
    return _by_leader(rows, pc.and_(_has_any(rows["left_isr"]), pc.is_in(rows["cause"], value_set=_OF_LEADERS)))


def _expands(rows: pa.Table) -> Counter[tuple[str, int]]:
    return _by_leader(rows, _has_any(rows["joined_isr"]))


def _by_leader(rows: pa.Table, is_counted: pa.ChunkedArray) -> Counter[tuple[str, int]]:
    """Count changes by cluster and leader; one in which the leader changed is the controller's."""
    before, after = (pc.struct_field(rows[name], "leader") for name in ("before", "after"))
    stayed = pc.and_(pc.equal(before, after), pc.greater_equal(after, 0))
    made: dict[str, list[Any]] = (
        pa.table({"cluster": rows["cluster_id"], "leader": after}).filter(pc.and_(stayed, is_counted)).to_pydict()
    )
    return Counter(zip(made["cluster"], made["leader"], strict=True))


def _has_any(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater(pc.list_value_length(lists), 0), False)


# Records appended to the logs of leaders, counted as ``MessagesInPerSec`` of ``BrokerTopicMetrics`` is.
#
# ``ReplicaManager`` adds to that meter by how much an append moves the end of a leader's log; what followers copy does
# not count. Here the ends are those of two samples. A partition that had none before is not counted, and what
# was appended between two samples is its newest leader's. No table has these counts: they begin at 0 with this
# process.


_KEY: Final = ["topic_id", "partition"]


def messages_in(
    counts: tuple[tuple[int, int], ...] | None, before: pa.Table | None, logs: pa.Table
) -> tuple[tuple[int, int], ...]:
    """Add to the counts, by broker, what two samples of all logs differ by."""
    added = Counter(dict(counts or ()))
    leaders = _ends_of_leaders(logs)
    added.update(dict.fromkeys(pc.unique(leaders["broker"]).to_pylist(), 0))
    if before is not None:
        both = leaders.join(
            _ends_of_leaders(before).drop_columns("broker"),
            _KEY,
            join_type="inner",
            right_suffix="_before",
            use_threads=False,
        )
        moved = pc.subtract(both["log_end_offset"], both["log_end_offset_before"])
        grown = both.append_column("grown", moved).filter(pc.greater(moved, 0))
        for row in grown.group_by("broker").aggregate([("grown", "sum")]).to_pylist():
            added[row["broker"]] += row["grown_sum"]
    return tuple(sorted(added.items()))


def _ends_of_leaders(logs: pa.Table) -> pa.Table:
    """Return where the logs of leaders end: only of these it is asked where they begin."""
    return logs.filter(logs["log_start_offset"].is_valid()).select([*_KEY, "broker", "log_end_offset"])
