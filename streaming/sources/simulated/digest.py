"""The steps of one batch of the model, as those of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.movements import MovedPartition, StepShape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.controller.metadata_writer import Commit
    from streaming.model.messages.registrations import Transition


def steps_of(commit: Commit) -> Iterator[MovedPartition]:
    """Return the steps of a batch, in its order."""
    for step in commit.transitions:
        before, after = step.before, step.after
        yield MovedPartition(
            f"{step.topic.topic}-{step.topic_partition.partition}",
            _shape(step),
            leader_moved=bool(before and after and before.leader != after.leader),
            offline=bool(before and after and after.leader == NO_LEADER != before.leader),
        )


def _shape(step: Transition) -> StepShape:
    before, after, cause = step.before, step.after, str(step.cause)
    if not before or not after:
        return StepShape(cause, created=before is None, deleted=after is None)
    return StepShape(
        cause,
        left=_without(before.isr, after.isr),
        joined=_without(after.isr, before.isr),
        ineligible=_without(before.elr, (*after.elr, *after.isr)),
    )


def _without(members: tuple[BrokerId, ...], others: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return tuple(member for member in members if member not in others)
