"""ISR proposals on their way to the controller (``AlterPartitionManager``): one request in flight per broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.errors import Error
from streaming.model.messages.alter_partition import (
    ANY_BROKER_EPOCH,
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.timers import AlterPartitionDue
from streaming.model.storage.disk import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.leader import IsrProposal, LeaderPartition
    from streaming.model.constants import Constants
    from streaming.model.registrations import PartitionRegistration

# These prove that nothing was applied.
_NOT_APPLIED: Final = frozenset({Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED})
# The truth differs from what the leader believes: it keeps waiting for the metadata log to tell it.
_AWAIT_METADATA: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_ID,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
        Error.NEW_LEADER_ELECTED,
    }
)


class IsrProposals:
    """Proposals waiting or in flight, and the meters they move.

    Args:
        broker: the leader.
        constants: how long to wait after a request that failed as a whole, and what a proposal names.
        led: the partitions it leads; a proposal is void once its partition has moved on.
        committed: told of every partition whose ISR the controller accepted.
        channel: where requests go.
    """

    def __init__(
        self,
        broker: BrokerId,
        constants: Constants,
        led: dict[TopicPartition, LeaderPartition],
        committed: Callable[[int, LeaderPartition], None],
        channel: ControllerChannel,
    ) -> None:
        self.broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
        self.ask = self._ask_controller
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self._broker = broker
        self._retry_ms = constants.alter_partition_retry_ms
        self._names_broker_epochs = constants.switches.broker_epoch_check
        self._led = led
        self._committed = committed
        self._channel = channel
        self._waiting: dict[TopicPartition, IsrProposal] = {}
        self._in_flight: dict[TopicPartition, IsrProposal] = {}
        self._is_backing_off = False

    def propose(self, partition: LeaderPartition, proposal: IsrProposal) -> None:
        """Leader wants another ISR. Enabled while nothing is pending for the partition."""
        assert partition.pending is None, f"a second proposal for {partition.key}"  # noqa: S101 - one in flight
        partition.pending = proposal
        self._waiting[partition.key] = proposal

    def of(self, key: TopicPartition) -> list[IsrProposal]:
        """Give what waits or is in flight for a partition; proposals of a former leader epoch among it."""
        return [queue[key] for queue in (self._waiting, self._in_flight) if key in queue]

    def send(self) -> None:
        """Send what waits, unless a request is in flight or has just failed. Called after every input."""
        if self._in_flight or self._is_backing_off or not self._waiting:
            return
        self._in_flight = {key: proposal for key, proposal in self._waiting.items() if self._is_current(key, proposal)}
        self._waiting = {}
        if self._in_flight:
            items = tuple(self._item(self._led[key], proposal) for key, proposal in self._in_flight.items())
            self.ask(items)

    def _ask_controller(self, items: tuple[AlterPartitionItem, ...]) -> None:
        self._channel.send(AlterPartitionRequest(self._broker, self.broker_epoch, items))

    def lost(self) -> None:
        """Whoever was asked will not answer, and nobody knows whether it did what it was asked."""
        sent, self._in_flight = self._in_flight, {}
        if sent:
            self._resend(sent)

    def retry(self) -> None:
        """The wait after a failure is over."""
        self._is_backing_off = False

    def _is_current(self, key: TopicPartition, proposal: IsrProposal) -> bool:
        partition = self._led.get(key)
        # The same proposal, not an equal one: one of an earlier leader epoch must not be sent in this one.
        return partition is not None and partition.pending is proposal

    def _item(self, partition: LeaderPartition, proposal: IsrProposal) -> AlterPartitionItem:
        def epoch_of(member: BrokerId) -> int:
            if not self._names_broker_epochs:
                return ANY_BROKER_EPOCH
            if member == self._broker:
                return self.broker_epoch
            epoch = partition.remotes[member].broker_epoch
            return ANY_BROKER_EPOCH if epoch is None else epoch

        return AlterPartitionItem(
            partition.key,
            partition.committed.leader_epoch,
            partition.committed.partition_epoch,
            tuple((member, epoch_of(member)) for member in sorted(proposal.isr)),  # to Kafka it is a set
            proposal.cause,
        )

    def answered(self, now: int, response: AlterPartitionResponse) -> None:
        """Controller's verdicts arrive."""
        sent, self._in_flight = self._in_flight, {}
        if response.error is not Error.NONE:
            self.failed_isr_updates += len(sent)
            self._resend(sent)
            return
        for altered in response.partitions:
            key = altered.topic_partition
            if key in sent and self._is_current(key, sent[key]):  # else it was asked again meanwhile
                self._settle(now, self._led[key], sent[key], altered)

    def _settle(self, now: int, partition: LeaderPartition, proposal: IsrProposal, altered: AlteredPartition) -> None:
        registration = altered.registration
        if altered.error is Error.NONE and registration is not None:
            self._accept(now, partition, proposal, registration)
            return
        self.failed_isr_updates += 1
        if altered.error in _NOT_APPLIED:
            partition.pending = None  # back to the committed ISR
        elif altered.error not in _AWAIT_METADATA:
            self._resend({partition.key: proposal})

    def _accept(
        self, now: int, partition: LeaderPartition, proposal: IsrProposal, registration: PartitionRegistration
    ) -> None:
        committed = partition.committed
        is_newer = registration.partition_epoch >= committed.partition_epoch
        if registration.leader_epoch != committed.leader_epoch or not is_newer:
            return
        if len(proposal.isr) > len(committed.isr):
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
        partition.accept(registration)
        self._committed(now, partition)

    def _resend(self, proposals: dict[TopicPartition, IsrProposal]) -> None:
        self._waiting |= proposals
        self._is_backing_off = True
        self._channel.outbox.after(self._retry_ms, AlterPartitionDue())
