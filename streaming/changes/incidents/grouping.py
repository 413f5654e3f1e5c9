"""Rows of the change log in, incidents out: related changes grouped into one incident. Pure; no clock, no IO.

Rows of a cluster are one incident by the brokers they blame and the partitions they touch:
- the same broker is to blame, or the leader that removed it for lag is itself; a loss takes over the lag before it;
- another broker is lost within a session of the last one, or degrades partitions further that were degraded already;
- every change of a partition while it is degraded, and the return of its preferred leader afterwards.

An incident stays open while a partition is degraded because of it, and then for a gap (``IncidentGaps``). It
is remembered for the longer one, as a second broker's restart may show that it was the first turn of a rolling restart.
What touched no partition is no incident. Only the times of rows of the primary source count, so how rows are cut into
batches changes nothing, and how far other sources are ahead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streaming.changes.advice.suspects import removal_suspects
from streaming.changes.incidents.context import FAMILY_OF, HARM, UNRELATED, ChangeRow, ClusterContext, Family
from streaming.changes.incidents.incident import EVIDENCE_KEPT, HEALTHY, SENTENCES_KEPT, Incident
from streaming.changes.incidents.lag_attribution import BrokerAbsence, merged_episode
from streaming.changes.incidents.rules import (
    are_one_split,
    began_with_lag,
    continued_incident,
    end_of_broker,
    incident_blaming,
    innocent_so_far,
    is_missed_by_stall,
    is_rolling,
    last_to_touch,
    overrun_work,
    trouble_of,
    waiting_for,
    was_controller,
)
from streaming.changes.incidents.short_ids import NumberStep, Opened, losses_of
from streaming.contracts.events import Cause, EventKind, Evidence, Subject
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.state import ConfiguredTimes
    from streaming.contracts.identifiers import BrokerId

RowFollower = Callable[[ChangeRow, ClusterContext, list[Incident], dict[str, Incident]], None]
"""Follows a row that was applied: with the context and the incidents of its cluster, and those that it has changed."""
_STANDALONE: Final = frozenset({Family.MOVE, Family.CONTROLLER})


class IncidentFold:
    """The incidents of all clusters that are open, or may still continue. Owned by one thread."""

    def __init__(
        self,
        gaps: IncidentGaps,
        incidents: Iterable[Incident] = (),
        contexts: Mapping[str, ClusterContext] | None = None,
        follow: RowFollower | None = None,
    ) -> None:
        self._incidents, self._follow = RememberedIncidents(gaps, incidents), follow
        self.contexts: defaultdict[str, ClusterContext] = defaultdict(ClusterContext, contexts or {})

    def fold(self, rows: Iterable[ChangeRow]) -> list[Incident]:
        """Apply rows, in their order.

        Returns:
            every incident that they changed, in the order of its first change. Those that are not ``remembered`` any
            more are final.
        """
        self._incidents.changed, self._incidents.steps = {}, []
        for row in rows:
            context = self.contexts[row.cluster_id]
            row = context.with_name(row)  # noqa: PLW2901 - of one cluster all rows have one name
            self._incidents.touched = {}
            if context.moves_time(row):
                self._incidents.pass_time(row, context.times, context.held(row.time))
            if row.subject != Subject.CLUSTER:  # an incident names the controller before
                context.follow(row)
            if (step := _STEPS.get(row.subject)) is not None:
                step(self, row)
            if self._follow is not None:
                self._follow(row, context, self._incidents.of(row), self._incidents.touched)
        return list(self._incidents.changed.values())

    def of_cluster(self, cluster_id: str) -> list[Incident]:
        """Return the incidents of a cluster that may still change."""
        return self._incidents.of_cluster(cluster_id)

    @property
    def number_steps(self) -> list[NumberStep]:
        """Return what the rows of the last fold mean for the numbers of incidents, in their order."""
        return self._incidents.steps

    def remembered(self, incident: Incident) -> bool:
        """Return whether an incident may still change."""
        return incident in self._incidents

    def times(self, cluster_id: str) -> ConfiguredTimes:
        """Return the configured times of a cluster."""
        return self.contexts[cluster_id].times

    # ------------------------------------------------------------------ rows

    def partition(self, row: ChangeRow) -> None:
        """Apply a step of a partition."""
        family, gone, is_announced = trouble_of(row, self.contexts[row.cluster_id])
        held_by, key = None, (row.topic_id, row.partition)
        is_held = not row.gone and any(key in each.held for each in self._incidents.of(row))
        if family is Family.MOVE:
            self._move(row)
        elif family is Family.UNCLEAN or (family is not None and gone and not is_held):
            held_by = self._removed(family, gone, row._replace(left=gone if row.gone else ()))
            held_by.announced.update(gone if is_announced else ())
        elif row.cause not in UNRELATED:
            if family is Family.PLANNED:
                self._revise(row)
            self._continue(row)
        for incident in self._incidents.of(row):
            is_other = incident is not held_by and key in incident.held
            is_held = is_other and incident.hold(row, self.times(row.cluster_id))
            if incident.has_moved(row) or is_held:
                self._incidents.mark_changed(incident, row)

    def _revise(self, row: ChangeRow) -> None:
        """Take a lost broker for stopped, as its removal proved to be planned."""
        for incident in list(self._incidents.of(row)):
            held = incident.held.get((row.topic_id, row.partition))
            missing = frozenset[int]() if held is None else held.missing
            for broker in (incident.lost | incident.innocent) & missing & {row.proven}:
                incident.take_for_planned(broker)
                incident.rack = self.contexts[row.cluster_id].lost_rack(incident.lost)
                self._incidents.mark_changed(incident, row)
                self._with_its_turns(incident, row)

    def _with_its_turns(self, incident: Incident, row: ChangeRow) -> None:
        """Merge a loss that proved to be a clean stop with the planned work that it is part of."""
        others = [each for each in self._incidents.of(row) if each is not incident]
        other = continued_incident(Family.PLANNED, None, others, row, self.times(row.cluster_id))
        if incident.base is Family.PLANNED and other is not None:
            incident = self._incidents.merge(incident, other, row)
        self._with_unsafe_turns(incident, row)

    def _move(self, row: ChangeRow) -> None:
        """Apply a step of a reassignment; one by which a partition refuses writes that lacked no replica holds it."""
        incident, key = self._incidents.open_standalone(Family.MOVE, row), (row.topic_id, row.partition)
        if not HARM.isdisjoint(row.events) and not any(key in other.held for other in self._incidents.of(row)):
            incident.hold(row, self.times(row.cluster_id), set(row.replicas).difference(row.isr))
        incident.moving.update([key] if row.is_moving else ())
        self._incidents.record(incident, row)

    def _removed(self, family: Family, gone: tuple[BrokerId, ...], row: ChangeRow) -> Incident:
        blamed, reporter = removal_suspects(gone, row.leader, None if family is Family.PLANNED else row.cause)
        incident = self._belonging(family, frozenset(blamed), reporter, row)
        incident.blamed.update(() if family is Family.STALL else blamed)
        is_up = FAMILY_OF.get(row.cause or "") is Family.LAG and family not in (Family.LOSS, Family.UNCLEAN)
        is_up &= not all(map(self.contexts[row.cluster_id].is_down, gone))
        is_reported = row.left and row.leader >= 0 and (is_up or family is Family.LAG)
        reporter = row.leader if is_reported else NO_LEADER
        incident.departures.update((reporter, each) for each in gone)
        if not HARM.isdisjoint(row.events) and not is_missed_by_stall(self._incidents.of(row), family, gone, row):
            incident.harmed_by.update(gone)
        if family is Family.LAG:
            incident = self._report_lag(incident, row) if row.left else incident
        elif family is Family.DISK:
            incident.disks.update(gone)
        elif family is Family.UNCLEAN:
            away = incident.lost | incident.disks | incident.planned.difference(row.isr)
            may_run = self.contexts[row.cluster_id].may_run(gone, row.time)
            incident.unclean_left.update(gone, () if may_run else away.intersection(row.replicas))
        elif family is Family.STALL:
            self._record_stall(incident, gone, row)
        elif family is Family.TWO_PROCESSES:
            incident.base = family  # also of one that began as lag, or as the loss of one of the two
            incident.doubled.update(gone)
        elif is_up:  # work on it is announced
            incident.planned.update(gone)
            incident.work |= self.contexts[row.cluster_id].announced_work(gone, row.since, row.time)
        else:
            is_doubtful = row.cause == Cause.FENCED and row.evidence == Evidence.AMBIGUOUS
            (incident.fenced if is_doubtful else incident.proven_lost).update(gone)
            for broker in gone:
                self._record_down(incident, broker, family, row)
        self._incidents.record(incident, row)
        incident.hold(row, self.times(row.cluster_id), gone or set(row.replicas).difference(row.isr))
        return self._with_unsafe_turns(incident, row)

    def _with_unsafe_turns(self, incident: Incident, row: ChangeRow) -> Incident:
        """Merge a stop that did harm with one that had done so before: both are turns of one restart."""
        for other in list(self._incidents.of(row)):
            are_unsafe = incident.is_unsafe and other.is_unsafe and not incident.lost and not other.lost
            if are_unsafe and other is not incident and other.merged_into is None:
                incident = self._incidents.merge(incident, other, row)
        return incident

    def _report_lag(self, incident: Incident, row: ChangeRow) -> Incident:
        """Add a leader's report; where it shows one side of a split, merge the incidents of its other brokers."""
        context = self.contexts[row.cluster_id]
        follows_others = all(context.follows_others(broker, row.leader) for broker in row.left)
        if incident.add_lag_report(row, follows_others=follows_others):
            for other in list(self._incidents.of(row)):
                if other is not incident and are_one_split(incident, other, context.times):
                    incident = self._incidents.merge(incident, other, row)
        return incident

    def _continue(self, row: ChangeRow) -> None:
        """Record a change that follows from incidents.

        These are the first that exist of: those whose missing broker rejoined; those by which the partition is
        degraded; the last one that touched it.
        """
        key = (row.topic_id, row.partition)
        mixing = [each for each in self._incidents.of(row) if each.base not in _STANDALONE]
        open_ones = [each for each in mixing if each.closed_at is None]
        holding = [incident for incident in open_ones if incident.holds(key, row.joined)] or [
            incident for incident in open_ones if key in incident.held
        ]
        for incident in holding or last_to_touch(open_ones, row):
            if incident.episode is not None and row.joined:
                incident.episode.rejoin(row.leader, row.joined, row.time)
            incident.rejoined.update(incident.innocent.intersection(row.joined))
            self._incidents.record(incident, row)

    def broker(self, row: ChangeRow) -> None:
        """Apply the events of a broker."""
        for event in row.events:
            if event in (EventKind.REGISTERED, EventKind.UNFENCED, EventKind.UNREGISTERED):
                self._broker_up(row, left=event == EventKind.UNREGISTERED)
            elif event == EventKind.MAINTENANCE_OVERRAN:
                self._overran(row)
            elif (family := end_of_broker(event, row, self.contexts[row.cluster_id])) is not None:
                self._broker_down(family, row)

    def _overran(self, row: ChangeRow) -> None:
        """Escalate: the time of planned work on a broker is over, and it is not back."""
        for incident in self._incidents.of(row):
            if (reasons := overrun_work(incident, row, self.contexts[row.cluster_id])) is not None:
                incident.overrun(row.broker, row.time, reasons)
                self._incidents.record(incident, row)

    def _broker_down(self, family: Family, row: ChangeRow) -> None:
        """Apply the end of a broker, or of one of its disks, to an incident that is open: alone it touches nothing."""
        context = self.contexts[row.cluster_id]
        is_announced = family is Family.LOSS and context.is_planned((row.broker,), row.since, row.time)
        family = Family.PLANNED if is_announced else family
        is_away = is_announced or family is Family.LOSS
        suspected = innocent_so_far(row.broker, self._incidents.of(row)) if is_away else None
        if suspected is not None and is_announced:
            suspected.take_for_announced(row.broker)
        elif suspected is not None:
            suspected.take_for_lost(row.broker, row.time)
        incident = suspected or self._explaining(family, frozenset({row.broker}), None, row)
        incident = incident or waiting_for(row.broker, self._incidents.of(row))
        if incident is None:
            return
        if family is Family.STALL:
            self._record_stall(incident, (row.broker,), row)
            self._incidents.record(incident, row)
            return
        incident.blamed[row.broker] += 0  # named, without a removal yet
        if family is Family.DISK:
            incident.disks.add(row.broker)
        else:
            incident.announced.update([row.broker] if is_announced else ())
            self._record_down(incident, row.broker, family, row)
        self._incidents.record(incident, row)

    def _record_down(self, incident: Incident, broker: int, family: Family, row: ChangeRow) -> None:
        context = self.contexts[row.cluster_id]
        incident.record_down(broker, row, planned=family is Family.PLANNED)
        incident.work |= context.announced_work((broker,), row.since, row.time)
        incident.rack = context.lost_rack(incident.lost)
        incident.is_none_left |= context.is_none_left(incident.lost)

    def _record_stall(self, incident: Incident, brokers: Iterable[int], row: ChangeRow) -> None:
        context = self.contexts[row.cluster_id]
        incident.record_stall(brokers, row, context.silent)
        incident.controllers.add(abs(context.controller))  # the model's have negative addresses

    def _broker_up(self, row: ChangeRow, *, left: bool) -> None:
        for incident in list(self._incidents.of(row)):
            if (down := incident.down_now(row.broker)) is None:
                continue
            is_back = EventKind.UNFENCED in row.events and EventKind.REGISTERED not in row.events
            if down.by_stall and not is_back:  # another process: the one before it has ended
                self._ended_in_stall(incident, down, row)
            if not left:
                incident.record_up(row.broker, row.time if row.is_up else None)
            note = self._incidents.record if incident.closed_at is None else self._incidents.mark_changed
            note(incident, row)

    def _ended_in_stall(self, incident: Incident, down: BrokerAbsence, row: ChangeRow) -> None:
        """Take a broker that seemed to run while the controller stood still for lost, or work on it was announced."""
        context, broker = self.contexts[row.cluster_id], row.broker
        if context.is_planned((broker,), down.at, down.at):
            incident.take_for_announced(broker)
            incident.announced.add(broker)
            incident.work |= context.announced_work((broker,), down.at, down.at)
        else:
            incident.take_for_lost(broker, row.time)
            incident.rack = context.lost_rack(incident.lost)

    def cluster(self, row: ChangeRow) -> None:
        """Apply the events of a cluster: another controller."""
        context = self.contexts[row.cluster_id]
        self._incidents.steps += losses_of(row, context.blind_since)
        for each in self._incidents.of(row):
            each.skip_unobserved(row.unobserved)
        if EventKind.CONTROLLER_CHANGE in row.events:
            incident = self._incidents.open_standalone(Family.CONTROLLER, row)
            incident.controllers.add(abs(context.controller))  # the model's have negative addresses
            incident.elected.add(abs(row.controller))
            self._incidents.record(incident, row)
        context.follow(row)

    def source(self, row: ChangeRow) -> None:
        """Apply a step of a source: it advances the time, and says whether its log on the bus is another one."""
        self._incidents.steps += losses_of(row, 0)

    # ------------------------------------------------------------------ which incident

    def _belonging(self, family: Family, blamed: frozenset[int], reporter: int | None, row: ChangeRow) -> Incident:
        """Return the incident that an ISR removal belongs to; open it if there is none."""
        if (incident := self._explaining(family, blamed, reporter, row)) is not None:
            return incident
        opened = self._incidents.open(family, row)
        return self._with_its_begin(opened, blamed, row) if family is Family.LOSS else opened

    def _explaining(
        self, family: Family, blamed: frozenset[int], reporter: int | None, row: ChangeRow
    ) -> Incident | None:
        """Return the incident that an ISR removal or an event of a broker belongs to, if there is one."""
        times = self.times(row.cluster_id)
        candidates = [incident for incident in self._incidents.of(row) if incident.base not in _STANDALONE]
        own = incident_blaming(family, blamed, candidates, row.time, times)
        other = continued_incident(family, reporter, candidates, row, times)
        # Two incidents about one broker. Where its own has shown only lag, that was the beginning of the other one, or
        # followed from it: they are one. With a loss of its own it stays apart; when it is back, its new lag belongs to
        # the incident of a leader that lags itself.
        if own is not None and other is not None and own is not other:
            if own.is_only_lag:
                own = self._incidents.merge(own, other, row)
            elif family is Family.LAG and all(own.down_now(broker) is None for broker in blamed):
                own = other
        incident = own or other
        if incident is None:
            return None
        incident.closed_at = None
        return self._with_its_begin(incident, blamed, row) if family is Family.LOSS else incident

    def _with_its_begin(self, incident: Incident, lost: frozenset[int], row: ChangeRow) -> Incident:
        """Merge the beginning of a loss: the lag that leaders left alone had reported, and a failover of that node."""
        times = self.times(row.cluster_id)
        for each in list(self._incidents.of(row)):
            if each is not incident and (
                began_with_lag(each, lost, row.time, times) or was_controller(each, lost, row, times)
            ):
                incident = self._incidents.merge(incident, each, row)
        return incident


_STEPS: Final = {
    "partition": IncidentFold.partition,
    "broker": IncidentFold.broker,
    "cluster": IncidentFold.cluster,
    "source": IncidentFold.source,
}


# The incidents that are open, or may still continue: opened, merged, closed and forgotten. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentGaps:
    """Microseconds that an incident stays open after its last change."""

    usual: int = 60_000_000
    rolling: int = 900_000_000

    @classmethod
    def of_seconds(cls, usual: float, rolling: float) -> IncidentGaps:
        """Return the gaps for seconds."""
        return cls(usual=round(usual * 1e6), rolling=round(rolling * 1e6))

    def of(self, incident: Incident) -> int:
        """Return how long this incident stays open: in a rolling restart the next turn may come late."""
        return self.rolling if is_rolling(incident) else self.usual

    def end(self, incident: Incident) -> int | None:
        """Return when an incident closes if nothing more happens; None while it is under way, and once it is closed."""
        is_waiting = incident.closed_at is None and not incident.is_under_way
        return incident.updated_at + self.of(incident) if is_waiting else None


class RememberedIncidents:
    """All of them by cluster, the oldest first.

    Attributes:
        changed: those that the rows of this fold have changed, by id.
        touched: those that the last row has changed, by id.
        steps: what these rows mean for the numbers of incidents.
    """

    def __init__(self, gaps: IncidentGaps, incidents: Iterable[Incident]) -> None:
        self._gaps = gaps
        self._by_id: dict[str, Incident] = {incident.incident_id: incident for incident in incidents}
        self._by_cluster: dict[str, list[Incident]] = {}
        for incident in sorted(self._by_id.values(), key=lambda incident: (incident.opened_at, incident.incident_id)):
            self._by_cluster.setdefault(incident.cluster_id, []).append(incident)
        self.changed: dict[str, Incident] = {}
        self.touched: dict[str, Incident] = {}
        self.steps: list[NumberStep] = []

    def __contains__(self, incident: Incident) -> bool:
        """Return whether an incident may still change."""
        return incident.incident_id in self._by_id

    def of(self, row: ChangeRow) -> list[Incident]:
        """Return the incidents of a row's cluster."""
        return self.of_cluster(row.cluster_id)

    def of_cluster(self, cluster_id: str) -> list[Incident]:
        """Return the incidents of a cluster."""
        return self._by_cluster.get(cluster_id, [])

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
        self.touched[incident.incident_id] = incident

    def record(self, incident: Incident, row: ChangeRow) -> None:
        """Make a row part of an incident."""
        incident.record(row)
        self.changed.setdefault(incident.incident_id, incident)
        self.touched[incident.incident_id] = incident

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
        self.steps.append(Opened(incident.incident_id, incident.cluster_id, incident.cluster))
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


# Two incidents that turned out to be one. Pure.


def absorb(incident: Incident, other: Incident) -> None:
    """Merge another incident into this one: they turned out to be the same.

    Partitions degraded by both count once, so what is degraded now is counted again; peaks and times add up as in
    ``DegradedCount.add``.
    """
    for each in (incident, other):
        each.skip_unobserved(max(incident.unobserved or 0, other.unobserved or 0))
    incident.base = other.base if incident.base is Family.CONTROLLER else incident.base
    incident.base = Family.TWO_PROCESSES if other.base is Family.TWO_PROCESSES else incident.base
    incident.opened_at = min(incident.opened_at, other.opened_at)
    incident.updated_at = max(incident.updated_at, other.updated_at)
    incident.version, incident.lost_at = max(incident.version, other.version), max(incident.lost_at, other.lost_at)
    for name in ("skipped_at", "overran_at", "silence"):
        setattr(incident, name, max(getattr(incident, name), getattr(other, name)))
    for name in ("blamed", "departures", "verdicts", "causes", "counts"):
        getattr(incident, name).update(getattr(other, name))
    sets = "lost planned announced work disks unclean_left harmed_by overdue controllers elected refused leaderless"
    others = "unknown moving innocent rejoined doubled fenced proven_lost unclean"
    for name in (*sets.split(), *others.split()):
        getattr(incident, name).update(getattr(other, name))
    incident.downs = sorted((*incident.downs, *other.downs), key=lambda down: (down.at, down.broker))
    incident.episode = merged_episode(incident.episode, other.episode)
    incident.cut = incident.cut or other.cut
    incident.stalled = tuple(sorted({*incident.stalled, *other.stalled}))
    for topic_id, numbers in other.touched.items():
        incident.touched.setdefault(topic_id, set()).update(numbers)
    incident.topics.update(other.topics)
    for key, held in other.held.items():
        ours = incident.held.get(key, HEALTHY)
        incident.held[key] = replace(held, missing=held.missing | ours.missing)
    incident.alike = Counter(incident.held.values())
    for tally, taken in zip(incident.tallies, other.tallies, strict=True):
        tally.advance(incident.updated_at)
        taken.advance(incident.updated_at)
        tally.add(taken)
    for number, tally in enumerate(incident.tallies):
        tally.now = sum(held.states[number] for held in incident.held.values())
        tally.peak = max(tally.peak, tally.now)
    incident.is_polled |= other.is_polled
    incident.is_none_left |= other.is_none_left
    incident.because = list(dict.fromkeys((*incident.because, *other.because)))[:SENTENCES_KEPT]
    incident.evidence = (incident.evidence + other.evidence)[:EVIDENCE_KEPT]
    incident.evidence_count += other.evidence_count
