"""Rows of the truth in, incidents out: one for each thing that happened. Pure; no clock, no IO.

Rows of a cluster that belong together are one incident, told by whom they blame and which partitions they touch:

- the same broker is to blame, or a broker that is itself to blame accuses others;
- another broker is lost within seconds of the first, or takes partitions further down that were degraded already;
- what a partition goes through while it is degraded, and the return of its preferred leader afterwards.

An incident stays open while a partition is degraded because of it, and then for a gap (15 minutes instead of one for
a rolling restart). After that it is remembered for the longer gap, because a second broker's restart may show that it
was the first turn of a rolling restart. Only the times of rows count, so cutting them into batches changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.changes.incident import Incident
from streaming.changes.incident_bounds import earlier_turn, goes_on, only_lags, same_trouble
from streaming.changes.incident_classes import class_of
from streaming.changes.incident_signals import FAMILY_OF, UNRELATED, Family, Row
from streaming.changes.suspects import expelled_by
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId

_APART: Final = frozenset({Family.MOVE, Family.CONTROLLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How long nothing may happen within one incident, in microseconds."""

    usual: int = 60_000_000
    rolling: int = 900_000_000


class Incidents:
    """The incidents of all clusters that are open, or may still turn out to go on. One thread owns it."""

    def __init__(self, gaps: Gaps, known: Iterable[Incident] = ()) -> None:
        self._gaps = gaps
        self._known: dict[str, Incident] = {incident.incident_id: incident for incident in known}
        self._of: dict[str, list[Incident]] = {}
        for incident in sorted(self._known.values(), key=lambda it: (it.opened_at, it.incident_id)):
            self._of.setdefault(incident.cluster_id, []).append(incident)
        self._told: dict[str, Incident] = {}

    def fold(self, rows: Iterable[Row]) -> list[Incident]:
        """Apply rows, in their order.

        Returns:
            every incident of which they told something, in the order it was first told. Those that are not in
            ``remembered`` any more are over for good.
        """
        self._told = {}
        for row in rows:
            incidents = self._of.get(row.cluster_id)
            if incidents:
                self._let_time_pass(incidents, row)
            _STEPS.get(row.subject, _nothing)(self, row)
        return list(self._told.values())

    def remembered(self, incident: Incident) -> bool:
        """Tell whether an incident may still change."""
        return incident.incident_id in self._known

    # ------------------------------------------------------------------ time

    def _let_time_pass(self, incidents: list[Incident], row: Row) -> None:
        forgotten = False
        for incident in incidents:
            if incident.episode is not None and incident.episode.pass_time(row.time):
                self._tell(incident, row)
            quiet = row.time - incident.updated_at
            if incident.is_under_way or quiet <= self._gaps.usual:
                continue
            if incident.closed_at is None and quiet > self._gap(incident):
                incident.closed_at = incident.updated_at
                self._tell(incident, row)
            if incident.closed_at is not None and (quiet > self._gaps.rolling or not incident.downs):
                forgotten = True
                self._forget(incident, row)
        if forgotten:
            self._of[row.cluster_id] = [it for it in incidents if it.incident_id in self._known]

    def _gap(self, incident: Incident) -> int:
        return self._gaps.rolling if class_of(incident) is IncidentClass.ROLLING_RESTART else self._gaps.usual

    def _forget(self, incident: Incident, row: Row) -> None:
        self._known.pop(incident.incident_id, None)
        self._tell(incident, row)

    def _tell(self, incident: Incident, row: Row) -> None:
        incident.version = row.version
        self._told.setdefault(incident.incident_id, incident)

    # ------------------------------------------------------------------ rows

    def partition(self, row: Row) -> None:
        """Apply a step of a partition."""
        family = FAMILY_OF.get(row.cause or "")
        gone, held_by = row.gone, None
        if family is Family.MOVE:
            self._move(row)
        elif family is not None and gone:
            held_by = self._departed(family, gone, row)
        elif row.cause not in UNRELATED:
            self._went_on(row)
        for incident in self._of.get(row.cluster_id, ()):
            if incident is not held_by and (row.topic_id, row.partition) in incident.held:
                incident.hold(row)

    def _move(self, row: Row) -> None:
        incident = self._apart(Family.MOVE, row)
        key = (row.topic_id, row.partition)
        (incident.moving.add if row.is_moving else incident.moving.discard)(key)
        self._record(incident, row)

    def _departed(self, family: Family, gone: tuple[BrokerId, ...], row: Row) -> Incident:
        blamed, accuser = expelled_by(gone, row.leader, row.cause)
        incident = self._belonging(family, frozenset(blamed), accuser, row)
        incident.blamed.update(blamed)
        is_lag = family is Family.LAG
        incident.departures.update((row.leader if is_lag else NO_LEADER, broker) for broker in gone)
        if is_lag:
            incident.accuse(row)
        elif family is Family.DISK:
            incident.disks.update(gone)
        elif family is Family.UNCLEAN:
            incident.unclean_left.update(gone)
        else:
            for broker in gone:
                incident.went(broker, row, planned=family is Family.PLANNED)
        self._record(incident, row)
        incident.hold(row, gone)
        return incident

    def _went_on(self, row: Row) -> None:
        """Count what follows from an incident as part of it: of those that took back what they lacked, or touched."""
        key = (row.topic_id, row.partition)
        alive = [it for it in self._of.get(row.cluster_id, ()) if it.closed_at is None and it.base not in _APART]
        holding = [it for it in alive if it.holds(key, row.joined)] or [it for it in alive if key in it.held]
        for incident in holding or self._last_to_touch(alive, row):
            if incident.episode is not None and row.joined:
                incident.episode.rejoin(row.leader, row.joined, row.time)
            self._record(incident, row)

    def _last_to_touch(self, alive: list[Incident], row: Row) -> list[Incident]:
        touching = [it for it in alive if it.has_touched((row.topic_id, row.partition))]
        suspected = [it for it in touching if row.leader in it.blamed]
        return (suspected or touching)[-1:]

    def broker(self, row: Row) -> None:
        """Apply what happened to a broker."""
        for event in row.events:
            if event == EventKind.SHUTTING_DOWN:
                self._away(Family.PLANNED, row)
            elif event == EventKind.FENCED:
                self._away(Family.PLANNED if row.is_shutting_down else Family.LOSS, row)
            elif event == EventKind.LOG_DIR_OFFLINE:
                incident = self._belonging(Family.DISK, frozenset({row.broker}), None, row)
                incident.blamed[row.broker] += 0
                incident.disks.add(row.broker)
                self._record(incident, row)
            elif event in (EventKind.REGISTERED, EventKind.UNFENCED, EventKind.UNREGISTERED):
                self._back(row, restarted=event == EventKind.REGISTERED, gone=event == EventKind.UNREGISTERED)

    def _away(self, family: Family, row: Row) -> None:
        incident = self._belonging(family, frozenset({row.broker}), None, row)
        incident.blamed[row.broker] += 0
        incident.went(row.broker, row, planned=family is Family.PLANNED)
        self._record(incident, row)

    def _back(self, row: Row, *, restarted: bool, gone: bool) -> None:
        for incident in list(self._of.get(row.cluster_id, ())):
            if incident.down_now(row.broker) is None:
                continue
            if not gone:
                incident.came_back(row.broker, row.time, restarted=restarted)
            if incident.closed_at is None:
                self._record(incident, row)
            others = self._of[row.cluster_id]
            if restarted and (first := earlier_turn(incident, others, row.time - self._gaps.rolling)) is not None:
                self._merge(incident, into=first, row=row)

    def cluster(self, row: Row) -> None:
        """Apply what happened to a cluster: another controller."""
        if EventKind.CONTROLLER_CHANGE in row.events:
            self._record(self._apart(Family.CONTROLLER, row), row)

    # ------------------------------------------------------------------ which incident

    def _record(self, incident: Incident, row: Row) -> None:
        incident.record(row)
        self._told.setdefault(incident.incident_id, incident)

    def _apart(self, family: Family, row: Row) -> Incident:
        """Find or open the one incident of a kind that nothing else belongs to."""
        for incident in self._of.get(row.cluster_id, ()):
            if incident.base is family and incident.closed_at is None:
                return incident
        return self._open(family, row)

    def _belonging(self, family: Family, blamed: frozenset[int], accuser: int | None, row: Row) -> Incident:
        """Find the incident that a departure belongs to, or open one."""
        known = [it for it in self._of.get(row.cluster_id, ()) if it.base not in _APART]
        own = same_trouble(family, blamed, known)
        other = goes_on(family, accuser, known, row)
        if own is not None and other is not None and own is not other and only_lags(own):
            older, newer = sorted((own, other), key=lambda it: (it.opened_at, it.incident_id))
            self._merge(newer, into=older, row=row)
            return older
        found = own or other
        if found is None:
            return self._open(family, row)
        found.closed_at = None
        return found

    def _open(self, family: Family, row: Row) -> Incident:
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
        self._known[incident.incident_id] = incident
        self._of.setdefault(row.cluster_id, []).append(incident)
        self._told[incident.incident_id] = incident
        return incident

    def _merge(self, incident: Incident, into: Incident, row: Row) -> None:
        """Make two incidents one: the newer ends, told where it went."""
        into.absorb(incident)
        into.closed_at = None
        incident.let_go()
        incident.closed_at, incident.merged_into = incident.updated_at, into.incident_id
        self._of[row.cluster_id] = [it for it in self._of[row.cluster_id] if it is not incident]
        self._forget(incident, row)
        self._tell(into, row)


def _nothing(_: Incidents, row: Row) -> None:
    """Sources tell the time, and nothing else."""
    del row


_STEPS: Final = {"partition": Incidents.partition, "broker": Incidents.broker, "cluster": Incidents.cluster}
