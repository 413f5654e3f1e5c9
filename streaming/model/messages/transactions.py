"""Transactions: producers, leaders and coordinators talk of them (apis 24, 26 and 27). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.errors import Error
    from streaming.model.messages.client_metadata import Header
    from streaming.model.storage.batch import Marker


class AddPartitionsToTxnRequest(NamedTuple):
    """These partitions are about to be written in a transaction.

    A producer asks before it writes; from transaction version 2 on the partition's leader does. ``verify_only``: a
    leader makes sure that the producer has asked (KIP-890).
    """

    header: Header
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


class AddPartitionsToTxnResponse(NamedTuple):
    """One verdict for each partition."""

    correlation_id: int
    errors: tuple[tuple[TopicPartition, Error], ...]


class EndTxnRequest(NamedTuple):
    """Producer commits or aborts."""

    header: Header
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(NamedTuple):
    """The decision is in the coordinator's log. The identity is the one to go on with (version 2)."""

    correlation_id: int
    error: Error
    producer_id: int = -1
    producer_epoch: int = -1


class WriteTxnMarkersRequest(NamedTuple):
    """Coordinator tells a leader how a transaction ended."""

    header: Header
    producer_id: int
    producer_epoch: int
    marker: Marker
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


class WriteTxnMarkersResponse(NamedTuple):
    """One verdict for each partition: NONE once everybody in sync has the marker."""

    correlation_id: int
    errors: tuple[tuple[TopicPartition, Error], ...]


class TransactionTimeoutsDue(NamedTuple):
    """Timer: a coordinator looks for transactions that were open too long."""


class MarkersDue(NamedTuple):
    """Timer: markers that were not written are sent again; void for a later transaction."""

    transactional_id: str
    producer_epoch: int
