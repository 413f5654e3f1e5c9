"""Replay of ``/metrics`` at every scrape of a time range: the changes are applied again, as they were committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.conditions import DEFAULT_SETTINGS, ConditionSettings
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.reader import isr_removals, state_of_changes
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.read_model.spells import put_conditions, put_sampled_conditions
from exporters.read_model.versions import newest_version_at, oldest_known, oldest_moment
from streaming.contracts.tables import CONDITIONS, PARTITION_CHANGES, SAMPLED_CONDITIONS
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.queries import open_ours, select
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

    from streaming.delta.store.place import Place
    from streaming.settings import ExportSettings


def replayed(
    tables: Place,
    times: range,
    names: frozenset[str],
    settings: ExportSettings,
    conditions: ConditionSettings = DEFAULT_SETTINGS,
) -> Iterator[str]:
    """Yield the exposition of some metrics at each scrape, with conditions raised as configured now.

    Raises:
        ConfigurationError: the first scrape is before the oldest state that the rows of the table still give.
    """
    exposition = Exposition(settings.stale_after, detail_limit=settings.detail_limit, conditions=conditions)
    spells = select(open_ours(tables, CONDITIONS), CONDITIONS)
    sampled = select(open_ours(tables, SAMPLED_CONDITIONS), SAMPLED_CONDITIONS)
    version, snapshot = _begin(tables, times[0])
    waiting = iter(_changes(tables, version, times[-1]))
    following = next(waiting, None)
    for now in times:
        draft, is_first = SnapshotDraft(snapshot), now == times[0]
        before = version
        while following is not None and _committed_at(following[1]) <= now:
            version, rows = following
            apply_changes(draft, rows)
            count_isr_removals(draft, rows, StateVersions())
            following = next(waiting, None)
        if is_first or version != before:
            put_conditions(draft, as_of(spells, version))
        put_sampled_conditions(draft, as_of_time(sampled, now))
        snapshot = draft.finish(version, now, 0)
        blocks = exposition.render(snapshot, ExporterHealth("", version, 0.0, 0), now, ScrapeRequest(None, names))
        yield plain(blocks).decode()


def as_of(spells: pa.Table, version: int) -> pa.Table:
    """Return the spells of conditions as they were at a version: those that had begun, ended or not."""
    begun = spells.filter(pc.less_equal(spells["began_version"], version))
    is_over = pc.fill_null(pc.less_equal(begun["ended_version"], version), fill_value=False)
    ended = pc.if_else(is_over, begun["ended_at"], pa.scalar(None, begun["ended_at"].type))
    return begun.set_column(begun.column_names.index("ended_at"), "ended_at", ended)


def as_of_time(spells: pa.Table, now: int) -> pa.Table:
    """Return the spells of what samples show that lasted at a time, UTC microseconds, as they were then."""
    moment = pa.scalar(now, spells["began_at"].type)
    is_open = pc.greater(spells["ended_at"], moment).fill_null(True)
    lasted = spells.filter(pc.and_(pc.less_equal(spells["began_at"], moment), is_open))
    open_end = pa.nulls(lasted.num_rows, spells["ended_at"].type)
    return lasted.set_column(lasted.column_names.index("ended_at"), lasted.schema.field("ended_at"), open_end)


def begins_at(tables: Place) -> int:
    """Return the earliest time whose state is known, UTC microseconds.

    Raises:
        ConfigurationError: there are no tables, or nothing is recorded in them.
    """
    changes = open_ours(tables, PARTITION_CHANGES)
    begin = None if changes is None else oldest_moment(changes, oldest_known(changes))
    if begin is None:
        raise ConfigurationError(f"{tables / PARTITION_CHANGES.name} has no rows yet: nothing is recorded")
    return begin


def _begin(tables: Place, at: int) -> tuple[int, ReplicationSnapshot]:
    """Return the newest version committed by a time, and the state as of it; nothing before the first one."""
    changes = open_ours(tables, PARTITION_CHANGES)
    if changes is None:
        return BEFORE_FIRST, ReplicationSnapshot()
    version, oldest = newest_version_at(changes, at), oldest_known(changes)
    if version is None and not oldest:
        return BEFORE_FIRST, ReplicationSnapshot()
    if version is None or version < oldest:
        raise ConfigurationError(
            "the time range begins before the oldest state that the rows still give (tables.history); give a "
            "later --since"
        )
    draft = state_of_changes(changes, version)
    _count_removals(draft, changes, oldest, version)
    return version, draft.finish(version, at, 0)


def _changes(tables: Place, version: int, until: int) -> list[tuple[int, pa.Table]]:
    """Return the rows of each version after one, up to a time."""
    changes = open_ours(tables, PARTITION_CHANGES)
    newest = None if changes is None else newest_version_at(changes, until)
    if newest is None or newest <= version:
        return []
    return ChangeReader(tables / PARTITION_CHANGES.name, version).poll(newest)


def _count_removals(draft: SnapshotDraft, changes: DeltaTable, oldest: int, version: int) -> None:
    """Count the removals from ISRs that the rows still have: rules ask by how much counters grow."""
    for cluster_id, broker, cause, count in isr_removals(changes, oldest - 1, version):
        if cluster_id in draft.drafts:
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)


def _committed_at(rows: pa.Table) -> int:
    return int(pc.max(rows["committed_at"].cast("int64")).as_py())
