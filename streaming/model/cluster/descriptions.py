"""Groups as an observer sees them who asks every coordinator (``Admin.describeConsumerGroups``, ``listOffsets``).

Costs nothing until it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.coordinators.group_state import GroupState, assignor_of
from streaming.model.coordinators.groups import state_of
from streaming.model.coordinators.transaction_log import State, TransactionMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.coordinators.group_log import Group, GroupLog
    from streaming.model.nodes.broker import Broker


class GroupDescription(NamedTuple):
    """A group, as its coordinator describes it; ``assignor`` is None while nothing is assigned."""

    group: str
    protocol: str
    state: GroupState
    members: int
    assignor: str | None
    coordinator: BrokerId


class GroupOffsets(NamedTuple):
    """A group in one partition that it has committed or been assigned.

    ``member`` and ``committed`` are None where there is none; the offsets of the partition where its leader does not
    answer.
    """

    group: str
    protocol: str
    state: GroupState
    members: int
    topic_partition: TopicPartition
    member: str | None
    committed: int | None
    log_start: int | None
    last_stable_offset: int | None
    high_watermark: int | None


def groups(cluster: Cluster) -> Iterator[tuple[Group, GroupLog]]:
    """Give every group whose coordinator answers: who the metadata log says it is, not who still believes to be."""
    for broker in cluster.reachable():
        for group in _coordinated_by(broker, cluster):
            yield group, broker.apis.groups.log


def _coordinated_by(broker: Broker, cluster: Cluster) -> Iterator[Group]:
    for loaded in broker.apis.groups.log.loaded():
        registration = cluster.controller.registry.registration_of(loaded.partition.key)
        if registration is not None and (registration.leader, registration.leader_epoch) == (
            broker.broker,
            loaded.leader_epoch,
        ):
            yield from loaded.groups.values()


def described_groups(cluster: Cluster) -> Iterator[GroupDescription]:
    """Give every group that is not dead, whether it has offsets or not."""
    for broker in cluster.reachable():
        for group in _coordinated_by(broker, cluster):
            state = state_of(group)
            if state is not GroupState.DEAD:
                members = len(members_of(group))
                yield GroupDescription(
                    group.name, protocol_of(group), state, members, _assignor_of(group), broker.broker
                )


def group_offsets(cluster: Cluster) -> Iterator[GroupOffsets]:
    """Give every group that is not dead, partition by partition."""
    leaders = {key: partition for broker in cluster.reachable() for key, partition in broker.leadership.led.items()}
    for group, log in groups(cluster):
        state = state_of(group)
        if state is GroupState.DEAD:
            continue
        owners = owners_of(group)
        committed = {offset.topic_partition: offset.committed.offset for offset in log.committed(group)}
        for key in sorted({*owners, *committed}):
            yield GroupOffsets(
                group.name,
                protocol_of(group),
                state,
                len(members_of(group)),
                key,
                owners.get(key),
                committed.get(key),
                *_offsets(leaders.get(key)),
            )


def _offsets(leader: LeaderPartition | None) -> tuple[int | None, int | None, int | None]:
    if leader is None:
        return None, None, None
    return leader.replica.log.start, leader.last_stable_offset, leader.replica.high_watermark


def protocol_of(group: Group) -> str:
    """Name the protocol of a group."""
    return "classic" if group.consumer is None else "consumer"


def _assignor_of(group: Group) -> str | None:
    if group.consumer is not None:
        return assignor_of(group.consumer)
    return group.classic.assignor or None if group.classic is not None else None


def members_of(group: Group) -> list[str]:
    """Name the members of a group."""
    if group.consumer is not None:
        return list(group.consumer.members)
    return list(group.classic.members) if group.classic is not None else []


def owners_of(group: Group) -> dict[TopicPartition, str]:
    """Tell which member may read each partition."""
    if group.consumer is not None:
        return {key: name for name, member in group.consumer.members.items() for key in member.assigned}
    members = group.classic.members if group.classic is not None else {}
    return {key: name for name, member in members.items() for key in member.share}


# Transactions for an observer who asks every coordinator and every leader (KIP-664). Costs nothing before.
#
# A transaction hangs when a partition has it open and no coordinator knows of it: nothing will ever end it.


# States of a transaction of interest: it is open, or its end is not written everywhere yet.
_UNDECIDED: Final = frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE})
_HANGING_AFTER_MS: Final = 10_000  # a marker that is on its way is no hanging transaction


class UndecidedTransaction(NamedTuple):
    """A transaction that its coordinator has not ended yet."""

    transactional_id: str
    metadata: TransactionMetadata
    coordinator: BrokerId


class HangingTransaction(NamedTuple):
    """A transaction that will not end by itself: the producer's epoch, and where it is open."""

    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def undecided(cluster: Cluster) -> dict[int, UndecidedTransaction]:
    """Give what coordinators have open, by producer id."""
    return {
        metadata.producer_id: UndecidedTransaction(transactional_id, metadata, broker.broker)
        for broker in cluster.reachable()
        for transactional_id, metadata in broker.apis.transactions.transactions()
        if metadata.state in _UNDECIDED
    }


def hanging(cluster: Cluster) -> dict[int, HangingTransaction]:
    """Give what leaders have had open for a while and no coordinator knows, by producer id."""
    undecided_ids = undecided(cluster)
    by_producer: dict[int, HangingTransaction] = {}
    for broker in cluster.reachable():
        for led in broker.led_partitions():
            for producer_id, entry in led.replica.log.producers.open_transactions():
                if producer_id not in undecided_ids and cluster.now - entry.last_ms > _HANGING_AFTER_MS:
                    before = by_producer.get(producer_id, HangingTransaction(entry.epoch, ()))
                    by_producer[producer_id] = before._replace(partitions=(*before.partitions, led.key))
    return by_producer
