"""What the controller does to existing partitions: ISR changes and elections (``ReplicationControlManager``)."""

from __future__ import annotations

from typing import Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId
from streaming.model.controller import alter_partition
from streaming.model.controller.election import Mode
from streaming.model.controller.metadata_writer import How, MetadataWriter
from streaming.model.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.errors import Error
from streaming.model.messages.outbox import Outbox

_MAX_ELECTIONS_A_PASS: Final = 1_000


class Replication:
    """The steps of partitions that leaders ask for, or that time brings."""

    def __init__(self, writer: MetadataWriter, outbox: Outbox) -> None:
        self._outbox = outbox
        self._writer = writer
        self._registry = writer.registry

    def alter_partition(self, now: int, request: AlterPartitionRequest) -> None:
        """Leader proposes ISRs. Each is checked on its own; those accepted share one batch."""
        registration = self._registry.brokers.get(request.broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self._outbox.send(request.broker, AlterPartitionResponse(Error.STALE_BROKER_EPOCH))
            return
        verdicts = tuple(self._alter(request.broker, item) for item in request.partitions)
        # The answer leaves before the metadata that tells the same: the leader counts its own change.
        self._outbox.send(request.broker, AlterPartitionResponse(Error.NONE, verdicts))
        self._writer.commit(now)

    def _alter(self, sender: BrokerId, item: AlterPartitionItem) -> AlteredPartition:
        key = item.topic_partition
        partition = self._registry.partitions.get(key)
        if partition is None:
            return AlteredPartition(key, Error.UNKNOWN_TOPIC_ID)
        error = alter_partition.verdict(alter_partition.Proposal(sender, item, partition, self._registry.brokers))
        if error is Error.NONE:
            self._writer.change(key, (broker for broker, _ in item.isr), item.cause, How(recovered=True))
        return AlteredPartition(key, error, self._registry.partitions[key])

    def rebalance_leaders(self, now: int) -> None:
        """Controller, periodically: elect the preferred leader wherever somebody else leads and it may."""
        for key in list(self._registry.off_preferred_leader)[:_MAX_ELECTIONS_A_PASS]:
            isr = self._registry.partitions[key].isr
            self._writer.change(key, isr, Cause.PREFERRED_ELECTION, How(mode=Mode.PREFERRED))
        self._writer.commit(now)
