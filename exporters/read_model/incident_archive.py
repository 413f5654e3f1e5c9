"""Every incident, open and closed, in memory; what belongs to one is read from the events when it is asked for.

Follows the table ``incidents`` by its version. Rows are dictionaries of ``INCIDENT_COLUMNS``, times UTC microseconds.
Incidents that were merged into others are found by their ids and listed nowhere.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.events import INCIDENT_COLUMNS, IS_OVER_SELECTED, without_running_times
from exporters.read_model.incident_ids import Merges, findable_names, ids_of, names_used, others_names, shown_id
from exporters.read_model.recorded_events import history
from exporters.read_model.unreadable import INTOLERANT
from streaming.contracts.events import EventKind, IncidentClass, Severity
from streaming.contracts.observations import IN_ITS_TAIL
from streaming.contracts.tables import AS_OF, CLUSTER_STATE_TABLE, INCIDENTS
from streaming.delta.log.queries import columns_of, open_ours, query, quoted
from streaming.delta.log.table_log import BEFORE_FIRST, has_moved
from streaming.errors import ConfigurationError
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from exporters.read_model.event_filter import EventKey
    from exporters.read_model.unreadable import UnreadableTables
    from streaming.delta.store.place import Place
    from streaming.name_patterns import NamePatterns

Row = dict[str, Any]
LOOK_SECONDS: Final = 1.0
"""The archive of a server looks for a new version no more often."""
_LONGEST_LEASE: Final = 7 * 86_400_000_000
_WORK_ENDS: Final = (EventKind.MAINTENANCE_ENDED, EventKind.MAINTENANCE_LAPSED, EventKind.MAINTENANCE_OVERRAN)
_VERSION: Final = AS_OF[0].name
_SELECTED: Final = f"{quoted((*INCIDENT_COLUMNS, _VERSION))}, {IS_OVER_SELECTED}"


class IncidentUnknown(ConfigurationError):
    """No incident, or more than one, has an id."""


class IncidentEvents(NamedTuple):
    """Events of the time of an incident, oldest first; ``is_complete``: none of that time is left out."""

    events: list[Row]
    is_complete: bool


class Work(NamedTuple):
    """Planned work on a broker; ``until``: when it was over, None: not by the newest change; ``text``: as announced."""

    broker: int
    since: int
    until: int | None
    text: str
    has_overrun: bool


class _ArchiveContent(NamedTuple):
    """Content of one version: all rows by id, and those that stand for themselves, open before closed, newest first."""

    version: int = BEFORE_FIRST
    rows: Mapping[str, Row] = {}
    over: Mapping[str, int] = {}
    listed: Sequence[Row] = ()


class IncidentArchive:
    """Every incident of the tables below one folder. Safe to call from any thread.

    Every method raises ``TableUnreadable`` while the table cannot be read, and ``TableRefused`` if its layout is
    another: it never answers from before that.
    """

    def __init__(
        self,
        tables: Place,
        names: Callable[[], Mapping[str, str]] | None = None,
        *,
        look_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read nothing yet; the table need not exist.

        ``names`` returns the name that each cluster has now, by its id; by default it is read from ``cluster_state``.
        An answer may rest for ``look_seconds`` on the version that was read last.
        """
        self._tables, self._monotonic, self._look_seconds = tables, monotonic, look_seconds
        self._names = names or (lambda: read_names(tables))
        self._lock = threading.Lock()
        self._read = _ArchiveContent()
        self._looked_at: float | None = None

    def all(self, clusters: Collection[str] = ()) -> list[Row]:
        """Return the incidents of clusters, by patterns of names or ids: open before closed, newest first."""
        rows = self._newest().listed
        if not clusters:
            return [*rows]
        chosen, names = patterns_of(*clusters), self._names()
        return [row for row in rows if is_of(chosen, names, row)]

    def between(self, since: int | None, until: int | None, clusters: Collection[str] = ()) -> list[Row]:
        """Return those that lasted at some time from ``since`` to ``until``; None is no bound."""
        return [
            row
            for row in self.all(clusters)
            if (until is None or row["opened_at"] <= until)
            and (since is None or row["closed_at"] is None or row["closed_at"] >= since)
        ]

    def of_id(self, any_id: str) -> Row:
        """Return the incident of an id: short, under any name of its cluster, or the beginning of a long one.

        The id of one that was merged into another finds the other.

        Raises:
            IncidentUnknown: there is none, or several long ids begin so.
        """
        return one_of([*self._newest().rows.values()], any_id, self._names())

    def find(self, any_id: str) -> Row | None:
        """Return the incident of an id; None where there is none, or several begin so."""
        try:
            return self.of_id(any_id)
        except IncidentUnknown:
            return None

    def neighbours(self, row: Row) -> tuple[Row | None, Row | None]:
        """Return the incidents of the same cluster that were opened before and after one."""
        ordered = sorted(
            (each for each in self._newest().listed if each["cluster_id"] == row["cluster_id"]), key=_begin
        )
        at = bisect_left(ordered, _begin(row), key=_begin)
        is_listed = at < len(ordered) and ordered[at]["incident_id"] == row["incident_id"]
        after = at + is_listed
        return (ordered[at - 1] if at else None), (ordered[after] if after < len(ordered) else None)

    def parts(self, row: Row) -> list[str]:
        """Return the ids of the incidents that were merged into one."""
        return merged_into(row, self._newest().rows.values())

    def explained_by(self, row: Row) -> list[str]:
        """Return the ids of the incidents that account for the harm within planned work: harmful ones of that time."""
        if row["severity"] != Severity.INFO or not _is_harmed(row):
            return []
        return [
            shown_id(each)
            for each in self._newest().listed
            if each["cluster_id"] == row["cluster_id"]
            and each["severity"] != Severity.INFO
            and _is_harmed(each)
            and each["opened_at"] <= row["updated_at"]
            and row["opened_at"] <= each["updated_at"]
        ]

    def evidence(self, row: Row, unreadable: UnreadableTables = INTOLERANT) -> list[Row]:
        """Read the events that an incident lists as its evidence, oldest first."""
        ids = set(row["event_ids"] or ())
        return [event for event in history(self._tables, time_of(row), unreadable) if event["event_id"] in ids]

    def changes(self, row: Row, limit: int, unreadable: UnreadableTables = INTOLERANT) -> IncidentEvents:
        """Read the events of its cluster from its begin to its newest change; of more than ``limit`` the oldest."""
        events = [*history(self._tables, time_of(row), unreadable, limit=limit + 1, oldest=True)]
        return IncidentEvents(events[:limit], len(events) <= limit)

    def announced_work(self, row: Row, unreadable: UnreadableTables = INTOLERANT) -> list[Work]:
        """Return the planned work that was announced for brokers of its cluster in its time."""
        since = row["opened_at"] - _LONGEST_LEASE
        selection = replace(time_of(row), since=since, events=(EventKind.MAINTENANCE_BEGAN, *_WORK_ENDS))
        every: list[Work] = []
        for event in history(self._tables, selection, unreadable):
            broker, at = event["event_broker"], event["occurred_not_after"]
            if event["event"] == EventKind.MAINTENANCE_BEGAN:
                every.append(Work(broker, at, None, event["detail"] or "", has_overrun=False))
                continue
            for place, work in enumerate(every):
                if work.broker == broker and work.until is None and _why(work.text) == _why(event["detail"]):
                    has_overrun = event["event"] == EventKind.MAINTENANCE_OVERRAN
                    every[place] = work._replace(until=at, has_overrun=has_overrun)
        return [work for work in every if work.until is None or work.until >= row["opened_at"]]

    def _newest(self) -> _ArchiveContent:
        with self._lock:
            now = self._monotonic()
            if self._looked_at is None or now - self._looked_at >= self._look_seconds:
                self._read = self._looked()
                self._looked_at = now
            return self._read

    def _looked(self) -> _ArchiveContent:
        """Read the table if it has another version. Rows of incidents that can change no more are decoded once."""
        self._looked_at = None  # what cannot be read is tried again by the next request
        if not has_moved(self._tables / INCIDENTS.name, self._read.version):
            return self._read
        table = open_ours(self._tables, INCIDENTS)
        if table is None:
            return _ArchiveContent()
        selected = query(table, f"SELECT {_SELECTED} FROM rows")  # noqa: S608 - our own columns
        rows, over = _decoded(selected, self._read)
        listed = (row for row in rows.values() if row["merged_into"] is None)
        return _ArchiveContent(table.version(), rows, over, sorted(listed, key=_open_first))


def _decoded(selected: pa.Table, before: _ArchiveContent) -> tuple[dict[str, Row], dict[str, int]]:
    """Return all rows by id, and the version as of which each row is that can change no more."""
    ids, versions, are_over = (selected[name].to_pylist() for name in ("incident_id", _VERSION, "is_over"))
    over = {each: version for each, version, is_over in zip(ids, versions, are_over, strict=True) if is_over}
    is_new = [each not in over or before.over.get(each) != over[each] for each in ids]
    fresh = selected.filter(pa.array(is_new, pa.bool_()))
    columns = columns_of(fresh, INCIDENT_COLUMNS)
    decoded = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    new = {row["incident_id"]: without_running_times(row) for row in decoded}
    return {each: new[each] if each in new else before.rows[each] for each in ids}, over


def was_open(row: Row, moment: int) -> bool:
    """Return whether an incident was open at a moment."""
    return bool(row["opened_at"] <= moment and (row["closed_at"] is None or row["closed_at"] > moment))


def _open_first(row: Row) -> tuple[bool, int, str]:
    return row["closed_at"] is not None, -row["opened_at"], row["incident_id"]


def _begin(row: Row) -> tuple[int, str]:
    return row["opened_at"], row["incident_id"]


def time_of(row: Row, after: EventKey | None = None) -> EventFilter:
    """Return what selects the events of an incident's cluster, from its begin, or an event, to its newest change."""
    return EventFilter(clusters=(row["cluster_id"],), since=row["opened_at"], until=row["updated_at"], after=after)


def _why(text: str | None) -> str:
    """Return the reason of planned work, without the time at which it lapses, which may be extended."""
    return (text or "").partition("; until")[0].removesuffix(IN_ITS_TAIL)


def _is_harmed(row: Row) -> bool:
    return bool(row["under_min_isr_peak"] or row["offline_peak"])


def read_names(tables: Place, unreadable: UnreadableTables = INTOLERANT) -> dict[str, str]:
    """Read the name that each cluster has now, by its id; empty while that is unknown."""
    with unreadable.collected():
        if (table := open_ours(tables, CLUSTER_STATE_TABLE)) is not None:
            rows = query(table, 'SELECT cluster_id, "cluster" FROM rows')
            return dict(zip(rows["cluster_id"].to_pylist(), rows["cluster"].to_pylist(), strict=True))
    return {}


def is_of(chosen: NamePatterns, names: Mapping[str, str], row: Row) -> bool:
    """Return whether a row is of a chosen cluster, by its name then or now (``names``, by id), or its id."""
    return chosen(row["cluster"], row["cluster_id"], names.get(row["cluster_id"], row["cluster"]))


def one_of(rows: Sequence[Row], any_id: str, names: Mapping[str, str]) -> Row:
    """Return the incident that an id finds: a short id, under any name of its cluster, or the beginning of a long one.

    The id of one that was merged into another finds the other.

    Raises:
        IncidentUnknown: there is none, or several long ids begin so.
    """
    used = names_used(rows)
    every = {each: {*used.get(each, ()), *([names[each]] if each in names else ())} for each in {*used, *names}}
    findable = {each: findable_names(used[each], names.get(each), others_names(each, every)) for each in used}
    matching = [row for row in rows if any_id in ids_of(row, findable[row["cluster_id"]])]
    matching = matching or [row for row in rows if any_id and row["incident_id"].startswith(any_id)]
    if not matching:  # as it was copied or typed
        typed = any_id.strip().casefold()
        matching = [row for row in rows if typed in map(str.casefold, ids_of(row, findable[row["cluster_id"]]))]
    merges = Merges(rows)
    standing = {merges.standing(row["incident_id"]) for row in matching}
    if len(standing) != 1:
        ambiguous = f"{len(standing)} incidents begin with {any_id!r}; give more of the id" if standing else ""
        raise IncidentUnknown(ambiguous or f"there is no incident {any_id!r}; isrwatch incidents --all lists them")
    (incident_id,) = standing
    return next((row for row in rows if row["incident_id"] == incident_id), matching[0])


def merged_into(incident: Row, rows: Iterable[Row]) -> list[str]:
    """Return the ids of the incidents that were merged into one."""
    return sorted(map(shown_id, Merges(rows).parts().get(incident["incident_id"], ())))


def groups_beyond(incident: Mapping[str, Any], offsets: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return which groups of its cluster stand beyond the end now where an unclean election lost records."""
    if incident["incident_class"] != IncidentClass.UNCLEAN_ELECTION:
        return []
    return [
        f"{row['group']} stands {row['beyond']:,} beyond the end of {row['topic']}-{row['partition']}"
        for row in offsets
        if row["beyond"] and row["topic"] in (incident["topics"] or ())
    ]
