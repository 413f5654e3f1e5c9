"""Observations applied one by one: ``fold(state, observations)`` gives the changes and what they touched.

Replays are dropped by the number each observation has in its source; repeats by another collector are dropped by the
order that the authority gives (``partitions.is_news``). So any interleaving of sources that keeps each source's own
order, with any repetition, gives the same changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from streaming.changes import partitions
from streaming.changes.authority import SILENCE, has_passed, may_order
from streaming.changes.brokers import next_broker
from streaming.changes.change import Change, Subject
from streaming.changes.clocks import dated
from streaming.changes.cluster_steps import (
    advance,
    broker_missing,
    broker_stepped,
    cluster_stepped,
    sequence_gap,
    source_changes,
    take_authority,
)
from streaming.changes.confirmed import Confirmed
from streaming.changes.draft import Draft
from streaming.changes.happened import named
from streaming.changes.min_isr import CLUSTER_DEFAULT, KEY, is_news, told_by
from streaming.changes.steps import appeared, reconfigured, revised, stepped, vanished
from streaming.contracts.events import EventKind, Evidence
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import (
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    TopicRemoved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.happened import Happening
    from streaming.changes.state import PartitionState, ReplicationState
    from streaming.contracts.identifiers import Micros


@dataclass(frozen=True, slots=True)
class Folded:
    """The changes in the order they were accepted, and the state they touched (``ReplicationState.apply`` it).

    ``dropped`` are the observations that were equal, older, or not of the authority.
    """

    changes: tuple[Change, ...]
    touched: ReplicationState
    dropped: tuple[Observation, ...] = ()


def fold(state: ReplicationState, observations: Iterable[Observation]) -> Folded:
    """Apply observations to a state, which is not changed.

    Args:
        state: what is true now.
        observations: in the order of each source.

    Returns:
        one change an accepted step, then one a source that moved.
    """
    draft = Draft(state)
    last: dict[tuple[str, str], Observation] = {}
    for observed in observations:
        source = draft.source(observed)
        last[observed.cluster_id, observed.source] = observed
        if observed.sequence and observed.sequence <= source.sequence:
            draft.drop(observed)
            continue
        observed = dated(observed, source.observed_until)  # noqa: PLW2901 - its clock may be wrong
        last[observed.cluster_id, observed.source] = observed
        first = observed.first_after(source.sequence) if isinstance(observed, Confirmed) else observed
        if source.sequence and first.sequence > source.sequence + 1:
            sequence_gap(source, first, draft)
        if may_order(draft.cluster(first), first):
            take_authority(first, draft)
        _apply(first, draft)
        advance(observed, draft)
    draft.changes.extend(source_changes(draft, last))
    return Folded(tuple(draft.changes), draft.touched, tuple(draft.dropped))


@singledispatch
def _apply(observed: Observation, draft: Draft) -> None:
    """Heartbeats, and what was confirmed: time alone moves."""


@_apply.register
def _(observed: PartitionObserved, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    before = draft.partition(observed.cluster_id, observed.topic_id, observed.partition)
    if before is None and observed.occurred_not_after <= (draft.cluster(observed).tombstones_until or -1):
        draft.drop(observed)  # it may be of a topic whose tombstone is gone; whatever lives is told by a newer snapshot
    elif before is None or (before.is_deleted and partitions.is_news(before, observed)):
        appeared(before, observed, draft)
    elif partitions.is_news(before, observed):
        stepped(before, observed, draft)
    elif not observed.in_snapshot:
        draft.drop(observed)


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
    elif after != before:
        broker_stepped(before, after, observed, draft)


@_apply.register
def _(observed: ControllerObserved, draft: Draft) -> None:
    cluster = draft.cluster(observed)
    if not may_order(cluster, observed) or observed.controller_epoch < (cluster.controller_epoch or 0):
        draft.drop(observed)
        return
    if (observed.controller, observed.controller_epoch) == (cluster.controller, cluster.controller_epoch):
        return
    is_first = cluster.controller is None
    after = replace(
        cluster,
        controller=observed.controller,
        controller_epoch=observed.controller_epoch,
        controller_changes=cluster.controller_changes + (not is_first),
    )
    detail = f"controller {cluster.controller} to {observed.controller}, epoch {observed.controller_epoch}"
    identity = f"{observed.cluster_id}/controller/{observed.controller_epoch}"
    happened: list[Happening] = (
        [] if is_first else [(EventKind.CONTROLLER_CHANGE, BrokerId(observed.controller), detail)]
    )
    cluster_stepped(after, observed, draft, named(identity, iter(happened)))


@_apply.register
def _(observed: ConfigObserved, draft: Draft) -> None:
    is_log = observed.origin is ConfigOrigin.LOG
    if observed.key != KEY or (is_log and not may_order(draft.cluster(observed), observed)):
        draft.drop(observed)
        return
    key, told = told_by(observed)
    if not is_news(told, draft.min_isr(key)):
        return
    if any(has_passed(other, told.offset) for other in draft.other_sources(observed)):
        return
    draft.touched.min_isr[key] = told
    cluster = draft.cluster(observed)
    draft.put_cluster(cluster)
    draft.changes.append(
        Change(subject=Subject.CLUSTER, observation=observed, cluster_after=cluster, min_isr=((key, told),))
    )
    is_default = observed.topic == CLUSTER_DEFAULT
    named_topic = draft.topic_named(observed.cluster_id, observed.topic)
    for topic_id in list(draft.topic_ids(observed.cluster_id)) if is_default else named_topic:
        reconfigured(topic_id, observed, draft)


@_apply.register
def _(observed: SnapshotBegin, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    cluster = draft.cluster(observed)
    if cluster.has_baseline and _is_sight_regained(cluster.authority_watermark, observed):
        cluster_stepped(replace(cluster, sight_until=cluster.authority_watermark), observed, draft, ())


def _is_sight_regained(seen: Micros | None, observed: SnapshotBegin) -> bool:
    """Tell whether nobody of the authority saw what came right before a snapshot.

    A second collector that starts, or lags, tells what the first one saw already. A source that takes over after a
    silence may not know that nobody was heard, and calls its snapshot periodic.
    """
    silence = observed.occurred_not_after - (observed.occurred_not_after if seen is None else seen)
    return silence > (SILENCE if observed.reason is SnapshotReason.PERIODIC else 0)


@_apply.register
def _(observed: SnapshotEnd, draft: Draft) -> None:
    if not may_order(draft.cluster(observed), observed):
        draft.drop(observed)
        return
    cluster = draft.cluster(observed)
    counts = dict(zip(observed.topic_ids, observed.partition_counts, strict=True))
    for topic_id in list(draft.topic_ids(observed.cluster_id)):
        for before in draft.partitions_of(observed.cluster_id, topic_id):
            if before.partition >= counts.get(topic_id, 0) and _is_before(before, observed):
                vanished(before, observed, Evidence.INFERRED, draft)
    for broker in [] if _is_behind_another(observed, draft) else draft.brokers_of(observed.cluster_id):
        if broker.broker not in observed.brokers:
            broker_missing(broker, observed, draft)
    after = replace(draft.cluster(observed), has_baseline=True, sight_until=None)
    if not cluster.has_baseline or cluster.sight_until is not None:
        cluster_stepped(after, observed, draft, ())


def _is_behind_another(observed: BrokerObserved | SnapshotEnd, draft: Draft) -> bool:
    """Tell whether another poller has told something newer: brokers bear no time of their own, and polls no offset."""
    newest = draft.cluster(observed).authority_watermark
    own = max(observed.occurred_not_after, draft.source(observed).observed_until or 0)
    return observed.metadata_offset is None and newest is not None and own < newest


def _is_before(before: PartitionState, observed: SnapshotEnd) -> bool:
    """Tell whether a snapshot is new enough to speak of this partition's absence."""
    if before.is_deleted:
        return False
    if observed.metadata_offset is not None and before.metadata_offset is not None:
        return before.metadata_offset <= observed.metadata_offset
    return before.changed_at is None or before.changed_at <= observed.occurred_not_after
