"""The state at any moment of the past, by when changes occurred; the change before a moment, and the one after it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.base_snapshots import BaseSnapshots
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_ids import ID_COLUMNS, Merges, names_used, others_names
from exporters.read_model.kept_rows import KeptTable
from exporters.read_model.reader import isr_removals, micros_now, state_of_changes
from exporters.read_model.snapshot import ClusterIncidents
from exporters.read_model.spells import put_conditions, put_sampled_conditions
from exporters.read_model.times import Clock
from exporters.read_model.versions import MOMENT, committed_at
from streaming.contracts.conditions import RECENT, Spell
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import DAY, Micros
from streaming.contracts.sampled_conditions import SampledSpell
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    CONDITIONS,
    INCIDENTS,
    PARTITION_CHANGES,
    SAMPLED_CONDITIONS,
)
from streaming.delta.changes.history import EXPIRED
from streaming.delta.log.cluster_files import of_clusters
from streaming.delta.log.copies import ColumnBounds, FileCopies
from streaming.delta.log.queries import columns_of, open_ours, query, quoted, select, where_in
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version
from streaming.delta.store.place import Url
from streaming.errors import ConfigurationError, IsrwatchError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from deltalake import DeltaTable

    from exporters.read_model.draft import SnapshotDraft
    from exporters.read_model.snapshot import ReplicationSnapshot
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.delta.store.place import Place


_MICROS: Final = "arrow_cast({}, 'Int64')"
_KINDS: Final = "'metadata_log', 'poll'"
"""Kinds of the sources that order partitions."""
_SHOWS: Final = "subject <> 'source' AND (subject <> 'cluster' OR array_length(events) > 0)"
"""Changes that a page shows; that a source lives, and who votes in the quorum, is written again and again."""


class MomentRefused(ConfigurationError):
    """A moment is not one that the tables can show; the sentence has the range that they can."""


class ChangeScope(NamedTuple):
    """Subject of a page, by which changes are chosen; None: any. A topic is a name, whichever id it had."""

    cluster_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    def where(self) -> str:
        """Return SQL over ``partition_changes`` that is true for its changes."""
        parts = [_SHOWS]
        if self.cluster_id is not None:
            parts.append(f"cluster_id = {_literal(self.cluster_id)}")
        if self.topic is not None:
            parts.append(f"topic = {_literal(self.topic)}")
        if self.partition is not None:
            parts.append(f'"partition" = {int(self.partition)}')
        if self.broker is not None:
            parts.append(_OF_BROKER.format(int(self.broker)))
        return " AND ".join(parts)


_OF_BROKER: Final = (
    "(broker = {0} OR array_has(left_isr, {0}) OR array_has(joined_isr, {0}) "
    "OR coalesce(array_has(before['replicas'], {0}), false) <> coalesce(array_has(after['replicas'], {0}), false) "
    "OR (coalesce(before['leader'], -1) <> coalesce(after['leader'], -1) "
    "AND {0} IN (coalesce(before['leader'], -1), coalesce(after['leader'], -1))))"
)
EVERYTHING: Final = ChangeScope()


class Past:
    """Reads the tables below one folder as of moments. Thread-safe."""

    def __init__(
        self,
        tables: Place,
        clock: Callable[[], int] = micros_now,
        present: Callable[[], ReplicationSnapshot] | None = None,
    ) -> None:
        """Read nothing yet; the folder of the tables need not exist.

        ``present`` gives the newest snapshot, which has the newest report of each cluster; without it, that is read.
        """
        self.tables = tables
        self._clock, self._present = clock, present
        self._states = BaseSnapshots(tables)
        self._lock = threading.Lock()
        self._oldest: tuple[tuple[DeltaTable, int], int | None] | None = None  # of the table at a version
        self._changes = KeptTable(tables, PARTITION_CHANGES)
        self._clusters = KeptTable(tables, CLUSTER_STATE_TABLE, "cluster_id, primary_watermark")
        self._conditions = KeptTable(tables, CONDITIONS, quoted(Spell._fields))
        self._sampled = KeptTable(tables, SAMPLED_CONDITIONS, quoted(SampledSpell._fields))
        self._incidents = KeptTable(tables, INCIDENTS, quoted(INCIDENT_COLUMNS))

        self._kept = [self._changes, self._conditions, self._sampled, self._incidents, self._states.bases]
        if present is None:
            self._kept.append(self._clusters)

    def range(self) -> tuple[int, int] | None:
        """Return the oldest and the newest moment that can be shown; None before any.

        Raises:
            TableUnreadable: a table cannot be read.
        """
        with self._lock:
            table = self._changes.opened()
            return None if table is None else self._range(table)[0]

    def check(self, at: int) -> None:
        """Refuse a moment that cannot be shown, as :meth:`snapshot` does."""
        with self._lock:
            self._check(at, self._range(self._opened(), at)[0])

    def holds(self, at: int) -> bool:
        """Return whether a moment can be shown."""
        try:
            self.check(at)
        except MomentRefused:
            return False
        return True

    def snapshot(self, at: int, clusters: Collection[str] | None = None) -> ReplicationSnapshot:
        """Return the state at a moment, with ``read_at`` the moment; a cluster that was not observed before is absent.

        Raises:
            MomentRefused: it lies before the oldest history or after the newest report.
            TableUnreadable: a table cannot be read.
        """
        with self._lock:
            self._look()
            table = self._opened()
            shown, newest = self._range(table, at)
            self._check(at, shown)
            if shown is not None and at > shown[1] - _JUST_NOW:
                table = self._opened(is_urgent=True)
            draft, version = self._states.at(self._changes, table, at, clusters)
            later = [each for each, until in newest.items() if until > at and (clusters is None or each in clusters)]
            blind = _blind_since(self._states.copies, table, at, later)
            for cluster in draft.every_cluster():
                until = newest.get(cluster.cluster_id, cluster.watermark)
                if until:
                    cluster.observe_until(Micros(min(at, until, blind.get(cluster.cluster_id, at))))
            if (spells := self._conditions.rows()) is not None:
                put_conditions(draft, spells_at(_of(spells, clusters), at))
            if (sampled := self._sampled.rows()) is not None:
                put_sampled_conditions(draft, sampled_spells_at(_of(sampled, clusters), at))
            incidents = self._incidents.rows()
            draft.put_incidents(None if incidents is None else incidents_at(_of(incidents, clusters), at))
            return draft.finish(version, at, 0)

    def at_version(self, version: int, add_unreadable: Callable[[str], None] | None = None) -> ReplicationSnapshot:
        """Return the state as of a version of the change log, without samples; see :func:`state_as_of`."""
        return state_as_of(self.tables, version, add_unreadable)

    def was_observed(self, at: int, cluster_id: str) -> bool:
        """Return whether a cluster was observed at a moment, as far as the rows say by now."""
        with self._lock:
            table = self._opened()
            until = self._range(table, at)[1].get(cluster_id)
            return until is not None and at <= until and not _blind_since(self._states.copies, table, at, (cluster_id,))

    def previous(self, at: int, of: ChangeScope = EVERYTHING) -> int | None:
        """Return the newest moment before another at which something that a page is about changed; None for none."""
        return self._change("max", at, of)

    def next(self, at: int, of: ChangeScope = EVERYTHING) -> int | None:
        """Return the oldest moment after another at which something that a page is about changed; None for none."""
        return self._change("min", at, of)

    def _change(self, chosen: str, at: int, of: ChangeScope) -> int | None:
        """Look through longer and longer times before or after a moment: files of other times are not read."""
        with self._lock:
            table = self._changes.opened()
            shown, reports = (None, {}) if table is None else self._range(table)
        if table is None or shown is None:
            return None
        oldest, newest = shown[0], shown[1] if of.cluster_id is None else reports.get(of.cluster_id, shown[1])
        after, upto = (at, newest) if chosen == "min" else (oldest - 1, at - 1)
        for width in _WIDTHS:
            begin, end = (at, min(at + width, upto)) if chosen == "min" else (max(at - 1 - width, after), at - 1)
            begin, end = max(begin, oldest - 1), min(end, newest)
            if begin < end:
                within = f"occurred_not_after > {MOMENT.format(begin)} AND occurred_not_after <= {MOMENT.format(end)}"
                moment = f"{chosen}({_MICROS.format('occurred_not_after')}) AS moment"
                with self._lock:
                    near = self._states.copies.holding(table, _bounds(begin + 1, end))
                rows = query(near, f"SELECT {moment} FROM rows WHERE {within} AND {of.where()}")  # noqa: S608 - ours
                if (micros := rows["moment"][0].as_py()) is not None:
                    return int(micros)
            if (end == newest) if chosen == "min" else (begin < oldest):
                return None
        return None

    def _look(self) -> None:
        """Look at all tables of a store at once: each look is requests that wait for each other."""
        if isinstance(self.tables, Url):
            with ThreadPoolExecutor(len(self._kept)) as pool:
                list(pool.map(_read_kept, self._kept))

    def _opened(self, *, is_urgent: bool = False) -> DeltaTable:
        table = self._changes.opened(is_urgent=is_urgent)
        if table is None:
            raise MomentRefused(f"{self.tables / PARTITION_CHANGES.name} has no rows yet; nothing is recorded")
        return table

    def _range(self, table: DeltaTable, at: int | None = None) -> tuple[tuple[int, int] | None, dict[str, int]]:
        """Return the range of moments, and until when each cluster has been reported.

        The range is that of all clusters: of one that is not reported any more its last state is shown, and its age.

        What was reported after the state tables were written is looked for only if a moment is later.
        """
        reports = self._newest_reports()
        if not reports or (self._present is None and (at is None or at > max(reports.values()))):
            self._clusters.opened()
            written = self._clusters.transaction(PARTITION_CHANGES.name)
            after = BEFORE_FIRST if written is None else written
            near = self._states.copies.holding(table, {"version": ColumnBounds(lowest=after + 1)})
            for key, until in _later_reports(near, after).items():
                reports[key] = max(until, reports.get(key, until))
        opened = table, int(table.version())
        if self._oldest is None or self._oldest[0] != opened:
            self._oldest = opened, _oldest(table, self._changes.transaction(EXPIRED))
        first = self._oldest[1]
        if not reports or first is None:
            return None, {}
        newest = max(reports.values())
        return (min(newest, first), newest), reports

    def _newest_reports(self) -> dict[str, int]:
        if self._present is not None:
            reported = {key: cluster.watermark for key, cluster in self._present().clusters.items()}
        elif (rows := self._clusters.rows()) is not None:
            columns = columns_of(rows, ("cluster_id", "primary_watermark"))
            reported = dict(zip(columns["cluster_id"], columns["primary_watermark"], strict=True))
        else:
            reported = {}
        return {key: at for key, at in reported.items() if at is not None}

    def _check(self, at: int, shown: tuple[int, int] | None) -> None:
        clock = Clock(self._clock())
        if shown is None:
            raise MomentRefused(f"{self.tables / PARTITION_CHANGES.name} has no rows yet; nothing is recorded")
        if not shown[0] <= at <= shown[1]:
            oldest, newest = -(-shown[0] // 1000) * 1000, shown[1]
            raise MomentRefused(
                f"nothing is recorded of {clock.iso(at)}: give a moment from {clock.iso(oldest)} to {clock.iso(newest)}"
            )


_WIDTHS: Final = (600_000_000, 3 * 3_600_000_000, DAY, 7 * DAY, 1 << 62)
"""Microseconds that are looked through for a change, one after the other."""
_SOON: Final = 600_000_000
_JUST_NOW: Final = 60_000_000
"""Microseconds before the newest report within which changes may have been committed since the last look."""


def _read_kept(table: KeptTable) -> None:
    with suppress(IsrwatchError):  # it is raised where the table is needed
        table.read()


def _oldest(table: DeltaTable, days: int | None) -> int | None:
    """Return the oldest moment whose state the rows still give: by the statistics of their files, and expired days."""
    files, column = pa.table(table.get_add_actions(flatten=True)), "min.occurred_not_after"
    if not files.num_rows:
        return None
    if column in files.column_names and not files[column].null_count:
        first = pc.min(files[column].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())).as_py()
    else:
        moment = f"min({_MICROS.format('occurred_not_after')}) AS moment"
        first = query(table, f"SELECT {moment} FROM rows")["moment"][0].as_py()  # noqa: S608 - our own columns
    return None if first is None else max(first, 0 if days is None else int(days) * DAY)


def _later_reports(table: DeltaTable, after: int) -> dict[str, int]:
    """Return until when sources have reported clusters in the changes after those that the state tables have."""
    rows = query(
        table,
        f"SELECT cluster_id, max({_MICROS.format('occurred_not_after')}) AS moment FROM rows "  # noqa: S608 - ours
        f"WHERE version > {after} AND source_kind IN ({_KINDS}) GROUP BY cluster_id",
    )
    return {row["cluster_id"]: row["moment"] for row in rows.to_pylist()}


def _bounds(since: int, until: int | None = None) -> dict[str, ColumnBounds]:
    """Return bounds of what occurred from a moment to another."""
    return {"occurred_not_after": ColumnBounds(since, until)}


def _blind_since(copies: FileCopies, table: DeltaTable, at: int, clusters: Collection[str]) -> dict[str, int]:
    """Return since when each cluster that was not observed at a moment had not been.

    The first report after such a time names its begin; mostly there is a report soon after a moment, without one.
    """
    since, moment = "cluster_after['sight_until']", MOMENT.format(at)
    begin = f"min(CASE WHEN {since} < {moment} THEN {_MICROS.format(since)} END) AS begin"
    blind: dict[str, int] = {}
    waiting = {*clusters}
    for soon, until in (
        (at + _SOON, f"occurred_not_after <= {MOMENT.format(at + _SOON)} AND source_kind IN ({_KINDS})"),
        (None, f"{since} IS NOT NULL"),
    ):
        if not waiting:
            break
        rows = query(
            copies.holding(table, _bounds(at + 1, soon)),
            f"SELECT cluster_id, {begin} FROM rows WHERE occurred_not_after > {moment} AND {until} "  # noqa: S608 - ours
            f"AND {where_in(waiting)} GROUP BY cluster_id",
        ).to_pylist()
        waiting -= {row["cluster_id"] for row in rows}
        blind |= {row["cluster_id"]: row["begin"] for row in rows if row["begin"] is not None}
    return blind


def _of(rows: pa.Table, clusters: Collection[str] | None) -> pa.Table:
    return rows if clusters is None else of_clusters(rows, clusters)


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


# The state as of a version, whatever had occurred by then: what the tables contained.


def state_as_of(
    tables: Place, version: int, add_unreadable: Callable[[str], None] | None = None
) -> ReplicationSnapshot:
    """Rebuild what the tables contained at a version of ``partition_changes``; samples are not included.

    ``add_unreadable`` takes the sentence about the table of brokers if it cannot be read; their counts of ISR removals
    are unknown then. Without it that is raised.

    Raises:
        ConfigurationError: there is no such table.
        TableUnreadable: a table cannot be read.
    """
    path = tables / PARTITION_CHANGES.name
    table = open_table(path)
    if table is None:
        raise ConfigurationError(f"{path} has no version yet; --as-of needs one")
    draft = state_of_changes(table, version)
    brokers, counted_upto = None, BEFORE_FIRST
    try:
        opened = open_ours(tables, BROKER_STATE_TABLE)
        counted_upto = BEFORE_FIRST if opened is None else as_of_version(opened)
        brokers = select(opened, BROKER_STATE_TABLE)
    except TableUnreadable as error:
        if add_unreadable is None:
            raise
        add_unreadable(str(error))
    if brokers is None:
        for cluster in draft.every_cluster():
            cluster.drop_isr_removals()
    else:
        _count_isr_removals(draft, brokers.to_pylist(), counted_upto, table, version)
    return draft.finish(version, committed_at(table, version) or 0, 0)


def _count_isr_removals(
    draft: SnapshotDraft, brokers: list[dict[str, Any]], counted_upto: int, changes: DeltaTable, version: int
) -> None:
    """Take the totals of the table of brokers, and count back, or on, to the version."""
    removals: Counter[tuple[ClusterId, BrokerId, str]] = Counter()
    for row in brokers:
        for each in row["isr_departures"] or ():
            removals[row["cluster_id"], row["broker"], each["cause"] or Cause.UNKNOWN.value] += each["departures"]
    sign = 1 if counted_upto < version else -1
    for cluster_id, broker, cause, count in isr_removals(
        changes, min(counted_upto, version), max(counted_upto, version)
    ):
        removals[cluster_id, broker, cause] += sign * count
    for (cluster_id, broker, cause), count in removals.items():
        # None is left where it was removed after the version only, perhaps in a cluster that did not exist yet.
        if count > 0 and cluster_id in draft.drafts:
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)


# Conditions and incidents as of a moment, from rows that say when each began and ended. Pure: rows in, rows out.
# What was written over since is left out, never shown as of then. The sentence of an incident is as it is known today.


_CHANGING: Final = (
    "under_replicated_now", "under_min_isr_now", "offline_now",
    "under_replicated_seconds", "under_min_isr_seconds", "offline_seconds",
    "under_replicated_partition_seconds", "under_min_isr_partition_seconds", "offline_partition_seconds",
    "isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "evidence_events", "closes_at",
)  # fmt: skip
"""Columns of an incident that count on while it is open: what they were at a moment is not kept."""


def spells_at(rows: pa.Table, at: int) -> pa.Table:
    """Return the spells of ``conditions`` that had begun by a moment, those that ended later as if they lasted.

    Short ones that ended long before are left out, as of the present. A reassignment that got on later is taken to
    have got on at the moment: when it did before is not kept.
    """
    begun = _begun(rows, "began_at", at)
    oldest = _moment(at - RECENT, begun, "ended_at")
    long_ago = pc.fill_null(pc.less(begun["ended_at"], oldest), fill_value=False)
    lasting = begun.filter(pc.invert(long_ago))
    is_chained = pc.is_in(begun["since"], value_set=lasting["since"].combine_chunks())
    kept = begun.filter(pc.or_(pc.invert(long_ago), is_chained))
    return _not_after(_still_open(kept, "ended_at", at), "progressed_at", at)


def sampled_spells_at(rows: pa.Table, at: int) -> pa.Table:
    """Return the spells of ``sampled_conditions`` that lasted at a moment, as they were then."""
    begun = _begun(rows, "began_at", at)
    lasted = begun.filter(pc.fill_null(pc.greater(begun["ended_at"], _moment(at, begun, "ended_at")), fill_value=True))
    return _still_open(_still_open(_not_after(lasted, "shown_at", at), "ended_at", at), "left_out_at", at)


def incidents_at(rows: pa.Table, at: int) -> dict[str, ClusterIncidents]:
    """Return the incidents that were open at a moment, by cluster id; what was merged is part of the other one.

    The rows are every incident, with ``INCIDENT_COLUMNS``.
    """
    ids = columns_of(rows, ID_COLUMNS)
    ids_of_rows = [dict(zip(ids, values, strict=True)) for values in zip(*ids.values(), strict=True)]
    names, parts = names_used(ids_of_rows), Merges(ids_of_rows).parts()
    lasted = _begun(rows, "opened_at", at)
    is_open = pc.fill_null(pc.greater(lasted["closed_at"], _moment(at, lasted, "closed_at")), fill_value=True)
    lasted = lasted.filter(pc.and_(is_open, pc.is_null(lasted["merged_into"])))
    columns = columns_of(lasted, INCIDENT_COLUMNS)
    then: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for values in zip(*(columns[name] for name in INCIDENT_COLUMNS), strict=True):
        row = incident_at(dict(zip(INCIDENT_COLUMNS, values, strict=True)), at)
        then[row["cluster_id"]].append(row)
    return {
        cluster_id: ClusterIncidents(
            open=tuple(sorted(then[cluster_id], key=lambda row: (-row["opened_at"], row["incident_id"]))),
            parts={row["incident_id"]: tuple(parts.get(row["incident_id"], ())) for row in then[cluster_id]},
            names=names.get(cluster_id, frozenset()),
            others_names=others_names(cluster_id, names),
        )
        for cluster_id in names
    }


def incident_at(row: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the row of an incident that was open at a moment, without what it was written over with since.

    Its sentences, class, suspects and peaks are as they are known today.
    """
    recovered, updated = row["recovered_at"], row["updated_at"]
    return {
        **row,
        **dict.fromkeys(_CHANGING),
        "closed_at": None,
        "recovered_at": recovered if recovered is not None and recovered <= at else None,
        "updated_at": min(updated, at),
    }


def _begun(rows: pa.Table, column: str, at: int) -> pa.Table:
    return rows.filter(pc.less_equal(rows[column], _moment(at, rows, column)))


def _still_open(rows: pa.Table, column: str, at: int) -> pa.Table:
    """Set times after a moment to null: they were not known then."""
    return _replaced_after(rows, column, at, pa.scalar(None, rows[column].type))


def _not_after(rows: pa.Table, column: str, at: int) -> pa.Table:
    """Set times after a moment to the moment."""
    return _replaced_after(rows, column, at, _moment(at, rows, column))


def _replaced_after(rows: pa.Table, column: str, at: int, value: pa.Scalar) -> pa.Table:
    is_later = pc.fill_null(pc.greater(rows[column], _moment(at, rows, column)), fill_value=False)
    values = pc.if_else(is_later, value, rows[column])
    return rows.set_column(rows.column_names.index(column), rows.schema.field(column), values)


def _moment(at: int, rows: pa.Table, column: str) -> pa.Scalar:
    return pa.scalar(at, rows.schema.field(column).type)
