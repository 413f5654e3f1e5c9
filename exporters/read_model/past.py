"""The state at any moment of the past, by when changes occurred; the change before a moment, and the one after it."""

# Theory of operation
#
# - A moment is UTC microseconds. What had occurred by then (``occurred_not_after <= at``) is its state: the newest row
#   of each key by (version, ordinal), so it equals Kafka's own log of that moment, whenever the rows were committed. Of
#   a poll that is the end of the window in which something changed: until then the state before it is shown.
# - Every cluster counts by its own clock, as all times in the tables do.
# - Up to when a cluster is known then: to the moment itself, because its source has reported later; but within a time
#   that no source observed only to its begin. Rows of the cluster name such a time (``sight_until``) once it is over.
#   So durations end where they must, and a blind time looks stale on a page of the past as it did.
# - Moments later than the newest report of all clusters that are asked for are refused, and those before the oldest
#   history. A cluster that was blind or not there at the time is shown so, or is absent.
# - Spells have their times, so what was raised then is derived by the rules of today. Incidents that were open then
#   have the sentences of today. Samples and lags have no history: they are absent.
# - How often brokers were removed from ISRs is counted on from a base; without one it is unknown once history expired.

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from exporters.read_model.base_snapshots import BaseSnapshots
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.past_rows import incidents_at, sampled_spells_at, spells_at
from exporters.read_model.reader import isr_removals, micros_now, state_of_changes
from exporters.read_model.spells import put_conditions, put_sampled_conditions
from exporters.read_model.times import Clock
from exporters.read_model.versions import committed_at
from streaming.contracts.conditions import Spell
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import Micros
from streaming.contracts.sampled_conditions import SampledSpell
from streaming.contracts.tables import BROKER_STATE_TABLE, CONDITIONS, INCIDENTS, PARTITION_CHANGES, SAMPLED_CONDITIONS
from streaming.delta.changes.history import EXPIRED
from streaming.delta.log.queries import ALL, open_ours, query, quoted, select, where_in
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version
from streaming.errors import ConfigurationError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deltalake import DeltaTable

    from exporters.read_model.draft import SnapshotDraft
    from exporters.read_model.snapshot import ReplicationSnapshot
    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.delta.store.place import Place

_MOMENT: Final = "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
_MICROS: Final = "arrow_cast({}, 'Int64')"
_DAY: Final = 86_400_000_000
_SHOWS: Final = "(subject IN ('partition', 'broker') OR array_length(events) > 0)"
"""What a page shows; that a source lives, and who votes in the quorum, is written again and again."""


class MomentRefused(ConfigurationError):
    """A moment is not one that the tables can show; the sentence has the range that they can."""


class Scope(NamedTuple):
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
EVERYTHING: Final = Scope()


class Past:
    """Reads the tables below one folder as of moments. Thread-safe."""

    def __init__(self, tables: Place, clock: Callable[[], int] = micros_now) -> None:
        """Read nothing yet.

        Args:
            tables: the folder of the tables; it need not exist yet.
            clock: gives the time in UTC microseconds, by which refusals are written.
        """
        self.tables = tables
        self._clock = clock
        self._states = BaseSnapshots(tables)
        self._lock = threading.Lock()

    def range(self, clusters: Collection[str] | None = None) -> tuple[int, int] | None:
        """Return the oldest and the newest moment that can be shown of some clusters or of all; None before any.

        Raises:
            TableUnreadable: the change log cannot be read.
        """
        table = open_ours(self.tables, PARTITION_CHANGES)
        return None if table is None else _range(table, clusters)

    def check(self, at: int, clusters: Collection[str] | None = None) -> None:
        """Refuse a moment that cannot be shown, as :meth:`snapshot` does."""
        self._check(at, _range(self._opened(), clusters))

    def snapshot(self, at: int, clusters: Collection[str] | None = None) -> ReplicationSnapshot:
        """Return the state at a moment, with ``read_at`` the moment.

        Args:
            at: UTC microseconds.
            clusters: ids; None: all. One that was not observed before the moment is absent.

        Raises:
            MomentRefused: it lies before the oldest history or after the newest report.
            TableUnreadable: a table cannot be read.
        """
        with self._lock:
            table = self._opened()
            self._check(at, _range(table, clusters))
            where = _where(clusters)
            draft, version = self._states.at(table, at, clusters)
            blind = _blind_since(table, at, where)
            newest = _newest_reports(table, where)
            for cluster in draft.every_cluster():
                cluster_id = cluster.cluster_id
                cluster.observe_until(Micros(min(at, blind.get(cluster_id, at), newest.get(cluster_id, at))))
            if (spells := self._rows(CONDITIONS, Spell._fields, where)) is not None:
                put_conditions(draft, spells_at(spells, at))
            if (sampled := self._rows(SAMPLED_CONDITIONS, SampledSpell._fields, where)) is not None:
                put_sampled_conditions(draft, sampled_spells_at(sampled, at))
            incidents = self._rows(INCIDENTS, INCIDENT_COLUMNS, where)
            draft.put_incidents(None if incidents is None else incidents_at(incidents, at))
            return draft.finish(version, at, 0)

    def at_version(self, version: int, add_unreadable: Callable[[str], None] | None = None) -> ReplicationSnapshot:
        """Return the state as of a version of the change log, without samples; see :func:`state_as_of`."""
        return state_as_of(self.tables, version, add_unreadable)

    def was_observed(self, at: int, cluster_id: str) -> bool:
        """Return whether a cluster was observed at a moment, as far as the rows say by now."""
        table, where = self._opened(), where_in((cluster_id,))
        newest = _newest_reports(table, where).get(cluster_id)
        return newest is not None and at <= newest and not _blind_since(table, at, where)

    def previous(self, at: int, of: Scope = EVERYTHING) -> int | None:
        """Return the newest moment before another at which something that a page is about changed; None for none."""
        return self._change(f"max({_MICROS.format('occurred_not_after')})", "<", at, of)

    def next(self, at: int, of: Scope = EVERYTHING) -> int | None:
        """Return the oldest moment after another at which something that a page is about changed; None for none."""
        return self._change(f"min({_MICROS.format('occurred_not_after')})", ">", at, of)

    def _change(self, chosen: str, compared: str, at: int, of: Scope) -> int | None:
        table = open_ours(self.tables, PARTITION_CHANGES)
        shown = None if table is None else _range(table, None if of.cluster_id is None else (of.cluster_id,))
        if table is None or shown is None:
            return None
        oldest, newest = (_MOMENT.format(moment) for moment in shown)
        is_beyond = f"occurred_not_after {compared} {_MOMENT.format(at)}"
        within = f"occurred_not_after BETWEEN {oldest} AND {newest} AND {is_beyond} AND {of.where()}"
        found = query(table, f"SELECT {chosen} AS moment FROM rows WHERE {within}")  # noqa: S608 - literals of ours
        moment: int | None = found["moment"][0].as_py()
        return moment

    def _opened(self) -> DeltaTable:
        table = open_ours(self.tables, PARTITION_CHANGES)
        if table is None:
            raise MomentRefused(f"{self.tables / PARTITION_CHANGES.name} has no rows yet; nothing is recorded")
        return table

    def _check(self, at: int, shown: tuple[int, int] | None) -> None:
        clock = Clock(self._clock())
        if shown is None:
            raise MomentRefused(f"{self.tables / PARTITION_CHANGES.name} has no rows yet; nothing is recorded")
        if not shown[0] <= at <= shown[1]:
            oldest, newest = -(-shown[0] // 1000) * 1000, shown[1]
            raise MomentRefused(
                f"nothing is recorded of {clock.iso(at)}: give a moment from {clock.iso(oldest)} to {clock.iso(newest)}"
            )

    def _rows(self, definition: Table, columns: Collection[str], where: str) -> pa.Table | None:
        table = open_ours(self.tables, definition)
        if table is None:
            return None
        return query(table, f"SELECT {quoted(columns)} FROM rows WHERE {where}")  # noqa: S608 - our own columns


def _range(table: DeltaTable, clusters: Collection[str] | None) -> tuple[int, int] | None:
    where = _where(clusters)
    newest = max(_newest_reports(table, where).values(), default=None)
    oldest = f"SELECT min({_MICROS.format('occurred_not_after')}) AS moment FROM rows WHERE {where}"  # noqa: S608 - ids
    first: int | None = query(table, oldest)["moment"][0].as_py()
    if newest is None or first is None:
        return None
    days = table.transaction_version(EXPIRED)
    return min(newest, max(first, 0 if days is None else int(days) * _DAY)), newest


def _newest_reports(table: DeltaTable, where: str) -> dict[str, int]:
    """Return until when the sources that order partitions have reported each cluster."""
    moment = _MICROS.format("max(occurred_not_after)")
    rows = query(
        table,
        f"SELECT cluster_id, {moment} AS moment FROM rows "  # noqa: S608 - literals of ours
        f"WHERE source_kind IN ('metadata_log', 'poll') AND {where} GROUP BY cluster_id",
    )
    return {row["cluster_id"]: row["moment"] for row in rows.to_pylist()}


def _blind_since(table: DeltaTable, at: int, where: str) -> dict[str, int]:
    """Return since when each cluster that was not observed at a moment had not been."""
    since = "cluster_after['sight_until']"
    moment = _MOMENT.format(at)
    rows = query(
        table,
        f"SELECT cluster_id, min({_MICROS.format(since)}) AS moment FROM rows WHERE subject = 'cluster' "  # noqa: S608 - numbers
        f"AND {since} < {moment} AND occurred_not_after > {moment} AND {where} GROUP BY cluster_id",
    )
    return {row["cluster_id"]: row["moment"] for row in rows.to_pylist()}


def _where(clusters: Collection[str] | None) -> str:
    return ALL if clusters is None else where_in(clusters)


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


# The state as of a version, whatever had occurred by then: what the tables contained.


def state_as_of(
    tables: Place, version: int, add_unreadable: Callable[[str], None] | None = None
) -> ReplicationSnapshot:
    """Rebuild what the tables contained at a version of ``partition_changes``; samples are not included.

    Args:
        tables: the folder of the tables.
        version: of ``partition_changes``.
        add_unreadable: takes the sentence about the table of brokers if it cannot be read; their counts of ISR removals
            are unknown then. None: it is raised.

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
