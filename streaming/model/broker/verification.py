"""A leader asks the coordinator before it lets a transaction begin in its partition (KIP-890).

Without it a write that comes late, after its transaction has ended, begins a transaction that nobody ever ends: the
last stable offset stands still (a hanging transaction). In transaction version 2 the same question adds the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.model.errors import Error
from streaming.model.messages.client_metadata import TRANSACTION_STATE, CoordinatorKey
from streaming.model.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.broker.metadata_cache import MetadataCache
    from streaming.model.constants import Constants
    from streaming.model.network_client import NetworkClient
    from streaming.model.storage.batch import Batch

# What a producer is told: it tries again, or it learns that its epoch is over.
_ERROR_FOR_PRODUCER: Final = {
    Error.NOT_COORDINATOR: Error.NOT_ENOUGH_REPLICAS,
    Error.COORDINATOR_LOAD_IN_PROGRESS: Error.NOT_ENOUGH_REPLICAS,
    Error.COORDINATOR_NOT_AVAILABLE: Error.NOT_ENOUGH_REPLICAS,
    Error.PRODUCER_FENCED: Error.INVALID_PRODUCER_EPOCH,
}


class _Producer(NamedTuple):
    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int


class Verification:
    """Questions on their way to coordinators.

    A guard stands from the question until the transaction begins here; a marker takes it away, so that an answer from
    before the marker opens nothing after it.
    """

    def __init__(
        self, leadership: Leadership, metadata_cache: MetadataCache, constants: Constants, network: NetworkClient
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {AddPartitionsToTxnResponse: network.answered}
        self._leadership = leadership
        self._metadata_cache = metadata_cache
        self._adds = constants.leaders_add_partitions
        self._is_on = self._adds or constants.switches.transaction_verification
        self._network = network
        self._lowest_sequence: dict[_Producer, int] = {}

    def verify(
        self,
        now: int,
        transactional_id: str,
        batches: Mapping[TopicPartition, Batch],
        then: Callable[[int, Mapping[TopicPartition, Error]], None],
    ) -> None:
        """Call ``then(now, errors)`` once the coordinator knows of every partition that begins a transaction."""
        unknown = {key: batch for key, batch in batches.items() if self._is_on and self._begins(key, batch)}
        if not unknown:
            then(now, {})
            return
        coordinator = self._metadata_cache.coordinator_of(CoordinatorKey(TRANSACTION_STATE, transactional_id))
        if coordinator is None:
            then(now, dict.fromkeys(unknown, Error.NOT_ENOUGH_REPLICAS))
            return
        for key, batch in unknown.items():
            guard = _Producer(key, batch.producer_id, batch.producer_epoch)
            lowest = self._lowest_sequence.get(guard, batch.base_sequence)
            self._lowest_sequence[guard] = min(lowest, batch.base_sequence)
        first = next(iter(unknown.values()))
        question = AddPartitionsToTxnRequest(
            self._network.header(),
            transactional_id,
            first.producer_id,
            first.producer_epoch,
            tuple(unknown),
            verify_only=not self._adds,
        )
        self._network.send(coordinator, question, lambda at, answer: then(at, self._errors(unknown, answer)))

    def _begins(self, key: TopicPartition, batch: Batch) -> bool:
        partition = self._leadership.led.get(key)
        if partition is None:
            return False
        entry = partition.replica.log.producers.entries.get(batch.producer_id)
        return entry is None or entry.open_since is None or entry.epoch != batch.producer_epoch

    def _errors(
        self, asked: Mapping[TopicPartition, Batch], response: AddPartitionsToTxnResponse | None
    ) -> dict[TopicPartition, Error]:
        if response is None:
            return dict.fromkeys(asked, Error.NOT_ENOUGH_REPLICAS)
        errors = {key: _ERROR_FOR_PRODUCER.get(error, error) for key, error in response.errors}
        for key, batch in asked.items():
            if errors[key] is Error.NONE and self._begins(key, batch):
                errors[key] = self._guarded(_Producer(key, batch.producer_id, batch.producer_epoch), batch)
        return {key: error for key, error in errors.items() if error is not Error.NONE}

    def _guarded(self, guard: _Producer, batch: Batch) -> Error:
        lowest = self._lowest_sequence.get(guard)
        if lowest is None:
            return Error.INVALID_TXN_STATE
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence > lowest else Error.NONE

    def written(self, key: TopicPartition, batch: Batch) -> None:
        """A batch began a transaction here, or a marker ended one: whatever was asked about it is settled."""
        if batch.marker is None:
            self._lowest_sequence.pop(_Producer(key, batch.producer_id, batch.producer_epoch), None)
        else:
            for guard in [guard for guard in self._lowest_sequence if guard[:2] == (key, batch.producer_id)]:
                del self._lowest_sequence[guard]
