"""The incidents that are open, or may still continue: opened, merged, closed and forgotten. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.changes.incident import Incident
from streaming.changes.incident_merging import absorb
from streaming.changes.planned_work import is_rolling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.configured_times import ConfiguredTimes
    from streaming.changes.incident_signals import ChangeRow, Family


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentGaps:
    """How long after its last change an incident stays open, in microseconds."""

    usual: int = 60_000_000
    rolling: int = 900_000_000

    def of(self, incident: Incident) -> int:
        """Return how long this incident stays open: in a rolling restart the next turn may come late."""
        return self.rolling if is_rolling(incident) else self.usual

    def end(self, incident: Incident) -> int | None:
        """Return when an incident closes if nothing more happens; None while it is under way, and once it is closed."""
        is_waiting = incident.closed_at is None and not incident.is_under_way
        return incident.updated_at + self.of(incident) if is_waiting else None


class RememberedIncidents:
    """All of them by cluster, the oldest first, and those that the rows since ``start`` have changed."""

    def __init__(self, gaps: IncidentGaps, incidents: Iterable[Incident]) -> None:
        self._gaps = gaps
        self._by_id: dict[str, Incident] = {incident.incident_id: incident for incident in incidents}
        self._by_cluster: dict[str, list[Incident]] = {}
        for incident in sorted(self._by_id.values(), key=lambda incident: (incident.opened_at, incident.incident_id)):
            self._by_cluster.setdefault(incident.cluster_id, []).append(incident)
        self.changed: dict[str, Incident] = {}

    def __contains__(self, incident: Incident) -> bool:
        """Return whether an incident may still change."""
        return incident.incident_id in self._by_id

    def of(self, row: ChangeRow) -> list[Incident]:
        """Return the incidents of a row's cluster."""
        return self._by_cluster.get(row.cluster_id, [])

    def pass_time(self, row: ChangeRow, times: ConfiguredTimes, held: frozenset[int] = frozenset()) -> None:
        """Advance the incidents of a cluster to the time of a row: some close, some escalate, some are final.

        ``held``: brokers for which planned work is announced; they may stay away for as long as that.
        """
        incidents, forgotten = self.of(row), False
        for incident in incidents:
            if incident.closed_at is None and incident.pass_time(row.time, times, held):
                self.mark_changed(incident, row)
            quiet = row.time - incident.updated_at
            if incident.is_under_way or quiet <= self._gaps.usual:
                continue
            if incident.closed_at is None and quiet > self._gaps.of(incident):
                incident.closed_at = incident.updated_at
                self.mark_changed(incident, row)
            if incident.closed_at is not None and (quiet > self._gaps.rolling or not incident.downs):
                forgotten = True
                self._forget(incident, row)
        if forgotten:
            self._by_cluster[row.cluster_id] = [incident for incident in incidents if incident in self]

    def _forget(self, incident: Incident, row: ChangeRow) -> None:
        self._by_id.pop(incident.incident_id, None)
        self.mark_changed(incident, row)

    def mark_changed(self, incident: Incident, row: ChangeRow) -> None:
        """Note that a row changed an incident without being part of it."""
        incident.version = row.version
        self.changed.setdefault(incident.incident_id, incident)

    def record(self, incident: Incident, row: ChangeRow) -> None:
        """Make a row part of an incident."""
        incident.record(row)
        self.changed.setdefault(incident.incident_id, incident)

    def open(self, family: Family, row: ChangeRow) -> Incident:
        """Open an incident with a row, which is not part of it yet."""
        first = row.event_ids[0] if row.event_ids else f"{row.cluster_id}/{row.topic_id}/{row.partition}/{row.time}"
        incident = Incident(
            incident_id=f"{family}:{first}",
            cluster_id=row.cluster_id,
            cluster=row.cluster,
            base=family,
            opened_at=row.since,
            updated_at=row.time,
            version=row.version,
        )
        self._by_id[incident.incident_id] = incident
        self._by_cluster.setdefault(row.cluster_id, []).append(incident)
        self.changed[incident.incident_id] = incident
        return incident

    def open_standalone(self, family: Family, row: ChangeRow) -> Incident:
        """Return the open incident of a kind that never mixes with others; open it if there is none."""
        for incident in self.of(row):
            if incident.base is family and incident.closed_at is None:
                return incident
        return self.open(family, row)

    def merge(self, one: Incident, other: Incident, row: ChangeRow) -> Incident:
        """Merge two incidents into the older one: the newer is closed, and names the one that it is part of."""
        into, incident = sorted((one, other), key=lambda each: (each.opened_at, each.incident_id))
        absorb(into, incident)
        into.closed_at = None
        incident.release()
        incident.closed_at, incident.merged_into = incident.updated_at, into.incident_id
        self._by_cluster[row.cluster_id] = [each for each in self.of(row) if each is not incident]
        self._forget(incident, row)
        self.mark_changed(into, row)
        return into
