"""What an observer is told of groups who asks every coordinator (``Admin.describeConsumerGroups``, ``listOffsets``).

Costs nothing until somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.coordinators.consumer_group import GroupState, assignor_of
from streaming.model.coordinators.group_offsets import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.cluster import Cluster
    from streaming.model.coordinators.group_log import Group, GroupLog
    from streaming.model.server.broker import Broker


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
