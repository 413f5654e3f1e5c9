"""The step of one partition: whether an observation is accepted, and the next state with its health and durations.

Order: ``(partition_epoch, metadata offset, index)`` if the source is the metadata log, else the time of the poll.
Durations are differences of ``occurred_not_after``, never of processing time.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.changes.state import Event, TopicConfig
from streaming.contracts import health
from streaming.contracts.blocks import FIELDS_IN_BLOCK
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.identifiers import NO_LEADER, SECOND, UNSEEN_LEADER
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import EPISODES, PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streaming.contracts.blocks import PartitionsObserved
    from streaming.contracts.identifiers import BrokerId, Micros, Offset
    from streaming.contracts.observations import CauseRevised, PartitionObserved
    from streaming.contracts.state import ClusterState

_POLLED_FIELDS: Final = ("replicas", "isr", "leader")
_MOVE_FIELDS: Final = ("adding_replicas", "removing_replicas")
_ELR_FIELDS: Final = ("elr", "last_known_elr")
_LOG_FIELDS: Final = (*_POLLED_FIELDS, *_MOVE_FIELDS, *_ELR_FIELDS, "leader_recovering")
# By whether a poll reports reassignments, and eligible leader replicas.
_FIELDS_OF_POLL: Final = {
    (moves, elr): (*_POLLED_FIELDS, *(_MOVE_FIELDS if moves else ()), *(_ELR_FIELDS if elr else ()))
    for moves in (False, True)
    for elr in (False, True)
}

# By the fields that a source reports: those in which a repetition equals the state, and the same of a row of a block.
_EPOCHS: Final = ("leader_epoch", "partition_epoch")
_REPEATED_IN: Final[dict[tuple[str, ...], tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    names: (attrgetter(*names, *_EPOCHS), itemgetter(*map(FIELDS_IN_BLOCK.index, (*names, *_EPOCHS))))
    for names in (*_FIELDS_OF_POLL.values(), _LOG_FIELDS)
}


def _reported_fields(observed: PartitionObserved | PartitionsObserved) -> tuple[str, ...]:
    """Return the fields that a source reports. A poll reports fewer, and does not clear the others."""
    if observed.source_kind is not SourceKind.POLL:
        return _LOG_FIELDS
    return _FIELDS_OF_POLL[bool(observed.reports_reassignments), bool(observed.reports_elr)]


def in_present_log(before: PartitionState, cluster: ClusterState) -> PartitionState:
    """Return a state without offsets and epochs if they are of a metadata log that another one has replaced."""
    since = cluster.metadata_log_since
    if since is None or before.changed_at is None or before.changed_at >= since:
        return before
    return before._replace(metadata_offset=None, metadata_index=0, partition_epoch=None, leader_epoch=None)


def is_news(before: PartitionState, observed: PartitionObserved) -> bool:
    """Return whether an observation is newer than the state and differs from it."""
    if before.is_deleted:
        return _is_later(before, observed)
    if observed.partition_epoch is None or before.partition_epoch is None:
        return _is_later(before, observed) and not _same_content(before, observed)
    if observed.partition_epoch != before.partition_epoch:
        return observed.partition_epoch > before.partition_epoch
    return _is_later(before, observed) and not _same_content(before, observed)


def is_repeated(state: PartitionState, observed: PartitionObserved) -> bool:
    """Return whether an observation repeats the state, so it is not accepted until the state changes."""
    return not state.is_deleted and _same_content(state, observed) and not is_news(state, observed)


def news(block: PartitionsObserved, states: Mapping[int, PartitionState]) -> Iterator[PartitionObserved]:
    """Yield the partitions of a block but those that plainly repeat the state: most do, and cost no object.

    What is left out has the state's epochs and content, so ``is_repeated`` would be true of it.
    """
    of_state, of_row = _REPEATED_IN[_reported_fields(block)]
    for row in block.rows():
        state = states.get(row[0])
        if state is None or state.is_deleted or of_row(row) != of_state(state):
            yield block.observation(row)


def is_proof(before: PartitionState, observed: CauseRevised) -> bool:
    """Return whether the proof of a cause is newer than the state, which must be from the metadata log."""
    if before.is_deleted or before.metadata_offset is None:
        return False
    return (observed.metadata_offset, observed.metadata_index) > (before.metadata_offset, before.metadata_index)


def _is_later(before: PartitionState, observed: PartitionObserved) -> bool:
    if observed.metadata_offset is not None and before.metadata_offset is not None:
        return (observed.metadata_offset, observed.metadata_index) > (before.metadata_offset, before.metadata_index)
    if observed.leader_epoch is not None and before.leader_epoch is not None and not before.is_deleted:
        if observed.leader_epoch < before.leader_epoch:
            return False
        # A full report is of the present, so an election of which the state knows nothing is later, whatever the clocks
        # say. Single records may be read again: a poller has seen what became of them.
        if observed.in_snapshot and observed.leader_epoch > before.leader_epoch:
            return True
    at, changed_at = observed.occurred_not_after, before.changed_at
    # After a clock was set back, two polls may have the same time. A deleted partition reappears at a later time only.
    return changed_at is None or at > changed_at or (at == changed_at and not before.is_deleted)


def _same_content(before: PartitionState, observed: PartitionObserved) -> bool:
    if observed.leader_epoch is not None and observed.leader_epoch != before.leader_epoch:
        return False  # there were elections, even if leader and ISR are the same again: older epochs are stale now
    return all(getattr(before, name) == getattr(observed, name) for name in _reported_fields(observed))


def missed_between(before: PartitionState | None, observed: PartitionObserved) -> int:
    """Count the changes between a state and an observation: each raises the partition epoch by one (KIP-631).

    A poll has no partition epoch. Of what happened between two polls the leader epoch counts the elections: the later
    poll shows the last one.
    """
    if observed.partition_epoch is None:
        return _elections_between(before, observed)
    if before is None or before.is_deleted:
        return observed.partition_epoch
    if before.partition_epoch is None:
        return 0
    return max(0, observed.partition_epoch - before.partition_epoch - 1)


def _elections_between(before: PartitionState | None, observed: PartitionObserved) -> int:
    if observed.leader_epoch is None:
        return 0
    if before is None:
        return observed.leader_epoch
    if before.leader_epoch is None:
        return 0
    return max(0, observed.leader_epoch - before.leader_epoch - 1)


def first_state(observed: PartitionObserved, config: TopicConfig) -> PartitionState:
    """Return the state of a new partition."""
    state = PartitionState(
        cluster_id=observed.cluster_id,
        topic_id=observed.topic_id,
        topic=observed.topic,
        partition=observed.partition,
        leader_epoch=observed.leader_epoch,
        **_reported_values(observed),
    )
    return with_health(state, config, observed.occurred_not_after)


def next_state(before: PartitionState, observed: PartitionObserved, config: TopicConfig) -> PartitionState:
    """Return the state after an observation, with health and durations; ``updated_totals`` are added to it."""
    epoch = observed.leader_epoch if observed.leader_epoch is not None else before.leader_epoch
    state = before._replace(**_reported_values(observed), leader_epoch=epoch, is_deleted=False)
    names = _reported_fields(observed)
    if "adding_replicas" not in names:
        state = _without_ended_move(state)
    if "elr" not in names:
        state = state._replace(elr=tuple(broker for broker in state.elr if broker not in state.isr))
    return with_health(state, config, observed.occurred_not_after)


def _without_ended_move(state: PartitionState) -> PartitionState:
    """End a reassignment that was reported before where a poll that reports none shows that it is over."""
    adding = tuple(broker for broker in state.adding_replicas if broker in state.replicas and broker not in state.isr)
    removing = tuple(broker for broker in state.removing_replicas if broker in state.replicas)
    is_over = not removing if state.removing_replicas else not adding
    return state._replace(adding_replicas=() if is_over else adding, removing_replicas=() if is_over else removing)


def _reported_values(observed: PartitionObserved) -> dict[str, Any]:
    """Return the reported part of a state, without the leader epoch, which a poll may not report."""
    names = ("cluster", "partition_epoch", "metadata_offset", "metadata_index", *_reported_fields(observed))
    return {name: getattr(observed, name) for name in names}


def with_health(state: PartitionState, config: TopicConfig, at: Micros) -> PartitionState:
    """Return a state with its health derived; episodes begin or end at ``at``."""
    configured = config.min_isr_led_by(state.leader, state.replicas)
    effective = health.effective_min_isr(configured, state.replicas)
    counts = not state.is_deleted and not config.is_diskless
    is_offline = counts and health.is_offline(state.leader)
    is_under = counts and health.is_under_replicated(state.replicas, state.isr, state.adding_replicas)
    is_under_min = health.is_under_min_isr(effective, state.isr) if counts else False
    offline = _episode(state.offline_since, state.offline_seconds, is_offline, at)
    under = _episode(state.under_replicated_since, state.under_replicated_seconds, is_under, at)
    under_min = _episode(state.under_min_isr_since, state.under_min_isr_seconds, bool(is_under_min), at)
    return state._replace(
        min_isr_configured=configured,
        min_isr_by_replica=_by_replica(state, config),
        min_isr_effective=effective,
        is_offline=is_offline,
        is_under_replicated=is_under,
        is_under_min_isr=is_under_min,
        is_at_min_isr=health.is_at_min_isr(effective, state.isr, is_lacking=is_under) if counts else False,
        is_off_preferred_leader=counts and health.is_off_preferred_leader(state.replicas, state.leader),
        is_diskless=config.is_diskless and not state.is_deleted,
        offline_since=offline[0],
        offline_seconds=offline[1],
        under_replicated_since=under[0],
        under_replicated_seconds=under[1],
        under_min_isr_since=under_min[0],
        under_min_isr_seconds=under_min[1],
        changed_at=at,
    )


def _by_replica(state: PartitionState, config: TopicConfig) -> tuple[int, ...] | None:
    if not config.of_brokers:
        return None
    each = [health.effective_min_isr(value, state.replicas) for value in config.min_isr_by(state.replicas)]
    return None if len(set(each)) == 1 else tuple(-1 if value is None else value for value in each)


def is_configured(state: PartitionState, config: TopicConfig) -> bool:
    """Return whether a configuration is applied to a partition already."""
    minimum = config.min_isr_led_by(state.leader, state.replicas), _by_replica(state, config)
    is_same = minimum == (state.min_isr_configured, state.min_isr_by_replica)
    return is_same and config.is_diskless == state.is_diskless


def _episode(since: Micros | None, seconds: float, is_open: bool, at: Micros) -> tuple[Micros | None, float]:  # noqa: FBT001 - three calls below, all positional
    """Return since when an episode is open (None: closed), and the seconds of its closed predecessors."""
    if is_open:
        return (at if since is None else since), seconds
    return None, seconds if since is None else seconds + max(0, at - since) / SECOND


def settled(before: PartitionState, cluster: ClusterState) -> PartitionState:
    """Count the time without observation since the last change as unknown: open episodes continue at its end."""
    lacking = cluster.observed.lacking(before)
    if not lacking or cluster.observed_since is None:
        return before
    fields: dict[str, Micros | float | None] = {}
    for name in EPISODES:
        since = getattr(before, f"{name}_since")
        if since is not None:
            fields[f"{name}_seconds"] = (
                getattr(before, f"{name}_seconds") + max(0, cluster.observed_since - since - lacking) / SECOND
            )
            fields[f"{name}_since"] = cluster.observed_since
    unknown = before.unknown_seconds + lacking / SECOND
    return before._replace(**fields, unknown_seconds=unknown, unobserved_micros=cluster.unobserved_micros)  # type: ignore[arg-type]


def with_unobserved_gap(before: PartitionState, last_seen: Micros, seen_again: Micros) -> PartitionState:
    """Close open episodes where an observation gap begins and reopen them at its end: its time counts as unknown."""
    if seen_again <= last_seen:
        return before
    closed = {
        "offline": (before.offline_since, before.offline_seconds),
        "under_replicated": (before.under_replicated_since, before.under_replicated_seconds),
        "under_min_isr": (before.under_min_isr_since, before.under_min_isr_seconds),
    }
    fields: dict[str, Micros | float | None] = {}
    for name, (since, seconds) in closed.items():
        if since is not None:
            fields[f"{name}_seconds"] = seconds + max(0, last_seen - since) / SECOND
            fields[f"{name}_since"] = seen_again
    unknown = before.unknown_seconds + (seen_again - last_seen) / SECOND
    return before._replace(**fields, unknown_seconds=unknown)  # type: ignore[arg-type]


def with_minimum_until(before: PartitionState, last_seen: Micros | None, at: Micros) -> PartitionState:
    """Count no time under a minimum in an observation gap within which it was changed; no epoch says when."""
    since = before.under_min_isr_since
    if last_seen is None or since is None or since >= at:
        return before
    seconds = before.under_min_isr_seconds + max(0, last_seen - since) / SECOND
    return before._replace(under_min_isr_since=at, under_min_isr_seconds=seconds)


def deleted(before: PartitionState, at: Micros, offset: Offset | None) -> PartitionState:
    """Return the tombstone of a partition: it is never unhealthy, and keeps its totals."""
    gone = before._replace(
        is_deleted=True,
        isr=(),
        elr=(),
        last_known_elr=(),
        leader=NO_LEADER,
        metadata_offset=offset if offset is not None else before.metadata_offset,
        metadata_index=0,
    )
    return with_health(gone, TopicConfig(before.min_isr_configured), at)


# The events of the step of one partition, and the totals they add to.


_UNCLEAN = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})
PendingEvent = tuple[EventKind, "BrokerId | None", "str | None"]
"""An event before it has an id: kind, broker, detail."""


class IsrStep(NamedTuple):
    """The brokers that left the ISR, in its order before, and those that joined it, in its order after."""

    left: tuple[BrokerId, ...] = ()
    joined: tuple[BrokerId, ...] = ()


def isr_step(before: PartitionState, after: PartitionState) -> IsrStep:
    """Return who left the ISR and who joined it; none where the ISR means nothing."""
    was, now = before.isr, after.isr
    if was == now or after.is_diskless:
        return IsrStep()
    return IsrStep(
        tuple([broker for broker in was if broker not in now]), tuple([broker for broker in now if broker not in was])
    )


def is_leader_changed(before: PartitionState, after: PartitionState) -> bool:
    """Return whether another broker leads, or none; every broker leads a diskless partition.

    A leader that cannot be seen, before or after, may be the same one.
    """
    leaders = {before.leader, after.leader}
    is_unknown = UNSEEN_LEADER in leaders and NO_LEADER not in leaders
    return before.leader != after.leader and not is_unknown and not after.is_diskless


def is_unclean(before: PartitionState, after: PartitionState, cause: Cause | None) -> bool:
    """Return whether the step elected a leader uncleanly: its cause says so, or the leader began to recover.

    No record can be lost with the leader of a diskless partition.
    """
    if after.is_diskless:
        return False
    # It recovers until the ISR changes (KIP-704), so a leader from outside of the ISR was elected uncleanly once more.
    is_other = after.leader not in (NO_LEADER, UNSEEN_LEADER, before.leader, *before.isr, *before.elr)
    return cause in _UNCLEAN or (after.leader_recovering and (is_other or not before.leader_recovering))


def events_between(  # noqa: PLR0913, PLR0917 - two states, and what the source said of the step
    before: PartitionState,
    after: PartitionState,
    isr: IsrStep,
    cause: Cause | None,
    missed: int,
    because: str | None = None,
) -> Iterator[PendingEvent]:
    """Yield the events between two states of one partition, a consequence after its cause.

    ``because``: the evidence in words, which stands with the first event that it explains.
    """
    if missed:
        yield EventKind.CHANGES_MISSED, None, f"{missed} changes were not seen"
    if isr.left:
        yield EventKind.ISR_SHRINK, isr.left[0] if len(isr.left) == 1 else None, because
    if isr.joined:
        yield EventKind.ISR_EXPAND, isr.joined[0] if len(isr.joined) == 1 else None, None
    yield from _of_leader(before, after, cause, because)
    yield from _of_health(before, after)
    yield from _of_reassignment(before, after)
    if before.min_isr_configured != after.min_isr_configured:
        yield EventKind.MIN_ISR_CHANGE, None, f"{before.min_isr_configured} to {after.min_isr_configured}"
    for sentence in violations(before, after, cause):
        yield EventKind.PROTOCOL_VIOLATION, None, sentence


def events_of_first(after: PartitionState) -> Iterator[PendingEvent]:
    """Yield the trouble of a partition that is observed for the first time, though its cluster was before."""
    if after.leader_recovering and not after.is_diskless:
        yield EventKind.UNCLEAN_ELECTION, after.leader, None
    healthy = after._replace(is_offline=False, is_under_replicated=False, is_under_min_isr=False)
    yield from _of_health(healthy, after)


def _of_leader(
    before: PartitionState, after: PartitionState, cause: Cause | None, because: str | None
) -> Iterator[PendingEvent]:
    if is_leader_changed(before, after):
        yield EventKind.LEADER_CHANGE, None if after.leader < 0 else after.leader, because
    if is_unclean(before, after, cause):
        yield EventKind.UNCLEAN_ELECTION, after.leader, because


def _of_health(before: PartitionState, after: PartitionState) -> Iterator[PendingEvent]:
    for was, now, began, ended in (
        (before.is_offline, after.is_offline, EventKind.OFFLINE, EventKind.ONLINE),
        (
            before.is_under_replicated,
            after.is_under_replicated,
            EventKind.UNDER_REPLICATED_BEGAN,
            EventKind.UNDER_REPLICATED_ENDED,
        ),
        (
            bool(before.is_under_min_isr),
            bool(after.is_under_min_isr),
            EventKind.UNDER_MIN_ISR_BEGAN,
            EventKind.UNDER_MIN_ISR_ENDED,
        ),
    ):
        if was != now:
            yield (began if now else ended), None, None


def _of_reassignment(before: PartitionState, after: PartitionState) -> Iterator[PendingEvent]:
    was, now = (bool(state.adding_replicas or state.removing_replicas) for state in (before, after))
    if now and not was:
        yield EventKind.REASSIGNMENT_BEGAN, None, f"{list(before.replicas)} to {_target(after)}"
    if was and not now:
        is_cancelled = set(after.replicas) == set(before.replicas) - set(before.adding_replicas)
        is_cancelled = is_cancelled and bool(before.adding_replicas)
        kind = EventKind.REASSIGNMENT_CANCELLED if is_cancelled else EventKind.REASSIGNMENT_COMPLETED
        yield kind, None, f"replicas {list(after.replicas)}"


def _target(after: PartitionState) -> list[int]:
    return [broker for broker in after.replicas if broker not in after.removing_replicas]


def updated_totals(
    before: PartitionState, after: PartitionState, isr: IsrStep, cause: Cause | None, missed: int
) -> dict[str, Any]:
    """Return the totals after a step, by column."""
    return {
        "isr_shrinks": before.isr_shrinks + bool(isr.left),
        "isr_expands": before.isr_expands + bool(isr.joined),
        "leader_changes": before.leader_changes + is_leader_changed(before, after),
        "unclean_elections": before.unclean_elections + is_unclean(before, after, cause),
        "missed_changes": before.missed_changes + missed,
        "change_number": before.change_number + 1,
    }


def with_event_ids(identity: str, pending: Iterator[PendingEvent]) -> tuple[Event, ...]:
    """Return events with their ids: the identity of the change, the kind, and a number where a kind repeats.

    Ids follow from the change alone, so a batch that is applied again yields the same ids.
    """
    events: list[Event] = []
    numbers: dict[EventKind, int] = {}
    for kind, broker, detail in pending:
        number = numbers[kind] = numbers.get(kind, -1) + 1
        suffix = f"/{number}" if number else ""
        events.append(Event(event_id=f"{identity}/{kind}{suffix}", event=kind, event_broker=broker, detail=detail))
    return tuple(events)


# Rules that Kafka never breaks, checked on live data. A violation is an event, not a crash.
#
# Source: KIP-631, KIP-966, ``PartitionRegistration`` and ``ReplicationControlManager`` of Apache Kafka.


def violations(before: PartitionState | None, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    """Yield every rule that this step breaks, one short sentence each; of a diskless partition brokers make them up."""
    if after.is_diskless:
        return
    yield from _of_state(after)
    if before is not None and not before.is_deleted:
        yield from _of_step(before, after, cause)


def _of_state(after: PartitionState) -> Iterator[str]:
    replicas, isr, elr = list(after.replicas), list(after.isr), list(after.elr)
    if after.leader not in (NO_LEADER, UNSEEN_LEADER, *isr):
        yield f"leader {after.leader} is not in the ISR {isr}"
    if not set(isr) <= set(replicas):
        yield f"ISR {isr} is not within the replicas {replicas}"
    if not set(elr) <= set(replicas):
        yield f"ELR {elr} is not within the replicas {replicas}"
    if set(elr) & set(isr):
        yield f"ELR {elr} and ISR {isr} overlap"


def _of_step(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    yield from _of_leader_epoch(before, after)
    if before.partition_epoch is None or after.partition_epoch is None:
        return
    if after.partition_epoch <= before.partition_epoch and _content(before) != _content(after):
        yield f"it changed, and its epoch {before.partition_epoch} did not grow"
    if after.partition_epoch == before.partition_epoch + 1:
        yield from _of_single_step(before, after, cause)


def _of_leader_epoch(before: PartitionState, after: PartitionState) -> Iterator[str]:
    was, now = before.leader_epoch, after.leader_epoch
    if was is not None and now is not None and now < was:
        yield f"leader epoch went back from {was} to {now}"


def _of_single_step(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    """Check the rules of one partition epoch to the next: they need that no change was missed between the two."""
    was, now = before.leader_epoch, after.leader_epoch
    if before.leader != after.leader and was is not None and was == now:
        yield f"the leader changed from {before.leader} to {after.leader} within the leader epoch {was}"
    if was is not None and now is not None and now > was + 1:
        yield f"leader epoch jumped from {was} to {now} in one change"
    # A reassignment may end with the election of a replica that joined the ISR in the same step.
    eligible = (NO_LEADER, before.leader, *before.isr, *before.elr, *before.adding_replicas)
    if after.leader not in eligible and cause not in _UNCLEAN:
        yield f"leader {after.leader} was elected from outside ISR and ELR without being called unclean"


def _content(state: PartitionState) -> tuple[object, ...]:
    return state.replicas, state.isr, state.leader
