"""The cluster as one poll returns it, and the difference between two polls.

Depends on the contracts only. A poll returns leaders, leader epochs, replicas and ISRs; reassignments are listed
separately, and so are eligible leader replicas where the brokers have them; partition epochs and causes are not part of
this API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from streaming.contracts.blocks import in_blocks
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import (
    BrokerObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    TopicRemoved,
)
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from streaming.contracts.observations import SnapshotReason


class Reassignment(NamedTuple):
    """The replicas that a reassignment adds to a partition, and those that it removes."""

    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


Reassignments = dict[tuple[str, int], Reassignment]
"""By topic and partition; what is not in it is not being reassigned."""
_NONE: Final = Reassignment()


class PartitionView(NamedTuple):
    """One partition in a broker's metadata response, and what is requested separately.

    ``leader`` is ``UNSEEN_LEADER`` where one leads that has no listener of the name that is asked, and nothing says
    which. ``leader_epoch`` is None where the cluster has no topic ids. ``offline`` are the replicas of brokers that are
    not alive or lack that listener, and those in log directories that failed (KIP-112).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    reassignment: Reassignment = _NONE
    leader_epoch: int | None = None
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    offline: tuple[BrokerId, ...] = ()

    @property
    def is_degraded(self) -> bool:
        """True if a replica is not in the ISR; otherwise no replica is eligible besides the ISR (KIP-966)."""
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The metadata that one poll returned.

    ``answered_by`` is the broker that responded; a negative number, another one per connection, where its address is
    not one that a broker advertises. ``topics`` maps the name of a topic to its partitions, ``brokers`` the id of a
    broker to its address. ``unseen`` are brokers that are not listed, and are in the ISR of partitions that are led:
    the controller has them unfenced, and they have no listener of the name that is asked. ``partition_counts`` also
    counts partitions that the response names without replicas, which are not in ``topics``: they exist, and nothing
    else is known of them.
    ``has_reassignments``: whether the partitions have theirs; otherwise it is unknown which are being reassigned.
    ``has_elr``: the same of eligible leader replicas.
    ``racks`` are those of the brokers that are listed and have one.
    ``is_partial``: topics may exist that are not to be described, and are not in it. ``hidden`` are the names of those
    that were seen before: they are in it as they were, so that they can be compared when they are seen again.
    """

    cluster_id: ClusterId
    answered_by: int
    brokers: dict[BrokerId, tuple[str, int]]
    topics: dict[str, dict[int, PartitionView]]
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    has_reassignments: bool = False
    has_elr: bool = False
    is_partial: bool = False
    hidden: frozenset[str] = frozenset()
    unseen: frozenset[BrokerId] = frozenset()
    racks: dict[BrokerId, str] = field(default_factory=dict)

    def without(self, topics: frozenset[str]) -> ClusterView:
        """Leave topics out."""
        if not topics:
            return self
        return replace(self, topics={name: parts for name, parts in self.topics.items() if name not in topics})

    def with_reassignments(self, reassignments: Reassignments) -> ClusterView:
        """Add what is being reassigned, as far as this view shows it."""
        topics = {**self.topics}
        for (topic, number), reassignment in reassignments.items():
            if (view := topics.get(topic, {}).get(number)) is not None:
                seen = view._replace(reassignment=_seen_in(view, reassignment))
                topics[topic] = {**topics[topic], number: seen}
        return replace(self, topics=topics, has_reassignments=True)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has: Kafka numbers them from 0, without holes."""
        return max(self.partition_counts.get(topic, 0), max(self.topics[topic], default=-1) + 1)


def _seen_in(view: PartitionView, listed: Reassignment) -> Reassignment:
    """Return the part of a reassignment that a view shows: it may be from before its begin, or after its end."""
    adding = tuple(broker for broker in listed.adding if broker in view.replicas)
    removing = tuple(broker for broker in listed.removing if broker in view.replicas)
    has_begun = bool(adding) or not listed.adding
    is_over = not removing if listed.removing else set(adding) <= set(view.isr)
    return Reassignment(adding, removing) if has_begun and not is_over else _NONE


def without_listener(
    topics: Mapping[str, Mapping[int, PartitionView]], brokers: Container[BrokerId]
) -> frozenset[BrokerId]:
    """Return the brokers that are not listed, and are in the ISR of a partition that is led.

    A KRaft controller that fences a broker takes it out of each ISR in the same step, but the last one of a partition,
    which has no leader then. So such a broker is unfenced, and lacks a listener of the name of the one that is asked.
    """
    return frozenset(
        broker
        for parts in topics.values()
        for part in parts.values()
        if part.leader != NO_LEADER
        for broker in part.isr
        if broker not in brokers
    )


def with_leaders(view: ClusterView, before: ClusterView | None) -> ClusterView:
    """Name the leaders that cannot be seen, where there is one possibility.

    The leader is in the ISR and not listed; in the same leader epoch it is who it was before.
    """
    topics: dict[str, dict[int, PartitionView]] = {}
    for topic, parts in view.topics.items():
        unseen = {number: part for number, part in parts.items() if part.leader == UNSEEN_LEADER}
        is_same = before is not None and before.topic_ids.get(topic) == view.topic_ids.get(topic)
        old = before.topics.get(topic, {}) if before is not None and is_same else {}
        leaders = {
            number: part._replace(leader=_unseen_leader(part, view, old.get(number))) for number, part in unseen.items()
        }
        if leaders:
            topics[topic] = {**parts, **leaders}
    return replace(view, topics={**view.topics, **topics}) if topics else view


def _unseen_leader(part: PartitionView, view: ClusterView, before: PartitionView | None) -> BrokerId:
    candidates = [broker for broker in part.isr if broker not in view.brokers]
    if len(candidates) == 1:
        return candidates[0]
    is_same_epoch = before is not None and part.leader_epoch is not None and before.leader_epoch == part.leader_epoch
    return before.leader if before is not None and is_same_epoch and before.leader in candidates else UNSEEN_LEADER


def in_order(isr: Sequence[int], replicas: Sequence[int]) -> tuple[BrokerId, ...]:
    """Sort an ISR by the order of the replicas: brokers return it in any order, and the order is not a change."""
    return tuple(
        sorted(map(BrokerId, isr), key=lambda broker: (broker not in replicas, [*replicas, broker].index(broker)))
    )


def deleted_topics(before: ClusterView, after: ClusterView) -> list[tuple[str, TopicId]]:
    """Return the topics that were deleted, also if there are others of their names now."""
    return [(name, topic_id) for name, topic_id in before.topic_ids.items() if after.topic_ids.get(name) != topic_id]


def has_same_members(before: ClusterView, after: ClusterView) -> bool:
    """Return whether brokers and topics are the same; otherwise only a full report shows what was removed, or hidden.

    Nor does less than one show what is being reassigned, or which replicas are eligible, after it was unknown.
    """
    is_new_knowledge = (after.has_reassignments and not before.has_reassignments) or (
        after.has_elr and not before.has_elr
    )
    has_same_topics = before.hidden == after.hidden and not deleted_topics(before, after)
    has_same_brokers = (before.brokers, before.unseen, before.racks) == (after.brokers, after.unseen, after.racks)
    return not is_new_knowledge and has_same_brokers and has_same_topics


def steps(before: ClusterView, after: ClusterView, envelope: Mapping[str, Any]) -> list[Observation]:
    """Return the partitions that differ from the previous view."""
    return [
        observed
        for topic, parts in after.topics.items()
        if parts != before.topics.get(topic)
        for observed in _topic_steps(topic, before, after, envelope, None)
        if observed.cause is not None
    ]


Explained: TypeAlias = "Mapping[tuple[str, int], InferredCause | None]"
"""Causes of steps, by topic and number of the partition."""


class InferredCause(NamedTuple):
    """A cause, its evidence, the possible causes where that is ambiguous, and the evidence in words."""

    cause: Cause
    evidence: Evidence = Evidence.INFERRED
    candidates: tuple[Cause, ...] = ()
    because: str = ""


def snapshot(  # noqa: PLR0913 - what its markers say
    before: ClusterView | None,
    after: ClusterView,
    envelope: Mapping[str, Any],
    *,
    snapshot_id: str,
    reason: SnapshotReason,
    is_new_log: bool = False,
    deleted: Sequence[tuple[str, TopicId]] = (),
    explained: Explained | None = None,
    fenced: Container[BrokerId] = (),
    stopping: Container[BrokerId] = (),
) -> list[Observation]:
    """Return a full report of a view, between two markers; a difference to the previous view has an inferred cause.

    Hidden topics are left out: what they are now is unknown. So ``deleted`` names those that are not hidden.
    ``explained`` has the causes of steps; without it they are inferred from the two views alone. ``fenced`` are brokers
    that are not listed any more, though this view lists them; ``stopping`` those that are being stopped.
    """
    inside = {**envelope, "in_snapshot": True}
    topics = [topic for topic in after.topics if topic not in after.hidden]
    is_partial = after.is_partial or bool(after.hidden)
    partitions = [observed for topic in topics for observed in _topic_steps(topic, before, after, inside, explained)]
    listed = {broker: address for broker, address in after.brokers.items() if broker not in fenced}
    return [
        SnapshotBegin(**envelope, snapshot_id=snapshot_id, reason=reason, is_new_log=is_new_log),
        *_brokers(after, listed, inside, stopping),
        *(observed for observed in partitions if observed.cause is not None),
        *in_blocks(partitions),
        *(TopicRemoved(**envelope, topic_id=topic_id, topic=topic) for topic, topic_id in deleted if is_partial),
        SnapshotEnd(
            **envelope,
            snapshot_id=snapshot_id,
            is_partial=is_partial or None,
            topic_ids=tuple(after.topic_ids[topic] for topic in topics),
            partition_counts=tuple(after.partition_count(topic) for topic in topics),
            brokers=tuple(sorted(after.unseen.union(listed))),
        ),
    ]


def _brokers(
    view: ClusterView,
    listed: Mapping[BrokerId, tuple[str, int]],
    envelope: Mapping[str, Any],
    stopping: Container[BrokerId],
) -> Iterator[BrokerObserved]:
    """Yield the brokers of a full report: those that are listed, and those that cannot be."""
    for broker, (host, port) in listed.items():
        yield BrokerObserved(
            **envelope,
            broker=broker,
            host=host,
            port=port,
            rack=view.racks.get(broker),
            in_controlled_shutdown=broker in stopping or None,
        )
    for broker in sorted(view.unseen.difference(view.brokers)):
        yield BrokerObserved(**envelope, broker=broker, unseen=True)


def _topic_steps(
    topic: str, before: ClusterView | None, after: ClusterView, envelope: Mapping[str, Any], explained: Explained | None
) -> Iterator[PartitionObserved]:
    is_same_topic = before is not None and before.topic_ids.get(topic) == after.topic_ids[topic]
    old = before.topics[topic] if before is not None and is_same_topic else {}
    is_first = before is None or topic in before.hidden
    for number, view in after.topics[topic].items():
        if explained is None:
            seen = None if before is None else comparable(old.get(number), view, before, after)
            cause = None if is_first else inferred_cause(seen, view, after.brokers)
            why = None if cause is None else InferredCause(cause)
        else:
            why = explained.get((topic, number))
        yield observed_step(topic, number, after, envelope, why)


def comparable(
    seen: PartitionView | None, view: PartitionView, before: ClusterView, after: ClusterView
) -> PartitionView | None:
    """Return what a partition was, without what was unknown before or is now: that did not change."""
    if seen is not None and not (before.has_reassignments and after.has_reassignments):
        seen = seen._replace(reassignment=view.reassignment)
    if seen is not None and not (before.has_elr and after.has_elr):
        seen = seen._replace(elr=view.elr, last_known_elr=view.last_known_elr)
    return seen


def observed_step(  # noqa: PLR0913, PLR0917 - a partition, and what is said of it
    topic: str,
    number: int,
    after: ClusterView,
    envelope: Mapping[str, Any],
    why: InferredCause | None,
    between: PartitionView | None = None,
) -> PartitionObserved:
    """Return a partition of a view, or as it was ``between`` that and the one before, with the cause of its step."""
    view = between or after.topics[topic][number]
    return PartitionObserved(
        **envelope,
        topic_id=after.topic_ids[topic],
        topic=topic,
        partition=number,
        replicas=view.replicas,
        isr=view.isr,
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        elr=view.elr,
        last_known_elr=view.last_known_elr,
        reports_elr=after.has_elr or None,
        adding_replicas=view.reassignment.adding,
        removing_replicas=view.reassignment.removing,
        reports_reassignments=after.has_reassignments or None,
        cause=None if why is None else why.cause,
        evidence=None if why is None else why.evidence,
        candidates=() if why is None else why.candidates,
        because=None if why is None else why.because or None,
    )


def inferred_cause(before: PartitionView | None, after: PartitionView, alive: Container[BrokerId] = ()) -> Cause | None:
    """Return the cause that two polls allow to infer, None when nothing changed.

    Args:
        before: what the poll before showed of the partition.
        after: what this one shows.
        alive: the brokers that this poll lists. A replica that is offline on one of them is in a directory that failed.
    """
    if before is None:
        return Cause.CREATED
    if before._replace(offline=after.offline) == after:
        return None
    if set(before.replicas) != set(after.replicas) or before.reassignment != after.reassignment:
        return Cause.REASSIGNMENT
    if before.leader == after.leader and set(before.isr) < set(after.isr):
        return Cause.EXPAND
    left = set(before.isr).difference(after.isr)
    if left and all(broker in after.offline and broker in alive for broker in left):
        return Cause.DIR_FAILURE
    return Cause.UNKNOWN


# Views that may be older than the one before, and how long they are in doubt.
#
# Depends on views and the monotonic clock.


RECHECK_AFTER: Final = Micros(300_000)  # longer than a healthy broker lags behind the metadata log
_RECHECKS: Final = 3
LONGEST_DOUBT: Final = Micros(15_000_000)


class Uncertainty:
    """Why views that may be stale are not believed yet. It ends when two brokers agree, or after some rechecks.

    Rechecks alone, without agreement, do not undo an election that was seen: a broker that is cut off from the
    controllers repeats its view for ever. But no other broker may ever be reached, and controllers that were restored
    from a backup have lower epochs for good. So every doubt ends after ``LONGEST_DOUBT``.

    Invariant: the last accepted view was received before all that are in doubt.
    """

    def __init__(self) -> None:
        self._rechecks = 0
        self._since = Micros(0)
        self._views: dict[int, ClusterView] = {}  # two responses of unknown brokers may be of the same one

    @property
    def is_open(self) -> bool:
        """True if there is any."""
        return bool(self._rechecks)

    @property
    def is_long(self) -> bool:
        """True if it has lasted so long that it ends with the next view."""
        return self.is_open and monotonic() - self._since > LONGEST_DOUBT

    @property
    def needs_recheck(self) -> bool:
        """True if a second opinion is wanted, without which a view is not believed yet."""
        return self.is_open and not self.is_long

    def ends_with(self, before: ClusterView, view: ClusterView) -> bool:
        """Return whether a view that may be stale is believed all the same; otherwise it adds to the doubt."""
        is_enough = self._is_enough(view) and not goes_back(before, view)
        if self.is_long or is_enough or self._is_agreed(view):
            return True
        self._since = self._since if self.is_open else monotonic()
        self._rechecks += 1
        if view.answered_by >= 0:
            self._views[view.answered_by] = view
        return False

    def _is_enough(self, view: ClusterView) -> bool:
        """Return whether there were enough rechecks: more of them where brokers disagree."""
        is_disputed = view.answered_by >= 0 and not self._views.keys() <= {view.answered_by}
        return self._rechecks >= (2 * _RECHECKS if is_disputed else _RECHECKS)

    def _is_agreed(self, view: ClusterView) -> bool:
        return view.answered_by >= 0 and any(
            other.answered_by != view.answered_by and (view.brokers, view.topics) == (other.brokers, other.topics)
            for other in self._views.values()
        )


def may_be_stale(before: ClusterView, after: ClusterView) -> bool:
    """Return whether a response may be older than the previous one.

    Brokers follow the metadata log at different speeds, and one that is partitioned from the controllers or was paused
    returns old metadata; the other brokers no longer list it. A partition that is missing may not have been replicated
    to that broker yet, and a recovery that another broker reports may be the state before the failure, unless leader
    epochs decide. A topic id that is new may be that of a topic that was deleted, and another cluster a wrong address.
    """
    if any(len(after.topics.get(topic, ())) < len(parts) for topic, parts in before.topics.items()):
        return True
    if after.answered_by == before.answered_by:
        return False
    is_listed = after.answered_by < 0 or after.answered_by in before.brokers
    has_new_topic = not after.topic_ids.items() <= before.topic_ids.items()
    has_new = has_new_topic or not after.brokers.keys() <= before.brokers.keys()
    return not is_listed or has_new or any(_may_be_older(old, view) for old, view in _changed(before, after))


def goes_back(before: ClusterView, after: ClusterView) -> bool:
    """Return whether a leader epoch is lower than before, as after controllers were restored from a backup."""
    return any((_epochs_passed(old, view) or 0) < 0 for old, view in _changed(before, after))


def _changed(before: ClusterView, after: ClusterView) -> Iterator[tuple[PartitionView, PartitionView]]:
    """Yield what the partitions that differ were and are; those of a topic that was created again have no epochs."""
    for topic, parts in after.topics.items():
        old_parts = before.topics.get(topic, {})
        if parts == old_parts:
            continue
        is_same_topic = before.topic_ids.get(topic) == after.topic_ids.get(topic)
        for number, view in parts.items():
            if (old := old_parts.get(number)) is not None:
                yield old if is_same_topic else old._replace(leader_epoch=None), view


def _epochs_passed(old: PartitionView, view: PartitionView) -> int | None:
    if old.leader_epoch is None or view.leader_epoch is None:
        return None
    return view.leader_epoch - old.leader_epoch


def _may_be_older(old: PartitionView, view: PartitionView) -> bool:
    """Return whether the leader epoch is lower, or a member of the ISR or a leader was added in the same one."""
    passed = _epochs_passed(old, view)
    if passed:
        return passed < 0
    return not set(view.isr) <= set(old.isr) or (old.leader == NO_LEADER != view.leader)
