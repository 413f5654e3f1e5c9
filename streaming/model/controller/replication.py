"""Changes of existing partitions by the controller: ISRs, elections, reassignments (``ReplicationControlManager``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicPartition
from streaming.contracts.records import RECOVERED
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller import alter_partition, change
from streaming.model.controller.change import Mode
from streaming.model.controller.metadata_writer import MetadataWriter, StepOptions
from streaming.model.controller.placement import check_replicas
from streaming.model.messages.network import Outbox
from streaming.model.messages.registrations import PartitionRegistration
from streaming.model.messages.replication import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.model.constants import Constants
    from streaming.model.controller.change import Assignment

_MAX_ELECTIONS_A_BATCH: Final = 1_000

# Elections on request: whether one is needed, why it happens, what to answer if no replica can be elected.
_ADMINISTRATORS_ELECTION: Final[dict[Mode, tuple[Callable[[PartitionRegistration], bool], Cause, Error]]] = {
    Mode.PREFERRED: (
        lambda partition: partition.leader != partition.replicas[0],
        Cause.PREFERRED_ELECTION,
        Error.PREFERRED_LEADER_NOT_AVAILABLE,
    ),
    Mode.UNCLEAN: (
        lambda partition: partition.leader == NO_LEADER,
        Cause.UNCLEAN_ELECTION,
        Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ),
}


class Replication:
    """The steps of partitions that leaders and administrators ask for, or that time brings."""

    def __init__(self, constants: Constants, writer: MetadataWriter, outbox: Outbox) -> None:
        self._switches = constants.switches
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
        proposal = alter_partition.Proposal(sender, item, partition, self._registry.brokers, self._switches)
        error = alter_partition.verdict(proposal)
        if error is not Error.NONE:
            return AlteredPartition(key, error, partition)
        recovered = item.leader_recovery_state == RECOVERED
        self._writer.change(key, (broker for broker, _ in item.isr), item.cause, StepOptions(recovered=recovered))
        after = self._registry.partitions[key]
        # The new ISR may complete a reassignment that takes the leader itself away.
        error = Error.NONE if after.leader == sender else Error.NEW_LEADER_ELECTED
        return AlteredPartition(key, error, after)

    # -------------------------------------------------------------- elections

    def elect_leaders(self, now: int, mode: Mode, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Error]:
        """Administrator asks for the preferred leaders, or for any leader at all (``UNCLEAN``); KIP-460."""
        errors = {key: self._elect(key, mode) for key in partitions}
        self._writer.commit(now)
        return errors

    def _elect(self, key: TopicPartition, mode: Mode) -> Error:
        partition = self._registry.partitions.get(key)
        if partition is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        needed, cause, failure = _ADMINISTRATORS_ELECTION[mode]
        if not needed(partition):
            return Error.ELECTION_NOT_NEEDED
        return Error.NONE if self._writer.change(key, partition.isr, cause, StepOptions(mode=mode)) else failure

    def elect_uncleanly(self, now: int) -> None:
        """Controller, each five minutes: give leaderless partitions a leader, where their topic puts up with loss."""
        for key in list(self._registry.leaderless):
            if self._registry.topics[key.topic_id].unclean:
                self._elect(key, Mode.UNCLEAN)
        self._writer.commit(now)

    def rebalance_leaders(self, now: int) -> None:
        """Controller, periodically: elect the preferred leader wherever another replica leads and it may."""
        changes = 0
        for key in list(self._registry.off_preferred_leader):
            changes += self._elect(key, Mode.PREFERRED) is Error.NONE
            if changes == _MAX_ELECTIONS_A_BATCH:
                self._writer.commit(now)
                changes = 0
        self._writer.commit(now)

    # -------------------------------------------------------------- reassignments

    def alter_partition_reassignments(
        self, now: int, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, Error]:
        """Administrator moves replicas, or (None) takes a running move back (KIP-455)."""
        errors = {key: self._move(key, target) for key, target in targets.items()}
        self._writer.commit(now)
        return errors

    def _move(self, key: TopicPartition, target: tuple[BrokerId, ...] | None) -> Error:
        partition = self._registry.partitions.get(key)
        if partition is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if target is None:
                self._cancel(key, partition)
            else:
                self._reassign(key, partition, target)
        except RefusedRequest as refused:
            return refused.error
        return Error.NONE

    def list_partition_reassignments(self) -> dict[TopicPartition, Assignment]:
        """Tell what moves."""
        partitions = self._registry.partitions
        return {key: change.assignment_of(partitions[key]) for key in self._registry.reassigning}

    def _reassign(self, key: TopicPartition, partition: PartitionRegistration, target: tuple[BrokerId, ...]) -> None:
        """Begin; what is in sync already moves at once. Never elects uncleanly, whatever the topic says."""
        check_replicas(target, self._registry.brokers)
        moving = change.reassign(change.assignment_of(partition), target)
        self._writer.change(key, partition.isr, Cause.REASSIGNMENT, StepOptions(mode=Mode.ONLINE, assignment=moving))

    def _cancel(self, key: TopicPartition, partition: PartitionRegistration) -> None:
        if key not in self._registry.reassigning:
            raise RefusedRequest(Error.NO_REASSIGNMENT_IN_PROGRESS, f"{key} is where it is meant to be")
        back = change.revert(partition)
        if back.unclean and not self._registry.topics[key.topic_id].unclean:
            raise RefusedRequest(Error.INVALID_REPLICA_ASSIGNMENT, f"the way back of {key} needs an unclean election")
        self._writer.change(key, back.isr, Cause.REASSIGNMENT, StepOptions(assignment=back.assignment))
