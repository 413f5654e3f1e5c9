"""Rows of the change log in, incidents out: related changes grouped into one incident. Pure; no clock, no IO.

Rows of a cluster are one incident by the brokers they blame and the partitions they touch:

- the same broker is to blame, or the leader that removed it for lag is itself to blame;
- a loss takes over the lag that it began with;
- another broker is lost within seconds of the first, or degrades partitions further that were degraded already;
- every change of a partition while it is degraded, and the return of its preferred leader afterwards.

An incident stays open while a partition is degraded because of it, and then for a gap without changes: one minute, 15
minutes for a rolling restart. After that it is remembered for the longer gap, because a second broker's restart may
show that it was the first turn of a rolling restart. Only the times of rows count, so how rows are cut into batches
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.changes.incident import Incident
from streaming.changes.incident_bounds import began_with_lag, continued_incident, earlier_turn, incident_blaming
from streaming.changes.incident_classes import class_of
from streaming.changes.incident_signals import FAMILY_OF, UNRELATED, ChangeRow, Family
from streaming.changes.suspects import removal_suspects
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId

_STANDALONE: Final = frozenset({Family.MOVE, Family.CONTROLLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentGaps:
    """How long after its last change an incident stays open, in microseconds."""

    usual: int = 60_000_000
    rolling: int = 900_000_000


class IncidentFold:
    """The incidents of all clusters that are open, or may still continue. Owned by one thread."""

    def __init__(self, gaps: IncidentGaps, incidents: Iterable[Incident] = ()) -> None:
        self._gaps = gaps
        self._by_id: dict[str, Incident] = {incident.incident_id: incident for incident in incidents}
        self._by_cluster: dict[str, list[Incident]] = {}
        for incident in sorted(self._by_id.values(), key=lambda incident: (incident.opened_at, incident.incident_id)):
            self._by_cluster.setdefault(incident.cluster_id, []).append(incident)
        self._changed: dict[str, Incident] = {}

    def fold(self, rows: Iterable[ChangeRow]) -> list[Incident]:
        """Apply rows, in their order.

        Returns:
            every incident that they changed, in the order of its first change. Those that are not ``remembered`` any
            more are final.
        """
        self._changed = {}
        for row in rows:
            incidents = self._by_cluster.get(row.cluster_id)
            if incidents:
                self._pass_time(incidents, row)
            _STEPS.get(row.subject, _nothing)(self, row)
        return list(self._changed.values())

    def remembered(self, incident: Incident) -> bool:
        """Return whether an incident may still change."""
        return incident.incident_id in self._by_id

    # ------------------------------------------------------------------ time

    def _pass_time(self, incidents: list[Incident], row: ChangeRow) -> None:
        forgotten = False
        for incident in incidents:
            if incident.episode is not None and incident.episode.pass_time(row.time):
                self._mark_changed(incident, row)
            quiet = row.time - incident.updated_at
            if incident.is_under_way or quiet <= self._gaps.usual:
                continue
            if incident.closed_at is None and quiet > self._gap(incident):
                incident.closed_at = incident.updated_at
                self._mark_changed(incident, row)
            if incident.closed_at is not None and (quiet > self._gaps.rolling or not incident.downs):
                forgotten = True
                self._forget(incident, row)
        if forgotten:
            self._by_cluster[row.cluster_id] = [
                incident for incident in incidents if incident.incident_id in self._by_id
            ]

    def _gap(self, incident: Incident) -> int:
        return self._gaps.rolling if class_of(incident) is IncidentClass.ROLLING_RESTART else self._gaps.usual

    def _forget(self, incident: Incident, row: ChangeRow) -> None:
        self._by_id.pop(incident.incident_id, None)
        self._mark_changed(incident, row)

    def _mark_changed(self, incident: Incident, row: ChangeRow) -> None:
        incident.version = row.version
        self._changed.setdefault(incident.incident_id, incident)

    # ------------------------------------------------------------------ rows

    def partition(self, row: ChangeRow) -> None:
        """Apply a step of a partition."""
        family = FAMILY_OF.get(row.cause or "")
        gone, held_by = row.gone, None
        if family is Family.MOVE:
            self._move(row)
        elif family is not None and gone:
            held_by = self._removed(family, gone, row)
        elif row.cause not in UNRELATED:
            if family is Family.PLANNED:
                self._revise(row)
            self._continue(row)
        for incident in self._by_cluster.get(row.cluster_id, ()):
            if incident is not held_by and (row.topic_id, row.partition) in incident.held:
                incident.hold(row)

    def _revise(self, row: ChangeRow) -> None:
        """Take a lost broker for stopped, as its removal proved to be planned; where two may be meant, take neither."""
        for incident in self._by_cluster.get(row.cluster_id, ()):
            held = incident.held.get((row.topic_id, row.partition))
            if held is not None and len(brokers := incident.lost & held.missing) == 1:
                incident.take_for_planned(*brokers)

    def _move(self, row: ChangeRow) -> None:
        incident = self._standalone(Family.MOVE, row)
        key = (row.topic_id, row.partition)
        (incident.moving.add if row.is_moving else incident.moving.discard)(key)
        self._record(incident, row)

    def _removed(self, family: Family, gone: tuple[BrokerId, ...], row: ChangeRow) -> Incident:
        blamed, reporter = removal_suspects(gone, row.leader, row.cause)
        incident = self._belonging(family, frozenset(blamed), reporter, row)
        incident.blamed.update(blamed)
        is_lag = family is Family.LAG
        incident.departures.update((row.leader if is_lag else NO_LEADER, broker) for broker in gone)
        if is_lag:
            incident.add_lag_report(row)
        elif family is Family.DISK:
            incident.disks.update(gone)
        elif family is Family.UNCLEAN:
            incident.unclean_left.update(gone)
        else:
            for broker in gone:
                incident.record_down(broker, row, planned=family is Family.PLANNED)
        self._record(incident, row)
        incident.hold(row, gone)
        return incident

    def _continue(self, row: ChangeRow) -> None:
        """Record a change that follows from incidents.

        These are the first that exist of: those whose missing broker rejoined; those by which the partition is
        degraded; the last one that touched it.
        """
        key = (row.topic_id, row.partition)
        open_ones = [
            incident
            for incident in self._by_cluster.get(row.cluster_id, ())
            if incident.closed_at is None and incident.base not in _STANDALONE
        ]
        holding = [incident for incident in open_ones if incident.holds(key, row.joined)] or [
            incident for incident in open_ones if key in incident.held
        ]
        for incident in holding or self._last_to_touch(open_ones, row):
            if incident.episode is not None and row.joined:
                incident.episode.rejoin(row.leader, row.joined, row.time)
            self._record(incident, row)

    def _last_to_touch(self, open_ones: list[Incident], row: ChangeRow) -> list[Incident]:
        touching = [incident for incident in open_ones if incident.has_touched((row.topic_id, row.partition))]
        suspected = [incident for incident in touching if row.leader in incident.blamed]
        return (suspected or touching)[-1:]

    def broker(self, row: ChangeRow) -> None:
        """Apply the events of a broker."""
        for event in row.events:
            if event == EventKind.SHUTTING_DOWN:
                self._broker_down(Family.PLANNED, row)
            elif event == EventKind.FENCED:
                self._broker_down(Family.PLANNED if row.is_shutting_down else Family.LOSS, row)
            elif event == EventKind.LOG_DIR_OFFLINE:
                incident = self._belonging(Family.DISK, frozenset({row.broker}), None, row)
                incident.blamed[row.broker] += 0  # named, without a removal yet
                incident.disks.add(row.broker)
                self._record(incident, row)
            elif event in (EventKind.REGISTERED, EventKind.UNFENCED, EventKind.UNREGISTERED):
                self._broker_up(row, restarted=event == EventKind.REGISTERED, left=event == EventKind.UNREGISTERED)

    def _broker_down(self, family: Family, row: ChangeRow) -> None:
        incident = self._belonging(family, frozenset({row.broker}), None, row)
        incident.blamed[row.broker] += 0  # named, without a removal yet
        incident.record_down(row.broker, row, planned=family is Family.PLANNED)
        self._record(incident, row)

    def _broker_up(self, row: ChangeRow, *, restarted: bool, left: bool) -> None:
        for incident in list(self._by_cluster.get(row.cluster_id, ())):
            if incident.down_now(row.broker) is None:
                continue
            if not left:
                incident.record_up(row.broker, row.time, restarted=restarted)
            if incident.closed_at is None:
                self._record(incident, row)
            else:
                self._mark_changed(incident, row)
            others = self._by_cluster[row.cluster_id]
            if restarted and (first := earlier_turn(incident, others, row.time - self._gaps.rolling)) is not None:
                self._merge(incident, first, row)

    def cluster(self, row: ChangeRow) -> None:
        """Apply the events of a cluster: another controller."""
        if EventKind.CONTROLLER_CHANGE in row.events:
            self._record(self._standalone(Family.CONTROLLER, row), row)

    # ------------------------------------------------------------------ which incident

    def _record(self, incident: Incident, row: ChangeRow) -> None:
        incident.record(row)
        self._changed.setdefault(incident.incident_id, incident)

    def _standalone(self, family: Family, row: ChangeRow) -> Incident:
        """Return the open incident of a kind that never mixes with others; open it if there is none."""
        for incident in self._by_cluster.get(row.cluster_id, ()):
            if incident.base is family and incident.closed_at is None:
                return incident
        return self._open(family, row)

    def _belonging(self, family: Family, blamed: frozenset[int], reporter: int | None, row: ChangeRow) -> Incident:
        """Return the incident that an ISR removal or an event of a broker belongs to; open it if there is none."""
        candidates = [
            incident for incident in self._by_cluster.get(row.cluster_id, ()) if incident.base not in _STANDALONE
        ]
        own = incident_blaming(family, blamed, candidates)
        other = continued_incident(family, reporter, candidates, row)
        # Two incidents about one broker. Where its own has shown only lag, that was the beginning of the other one, or
        # followed from it: they are one. With a loss of its own it stays apart; when it is back, its new lag belongs to
        # the incident of a leader that lags itself.
        if own is not None and other is not None and own is not other:
            if own.is_only_lag:
                return self._merge(own, other, row)
            if family is Family.LAG and all(own.down_now(broker) is None for broker in blamed):
                own = other
        incident = own or other
        if incident is None:
            return self._open(family, row)
        incident.closed_at = None
        return self._with_its_lag(incident, blamed, row) if family is Family.LOSS else incident

    def _with_its_lag(self, incident: Incident, lost: frozenset[int], row: ChangeRow) -> Incident:
        """Merge the incidents that the lag of lost brokers had opened: each leader left alone opens its own."""
        for each in list(self._by_cluster[row.cluster_id]):
            if each is not incident and began_with_lag(each, lost):
                incident = self._merge(incident, each, row)
        return incident

    def _open(self, family: Family, row: ChangeRow) -> Incident:
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
        self._changed[incident.incident_id] = incident
        return incident

    def _merge(self, one: Incident, other: Incident, row: ChangeRow) -> Incident:
        """Merge two incidents into the older one: the newer is closed, and names the one that it is part of."""
        into, incident = sorted((one, other), key=lambda each: (each.opened_at, each.incident_id))
        into.absorb(incident)
        into.closed_at = None
        incident.release()
        incident.closed_at, incident.merged_into = incident.updated_at, into.incident_id
        self._by_cluster[row.cluster_id] = [
            other for other in self._by_cluster[row.cluster_id] if other is not incident
        ]
        self._forget(incident, row)
        self._mark_changed(into, row)
        return into


def _nothing(_: IncidentFold, row: ChangeRow) -> None:
    """Apply nothing: rows of sources only advance the time."""
    del row


_STEPS: Final = {"partition": IncidentFold.partition, "broker": IncidentFold.broker, "cluster": IncidentFold.cluster}
