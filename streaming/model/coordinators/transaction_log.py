"""Memory of a transaction coordinator, which it gets by reading and writing its partitions.

Knows no state machine: a value is replaced once its record is committed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from streaming.contracts.identifiers import TopicPartition, partition_for
from streaming.model.constants import Error
from streaming.model.storage.batch import Batch, Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.produce import Produce
    from streaming.model.messages.clients import ProducedPartition

# Answers to a client for a record that was not committed; anything else is COORDINATOR_NOT_AVAILABLE.
_ERROR_FOR_CLIENT: Final = {Error.NONE: Error.NONE, Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR}


class TransactionLog:
    """The led partitions of ``__transaction_state``."""

    def __init__(self, produce: Produce, timeout_ms: int) -> None:
        self._produce = produce
        self._timeout_ms = timeout_ms
        self._partitions = 0
        self._epochs: dict[int, int] = {}
        self._keys: dict[int, TopicPartition] = {}
        self._values: dict[int, dict[str, TransactionMetadata]] = {}
        self._pending: dict[int, set[str]] = {}

    def load(self, partition: LeaderPartition, partitions: int) -> dict[str, TransactionMetadata]:
        """Read a partition from its first record to its end; the last value of an id counts.

        Departs from Kafka: it takes no time, so there is no COORDINATOR_LOAD_IN_PROGRESS.
        """
        number = partition.key.partition
        self.unload(partition.key)
        newest = {
            transactional_id: cast("TransactionMetadata | None", value)
            for batch in partition.replica.log.batches
            for transactional_id, value in zip(batch.keys, batch.values, strict=True)
        }
        self._partitions = partitions
        self._pending[number] = set()
        self._keys[number] = partition.key
        self._epochs[number] = partition.committed.leader_epoch
        self._values[number] = {name: value for name, value in newest.items() if value is not None}
        return self._values[number]

    def unload(self, key: TopicPartition) -> list[str]:
        """Forget a partition that is led by another broker now, if it was loaded; give its ids."""
        number = key.partition
        if self._keys.get(number) != key:
            return []
        del self._keys[number]
        self._epochs.pop(number, None)
        self._pending.pop(number, None)
        return list(self._values.pop(number, ()))

    def is_loaded(self, number: int, leader_epoch: int) -> bool:
        """Return whether a partition was read in this leader epoch."""
        return self._epochs.get(number) == leader_epoch

    @property
    def is_empty(self) -> bool:
        """True if this broker coordinates nothing."""
        return not self._epochs

    def coordinator_epoch(self, transactional_id: str) -> int | None:
        """Give the leader epoch in which this broker coordinates an id; None if it does not."""
        return self._epochs.get(self._number_of(transactional_id))

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Give what is committed of an id that this broker coordinates; None for one that was never used."""
        return self._values.get(self._number_of(transactional_id), {}).get(transactional_id)

    def is_pending(self, transactional_id: str) -> bool:
        """Return whether a record of the id is on its way; nothing else may be done meanwhile."""
        return transactional_id in self._pending.get(self._number_of(transactional_id), ())

    def all(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Give everything this broker coordinates."""
        for values in self._values.values():
            yield from values.items()

    def replace(self, transactional_id: str, value: TransactionMetadata) -> None:
        """Set a value in memory only."""
        self._values[self._number_of(transactional_id)][transactional_id] = value

    def write(
        self, now: int, transactional_id: str, after: TransactionMetadata, then: Callable[[int, Error], None]
    ) -> None:
        """Write a value with ``acks=all``; it counts, and ``then`` is told, once it is committed."""
        number = self._number_of(transactional_id)
        epoch = self._epochs[number]
        self._pending[number].add(transactional_id)

        def appended(at: int, written: tuple[ProducedPartition, ...]) -> None:
            if self._epochs.get(number) != epoch:
                then(at, Error.NOT_COORDINATOR)
                return
            self._pending[number].remove(transactional_id)
            error = _ERROR_FOR_CLIENT.get(written[0].error, Error.COORDINATOR_NOT_AVAILABLE)
            if error is Error.NONE:
                self.replace(transactional_id, after)
            then(at, error)

        record = Batch(0, 1, keys=(transactional_id,), values=(after,))
        self._produce.append_in_sync(now, {self._keys[number]: record}, self._timeout_ms, appended)

    def _number_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._partitions) if self._partitions else -1


# A transaction as its coordinator writes it into ``__transaction_state``. Values and a table; no IO, no messages.


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


# States that may come before. Version 2 also aborts an empty transaction, to raise the epoch.
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
        """True if the epoch may be raised; after 32766 comes a new producer id."""
        return self.producer_epoch < LAST_EPOCH

    def is_timed_out(self, now: int) -> bool:
        """Return whether it has been open for too long."""
        return self.state is State.ONGOING and now - self.start_ms > self.timeout_ms


def step(before: TransactionMetadata, after: TransactionMetadata) -> TransactionMetadata:
    """Take a step of the table."""
    assert before.state in MAY_FOLLOW[after.state], f"{before.state.name} -> {after.state.name}"  # noqa: S101 - the caller has looked
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
    """A session begins in the next epoch; the producer of the epoch before is fenced."""
    return step(before, TransactionMetadata(before.producer_id, before.producer_epoch + 1, timeout_ms))


def with_new_id(before: TransactionMetadata | None, producer_id: int, timeout_ms: int) -> TransactionMetadata:
    """A session begins with a new producer id: the first one, or one after the last epoch."""
    after = TransactionMetadata(producer_id, 0, timeout_ms)
    return step(before, after) if before else after
