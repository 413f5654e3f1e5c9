"""The tables that no change is read from: each is read for itself, and a damaged one costs its own series only.

What it added to the snapshots is dropped then, so that no number outlives what is known; the other tables stay. Of
conditions it stays: nothing is over because its table cannot be read (``conditions``).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.compute as pc

from exporters.read_model import cluster_samples as sampled
from exporters.read_model.events import INCIDENT_COLUMNS, IS_OVER_SELECTED, drop_incidents, put_incidents
from exporters.read_model.samples import (
    OFFSETS_COLUMNS,
    SAMPLED,
    Put,
    SampleOwner,
    drop_lags,
    drop_offsets,
    drop_rows,
    put_progress,
    read_offsets,
    read_rows,
)
from exporters.read_model.snapshot import BrokerAdvice, ClusterTimes
from exporters.read_model.spells import keep_conditions, keep_sampled_conditions, put_conditions, put_sampled_conditions
from streaming.contracts import sample_tables
from streaming.contracts.conditions import Spell
from streaming.contracts.group_readers import GroupOffsetsRow
from streaming.contracts.sampled_conditions import SampledSpell
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    CONDITIONS,
    INCIDENTS,
    SAMPLED_CONDITIONS,
    SOURCE_PROGRESS,
)
from streaming.delta.log.followed import FollowedTable
from streaming.delta.log.queries import columns_of, open_ours, query, quoted, rows_as
from streaming.delta.log.table_log import BEFORE_FIRST, has_moved
from streaming.delta.store.place import Url
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from deltalake import DeltaTable

    from exporters.read_model.draft import SnapshotDraft
    from streaming.contracts.columns import Table
    from streaming.delta.store.announced import AnnouncedVersions
    from streaming.delta.store.place import Place

# Sums that the job keeps for every broker and cluster, read from its tables: advice about brokers, times.
#
# The exporter counts the rest itself from the changes. These follow with the job's next round of derived tables.


class DerivedRow(NamedTuple):
    """Subject of the row, and the version of ``partition_changes`` it is true of."""

    cluster_id: str
    cluster: str
    as_of_version: int


ADVICE_COLUMNS: Final = (*DerivedRow._fields, *BrokerAdvice._fields)
_GAP_BEGAN: Final = "sight_until"
TIMES_COLUMNS: Final = (*DerivedRow._fields[:2], *ClusterTimes._fields, _GAP_BEGAN)


def put_advice(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the advice of all of ``broker_state``."""
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
    """Take over the times of all of ``cluster_state``.

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


# A table is read again after resting this many times what the last reading took, and this many seconds after an error.
REST_PER_WORK: Final = 5.0
REST_AFTER_ERROR: Final = 1.0


class TableStatus(NamedTuple):
    """Result of the last reading of a table: the error (None: it was read), its time, and when one last succeeded.

    ``read_at`` is of the monotonic clock; None while no reading has succeeded. Finding no new version is a success.
    """

    table: str
    error: str | None = None
    seconds: float = 0.0
    read_at: float | None = None


@dataclass(frozen=True, slots=True)
class SideContent:
    """Content read from one table.

    Attributes:
        definition: the table.
        read: reads all its rows; returns what takes them over.
        drop: forgets what was taken over, of every cluster.
        columns: what is read of each row.
        computed: what else is, in SQL.
    """

    definition: Table
    read: Callable[[DeltaTable, pa.Table], Put]
    drop: Put
    columns: tuple[str, ...]
    computed: str = ""


def _samples(definition: Table, row: type[Any]) -> SideContent:
    """Define the content of a table of samples of which each row is taken over as it is."""
    columns = [*SampleOwner._fields, *SAMPLED, *row._fields]
    return SideContent(
        definition,
        lambda _, rows: read_rows(rows, definition.name, row),
        lambda draft: drop_rows(draft, definition.name),
        tuple(dict.fromkeys(name for name in columns if name in definition.column_names())),
    )


def _few(put: Callable[[SnapshotDraft, pa.Table], None]) -> Callable[[DeltaTable, pa.Table], Put]:
    """Read rows that are so few that they may be read when they are taken over."""
    return lambda _, rows: lambda draft: put(draft, rows)


def _read_incidents(table: DeltaTable, rows: pa.Table) -> Put:
    def put(draft: SnapshotDraft) -> None:
        draft.count_expired_incidents(table)
        put_incidents(draft, rows)

    return put


SIDE_CONTENTS: Final = (
    SideContent(
        sample_tables.REPLICA_OFFSETS, lambda _, rows: read_offsets(rows), drop_offsets, tuple(OFFSETS_COLUMNS)
    ),
    _samples(sample_tables.GROUPS, sampled.GroupRow),
    _samples(sample_tables.GROUP_OFFSETS, GroupOffsetsRow),
    _samples(sample_tables.LOG_DIRECTORIES, sampled.LogDirectoryRow),
    _samples(sample_tables.QUORUM_MEMBERS, sampled.QuorumMemberRow),
    _samples(sample_tables.TRANSACTIONS, sampled.TransactionRow),
    _samples(sample_tables.TOPIC_SETTINGS, sampled.TopicSettingsRow),
    _samples(sample_tables.BROKER_SETTINGS, sampled.BrokerSettingsRow),
    _samples(sample_tables.BROKER_FEATURES, sampled.BrokerFeatureRow),
    _samples(sample_tables.BROKER_SPEED, sampled.BrokerSpeedRow),
    _samples(sample_tables.BROKER_METRICS, sampled.BrokerMetric),
    _samples(sample_tables.ISR_RECONCILIATION, sampled.IsrReconciliationRow),
    SideContent(SOURCE_PROGRESS, _few(put_progress), drop_lags, tuple(SOURCE_PROGRESS.column_names())),
    SideContent(CLUSTER_STATE_TABLE, _few(put_times), drop_times, TIMES_COLUMNS),
    SideContent(BROKER_STATE_TABLE, _few(put_advice), drop_advice, ADVICE_COLUMNS),
    SideContent(CONDITIONS, _few(put_conditions), keep_conditions, Spell._fields),
    SideContent(SAMPLED_CONDITIONS, _few(put_sampled_conditions), keep_sampled_conditions, SampledSpell._fields),
    SideContent(INCIDENTS, _read_incidents, drop_incidents, INCIDENT_COLUMNS, f", {IS_OVER_SELECTED}"),
)


class _Reading(NamedTuple):
    """Callback that applies or discards a finished read; the error, and how long the read took."""

    put: Put
    error: str | None
    seconds: float


class SideTable:
    """One of these tables: all its rows are read when it has another version.

    ``look`` reads, and may be called by another thread than ``put_into``, which takes over what was read last. Its
    status is of what was taken over, so that no scrape shows rows of a table that it says cannot be read.
    """

    def __init__(
        self,
        tables: Place,
        content: SideContent,
        announced: AnnouncedVersions | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        rest_after_error: float = REST_AFTER_ERROR,
    ) -> None:
        """Watch a table.

        Which versions in a store are worth a look may be ``announced``; else it looks each time. What could not be read
        is tried again after ``rest_after_error`` seconds.
        """
        self._content, self._announced = content, announced
        self._monotonic = monotonic
        self._rest_after_error = rest_after_error
        self._path = tables / content.definition.name
        self._error: str | None = None
        self._seconds = 0.0
        self._read_at: float | None = None
        self._was_there = False
        self._lock = threading.Lock()
        self._read_last: deque[_Reading] = deque(maxlen=1)
        self.forget()

    @property
    def status(self) -> TableStatus:
        """Return how the reading that was taken over went, and when the last one succeeded."""
        return TableStatus(self._content.definition.name, self._error, self._seconds, self._read_at)

    @property
    def has_news(self) -> bool:
        """Return whether something was read that is not taken over."""
        return bool(self._read_last)

    def forget(self) -> None:
        """Read it again at the next look."""
        self._version = BEFORE_FIRST
        self._followed: FollowedTable | None = None
        self._not_before = 0.0

    def look(self) -> None:
        """Read the table if it has another version, and has rested from the last reading. Raises nothing."""
        with self._lock:
            began = self._monotonic()
            if began < self._not_before or not self._is_worth_a_look():
                return
            try:
                put = self._read()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with this table, the others must be served
                self._read_last.append(self._failed(error, began))
                return
            self._read_at = self._monotonic()
            if put is not None:
                seconds = self._read_at - began
                self._not_before = self._read_at + seconds * REST_PER_WORK
                self._read_last.append(_Reading(put, None, seconds))
            elif not self._was_there and (self._error is not None or self._read_last):
                # What could not be read is gone, and nothing was ever taken over.
                self._read_last.append(_Reading(self._content.drop, None, 0.0))

    def _newest_announced(self) -> int | None:
        return None if self._announced is None else self._announced.newest(self._content.definition.name)

    def _is_worth_a_look(self) -> bool:
        name, announced = self._content.definition.name, self._announced
        return announced is None or announced.is_worth_a_look(name, self._version)

    def put_into(self, draft: SnapshotDraft) -> None:
        """Take over what was read since the last time. Raises nothing."""
        if not self._read_last:
            return
        reading = self._read_last.popleft()
        try:
            reading.put(draft)
        except Exception as error:  # noqa: BLE001 - as in ``look``
            reading = self._failed(error, self._monotonic())
            reading.put(draft)
        self._error, self._seconds = reading.error, reading.seconds

    def _read(self) -> Put | None:
        """Read the rows of another version; return what takes them over, None if there is none."""
        if isinstance(self._path, Url) and not self._content.computed:
            return self._read_followed()
        if not has_moved(self._path, self._version) and not (self._was_there and self._version == BEFORE_FIRST):
            return None
        table = open_ours(self._path.parent, self._content.definition)
        if table is None:
            self._check_never_there()
            return None
        selected = quoted(self._content.columns) + self._content.computed
        rows = query(table, f"SELECT {selected} FROM rows")  # noqa: S608 - names of our own columns
        put = self._content.read(table, rows)
        self._version, self._was_there = table.version(), True
        return put

    def _read_followed(self) -> Put | None:
        """Do the same in a store, where opening a table takes a dozen requests."""
        if self._followed is None:
            self._followed = FollowedTable.opened(self._path.parent, self._content.definition)
            if self._followed is None:
                self._check_never_there()
                return None
        elif not self._followed.follow(self._newest_announced()):
            return None
        rows = self._followed.rows(self._content.columns)
        put = self._content.read(self._followed.table, rows)
        self._version, self._was_there = self._followed.version, True
        return put

    def _check_never_there(self) -> None:
        if self._was_there:
            raise IsrwatchError(f"the table {self._path} is gone; bring back the whole folder of the tables")

    def _failed(self, error: Exception, began: float) -> _Reading:
        """Read it again, after a rest; return what drops what was taken over before."""
        self.forget()
        seconds = self._monotonic() - began
        self._not_before = began + seconds + max(self._rest_after_error, seconds * REST_PER_WORK)
        return _Reading(self._content.drop, sentence_of(error, self._path), seconds)


def sentence_of(error: Exception, path: Place) -> str:
    """Say why a table cannot be read: our own errors are sentences, any other is about its rows."""
    if isinstance(error, IsrwatchError):
        return str(error)
    return f"cannot read the table {path}: {type(error).__name__}: {error}"
