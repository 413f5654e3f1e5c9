"""The step of one partition: is it news, what happened in it, and what its totals become.

Order: ``(partition_epoch, metadata offset, index)`` where the metadata log tells it, else the time of the poll.
Durations are told from ``occurred_not_after`` alone, never from the moment of processing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.state import PartitionState
from streaming.contracts import health
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import Authority

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.observations import CauseRevised, PartitionObserved

SECOND: Final = 1_000_000
_SEEN_BY_ALL: Final = ("replicas", "isr", "leader")
_SEEN_IN_THE_LOG: Final = (
    *_SEEN_BY_ALL,
    "elr",
    "last_known_elr",
    "adding_replicas",
    "removing_replicas",
    "leader_recovering",
)


def _told_by(observed: PartitionObserved) -> tuple[str, ...]:
    """Name the fields that a source can see: what a poll does not tell is not cleared by it."""
    return _SEEN_BY_ALL if observed.authority is Authority.POLL else _SEEN_IN_THE_LOG


def is_news(before: PartitionState, observed: PartitionObserved) -> bool:
    """Tell whether an observation is newer than the state and differs from it."""
    if before.is_deleted:
        return _is_later(before, observed)
    if observed.partition_epoch is None or before.partition_epoch is None:
        return _is_later(before, observed) and not _same_content(before, observed)
    if observed.partition_epoch != before.partition_epoch:
        return observed.partition_epoch > before.partition_epoch
    return _is_later(before, observed) and not _same_content(before, observed)


def is_repeated(state: PartitionState, observed: PartitionObserved) -> bool:
    """Tell whether an observation says what is true already, and cannot be news until the state changes."""
    return not state.is_deleted and _same_content(state, observed) and not is_news(state, observed)


def is_proof(before: PartitionState, observed: CauseRevised) -> bool:
    """Tell whether the proof of a cause is newer than the state, which the log must have told."""
    if before.is_deleted or before.metadata_offset is None:
        return False
    return (observed.metadata_offset, observed.metadata_index) > (before.metadata_offset, before.metadata_index)


def _is_later(before: PartitionState, observed: PartitionObserved) -> bool:
    if observed.metadata_offset is not None and before.metadata_offset is not None:
        return (observed.metadata_offset, observed.metadata_index) > (before.metadata_offset, before.metadata_index)
    if (observed.leader_epoch or 0) < (before.leader_epoch or 0) and observed.leader_epoch is not None:
        return False
    at, known = observed.occurred_not_after, before.changed_at
    # Two polls may bear one time where a clock was set back; what is gone comes back only later.
    return known is None or at > known or (at == known and not before.is_deleted)


def _same_content(before: PartitionState, observed: PartitionObserved) -> bool:
    if observed.leader_epoch is not None and observed.leader_epoch != before.leader_epoch:
        return False  # it was elected between, and came back; from now on older epochs are stale
    return all(getattr(before, name) == getattr(observed, name) for name in _told_by(observed))


def missed_between(before: PartitionState | None, observed: PartitionObserved) -> int:
    """Count the changes between a state and an observation that nobody saw: epochs grow by one a change (KIP-631)."""
    if observed.partition_epoch is None:
        return 0
    if before is None or before.is_deleted:
        return observed.partition_epoch
    if before.partition_epoch is None:
        return 0
    return max(0, observed.partition_epoch - before.partition_epoch - 1)


def first_sight(observed: PartitionObserved, min_isr: int | None) -> PartitionState:
    """Make the state of a partition that was not known."""
    state = PartitionState(
        cluster_id=observed.cluster_id,
        topic_id=observed.topic_id,
        topic=observed.topic,
        partition=observed.partition,
        leader_epoch=observed.leader_epoch,
        **_told(observed),
    )
    return with_health(state, min_isr, observed.occurred_not_after)


def next_state(before: PartitionState, observed: PartitionObserved, min_isr: int | None) -> PartitionState:
    """Take over what was observed; health, sinces and durations follow. Totals are counted by ``counted``."""
    epoch = observed.leader_epoch if observed.leader_epoch is not None else before.leader_epoch
    state = replace(before, **_told(observed), leader_epoch=epoch, is_deleted=False)
    return with_health(state, min_isr, observed.occurred_not_after)


def _told(observed: PartitionObserved) -> dict[str, Any]:
    """Give what an observation says of the state, but for its leader epoch, which a poll may not know."""
    names = ("cluster", "partition_epoch", "metadata_offset", "metadata_index", *_told_by(observed))
    return {name: getattr(observed, name) for name in names}


def with_health(state: PartitionState, min_isr: int | None, at: Micros) -> PartitionState:
    """Derive the health of a state at a moment: episodes begin or end then."""
    effective = health.effective_min_isr(min_isr, state.replicas)
    is_offline = health.is_offline(state.leader) and not state.is_deleted
    is_under = health.is_under_replicated(state.replicas, state.isr, state.adding_replicas) and not state.is_deleted
    is_under_min = False if state.is_deleted else health.is_under_min_isr(effective, state.isr)
    offline = _episode(state.offline_since, state.offline_seconds, is_offline, at)
    under = _episode(state.under_replicated_since, state.under_replicated_seconds, is_under, at)
    under_min = _episode(state.under_min_isr_since, state.under_min_isr_seconds, bool(is_under_min), at)
    return replace(
        state,
        min_isr_configured=min_isr,
        min_isr_effective=effective,
        is_offline=is_offline,
        is_under_replicated=is_under,
        is_under_min_isr=is_under_min,
        is_at_min_isr=False if state.is_deleted else health.is_at_min_isr(effective, state.isr),
        is_off_preferred_leader=health.is_off_preferred_leader(state.replicas, state.leader),
        offline_since=offline[0],
        offline_seconds=offline[1],
        under_replicated_since=under[0],
        under_replicated_seconds=under[1],
        under_min_isr_since=under_min[0],
        under_min_isr_seconds=under_min[1],
        changed_at=at,
    )


def _episode(since: Micros | None, seconds: float, is_open: bool, at: Micros) -> tuple[Micros | None, float]:  # noqa: FBT001 - called by position, thrice
    if is_open:
        return (at if since is None else since), seconds
    return None, seconds if since is None else seconds + max(0, at - since) / SECOND


def out_of_sight(before: PartitionState, last_seen: Micros, seen_again: Micros) -> PartitionState:
    """Close the episodes where sight was lost: what came between is unknown, neither healthy nor not."""
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
    return replace(before, **fields, unknown_seconds=unknown)  # type: ignore[arg-type]


def deleted(before: PartitionState, at: Micros, offset: int | None) -> PartitionState:
    """Make a tombstone: nothing of a deleted partition is unhealthy, its totals stay."""
    gone = replace(
        before,
        is_deleted=True,
        isr=(),
        elr=(),
        last_known_elr=(),
        leader=NO_LEADER,
        metadata_offset=offset if offset is not None else before.metadata_offset,
        metadata_index=0,
    )
    return with_health(gone, before.min_isr_configured, at)
