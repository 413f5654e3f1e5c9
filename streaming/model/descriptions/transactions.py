"""What an observer is told of transactions who asks every coordinator and every leader (KIP-664). Costs nothing before.

A transaction hangs when a partition has it open and no coordinator knows of it: nothing will ever end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.coordinators.transaction_state import State, TransactionMetadata

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.cluster import Cluster

# What of a transaction is of interest: it is open, or its end is not written everywhere yet.
_UNDECIDED: Final = frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE})
_HANGING_AFTER_MS: Final = 10_000  # a marker that is on its way is no hanging transaction


class Undecided(NamedTuple):
    """A transaction that its coordinator has not ended yet."""

    transactional_id: str
    metadata: TransactionMetadata
    coordinator: BrokerId


class Hanging(NamedTuple):
    """A transaction that nobody will end: the producer's epoch, and where it is open."""

    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def undecided(cluster: Cluster) -> dict[int, Undecided]:
    """Give what coordinators have open, by producer id."""
    return {
        metadata.producer_id: Undecided(transactional_id, metadata, broker.broker)
        for broker in cluster.reachable()
        for transactional_id, metadata in broker.apis.transactions.transactions()
        if metadata.state in _UNDECIDED
    }


def hanging(cluster: Cluster) -> dict[int, Hanging]:
    """Give what leaders have had open for a while and no coordinator knows, by producer id."""
    undecided_ids = undecided(cluster)
    by_producer: dict[int, Hanging] = {}
    for broker in cluster.reachable():
        for led in broker.led_partitions():
            for producer_id, entry in led.replica.log.producers.open_transactions():
                if producer_id not in undecided_ids and cluster.now - entry.last_ms > _HANGING_AFTER_MS:
                    before = by_producer.get(producer_id, Hanging(entry.epoch, ()))
                    by_producer[producer_id] = before._replace(partitions=(*before.partitions, led.key))
    return by_producer
