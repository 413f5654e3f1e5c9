"""Observations of a polled cluster, inferred from what its brokers answer and from how their listeners behave. Pure.

A driver owns the clock and the connections, and no rule. It calls, in the order in which things end:

    inference = Inference("admin:c1", "prod", intervals)
    while running:
        for question in inference.questions(now):      # at ``next_at``, or earlier
            carry it out, and pass how it ends to inference.meet(met)
        inference.view(view, asked, ended)             # each time that the metadata were read
        publish(inference.take(now, skew))             # after each of these calls, and at ``next_at``

Every time is monotonic, in microseconds, and ``now`` never falls; ``skew`` is the wall clock minus the monotonic one.
``take`` alone returns observations, in the order in which they are to be published; it holds some for up to
``Intervals.hold``, until it is clear why a broker left its ISRs.

The driver guarantees: each question ends once with a ``Met`` that is not ``SILENT``, be it ``CLOSED`` when it gives up;
while it is open, it meets ``SILENT`` each second. A broker has one connection, which is opened again after it ended,
and no question to it is sent while another one of the same kind is open. ``ANSWERED`` is said only of an answer on a
connection whose node named the id of the broker. A view that may be stale is not passed (``Uncertainty``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import (
    BrokerObserved,
    ControllerObserved,
    Heartbeat,
    Observation,
    SnapshotBegin,
    SnapshotReason,
    SourceKind,
)
from streaming.sources.polling.inference.causes import Causes
from streaming.sources.polling.inference.conduct import SLOW, Listed, Listeners
from streaming.sources.polling.inference.elections import SeenLogEnds, is_from_outside
from streaming.sources.polling.inference.fates import Fates, Step
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence, QuorumLeader
from streaming.sources.polling.inference.schedule import Intervals, Schedule
from streaming.sources.polling.inference.seen_partitions import LATE, Answered, SeenPartitions
from streaming.sources.polling.view import (
    LONGEST_DOUBT,
    ClusterView,
    deleted_topics,
    has_same_members,
    observed_step,
    snapshot,
)
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from streaming.sources.polling.view import InferredCause, PartitionView

BLIND: Final = Micros(60_000_000)
"""Views that are further apart are not merely slow: changes may have been missed."""
_DENIED: Final = frozenset({CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION})
"""Errors of brokers that do not ask a controller: the permission is missing, or they have no such request."""


@dataclass(slots=True)
class _Report:
    """Content of one answer that is to be published: of a view, of partitions, of a broker or of the controller."""

    asked: Micros
    ended: Micros
    steps: tuple[Step, ...] = ()
    before: ClusterView | None = None
    after: ClusterView | None = None
    reason: SnapshotReason | None = None
    is_new_log: bool = False
    deleted: tuple[Any, ...] = ()
    is_view: bool = False
    begins: bool = False
    """It is the begin of a full report alone: what was met after a gap, and before the metadata, comes behind it."""
    listed: Listed | None = None
    controller: QuorumLeader | None = None
    silent_since: Micros | None = None


class Inference:
    """The state of a polled cluster, and what is to be asked and published of it.

    Args:
        name: of the source on the bus.
        cluster: the display name of the cluster.
        intervals: of questions and reports, and the configured times of the cluster.

    Attributes:
        is_cut_off: whether who answered last seems to be cut off from the controllers: what it lists is not taken.
        is_quorum_denied: whether brokers refuse to ask the controllers for the quorum.
    """

    def __init__(self, name: str, cluster: str, intervals: Intervals | None = None) -> None:
        self._name, self._cluster = name, cluster
        self.intervals = intervals or Intervals()
        self._listeners = Listeners()
        self._schedule = Schedule(self.intervals, self._listeners)
        self._fates = Fates(self.intervals, self._listeners)
        self._ends = SeenLogEnds()
        self._causes = Causes(self.intervals, self._listeners, self._fates, self._ends)
        self._reported_stopped: set[BrokerId] = set()
        self._away: set[BrokerId] = set()
        self._partitions = SeenPartitions()
        self._reports: deque[_Report] = deque()
        self._quorum: QuorumLeader | None = None
        self._quorum_answered: Micros | None = None
        self._quorum_asked: dict[BrokerId, Micros] = {}
        self.is_cut_off = self.is_quorum_denied = False
        self._changed: Micros | None = None
        self._doubted_since: Micros | None = None
        self._full_due = Micros(0)
        self._missed_changes = False
        self._report_id = ""
        self._until = 0

    # ------------------------------------------------------------------ questions

    def questions(self, now: Micros) -> list[BrokerQuestion]:
        """Return the questions that are due, each of which is taken for asked."""
        view = self._partitions.view
        due = [] if view is None else self._schedule.questions(now, view)
        for question in due:
            if question.ask is Ask.QUORUM:
                self._quorum_asked.setdefault(question.broker, now)
        return due

    @property
    def newest_view(self) -> ClusterView | None:
        """The cluster as it is known, single partitions by answers after the last view; None before the first."""
        return self._partitions.view

    @property
    def next_at(self) -> Micros:
        """Time at which a question is due, or something held is to be published."""
        held = [self._held_until(self._reports[0])] if self._reports else []
        return Micros(min((self._schedule.next_at, *held)))

    # ------------------------------------------------------------------ answers

    def meet(self, met: Met) -> None:
        """Take how a question ended, or that it is still open."""
        was_absent = self._listeners.listener(met.question.broker).is_absent
        changes = self._listeners.meet(met)
        self._schedule.meet(met)
        if self._listeners.listener(met.question.broker).is_absent is not was_absent:
            self._schedule.hasten(met.ended)
        for change in changes:
            self._schedule.hasten(met.ended)
            self._changed = met.ended
            self._reports.append(_Report(change.since, change.until, listed=change))
        if met.question.ask is Ask.QUORUM and met.how is Meeting.ANSWERED:
            self.is_quorum_denied = met.error in _DENIED
        if met.question.ask is Ask.QUORUM and isinstance(met.content, QuorumLeader):
            self._lead(met, met.content)
        elif met.question.ask is Ask.PARTITIONS and met.how is Meeting.ANSWERED and met.content is not None:
            assert not isinstance(met.content, Presence | QuorumLeader)  # noqa: S101 - for the type checker
            if self._listeners.is_listed(met.question.broker) is not False:
                answered = Answered(met.asked, met.ended, met.question.broker)
                self._read_some(met.content, answered)  # type: ignore[arg-type]
        elif met.content is not None and self._partitions.view is not None and met.how is Meeting.ANSWERED:
            self._note_ends(met, self._partitions.view)

    def _note_ends(self, met: Met, view: ClusterView) -> None:
        """Note where logs, or epochs, end."""
        if met.question.ask is Ask.LOG_ENDS:
            self._ends.note_ends(met.question.broker, met.content, view)  # type: ignore[arg-type]
        elif met.question.ask is Ask.EPOCH_ENDS:
            self._ends.note_epoch_ends(met.question, met.content)  # type: ignore[arg-type]

    def _lead(self, met: Met, leader: QuorumLeader) -> None:
        before = self._quorum
        if leader.leader < 0 or (before is not None and leader.epoch < before.epoch):
            return
        answered, self._quorum_answered = self._quorum_answered, met.ended
        asked, self._quorum_asked = self._quorum_asked, {}
        waiting = self._waiting(asked, met)
        waited = met.ended - max(min(waiting.values(), default=met.ended), answered or 0)
        if waited > self.intervals.hot or leader != before:
            self._schedule.hasten(met.ended)
        if answered is not None and waited > self.intervals.session // 2:
            since = Micros(met.ended - waited)
            if self._are_cut_off(asked, since, met.ended, {leader, before}):
                self._doubted_since = answered
                with_them = (each for each, of in self._listeners.of.items() if not of.silent_since(since, met.ended))
                self._fates.waited_until.update(dict.fromkeys({*waiting, *with_them}, met.ended))
            elif leader == before:
                ended = min([met.ended, *(each.ended for each in self._reports)])
                stall = _Report(answered, ended, controller=leader, silent_since=answered)
                self._reports.appendleft(stall)  # it explains what is held
                self._fates.stalled_until = met.ended
        if leader != before:
            self._quorum = leader
            since = met.asked if answered is None else min(met.asked, answered)
            self._reports.append(_Report(since, met.ended, controller=leader))

    def _waiting(self, asked: Mapping[BrokerId, Micros], met: Met) -> dict[BrokerId, Micros]:
        """Return brokers that answer, and since when no controller answers them; a broker that hangs shows nothing."""
        waiting = {}
        for broker, first in {**asked, met.question.broker: asked.get(met.question.broker, met.asked)}.items():
            listener = self._listeners.listener(broker)
            if (listener.answered or 0) > first and listener.absence_within(first, met.ended) is None:
                waiting[broker] = first
        return waiting

    def _are_cut_off(
        self,
        asked: Mapping[BrokerId, Micros],
        since: Micros,
        until: Micros,
        controllers: AbstractSet[QuorumLeader | None],
    ) -> bool:
        """Return whether brokers that waited for a controller may be cut off from it, and the poller with them.

        Then others fell silent with the controller. Silence shows nothing of a broker that answered until it was
        ``asked`` for the controller, nor of one that had been silent before, or is that controller.
        """
        nodes = {each.leader for each in controllers if each is not None}
        judged = []
        for broker in () if self._partitions.view is None else self._partitions.view.brokers.keys() - nodes:
            begin = self._listeners.listener(broker).silent_since(since, until)
            if begin is None or since - self.intervals.session // 2 <= begin < asked.get(broker, until) - SLOW:
                judged.append(begin is not None)
        return _is_cut(sum(judged), len(judged))

    def view(self, view: ClusterView, asked: Micros, ended: Micros, remembered: ClusterView | None = None) -> None:
        """Take the metadata that were read.

        Args:
            view: all of it.
            asked: when it was asked for.
            ended: when it was received.
            remembered: the topics and leader epochs that an earlier collector polled, which the first view is compared
                with.
        """
        before = self._partitions.view
        if before is not None and before.cluster_id != view.cluster_id:
            self._forget_cluster()
            before = None
        is_isolated = self._listeners.is_isolated(BrokerId(view.answered_by), ended)
        self.is_cut_off = before is not None and self._is_cut_off_with(view, ended)
        if self.is_cut_off:
            self._doubted_since, self._missed_changes = self._last_certain(view), True
        if self.is_cut_off or (before is not None and is_isolated):
            return  # it repeats what it saw before it was cut off
        self._take_back()
        self._doubted_since = None
        late = max(BLIND, 2 * self.intervals.poll)
        self._missed_changes |= before is not None and ended - self._partitions.read.ended > late
        self._changed = ended if before is None else self._changed
        last_read = self._partitions.read.ended
        read = self._partitions.read_all(view, Answered(asked, ended, view.answered_by), remembered)
        self._missed_changes |= read.is_new_log
        self._listeners.at(read.after.brokers)
        changes = self._listeners.vote(view.answered_by, view.brokers, asked, ended)
        self._reports += (_Report(change.since, change.until, listed=change) for change in changes)
        report = _Report(read.since, ended, read.steps, before, read.after, self._reason(before, read.after, ended))
        report.is_view, report.is_new_log = True, read.is_new_log
        last = before or remembered
        report.deleted = () if last is None else tuple(deleted_topics(last, view))
        if report.reason is SnapshotReason.HISTORY_LOST and not report.is_new_log:
            self._begin_behind(last_read, report)
        self._reports.append(report)
        self._noted(read.steps, ended)

    def _begin_behind(self, last_read: Micros, report: _Report) -> None:
        """Let a full report begin before what was met after a gap: else that would end the gap, as if it were none."""
        after_gap = (at for at, each in enumerate(self._reports) if self._is_after_gap(each, last_read))
        place = next(after_gap, len(self._reports))
        ended = self._reports[place].ended if place < len(self._reports) else report.ended
        self._reports.insert(place, _Report(report.asked, ended, reason=report.reason, begins=True))

    def _is_after_gap(self, report: _Report, last_read: Micros) -> bool:
        return report.ended > last_read + max(LATE, 2 * self.intervals.poll)

    def _is_cut_off_with(self, view: ClusterView, now: Micros) -> bool:
        """Return whether the broker of a view seems to be cut off from the controllers, and the poller with it.

        Several of the brokers that it lists have been silent for longer than any session, and so has the quorum.
        Silence of the brokers alone proves nothing: perhaps only the poller is cut off from them. Where the quorum
        never answered, its silence is none: half of the brokers must be silent, while nothing changes.
        """
        since = Micros(now - 2 * self.intervals.session)
        if self._controlled_at is None or self._controlled_at > since:
            return False
        silent = sum(self._is_silent_since(each, since) for each in view.brokers)
        if self._has_no_quorum:
            return 2 * silent >= max(1, len(view.brokers))
        return _is_cut(silent, len(view.brokers))

    @property
    def _has_no_quorum(self) -> bool:
        """True if no answer of the quorum is to be expected."""
        return self.is_quorum_denied or self._quorum_answered is None

    @property
    def _controlled_at(self) -> Micros | None:
        """Time at which a controller was there; where it may not be asked for, only changes show that."""
        return self._changed if self._has_no_quorum else self._quorum_answered

    def _last_certain(self, view: ClusterView) -> Micros | None:
        """Return until when a poller that may be cut off was not; by changes alone, until brokers fell silent."""
        absent = (each for broker in view.brokers if (each := self._listeners.listener(broker)).is_absent)
        fell_silent = [each.answered for each in absent if each.answered is not None]
        return min(fell_silent, default=None) if self.is_quorum_denied else self._controlled_at

    def _is_silent_since(self, broker: BrokerId, moment: Micros) -> bool:
        """Return whether a broker has not answered since a moment, or never; some are never reached by a poller."""
        has_never_answered = self._listeners.listener(broker).answered is None and not self.is_quorum_denied
        return has_never_answered or self._listeners.is_absent_since(broker, moment)

    def _take_back(self) -> None:
        """Take back what was seen since the poller may have been cut off, before it is compared with an answer."""
        if self._doubted_since is not None:
            self._partitions.doubt_since(self._doubted_since)
        if self._doubted_since != self._quorum_answered:
            self._doubted_since = None  # it is cut off no more

    def _read_some(self, topics: Mapping[str, Mapping[int, PartitionView]], answered: Answered) -> None:
        self._take_back()
        if (read := self._partitions.read_some(topics, answered)) is not None:
            self._reports.append(_Report(read.since, answered.ended, read.steps, read.before, read.after))
            self._noted(read.steps, answered.ended)

    def _noted(self, steps: tuple[Step, ...], ended: Micros) -> None:
        """Note steps as circumstances of each other, and ask more often while there are some."""
        self._fates.note(steps)
        for step in steps:
            if is_from_outside(step) and step.before is not None and step.before.leader_epoch is not None:
                key = step.topic, step.number, step.before.leader_epoch
                self._schedule.want_epoch_end(step.after.leader, key)
        if steps:
            self._schedule.hasten(ended)
            self._changed = ended

    def _reason(self, before: ClusterView | None, view: ClusterView, now: Micros) -> SnapshotReason | None:
        is_due = now >= self._full_due
        if is_due:
            self._full_due = Micros(now + self.intervals.full_report)
            self._ends.forget_all_but(view)
        missed, self._missed_changes = self._missed_changes, False
        if before is None:
            return SnapshotReason.START
        if missed:
            return SnapshotReason.HISTORY_LOST
        return SnapshotReason.PERIODIC if is_due or not has_same_members(before, view) else None

    # ------------------------------------------------------------------ observations

    def take(self, now: Micros, skew: int) -> list[Observation]:
        """Return what is to be published, once its causes are clear or it was held for long enough."""
        observations: list[Observation] = []
        back = [broker for broker in self._away if not self._listeners.listener(broker).is_absent]
        if back and not self._reports:
            observations += self._returned(self._envelope(_Report(now, now), now, skew))
        while self._reports:
            report = self._reports[0]
            is_held = now < self._held_until(report)
            if is_held and (self._awaits_view(report) or not self._is_clear(report, now)):
                break
            self._reports.popleft()
            observations += self._published(report, now, skew)
        return observations

    def _held_until(self, report: _Report) -> Micros:
        """Return when a report is published at the latest."""
        return Micros(report.ended + (LONGEST_DOUBT if self._awaits_view(report) else self.intervals.hold))

    def _awaits_view(self, report: _Report) -> bool:
        """Return whether the metadata are to be read before, with which a full report begins."""
        return self._missed_changes and not report.is_view and self._is_after_gap(report, self._partitions.read.ended)

    def _is_clear(self, report: _Report, now: Micros) -> bool:
        """Return whether what is said of a report would be the same later."""
        gone = report.listed
        if gone is not None and not gone.is_listed:
            return self._fates.of(gone.broker, gone.since, gone.until, now) is not None
        return all(self._causes.is_clear(step, now) for step in report.steps)

    def _published(self, report: _Report, now: Micros, skew: int) -> list[Observation]:
        envelope = self._envelope(report, now, skew)
        if report.begins:
            return [self._begun(report, envelope)]
        if report.controller is not None:
            leader, epoch = report.controller
            since = report.silent_since
            since = None if since is None else self._wall_time(since, report.ended, skew)
            return [ControllerObserved(**envelope, controller=leader, controller_epoch=epoch, silent_since=since)]
        if report.listed is not None:
            return [self._of_broker(report.listed, envelope, now)]
        assert report.after is not None  # noqa: S101 - for the type checker
        explained = [(step, self._causes.explain(step, now)) for step in report.steps]
        before = [*self._left(report.steps, envelope, now), *self._between(report.steps, report.after, envelope, now)]
        self._end_stops(report.steps)
        after = self._returned(envelope)
        if report.reason is not None:
            back = {each.broker for each in after}
            begin, *rest = self._full(report, report.after, dict(explained), envelope, back)
            has_begun, self._report_id = bool(self._report_id), ""
            return [*([] if has_begun else [begin]), *before, *rest, *after]
        steps = [
            observed_step(step.topic, step.number, report.after, self._at(step, envelope, skew), why)
            for step, why in explained
            if why is not None
        ]
        return [*before, *steps, *after] or ([Heartbeat(**envelope)] if report.is_view else [])

    def _between(
        self, steps: tuple[Step, ...], view: ClusterView, envelope: dict[str, Any], now: Micros
    ) -> list[Observation]:
        """Return the steps of partitions that brokers left for different reasons, but for the last one of each."""
        return [
            observed_step(step.topic, step.number, view, envelope, why, state)
            for step in steps
            for state, why in self._causes.between(step, now)
        ]

    def _begun(self, report: _Report, envelope: dict[str, Any]) -> SnapshotBegin:
        assert report.reason is not None  # noqa: S101 - for the type checker
        self._report_id = self._id_of(envelope)
        return SnapshotBegin(**envelope, snapshot_id=self._report_id, reason=report.reason)

    def _id_of(self, envelope: dict[str, Any]) -> str:
        return f"{self._name}/{envelope['occurred_not_after']}"

    def _full(
        self,
        report: _Report,
        view: ClusterView,
        explained: Mapping[Step, InferredCause | None],
        envelope: dict[str, Any],
        back: AbstractSet[BrokerId],
    ) -> list[Observation]:
        """Return a full report; brokers that are ``back`` after its steps, which say when they left, are away in it."""
        assert report.reason is not None  # noqa: S101 - for the type checker
        unlisted = {broker for broker in view.brokers if self._listeners.is_listed(broker) is False}
        return snapshot(
            report.before,
            view,
            envelope,
            snapshot_id=self._report_id or self._id_of(envelope),
            reason=report.reason,
            is_new_log=report.is_new_log,
            deleted=report.deleted,
            explained={(step.topic, step.number): why for step, why in explained.items()},
            fenced=unlisted | self._away | back,
            stopping=self._fates.stopped,
        )

    def _left(self, steps: tuple[Step, ...], envelope: dict[str, Any], now: Micros) -> list[BrokerObserved]:
        """Return the brokers that steps show to stop, or to have been away for a moment."""
        lost = {broker for step in steps for broker in self._causes.lost_by(step, now)}
        lost = {broker for broker in lost - self._away if self._listeners.is_listed(broker) is not False}
        self._away |= lost
        stopping = self._fates.stopped.keys() - self._reported_stopped
        self._reported_stopped |= stopping
        return [
            *(BrokerObserved(**envelope, broker=broker, in_controlled_shutdown=True) for broker in sorted(stopping)),
            *(BrokerObserved(**envelope, broker=broker, fenced=True) for broker in sorted(lost)),
        ]

    def _end_stops(self, steps: tuple[Step, ...]) -> None:
        """Note which brokers were started again, though they were not seen to be away: one that stops joins no ISR."""
        for broker in [*self._fates.stopped]:
            if self._listeners.is_listed(broker) is not False and any(step.is_joined_by(broker) for step in steps):
                self._forget_stop(broker)
                self._away.add(broker)

    def _forget_stop(self, broker: BrokerId) -> None:
        self._fates.stopped.pop(broker, None)
        self._reported_stopped.discard(broker)

    def _returned(self, envelope: dict[str, Any]) -> list[BrokerObserved]:
        """Return the brokers that were taken for lost while they were listed, and answer again."""
        back = {broker for broker in self._away if not self._listeners.listener(broker).is_absent}
        back = {broker for broker in back if self._listeners.is_listed(broker) is not False}
        self._away -= back
        return [BrokerObserved(**envelope, broker=broker, fenced=False) for broker in sorted(back)]

    def _of_broker(self, change: Listed, envelope: dict[str, Any], now: Micros) -> BrokerObserved:
        """Return whether a broker is fenced; of one that is, whether it stopped cleanly."""
        broker = change.broker
        self._away.discard(broker)
        if change.is_listed:
            self._forget_stop(broker)
            return BrokerObserved(**envelope, broker=broker, fenced=False)
        if change.is_registered is not None:
            self._fates.stopped.pop(broker, None)
            return BrokerObserved(**envelope, broker=broker, registered=change.is_registered, fenced=True)
        self._fates.of(broker, change.since, change.until, now)
        is_stopped = broker in self._fates.stopped
        self._reported_stopped |= {broker} if is_stopped else set()
        return BrokerObserved(**envelope, broker=broker, fenced=True, in_controlled_shutdown=is_stopped or None)

    def _envelope(self, report: _Report, now: Micros, skew: int) -> dict[str, Any]:
        """Return what all observations of a report say; times do not run back when the clock is set back."""
        end = max(report.ended + skew, self._until)
        self._until = end
        view = report.after or self._partitions.view
        assert view is not None  # noqa: S101 - for the type checker
        return {
            "cluster_id": view.cluster_id,
            "cluster": self._cluster,
            "source": self._name,
            "source_kind": SourceKind.POLL,
            "occurred_not_before": min(self._wall_time(report.asked, report.ended, skew), Micros(end)),
            "occurred_not_after": Micros(end),
            "collected_at": Micros(now + skew),  # as the clock is now: a job refuses what is far ahead of its own
        }

    def _at(self, step: Step, envelope: dict[str, Any], skew: int) -> dict[str, Any]:
        since = min(self._wall_time(step.since, step.until, skew), envelope["occurred_not_after"])
        return {**envelope, "occurred_not_before": since}

    def _wall_time(self, since: Micros, until: Micros, skew: int) -> Micros:
        """Return the wall-clock time of the begin of a window, in which this machine may have been suspended."""
        return Micros(max(0, since + skew - self._listeners.slept_within(since, until)))

    # ------------------------------------------------------------------ what a driver may say

    def expire(self) -> None:
        """Send a full report with the next view."""
        self._full_due = Micros(0)

    def use_times(self, *, session: Micros | None = None, lag: Micros | None = None) -> None:
        """Use the configured times of the cluster, as far as they are known."""
        before = self.intervals
        self.intervals = before._replace(session=session or before.session, lag=lag or before.lag)
        self._fates.use(self.intervals)
        self._causes.use(self.intervals)

    def miss_changes(self) -> None:
        """Note that changes may have been missed since the last view, which the next full report says."""
        self._missed_changes = True

    def sleep(self, now: Micros, lasted: Micros) -> None:
        """Note that this machine was suspended until now, and the monotonic clock stood still."""
        self._listeners.sleep(now, lasted)
        self._missed_changes |= lasted > BLIND

    def _forget_cluster(self) -> None:
        """Forget all: nothing that was seen before is of this cluster."""
        self.__init__(self._name, self._cluster, self.intervals)  # type: ignore[misc]


def _is_cut(silent: int, brokers: int) -> bool:
    """Return whether so many silent brokers, and a silent quorum, are behind a network that is cut."""
    return silent > 1 or 0 < silent >= brokers - silent
