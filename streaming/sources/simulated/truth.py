"""The truth of a simulation: every step of every partition, from the model's states and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import BrokerId, Micros, TopicId

if TYPE_CHECKING:
    from streaming.contracts.events import Cause
    from streaming.model.messages.registrations import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """The truth about one step of one partition: its state afterwards, when, and why.

    For a deletion ``deleted`` is set and the state is the last one.
    """

    topic_id: TopicId
    topic: str
    partition: int
    partition_epoch: int
    leader_epoch: int
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    time: Micros
    cause: Cause
    deleted: bool = False


def traced(step: Transition, time: Micros) -> TraceEntry:
    """Tell one step of the model as an entry of the trace."""
    state = step.after or step.before
    assert state is not None  # noqa: S101 - a step has a state on one side at least
    return TraceEntry(
        topic_id=step.topic_partition.topic_id,
        topic=step.topic.topic,
        partition=step.topic_partition.partition,
        partition_epoch=state.partition_epoch,
        leader_epoch=state.leader_epoch,
        leader=state.leader,
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        time=time,
        cause=step.cause,
        deleted=step.after is None,
    )
