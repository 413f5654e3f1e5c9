"""What outlives a broker's process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.membership import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerEpoch, TopicPartition
    from streaming.model.storage.replica import LocalReplica


class Disk:
    """Replicas, and the clean-shutdown file with the broker epoch of the last clean stop."""

    __slots__ = ("clean_shutdown_epoch", "replicas")

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, LocalReplica] = {}
        self.clean_shutdown_epoch: BrokerEpoch = NO_BROKER_EPOCH
