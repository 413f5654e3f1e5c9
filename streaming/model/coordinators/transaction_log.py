"""What a coordinator of transactions knows, and how it comes to know it: by reading and writing its partitions.

Knows no state machine: a value is replaced once its record is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from streaming.contracts.identifiers import TopicPartition
from streaming.contracts.partition_for import partition_for
from streaming.model.errors import Error
from streaming.model.storage.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.produce import Produce
    from streaming.model.coordinators.transaction_state import TransactionMetadata
    from streaming.model.messages.produce import ProducedPartition

# What a client is told of a record that was not committed; anything else is COORDINATOR_NOT_AVAILABLE.
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
        """Whether this broker coordinates nothing."""
        return not self._epochs

    def coordinator_epoch(self, transactional_id: str) -> int | None:
        """Give the leader epoch in which this broker coordinates an id; None if it does not."""
        return self._epochs.get(self._number_of(transactional_id))

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Give what is committed of an id that this broker coordinates; None for one nobody has used."""
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
