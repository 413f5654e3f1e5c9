"""What the job adds up for every broker and cluster, taken over from its tables: advice about brokers, times.

The exporter counts the rest itself from the changes. These follow with the job's next round of derived tables.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.columns import columns_of, rows_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from exporters.changes import SnapshotDraft


class DerivedRow(NamedTuple):
    """Whose row it is, and the version of ``partition_changes`` it is true of."""

    cluster_id: str
    cluster: str
    as_of_version: int


class BrokerAdvice(NamedTuple):
    """What would happen if one broker stopped now, and how suspect it is; None is unknown."""

    broker: int
    in_sync_partitions: int | None = None
    would_go_under_min_isr: int | None = None
    would_go_offline: int | None = None
    unknown_min_isr_partitions: int | None = None
    is_safe_to_stop: bool | None = None
    restart_order: int | None = None
    suspect_score: float | None = None


class ClusterTimes(NamedTuple):
    """Seconds of all partitions that a cluster ever had, told up to a moment; None is unknown."""

    as_of_version: int
    authority_watermark: int | None = None
    offline_seconds: float | None = None
    under_replicated_seconds: float | None = None
    under_min_isr_seconds: float | None = None
    unknown_seconds: float | None = None

    def over(self, known: ClusterTimes | None) -> ClusterTimes:
        """Follow what was known before: no number goes back."""
        if known is None:
            return self
        pairs = zip(self, known, strict=True)
        return ClusterTimes._make(max((one for one in pair if one is not None), default=None) for pair in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """The advice about every broker of a cluster.

    Attributes:
        brokers: by number.
        as_of_version: the version of ``partition_changes`` it is true of.
        until: the newest moment of the authority that it knows; None while that is not told yet.
    """

    brokers: Mapping[int, BrokerAdvice] = field(default_factory=dict)
    as_of_version: int = -1
    until: int | None = None


ADVICE_COLUMNS: Final = (*DerivedRow._fields, *BrokerAdvice._fields)
TIMES_COLUMNS: Final = (*DerivedRow._fields[:2], *ClusterTimes._fields)


def put_advice(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the advice of the whole of ``broker_state``."""
    columns = columns_of(rows, ADVICE_COLUMNS)
    clusters: dict[tuple[str, str], dict[int, BrokerAdvice]] = defaultdict(dict)
    versions: dict[tuple[str, str], int] = {}
    owners = rows_as(DerivedRow, columns, rows.num_rows)
    for owner, advice in zip(owners, rows_as(BrokerAdvice, columns, rows.num_rows), strict=True):
        clusters[owner[:2]][advice.broker] = advice
        versions[owner[:2]] = owner.as_of_version
    for key, brokers in clusters.items():
        draft.cluster(*key).put_advice(brokers, versions[key])


def put_times(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the times of the whole of ``cluster_state``."""
    columns = columns_of(rows, TIMES_COLUMNS)
    owners = rows_as(DerivedRow, columns, rows.num_rows)
    for owner, times in zip(owners, rows_as(ClusterTimes, columns, rows.num_rows), strict=True):
        draft.cluster(*owner[:2]).put_times(times)
