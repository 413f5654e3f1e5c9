"""The controller's checks of an ISR proposal (``ReplicationControlManager.alterPartition``), as a table. Pure.

The order is part of the protocol: a leader reacts differently to each answer, and the first check that fails answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RECOVERED
from streaming.model.constants import Error, Switches
from streaming.model.messages.replication import ANY_BROKER_EPOCH, AlterPartitionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration


class Proposal(NamedTuple):
    """A proposal compared with what the controller knows."""

    sender: BrokerId
    item: AlterPartitionItem
    partition: PartitionRegistration
    brokers: Mapping[BrokerId, BrokerRegistration]
    switches: Switches = Switches()


def _from_the_future(proposal: Proposal) -> bool:
    """Such epochs do not exist here: this controller must be the stale one."""
    item, partition = proposal.item, proposal.partition
    return item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.partition_epoch


def _has_strangers(proposal: Proposal) -> bool:
    members = [broker for broker, _ in proposal.item.isr]
    return len(set(members)) != len(members) or not set(members) <= set(proposal.partition.replicas)


def _is_late(proposal: Proposal) -> bool:
    """It builds on a state that has moved on."""
    is_lower = proposal.item.partition_epoch < proposal.partition.partition_epoch
    return is_lower and proposal.switches.partition_epoch_check


def _recovers_wrongly(proposal: Proposal) -> bool:
    """A leader that recovers is alone in the ISR, and does not fall back into recovery."""
    if proposal.item.leader_recovery_state == RECOVERED:
        return False
    return len(proposal.item.isr) > 1 or proposal.partition.leader_recovery_state == RECOVERED


def _is_ineligible(proposal: Proposal, broker: BrokerId, epoch: int) -> bool:
    """KIP-841: no fenced or leaving member; KIP-903: no member that restarted since it fetched."""
    registration, switches = proposal.brokers.get(broker), proposal.switches
    if switches.eligibility_check and (registration is None or not registration.is_active):
        return True
    is_same = registration is None or epoch in {ANY_BROKER_EPOCH, registration.epoch}
    return switches.broker_epoch_check and not is_same


CHECKS: Final[tuple[tuple[Callable[[Proposal], bool], Error], ...]] = (
    (_from_the_future, Error.NOT_CONTROLLER),
    (lambda proposal: proposal.item.leader_epoch < proposal.partition.leader_epoch, Error.FENCED_LEADER_EPOCH),
    (lambda proposal: proposal.sender != proposal.partition.leader, Error.INVALID_REQUEST),
    (_is_late, Error.INVALID_UPDATE_VERSION),
    (_has_strangers, Error.INVALID_REQUEST),
    (lambda proposal: proposal.sender not in [broker for broker, _ in proposal.item.isr], Error.INVALID_REQUEST),
    (_recovers_wrongly, Error.INVALID_REQUEST),
    (lambda proposal: any(_is_ineligible(proposal, *member) for member in proposal.item.isr), Error.INELIGIBLE_REPLICA),
)


def verdict(proposal: Proposal) -> Error:
    """Give the first error, or NONE."""
    return next((error for fails, error in CHECKS if fails(proposal)), Error.NONE)
