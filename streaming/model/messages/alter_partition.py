"""A leader proposes ISRs to the controller (api 56, KIP-497). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RECOVERED

if TYPE_CHECKING:
    from streaming.contracts.events import Cause
    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
    from streaming.model.errors import Error
    from streaming.model.registrations import PartitionRegistration

ANY_BROKER_EPOCH: Final = -1


class AlterPartitionItem(NamedTuple):
    """A proposed ISR. ``isr`` carries each member's broker epoch, or ``ANY_BROKER_EPOCH`` (KIP-903).

    ``leader_recovery_state``: with its first proposal a leader tells that it has recovered from an unclean election.

    ``cause`` is a ghost: the leader's true reason, which the protocol does not carry.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    cause: Cause
    leader_recovery_state: int = RECOVERED


class AlterPartitionRequest(NamedTuple):
    """Every proposal that a leader has ready; it keeps one such request in flight (KIP-497)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[AlterPartitionItem, ...]


class AlteredPartition(NamedTuple):
    """The controller's verdict on one proposal, and its own view."""

    topic_partition: TopicPartition
    error: Error
    registration: PartitionRegistration | None = None


class AlterPartitionResponse(NamedTuple):
    """The verdicts; ``error`` is set when the whole request was refused."""

    error: Error
    partitions: tuple[AlteredPartition, ...] = ()
