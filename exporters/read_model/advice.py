"""What the job adds up for every broker and cluster, taken over from its tables: advice about brokers, times.

The exporter counts the rest itself from the changes. These follow with the job's next round of derived tables.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from exporters.read_model.snapshot import BrokerAdvice, ClusterTimes
from streaming.delta.log.queries import columns_of, rows_as

if TYPE_CHECKING:
    import pyarrow as pa

    from exporters.read_model.draft import SnapshotDraft


class DerivedRow(NamedTuple):
    """Whose row it is, and the version of ``partition_changes`` it is true of."""

    cluster_id: str
    cluster: str
    as_of_version: int


ADVICE_COLUMNS: Final = (*DerivedRow._fields, *BrokerAdvice._fields)
_GAP_BEGAN: Final = "sight_until"
TIMES_COLUMNS: Final = (*DerivedRow._fields[:2], *ClusterTimes._fields, _GAP_BEGAN)


def put_advice(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the advice of the whole of ``broker_state``."""
    columns = columns_of(rows, ADVICE_COLUMNS)
    # By the id alone: after a cluster was renamed, some of its rows have the old name and some the new one.
    clusters: dict[str, dict[int, BrokerAdvice]] = defaultdict(dict)
    newest: dict[str, DerivedRow] = {}
    owners = rows_as(DerivedRow, columns, rows.num_rows)
    for owner, advice in zip(owners, rows_as(BrokerAdvice, columns, rows.num_rows), strict=True):
        clusters[owner.cluster_id][advice.broker] = advice
        newest[owner.cluster_id] = owner
    for key, brokers in clusters.items():
        draft.cluster(key, newest[key].cluster).put_advice(brokers, newest[key].as_of_version)


def put_times(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the times of the whole of ``cluster_state``.

    Not while a full report closes an observation gap: until its end some partitions have the gap in their sums.
    """
    rows = rows.filter(pc.is_null(rows.column(_GAP_BEGAN)))
    columns = columns_of(rows, TIMES_COLUMNS)
    owners = rows_as(DerivedRow, columns, rows.num_rows)
    for owner, times in zip(owners, rows_as(ClusterTimes, columns, rows.num_rows), strict=True):
        draft.cluster(*owner[:2]).put_times(times)


def drop_advice(draft: SnapshotDraft) -> None:
    """Forget the advice about every broker."""
    for cluster in draft.every_cluster():
        cluster.drop_advice()


def drop_times(draft: SnapshotDraft) -> None:
    """Forget the times of every cluster."""
    for cluster in draft.every_cluster():
        cluster.drop_times()
