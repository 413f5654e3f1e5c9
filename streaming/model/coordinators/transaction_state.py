"""A transaction as its coordinator writes it into ``__transaction_state``. Values and a table; no IO, no messages."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.storage.batch import Marker

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition

LAST_EPOCH: Final = 32_766


class State(IntEnum):
    """``TransactionState``; the numbers stand in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


# What may come before. Version 2 also aborts what has nothing in it, to raise the epoch.
MAY_FOLLOW: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: frozenset(
        {State.ONGOING, State.PREPARE_EPOCH_FENCE, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
    State.DEAD: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
}

COMPLETION: Final = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
MARKER: Final = {State.PREPARE_COMMIT: Marker.COMMIT, State.PREPARE_ABORT: Marker.ABORT}


class TransactionMetadata(NamedTuple):
    """The value of one transactional id.

    Attributes:
        producer_epoch: newest epoch; older ones are fenced.
        previous_epoch: what the producer had before the last :func:`prepared`, by which its retry is recognised.
        partitions: what has been written, in the order it was added; empty unless the transaction is open.
        start_ms: when the first partition was added.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = -1
    previous_epoch: int = -1

    @property
    def has_epochs_left(self) -> bool:
        """Whether the epoch may be raised; after 32766 comes a new producer id."""
        return self.producer_epoch < LAST_EPOCH

    def is_timed_out(self, now: int) -> bool:
        """Return whether it has been open for too long."""
        return self.state is State.ONGOING and now - self.start_ms > self.timeout_ms


def step(before: TransactionMetadata, after: TransactionMetadata) -> TransactionMetadata:
    """Take a step of the table."""
    assert before.state in MAY_FOLLOW[after.state], f"{before.state.name} -> {after.state.name}"  # noqa: S101 - whoever asks has looked
    return after


def with_partitions(
    before: TransactionMetadata, partitions: tuple[TopicPartition, ...], now: int
) -> TransactionMetadata:
    """Open the transaction, or add to it."""
    is_open = before.state is State.ONGOING
    partitions_so_far = before.partitions if is_open else ()
    return step(
        before,
        before._replace(
            state=State.ONGOING,
            partitions=tuple(dict.fromkeys((*partitions_so_far, *partitions))),
            start_ms=before.start_ms if is_open else now,
            previous_epoch=before.previous_epoch if is_open else -1,
        ),
    )


def fenced(before: TransactionMetadata) -> TransactionMetadata:
    """Raise the epoch, so that its producer can do nothing any more; an abort follows."""
    return step(
        before,
        before._replace(state=State.PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch + 1, previous_epoch=-1),
    )


def prepared(before: TransactionMetadata, state: State, *, raises_epoch: bool) -> TransactionMetadata:
    """Decide. From version 2 on every decision raises the epoch, unless a fence has done so already.

    Departs from Kafka: when its epochs run out, a producer gets its new id by the next session, not by this answer.
    """
    after = before._replace(state=state)
    if raises_epoch and before.state is not State.PREPARE_EPOCH_FENCE:
        after = after._replace(producer_epoch=before.producer_epoch + 1, previous_epoch=before.producer_epoch)
    return step(before, after)


def completed(before: TransactionMetadata) -> TransactionMetadata:
    """Every partition has its marker."""
    return step(before, before._replace(state=COMPLETION[before.state], partitions=(), start_ms=-1))


def with_next_epoch(before: TransactionMetadata, timeout_ms: int) -> TransactionMetadata:
    """A session begins in the next epoch; whoever has the epoch before is fenced."""
    return step(before, TransactionMetadata(before.producer_id, before.producer_epoch + 1, timeout_ms))


def with_new_id(before: TransactionMetadata | None, producer_id: int, timeout_ms: int) -> TransactionMetadata:
    """A session begins with a new producer id: the first one, or one after the last epoch."""
    after = TransactionMetadata(producer_id, 0, timeout_ms)
    return step(before, after) if before else after
