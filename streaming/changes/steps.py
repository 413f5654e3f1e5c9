"""The steps of a partition, written into a draft: it appeared, changed, vanished, or its minimum became another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from streaming.changes import partitions
from streaming.changes.change import Change, Subject
from streaming.changes.happened import counted, happenings, left_isr, named
from streaming.changes.min_isr import configured_min_isr
from streaming.changes.protocol import violations
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.observations import Observation
from streaming.contracts.totals import TOTALS

if TYPE_CHECKING:
    from streaming.changes.draft import Draft
    from streaming.changes.happened import Happening
    from streaming.changes.state import ClusterState, PartitionState
    from streaming.contracts.identifiers import Micros, TopicId
    from streaming.contracts.observations import CauseRevised, ConfigObserved, PartitionObserved

Seen = TypeVar("Seen", bound=Observation)


def appeared(before: PartitionState | None, observed: PartitionObserved, draft: Draft) -> None:
    """Take a partition over that was not known, or came back: created, or first seen."""
    minimum = configured_min_isr(draft.min_isr, observed.cluster_id, observed.topic)
    after = partitions.first_sight(observed, minimum)
    observed = _since_last_sight(observed, draft)
    is_baseline = observed.in_snapshot and not draft.cluster(observed).has_baseline
    missed = 0 if is_baseline else partitions.missed_between(None, observed)
    cause, evidence = (observed.cause, observed.evidence) if observed.cause else (None, None)
    if not is_baseline and cause is None:
        cause, evidence = Cause.CREATED, Evidence.INFERRED
    after = replace(after, missed_changes=missed, **_why(cause, evidence, observed))
    if before is not None:
        after = replace(after, **{name: getattr(before, name) + getattr(after, name) for name in TOTALS})
        after = replace(after, change_number=before.change_number + 1)
    happened: list[Happening] = [] if is_baseline else [(EventKind.TOPIC_CREATED, None, None)]
    if missed:
        happened.append((EventKind.CHANGES_MISSED, None, f"{missed} changes were not seen"))
    if not is_baseline:
        happened += [(EventKind.PROTOCOL_VIOLATION, None, sentence) for sentence in violations(None, after, cause)]
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            is_baseline=is_baseline,
            cause=cause,
            evidence=evidence,
            candidates=observed.candidates,
            missed=missed,
            events=named(_identity(after), iter(happened)),
            before=before,
            after=after,
        )
    )


def stepped(before: PartitionState, observed: PartitionObserved, draft: Draft) -> None:
    """Take one accepted change of a known partition over."""
    missed = partitions.missed_between(before, observed)
    was, seen = before, _last_sight(draft.cluster(observed), observed, missed)
    if seen is not None:
        was = partitions.out_of_sight(before, seen, observed.occurred_not_after)
        observed = replace(observed, occurred_not_before=min(seen, observed.occurred_not_before))
    minimum = configured_min_isr(draft.min_isr, observed.cluster_id, observed.topic)
    after = partitions.next_state(was, observed, minimum)
    cause, evidence = observed.cause, observed.evidence
    if cause is None:
        cause, evidence = Cause.UNKNOWN, Evidence.INFERRED
    after = counted(before, after, cause, missed)
    left, joined = left_isr(before, after), left_isr(after, before)
    if left or joined or before.leader != after.leader:
        after = replace(after, **_why(cause, evidence, observed))
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=cause,
            evidence=evidence,
            candidates=observed.candidates,
            missed=missed,
            left_isr=left,
            joined_isr=joined,
            events=named(_identity(after), happenings(before, after, cause, missed)),
            before=before,
            after=after,
        )
    )


def _last_sight(cluster: ClusterState, observed: PartitionObserved, missed: int) -> Micros | None:
    """Give the moment up to which a partition was in sight, None where it was in sight all the time.

    Epochs tell whether something was missed. Where a source sees none, a snapshot after lost sight tells.
    """
    if missed:
        return cluster.authority_watermark if cluster.sight_until is None else cluster.sight_until
    return cluster.sight_until if observed.partition_epoch is None else None


def _since_last_sight(observed: Seen, draft: Draft) -> Seen:
    """Widen the window of what a snapshot after lost sight tells: it can have happened at any moment since."""
    seen = draft.cluster(observed).sight_until
    return observed if seen is None else replace(observed, occurred_not_before=min(seen, observed.occurred_not_before))


def vanished(before: PartitionState, observed: Observation, evidence: Evidence, draft: Draft) -> None:
    """Make a tombstone of a partition that does not exist any more."""
    observed = _since_last_sight(observed, draft)
    offset = getattr(observed, "metadata_offset", None)
    after = partitions.deleted(before, observed.occurred_not_after, offset)
    after = replace(after, change_number=before.change_number + 1, **_why(Cause.DELETED, evidence, observed))
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=Cause.DELETED,
            evidence=evidence,
            events=named(_identity(after), iter([(EventKind.TOPIC_DELETED, None, None)])),
            before=before,
            after=after,
        )
    )


def revised(before: PartitionState, observed: CauseRevised, draft: Draft) -> None:
    """Tell that the cause of an earlier step is proven; nothing that was counted by cause is counted anew."""
    was = before.last_cause if before.last_cause_offset == observed.revised_offset else "another cause"
    after = replace(
        before,
        change_number=before.change_number + 1,
        metadata_offset=observed.metadata_offset,
        metadata_index=observed.metadata_index,
    )
    if before.last_cause_offset == observed.revised_offset:
        after = replace(after, last_cause=observed.cause, last_evidence=observed.evidence)
    detail = f"the change at offset {observed.revised_offset}: {was} to {observed.cause}"
    happened: list[Happening] = [(EventKind.CAUSE_REVISED, None, detail)]
    draft.put_partition(after)
    draft.changes.append(
        Change(
            subject=Subject.PARTITION,
            observation=observed,
            cause=observed.cause,
            evidence=observed.evidence,
            events=named(_identity(after), iter(happened)),
            before=before,
            after=after,
        )
    )


def _why(cause: Cause | None, evidence: Evidence | None, observed: Observation) -> dict[str, Any]:
    """Give the columns that tell of the last ISR or leader change."""
    offset = getattr(observed, "metadata_offset", None)
    return {"last_cause": cause, "last_evidence": evidence, "last_cause_offset": offset}


def reconfigured(topic_id: TopicId, observed: ConfigObserved, draft: Draft) -> None:
    """Take a new minimum over into every partition of a topic; nothing where it stays the same."""
    for before in draft.partitions_of(observed.cluster_id, topic_id):
        minimum = configured_min_isr(draft.min_isr, before.cluster_id, before.topic)
        if before.is_deleted or minimum == before.min_isr_configured:
            continue
        after = partitions.with_health(before, minimum, _in_sight(before, observed, draft))
        after = replace(after, change_number=before.change_number + 1, changed_at=before.changed_at)
        draft.put_partition(after)
        draft.changes.append(
            Change(
                subject=Subject.PARTITION,
                observation=observed,
                cause=Cause.CONFIG,
                evidence=Evidence.PROVEN,
                is_baseline=before.min_isr_configured is None,
                events=()
                if before.min_isr_configured is None
                else named(_identity(after), happenings(before, after, Cause.CONFIG, 0)),
                before=before,
                after=after,
            )
        )


def _in_sight(before: PartitionState, observed: ConfigObserved, draft: Draft) -> Micros:
    """Give the moment from which a minimum counts: nobody has seen the partition later than its authority told.

    A broker that is asked for its configuration may answer minutes after that, or tell what held before the partition
    came to be as it is.
    """
    seen = draft.cluster(observed).authority_watermark
    at = observed.occurred_not_after if seen is None else min(observed.occurred_not_after, seen)
    return at if before.changed_at is None else max(at, before.changed_at)


def _identity(after: PartitionState) -> str:
    return f"{after.cluster_id}/{after.topic_id}/{after.partition}/{after.change_number}"
