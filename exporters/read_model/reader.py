"""The tables, followed without a JVM: the state tables once, then what each new version of the change log added.

While the state tables are empty or lag, the changes alone make the state; while one of them cannot be read, too. The
other tables are each read for themselves (``side_tables``). Reads next to a writer and never locks. Knows the tables,
nothing of metrics.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.events import newest_events
from exporters.read_model.samples import IsrMeters
from exporters.read_model.side_tables import REST_AFTER_ERROR, SIDE_CONTENTS, SideTable, TableStatus, sentence_of
from exporters.read_model.snapshot import NO_TABLE, ReplicationSnapshot
from streaming.contracts.events import Cause
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE
from streaming.delta.changes.history import EXPIRED_VERSION, newest_changes
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted
from streaming.delta.log.queries import open_ours, query
from streaming.delta.log.table_log import BEFORE_FIRST, newest_version
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals, load_state
from streaming.delta.store.announced import AnnouncedVersions
from streaming.delta.store.place import Url
from streaming.errors import TableUnreadable
from streaming.runtime.memory import collected_after, never_collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltalake import DeltaTable

    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.delta.store.place import Place

EVENTS_KEPT: Final = 1000
# Events of this many versions before the state tables are read as well, so that a fresh start shows some.
EVENT_VERSIONS: Final = 50
# While the state was rebuilt from the changes, the state tables are tried again after this many seconds.
STATE_TABLES_RETRY: Final = 60.0


def micros_now() -> int:
    """Return the time in UTC microseconds."""
    return time.time_ns() // 1000


class TablesReader:
    """Follows the tables below one folder. Not for more than one thread; what it returns is for any."""

    def __init__(
        self,
        tables: Place,
        clock: Callable[[], int] = micros_now,
        *,
        reads_side_tables_apart: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        rest_after_error: float = REST_AFTER_ERROR,
    ) -> None:
        """Read nothing yet; the folder of the tables need not exist.

        If another thread calls ``read_side_tables``, no change waits for a large one; the first refresh reads them
        nevertheless. What could not be read is tried again after ``rest_after_error`` seconds.
        """
        self.tables = tables
        self.monotonic = monotonic
        self.rest_after_error = rest_after_error
        self._clock = clock
        self._changes: ChangeReader | None = None
        self._as_of = StateVersions()
        self._retry_at: float | None = None
        self._isr_meters = IsrMeters()
        self.reads_side_tables_apart = reads_side_tables_apart
        announced = AnnouncedVersions(tables) if isinstance(tables, Url) else None
        self._side_tables = [
            SideTable(tables, content, announced, monotonic=monotonic, rest_after_error=rest_after_error)
            for content in SIDE_CONTENTS
        ]
        self._state_status = TableStatus(PARTITION_STATE_TABLE.name)
        self._changes_status = TableStatus(PARTITION_CHANGES.name)
        self.snapshot = ReplicationSnapshot()
        self._now = 0

    @property
    def recent_events(self) -> tuple[Any, ...]:
        """Return the newest events, newest last."""
        return self.snapshot.recent_events

    @property
    def statuses(self) -> tuple[TableStatus, ...]:
        """Return how the last reading of each table went."""
        return self._changes_status, self._state_status, *(table.status for table in self._side_tables)

    @collected_after()
    def read_side_tables(self) -> None:
        """Read the side tables that have another version, for the next refresh. Raises nothing."""
        for table in self._side_tables:
            table.look()

    def has_news(self) -> bool:
        """Return whether a refresh would find something, or would say why the changes cannot be read any more.

        Costs two look-ups of a name, in a store at most four requests a second.
        """
        if any(table.has_news for table in self._side_tables):
            return True
        try:
            return self._changes is not None and self._changes.is_worth_a_poll()
        except TableUnreadable:
            return True

    @collected_after()
    def refresh(self) -> ReplicationSnapshot:
        """Read what is new; about a millisecond when nothing is. After an error the changes are read from the start.

        Raises:
            ChangesRestarted: the state tables are of a later version than the change log has: copies were mixed.
            TableUnreadable: the change log cannot be read. The other tables were read nevertheless.
        """
        began = self.monotonic()
        self._follow_clock()
        try:
            draft, changes = self._followed()
        except Exception as error:
            self._changes = None
            sentence = sentence_of(error, self.tables / PARTITION_CHANGES.name)
            self._changes_status = self._changes_status._replace(error=sentence, seconds=self.monotonic() - began)
            if self.snapshot.version != NO_TABLE:
                self._finish(SnapshotDraft(self.snapshot), self.snapshot.version, self.snapshot.read_at)
            raise
        self._changes = changes
        ended = self.monotonic()
        self._changes_status = TableStatus(PARTITION_CHANGES.name, None, ended - began, ended)
        if self._state_status.error is None:
            self._state_status = self._state_status._replace(read_at=ended)  # it need not be read again
        self._finish(draft, changes.version, self._clock())
        return self.snapshot

    def state_alone(self) -> ReplicationSnapshot:
        """Return what the state tables contain, without the changes after them: the last resort of a command.

        Raises:
            TableUnreadable: one of them cannot be read.
        """
        draft = SnapshotDraft(ReplicationSnapshot())
        as_of = load_state(self.tables, draft)
        return draft.finish(as_of.oldest(), self._clock(), 0)

    def _follow_clock(self) -> None:
        """After the clock was set back, count the age of each cluster from now on.

        When its newest watermark was read would lie in the future: it would look fresh until then, whatever happens.
        """
        before, self._now = self._now, self._clock()
        if self._now < before:
            clusters = {
                cluster_id: replace(each, watermark_read_at=min(each.watermark_read_at or self._now, self._now))
                for cluster_id, each in self.snapshot.clusters.items()
            }
            self.snapshot = replace(self.snapshot, clusters=clusters)

    def _followed(self) -> tuple[SnapshotDraft, ChangeReader]:
        """Apply what is new to the last snapshot, or to the state that is read again."""
        is_due = self._retry_at is not None and self.monotonic() >= self._retry_at
        if self._changes is not None and not is_due:
            with suppress(ChangesRestarted):
                draft = SnapshotDraft(self.snapshot)
                self._follow(self._changes, draft)
                return draft, self._changes
        with never_collected():
            draft, changes = self._load()
        for table in self._side_tables:
            table.forget()
        self.read_side_tables()
        return draft, changes

    def _load(self) -> tuple[SnapshotDraft, ChangeReader]:
        draft, self._as_of = self._state()
        path = self.tables / PARTITION_CHANGES.name
        if newest_version(path) < max(self._as_of):
            raise ChangesRestarted(
                f"the state tables were computed up to version {max(self._as_of)} of {path}, which is older; "
                "bring back the whole folder of the tables from one copy"
            )
        changes = ChangeReader(path, max(BEFORE_FIRST, self._as_of.oldest() - EVENT_VERSIONS))
        self._follow(changes, draft)
        return draft, changes

    def _state(self) -> tuple[SnapshotDraft, StateVersions]:
        """Read the state tables; while one cannot be read, rebuild the state from the changes."""
        began, name = self.monotonic(), PARTITION_STATE_TABLE.name
        draft = SnapshotDraft(ReplicationSnapshot())
        try:
            as_of = load_state(self.tables, draft)
        except TableUnreadable as error:
            draft, as_of = present_state(self.tables)
            ended = self.monotonic()
            self._retry_at = ended + STATE_TABLES_RETRY
            if name in str(error):  # the others are side tables, too, and have a status of their own
                self._state_status = TableStatus(name, str(error), ended - began, self._state_status.read_at)
        else:
            self._retry_at, ended = None, self.monotonic()
            self._state_status = TableStatus(name, None, ended - began, ended)
        return draft, as_of

    def _follow(self, changes: ChangeReader, draft: SnapshotDraft) -> None:
        added = [rows for _, rows in changes.poll()]
        if added:
            rows = pa.concat_tables(added)
            apply_changes(draft, rows, self._as_of)
            count_isr_removals(draft, rows, self._as_of)
            self._isr_meters.follow(rows, changes.version)
            draft.events += newest_events(rows, EVENTS_KEPT)

    def _finish(self, draft: SnapshotDraft, version: int, read_at: int) -> None:
        """Take over the side tables into the draft, and make it the snapshot."""
        if not self.reads_side_tables_apart:
            self.read_side_tables()
        for table in self._side_tables:
            table.put_into(draft)
        self._isr_meters.put_into(draft)
        draft.counted_since = self._changes.created_at if self._changes is not None else draft.counted_since
        has_news = draft.drafts or draft.incidents is not self.snapshot.incidents
        has_news = has_news or draft.conditions is not self.snapshot.conditions
        has_news = has_news or draft.sampled_conditions is not self.snapshot.sampled_conditions
        if has_news or version != self.snapshot.version:
            self.snapshot = draft.finish(version, read_at, EVENTS_KEPT)
        elif read_at != self.snapshot.read_at:
            self.snapshot = replace(self.snapshot, read_at=read_at)


# The state from the rows of the change log alone: the newest row of each key, up to a version.
#
# For the state as of an older version, which no state table keeps, and for the present one while a state table
# cannot be read.


def state_of_changes(changes: DeltaTable, version: int) -> SnapshotDraft:
    """Rebuild what the change log contained at a version, without how often brokers were removed from ISRs."""
    draft = SnapshotDraft(ReplicationSnapshot())
    rows = newest_changes(changes, f"version <= {version}")
    apply_changes(draft, rows.sort_by([("version", "ascending"), ("ordinal", "ascending")]))
    return draft


def present_state(tables: Place) -> tuple[SnapshotDraft, StateVersions]:
    """Rebuild the newest state, and return the version that it is true of.

    How often brokers were removed from ISRs is counted from the rows, and unknown once history has expired.
    """
    changes = open_ours(tables, PARTITION_CHANGES)
    if changes is None:
        return SnapshotDraft(ReplicationSnapshot()), StateVersions()
    version = int(changes.version())
    draft = state_of_changes(changes, version)
    if changes.transaction_version(EXPIRED_VERSION) is None:
        for cluster_id, broker, cause, count in isr_removals(changes, BEFORE_FIRST, version):
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)
    else:
        for cluster in draft.every_cluster():
            cluster.drop_isr_removals()
    return draft, StateVersions(version, version, version, version)


def isr_removals(changes: DeltaTable, after: int, upto: int) -> Iterator[tuple[ClusterId, BrokerId, str, int]]:
    """Count the removals from ISRs in the versions after one, up to another, by cluster, broker and cause."""
    rows = query(
        changes,
        "SELECT cluster_id, broker, cause, count(*) AS removals FROM ("  # noqa: S608 - numbers of ours
        "SELECT cluster_id, cause, unnest(left_isr) AS broker FROM rows "
        f"WHERE version > {after} AND version <= {upto}) GROUP BY cluster_id, broker, cause",
    )
    for row in rows.to_pylist():
        yield row["cluster_id"], row["broker"], row["cause"] or Cause.UNKNOWN.value, row["removals"]
