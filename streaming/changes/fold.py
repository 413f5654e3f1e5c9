"""Applies observations one by one: ``fold(state, observations)`` returns the changes and the state they touched."""

# Theory of operation
#
# All that the job knows follows from one pure function: the state before and some observations in, the changes and the
# touched part of the state out. There is no clock, no randomness and no IO, so after a crash the same observations may
# be folded again, cut into other batches, and give the same changes with the same ids.
#
# What arrives is weaker than one would like. The bus keeps the order of each source and nothing between two sources. A
# batch may repeat what was applied. A source may restart, lag, lose records, or run on a wrong clock. So each
# observation has to pass four questions, always in this order:
#
#   a. Was it applied? Each source numbers its observations; a number up to ``SourceState.sequence`` is a replay. A
#      number that skips some is recorded as CHANGES_MISSED, unless a source of the same or a higher rank has reported
#      as far. Nothing is repaired here: epochs count the steps that no one reported, the next full report corrects the
#      state. An observation without a number (0) passes.
#   b. When did it happen? ``with_plausible_time`` replaces a time that the clocks make impossible, before it is used.
#   c. May its source order this cluster? One kind of source does, the primary one (``sources.may_order``). Others add
#      configurations, voters and announced work, and never move a partition.
#   d. Is it newer than what is there, and different? ``partitions.is_news`` compares the partition epoch (KIP-631: plus
#      one with every change), then offset and index in the metadata log, then the leader epoch, then the time of a
#      poll.
#
# What passes becomes a step: an entry of the new state and a ``Change``, both by way of a ``Draft`` (see ``steps``).
# What fails c or d is dropped. Its numbers and its time were still seen, so ``advance`` moves the watermarks past it.
#
# A full report is a bracket, ``SnapshotBegin`` to ``SnapshotEnd``. Inside, everything is reported once; most of it
# repeats the state and gives no change. The end proves absence: what it does not list is gone, provided that the report
# is not older than the partition's last change. If the primary source saw nothing for a time before the begin, that
# time is a gap: between begin and end ``sight_until`` names where it began, and what is found can have happened at any
# moment since then. Time in a gap is unknown time, of no episode.
#
# A block is the partitions of one topic as parallel arrays (``contracts.blocks``). It means exactly what its partitions
# one by one would mean, at three prices:
#   - not decoded at all: a worker recognises by digest a block that describes the state, and sends an ``UnchangedRun``
#     instead (``jobs.streams.left_out_blocks``); the driver checks the digest again. Only numbers and times are left.
#   - decoded, no objects: ``partitions.news`` compares rows with the state and yields those that differ.
#   - the first full report: nothing is there to compare with, so ``steps.listed`` keeps the arrays, and partitions that
#     differ only in number and epochs share one state (``ListedPartitions``).
#
# The fold never guesses a cause. A source that reads the metadata log brings a cause with its evidence
# (``sources.metadata_log.causes``); a poller infers one from how brokers behave, with the evidence in words
# (``sources.polling.inference.causes``); what brings none is UNKNOWN, inferred. The fold itself adds only what the
# observation is: a partition that appears was created, one that is missing was deleted (both inferred), a removed topic
# and a new configuration are proven. One cause needs what no record of the log has, the session timeout:
# where the controller itself stood still for that long, CONTROLLER_STALL takes the place of FENCED (``stepped``). A
# cause changes later by ``CauseRevised`` alone: that is a change of its own, and what was counted by cause stays as it
# was counted.
#
# Totals and watermarks. Durations are differences of ``occurred_not_after``, never of processing time. An open episode
# is only its ``_since``; its seconds are added when it closes. Readers count it up to the watermark of the primary
# source (``ObservedTime``) and not past it, so a total stands still while no one observes, and does not jump back.
#
# Invariants
#   1. The content of the state before does not change; it may be decoded on the way. tests/changes/test_listed.py,
#      tests/delta/test_stored_partitions.py.
#   2. Where batches are cut changes nothing; a replay gives no change. tests/changes/test_interleavings.py,
#      tests/changes/test_blocks.py.
#   3. Collectors of one metadata log may be merged in any order: the state is that of one alone. A poller next to it
#      changes nothing while it is at most ``SILENCE`` ahead. tests/changes/test_interleavings.py.
#   4. A collector that starts late, and is ahead, reports several steps as one: taken and missed steps together are the
#      steps there were. tests/changes/test_interleavings.py.
#   5. While a partition is remembered, every accepted step has ``change_number`` one higher than the one before,
#      deletion and return included; ids of events follow from it. tests/changes/test_tombstones.py.
#   6. No total ever falls. tests/changes/test_totals_of_the_model.py.
#   7. A block, a run and the single observations that they stand for give the same. tests/changes/test_blocks.py,
#      tests/jobs/shards/test_repeated_blocks.py.
#   8. A step that Kafka's protocol rules out is an event, PROTOCOL_VIOLATION, and is applied: the cluster is right.
#      ``partitions.violations``; tests/changes/test_invariants.py.

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, ClassVar, TypeVar

from streaming.changes import partitions
from streaming.changes.cluster_steps import (
    advance,
    broker_missing,
    broker_stepped,
    change_primary_source,
    cluster_stepped,
    configured,
    controller_stalled,
    controllers_registered,
    is_of_quorum,
    log_replaced,
    next_broker,
    quorum_stepped,
    renamed,
    sequence_gap,
    source_changes,
)
from streaming.changes.maintenance import announced, lapse_leases
from streaming.changes.partitions import with_event_ids
from streaming.changes.sources import SILENCE, may_order, with_plausible_time
from streaming.changes.state import FoldResult
from streaming.changes.steps import Draft, appeared, listed, revised, stepped, vanished
from streaming.contracts.blocks import PartitionsChanged, PartitionsObserved
from streaming.contracts.events import EventKind, Evidence
from streaming.contracts.identifiers import BrokerId, Offset
from streaming.contracts.observations import (
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ControllerObserved,
    MaintenanceObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.partitions import PendingEvent
    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.state import ClusterState, PartitionState


def fold(state: ReplicationState, observations: Iterable[Observation]) -> FoldResult:
    """Apply observations, those of each source in its order, to a state, which is not changed.

    Return one change per accepted step, then one per source that reported.
    """
    draft = Draft(state)
    last: dict[tuple[str, str], Observation] = {}
    for observed in observations:
        source = draft.source(observed)
        last[observed.cluster_id, observed.source] = observed
        if observed.sequence and observed.sequence <= source.sequence:
            draft.drop(observed)
            continue
        observed = with_plausible_time(observed, source.observed_until)  # noqa: PLW2901 - its clock may be wrong
        last[observed.cluster_id, observed.source] = observed
        first = observed.first_after(source.sequence) if isinstance(observed, UnchangedRun) else observed
        if source.sequence and first.sequence > source.sequence + 1:
            sequence_gap(source, first, draft)
        draft.primary_before = draft.cluster(first).primary_source
        if may_order(draft.cluster(first), first):
            change_primary_source(first, draft)
        _apply(first, draft)
        advance(observed, draft)
        lapse_leases(observed, draft)
    draft.changes.extend(source_changes(draft, last))
    return FoldResult(tuple(draft.changes), draft.touched, tuple(draft.dropped))


@singledispatch
def _apply(observed: Observation, draft: Draft) -> None:
    """Apply an observation without state (a heartbeat, an unchanged run): only the watermarks advance."""


@_apply.register
def _(observed: PartitionObserved, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    before = draft.partition(observed.cluster_id, observed.topic_id, observed.partition)
    if before is None and observed.occurred_not_after <= (draft.cluster(observed).tombstones_until or -1):
        # Its topic may be deleted and the tombstone dropped; if the partition exists, a newer full report lists it.
        draft.drop(observed)
        return
    before = None if before is None else partitions.in_present_log(before, draft.cluster(observed))
    if before is None or (before.is_deleted and partitions.is_news(before, observed)):
        appeared(before, observed, draft)
    elif partitions.is_news(before, observed):
        stepped(before, observed, draft)
    else:
        draft.drop(observed)


@_apply.register
def _(observed: PartitionsObserved, draft: Draft) -> None:
    cluster = draft.cluster(observed)
    is_first_report = not cluster.has_baseline and cluster.tombstones_until is None
    if is_first_report and may_order(cluster, observed) and not draft.topic(observed.cluster_id, observed.topic_id):
        listed(observed, draft)
        return
    for partition in partitions.news(observed, draft.topic(observed.cluster_id, observed.topic_id)):
        _apply(partition, draft)


@_apply.register
def _(observed: PartitionsChanged, draft: Draft) -> None:
    for partition in observed.observations():
        _apply(partition, draft)


@_apply.register
def _(observed: CauseRevised, draft: Draft) -> None:
    before = draft.partition(observed.cluster_id, observed.topic_id, observed.partition)
    if before is None or not may_order(draft.cluster(observed), observed) or not partitions.is_proof(before, observed):
        draft.drop(observed)
        return
    revised(before, observed, draft)


@_apply.register
def _(observed: TopicRemoved, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    for before in draft.partitions_of(observed.cluster_id, observed.topic_id):
        if not before.is_deleted:
            vanished(before, observed, Evidence.PROVEN, draft)


@_apply.register
def _(observed: BrokerObserved, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed) or _is_behind_another(observed, draft):
        draft.drop(observed)
        return
    before = draft.broker(observed.cluster_id, observed.broker)
    after = next_broker(before, observed)
    if after is None:
        draft.drop(observed)
    elif (after := after._replace(cluster=draft.cluster(observed).cluster)) != before:  # collectors may differ in it
        broker_stepped(before, after, observed, draft)


@_apply.register
def _(observed: MaintenanceObserved, draft: Draft) -> None:
    announced(observed, draft)


@_apply.register
def _(observed: ControllerObserved, draft: Draft) -> None:
    if observed.silent_since is not None:
        controller_stalled(observed, draft)
        return
    if is_of_quorum(observed):
        quorum_stepped(observed, draft)
    cluster = draft.cluster(observed)
    if is_of_quorum(observed) and observed.source_kind is SourceKind.NONE:
        # The log names the controller where it can be read, in its order; else who leads is what brokers say.
        if not observed.is_led or not cluster.has_baseline or cluster.primary_source is SourceKind.METADATA_LOG:
            return
    elif not may_order(cluster, observed):
        draft.drop(observed)
        return
    elif observed.registered_controllers is not None:
        cluster = controllers_registered(observed, draft)
    if observed.controller_epoch < (cluster.controller_epoch or 0):
        draft.drop(observed)
        return
    if (observed.controller, observed.controller_epoch) == (cluster.controller, cluster.controller_epoch):
        return
    is_first = cluster.controller is None
    after = cluster._replace(
        controller=observed.controller,
        controller_epoch=observed.controller_epoch,
        controller_changes=cluster.controller_changes + (not is_first),
    )
    to = "again" if observed.controller == cluster.controller else f"to {observed.controller}"
    detail = f"controller {cluster.controller} {to}, epoch {observed.controller_epoch}"
    identity = f"{observed.cluster_id}/controller/{observed.controller_epoch}"
    events: list[PendingEvent] = (
        [] if is_first else [(EventKind.CONTROLLER_CHANGE, BrokerId(observed.controller), detail)]
    )
    cluster_stepped(after, observed, draft, with_event_ids(identity, iter(events)))


@_apply.register
def _(observed: ConfigObserved, draft: Draft) -> None:
    configured(observed, draft)


@_apply.register
def _(observed: SnapshotBegin, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    renamed(observed, draft)
    is_other_log = observed.is_new_log and log_replaced(observed, draft)
    cluster = draft.cluster(observed)
    if cluster.has_baseline and _ends_observation_gap(cluster.primary_watermark, observed):
        after = cluster._replace(sight_until=cluster.primary_watermark)
        is_of_all = is_other_log or _is_gap_of_all(cluster.primary_watermark, observed, draft)
        cluster_stepped(_with_gap_of_all(after, observed) if is_of_all else after, observed, draft, ())


def _is_gap_of_all(last_seen: Micros | None, observed: SnapshotBegin, draft: Draft) -> bool:
    """Return whether a gap is one of every partition, those included whose state is the same before and after.

    Not if the log's epochs before and after show which ones changed; nor if a second poller starts while another polls.
    """
    if observed.source_kind is draft.primary_before is SourceKind.METADATA_LOG:
        return False
    is_second = draft.source(observed).observed_until is None and draft.primary_before is SourceKind.POLL
    return not is_second or last_seen is None or observed.occurred_not_after - last_seen > SILENCE


def _with_gap_of_all(cluster: ClusterState, observed: SnapshotBegin) -> ClusterState:
    end = observed.occurred_not_after
    gap = end - (cluster.primary_watermark or end)
    return cluster._replace(unobserved_micros=cluster.unobserved_micros + gap, observed_since=end)


def _ends_observation_gap(last_seen: Micros | None, observed: SnapshotBegin) -> bool:
    """Return whether the primary source observed nothing in the time directly before a full report.

    There is no gap when a second collector starts, or lags: it repeats what the first one reported. A source that
    takes over after a silence may call its full report periodic, so the gap before that is compared with ``SILENCE``.
    """
    silence = observed.occurred_not_after - (observed.occurred_not_after if last_seen is None else last_seen)
    return silence > (SILENCE if observed.reason is SnapshotReason.PERIODIC else 0)


@_apply.register
def _(observed: SnapshotEnd, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    cluster = draft.cluster(observed)
    counts = dict(zip(observed.topic_ids, observed.partition_counts, strict=True))
    for topic_id in draft.topics_beyond(observed.cluster_id, counts):
        if observed.is_partial and topic_id not in counts:
            continue  # it may be one that the poller may not see
        for before in draft.partitions_of(observed.cluster_id, topic_id):
            in_log = partitions.in_present_log(before, cluster)
            if before.partition >= counts.get(topic_id, 0) and _proves_absence(observed, in_log):
                vanished(before, observed, Evidence.INFERRED, draft)
    for broker in [] if _is_behind_another(observed, draft) else draft.brokers_of(observed.cluster_id):
        if broker.broker not in observed.brokers:
            broker_missing(broker, observed, draft)
    after = draft.cluster(observed)._replace(has_baseline=True, sight_until=None)
    if not cluster.has_baseline or cluster.sight_until is not None:
        cluster_stepped(after, observed, draft, ())


def _is_behind_another(observed: BrokerObserved | SnapshotEnd, draft: Draft) -> bool:
    """Return whether another poller has reported later: broker states have no time, and polls no offset."""
    newest = draft.cluster(observed).primary_watermark
    own = max(observed.occurred_not_after, draft.source(observed).observed_until or 0)
    return observed.metadata_offset is None and newest is not None and own < newest


def _proves_absence(observed: SnapshotEnd, before: PartitionState) -> bool:
    """Return whether a full report is new enough to prove that this partition does not exist any more."""
    if before.is_deleted:
        return False
    if observed.metadata_offset is not None and before.metadata_offset is not None:
        return before.metadata_offset <= observed.metadata_offset
    return before.changed_at is None or before.changed_at <= observed.occurred_not_after


# In which order the observations of a batch are folded: merged by time, and each source keeps its own order.
#
# Sources are read side by side, so no order between them is given, and the fold does not need one (invariants 3 and 4).
# But a poller that comes long before a log of the same time would take over. Times order them nearly as they happened.
# A time that runs back within a source counts as the newest one before it.


T = TypeVar("T")


def merged(items: Iterable[tuple[str, int, T]]) -> list[T]:
    """Merge what several sources reported, with its time, each in its order."""
    newest: dict[str, int] = {}
    timed: list[tuple[int, T]] = []
    for source, moment, item in items:
        newest[source] = max(newest.get(source, 0), moment)
        timed.append((newest[source], item))
    return [item for _, item in sorted(timed, key=lambda each: each[0])]  # stable: a source's own order stays


# Consecutive observations that changed nothing, as one value: most of a full report repeats the state.


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedRun(Observation):
    """The observations ``first_sequence`` to ``sequence`` of a source, which changed nothing.

    It replaces them where they are decoded; it is never published and never encoded. The other fields are those of the
    newest observation that it replaces.
    """

    kind: ClassVar[str] = "confirmed"
    in_snapshot: ClassVar[bool] = True

    first_sequence: int
    metadata_offset: Offset | None = None

    def __post_init__(self) -> None:
        """Refuse a run that ends before it begins, and one without sequence numbers."""
        Observation.__post_init__(self)
        require(1 <= self.first_sequence <= self.sequence, f"no run: {self.first_sequence} to {self.sequence}")

    def first_after(self, applied: int) -> UnchangedRun:
        """Return the first observation of the run behind an applied number, as a run of one."""
        first = max(self.first_sequence, applied + 1)
        return replace(self, first_sequence=first, sequence=first)
