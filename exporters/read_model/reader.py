"""The tables, followed without a JVM: the state tables once, then what each new version of the change log added.

While the state tables are empty or lag, the changes alone make the state. Reads next to a writer and never locks. Knows
the tables, nothing of metrics.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from exporters.read_model.advice import ADVICE_COLUMNS, TIMES_COLUMNS, put_advice, put_times
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.events import newest_events
from exporters.read_model.incidents import INCIDENT_COLUMNS, IS_OVER_SELECTED, put_incidents
from exporters.read_model.samples import put_broker_metrics, put_offsets
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    SOURCE_PROGRESS,
)
from streaming.delta.change_reader import ChangeReader, ChangesRestarted
from streaming.delta.queries import open_ours, query, quoted
from streaming.delta.state_reader import AsOf, apply_changes, count_isr_removals, load_state
from streaming.delta.state_rows import states_of
from streaming.delta.table_log import BEFORE_FIRST, has_moved, newest_version
from streaming.runtime.garbage import collected_after, never_collected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming.contracts.columns import Table

EVENTS_KEPT: Final = 1000
# Events of this many versions before the state tables are read as well, so that a fresh start shows some.
EVENT_VERSIONS: Final = 50
# Side tables are read again after resting this many times what the last reading took.
REST_PER_WORK: Final = 5.0


def micros_now() -> int:
    """Return the time in UTC microseconds."""
    return time.time_ns() // 1000


class TablesReader:
    """Follows the tables below one folder. Not for more than one thread; what it returns is for any."""

    def __init__(self, tables: Path, clock: Callable[[], int] = micros_now) -> None:
        """Read nothing yet.

        Args:
            tables: the folder of the tables; it need not exist yet.
            clock: gives the time in UTC microseconds.
        """
        self.tables = tables
        self._clock = clock
        self._changes: ChangeReader | None = None
        self._as_of = AsOf()
        self._side_tables = [
            SideTable(tables, REPLICA_OFFSETS, put_offsets),
            SideTable(tables, BROKER_METRICS, put_broker_metrics),
            SideTable(tables, SOURCE_PROGRESS, put_progress),
            SideTable(tables, CLUSTER_STATE_TABLE, put_times, quoted(TIMES_COLUMNS)),
            SideTable(tables, BROKER_STATE_TABLE, put_advice, quoted(ADVICE_COLUMNS)),
            SideTable(tables, INCIDENTS, put_incidents, f"{quoted(INCIDENT_COLUMNS)}, {IS_OVER_SELECTED}"),
        ]
        self.snapshot = ReplicationSnapshot()

    @property
    def recent_events(self) -> tuple[Any, ...]:
        """Return the newest events, newest last."""
        return self.snapshot.recent_events

    def has_new_changes(self) -> bool:
        """Return whether the change log has a version that was not read; costs two look-ups of a name."""
        changes = self._changes
        return changes is not None and changes.version > BEFORE_FIRST and has_moved(changes.path, changes.version)

    @collected_after()
    def refresh(self) -> ReplicationSnapshot:
        """Read what is new; about a millisecond when nothing is. After an error everything is read again.

        Raises:
            ChangesRestarted: the state tables are of a later version than the change log has: copies were mixed.
        """
        changes, self._changes = self._changes, None
        if changes is not None:
            with suppress(ChangesRestarted):
                self._follow(changes, SnapshotDraft(self.snapshot))
                self._changes = changes
        if self._changes is None:
            with never_collected():
                self._load()
        return self.snapshot

    def _load(self) -> None:
        draft = SnapshotDraft(ReplicationSnapshot())
        self._as_of = load_state(self.tables, draft)
        for table in self._side_tables:
            table.forget()
        path = self.tables / PARTITION_CHANGES.name
        if newest_version(path) < max(self._as_of):
            raise ChangesRestarted(
                f"the state tables were computed up to version {max(self._as_of)} of {path}, which is older; "
                "bring back the whole folder of the tables from one copy"
            )
        changes = ChangeReader(path, max(BEFORE_FIRST, self._as_of.oldest() - EVENT_VERSIONS))
        self._follow(changes, draft)
        self._changes = changes

    def _follow(self, changes: ChangeReader, draft: SnapshotDraft) -> None:
        added = [rows for _, rows in changes.poll()]
        if added:
            rows = pa.concat_tables(added)
            apply_changes(draft, rows, self._as_of)
            count_isr_removals(draft, rows, self._as_of)
            draft.events += newest_events(rows, EVENTS_KEPT)
        for table in self._side_tables:
            table.read_into(draft)
        now = self._clock()
        has_news = draft.drafts or draft.incidents is not self.snapshot.incidents
        if has_news or changes.version != self.snapshot.version:
            self.snapshot = draft.finish(changes.version, now, EVENTS_KEPT)
        else:
            self.snapshot = replace(self.snapshot, read_at=now)


class SideTable:
    """A table of newest samples or of what derives: all its rows are read when it has another version."""

    def __init__(
        self,
        tables: Path,
        definition: Table,
        put: Callable[[SnapshotDraft, pa.Table], None],
        selected: str | None = None,
    ) -> None:
        """Watch a table.

        Args:
            tables: the folder of the tables.
            definition: which of them.
            put: takes over all its rows.
            selected: what is read of each row, in SQL; None is every column.
        """
        self._path, self._definition = tables / definition.name, definition
        self._selected = selected or quoted(definition.column_names())
        self._put = put
        self.forget()

    def forget(self) -> None:
        """Read it again at the next look."""
        self._version = BEFORE_FIRST
        self._not_before = 0.0

    def read_into(self, draft: SnapshotDraft) -> None:
        """Read the table if it has another version, and has rested from the last reading."""
        began = time.monotonic()
        if began < self._not_before or not has_moved(self._path, self._version):
            return
        table = open_ours(self._path.parent, self._definition)
        if table is None:
            return
        self._put(draft, query(table, f"SELECT {self._selected} FROM rows"))  # noqa: S608 - names of our own columns
        self._version = table.version()
        ended = time.monotonic()
        self._not_before = ended + (ended - began) * REST_PER_WORK


def put_progress(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``source_progress``."""
    channels = rows["channel"].to_pylist()
    for channel, state, lag in zip(channels, states_of(SourceState, rows), states_of(SourceLag, rows), strict=True):
        draft.cluster(state.cluster_id, state.cluster).put_source(state, channel, lag)
