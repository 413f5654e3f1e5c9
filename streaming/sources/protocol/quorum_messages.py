"""DescribeQuorum: the request, and what is read from its responses. Depends on kafka-python's messages, no socket.

Any broker answers it, by asking the leader of the metadata quorum (KIP-595). Version 1 has times (KIP-836), version 2
addresses (KIP-853).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import DescribeQuorumRequest

from streaming.contracts.identifiers import topic_id_from_uuid
from streaming.contracts.quorum_members import Member
from streaming.sources.protocol.addresses import Address

if TYPE_CHECKING:
    import uuid

METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of the quorum and its epoch; ``node`` is -1 while there is none."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """A voter or an observer, as the leader sees it; None for what it does not know, or this version does not say.

    Attributes:
        node: a controller or a broker.
        is_voter: otherwise it is an observer.
        log_end_offset: of its log.
        last_fetch_ms: when it fetched last, in milliseconds of the leader's clock.
        last_caught_up_ms: the time up to which it has the leader's log, by the same clock.
        directory_id: of its metadata log, since version 2 of a quorum that has any.
    """

    node: int
    is_voter: bool
    log_end_offset: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    directory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The fields of a DescribeQuorum response: the leader, the addresses of the controllers, and the members.

    Attributes:
        error: Kafka's error code, 0 for none.
        leader: of the quorum.
        nodes: addresses by node.
        members: the voters and the observers; of the leader itself both times are now.
        high_watermark: end of what is committed; None while the leader does not know it.
        listeners: the names of all listeners of the controllers.
    """

    error: int
    leader: Leader
    nodes: dict[int, Address]
    members: tuple[QuorumMember, ...] = ()
    high_watermark: int | None = None
    listeners: tuple[str, ...] = ()

    @property
    def voters(self) -> dict[int, int | None]:
        """Time up to which each voter has the leader's log, in milliseconds of the leader's clock."""
        return {member.node: member.last_caught_up_ms for member in self.members if member.is_voter}


def describe_quorum_request(version: int) -> Any:  # noqa: ANN401 - kafka-python's messages ship no types
    """Return a DescribeQuorum request."""
    topic = DescribeQuorumRequest.TopicData
    partition = topic.PartitionData(partition_index=0)
    return DescribeQuorumRequest(version=version, topics=[topic(topic_name=METADATA_TOPIC, partitions=[partition])])


def read_quorum(response: Any, listener: str = "") -> Quorum:  # noqa: ANN401 - as above
    """Return what a DescribeQuorum response says; before version 2 it has no addresses.

    A controller without the named ``listener`` has no address here. Without a name it is one that is named like a
    controller's, else the first by name: the response has them in no order.
    """
    if response.error_code or not response.topics:
        return Quorum(response.error_code or -1, Leader(-1, -1), {})
    part = response.topics[0].partitions[0]
    nodes: dict[int, Address] = {}
    listeners: set[str] = set()
    for node in response.nodes or ():
        at = {one.name: Address(one.host, one.port) for one in node.listeners}
        listeners |= at.keys()
        if (name := listener or min(at, key=_preference, default="")) in at:
            nodes[node.node_id] = at[name]
    voters, observers = part.current_voters or (), part.observers or ()
    return Quorum(
        error=part.error_code,
        leader=Leader(part.leader_id, part.leader_epoch),
        nodes=nodes,
        members=(
            *(_member(each, is_voter=True) for each in voters),
            *(_member(each, is_voter=False) for each in observers),
        ),
        high_watermark=_unless_negative(part.high_watermark),
        listeners=tuple(sorted(listeners)),
    )


def member_of(each: QuorumMember) -> Member:
    """Return what identifies a member, of one answer."""
    return Member(each.node, each.directory_id, each.is_voter, 0, 1_000 * (each.last_caught_up_ms or 0) or None)


def _member(replica: Any, *, is_voter: bool) -> QuorumMember:  # noqa: ANN401 - as above
    return QuorumMember(
        node=replica.replica_id,
        is_voter=is_voter,
        log_end_offset=_unless_negative(replica.log_end_offset),
        last_fetch_ms=_unless_negative(replica.last_fetch_timestamp),
        last_caught_up_ms=_unless_negative(replica.last_caught_up_timestamp),
        directory_id=_directory_id(replica.replica_directory_id),
    )


def _directory_id(value: uuid.UUID | None) -> str | None:
    """Return an id as Kafka's tools print it; None of one that is not assigned, or not in this version."""
    return topic_id_from_uuid(value) if value is not None and value.int else None


def _unless_negative(value: int) -> int | None:
    """Kafka writes a negative number for what is unknown."""
    return None if value < 0 else value


def _preference(listener: str) -> tuple[bool, str]:
    return "CONTROLLER" not in listener.upper(), listener
