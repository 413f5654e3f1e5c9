"""Asks a real cluster for each row of the evidence of polling, and reports which are answered and not denied."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming.sources import evidence
from streaming.sources.permissions import PermissionDenied
from streaming.sources.polling.reassignments import listed
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.config_messages import Resource, describe_configs
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.identity import NodeIdentity, Role, responder
from streaming.sources.protocol.offset_messages import LOG_END, list_offsets
from streaming.sources.protocol.quorum_messages import describe_quorum_request
from streaming.sources.protocol.security import from_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deploy.sandbox import Sandbox
    from streaming.sources.evidence import PolledEvidence
    from streaming.sources.protocol.connection import Connection


def answered_evidence(cluster: Sandbox, client: Mapping[str, str], topic: str) -> set[str]:
    """Names of the rows that are answered; log ends only if the leader and the follower of a partition answer.

    Args:
        cluster: has two brokers.
        client: the login.
        topic: whose first partition has a replica on both of them, and is asked for.
    """
    leader, other = sorted((1, 2), key=lambda broker: broker != leader_of(cluster, topic))
    dial = dialer(from_client(client))
    with ExitStack() as stack:
        of_leader, of_follower = (
            stack.enter_context(
                closing(dial(Address("127.0.0.1", cluster.plan.brokers[each].replication), response_seconds=10))
            )
            for each in (leader, other)
        )
        answered = {each.name for each, ask in ASKED.items() if ask(of_leader, topic)}
        if not ASKED[evidence.LOG_ENDS](of_follower, topic):
            answered.discard(evidence.LOG_ENDS.name)
        by = responder(of_leader, NodeIdentity(Role.BROKER, leader, cluster.plan.cluster_id))
        return answered | ({evidence.IDENTITY.name} if by.is_meant else set())


def leader_of(cluster: Sandbox, topic: str) -> int:
    return int(cluster.admin.describe()[topic, 0].leader)


def metadata(connection: Connection, topic: str, version: int) -> bool:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request: Any = MetadataRequest(version=version, topics=topics, allow_auto_topic_creation=False)
    return connection.call(request, MetadataResponse, lambda answer: answer.topics[0].error_code == 0)


def described(connection: Connection, topic: str) -> bool:
    of_request: Any = DescribeTopicPartitionsRequest
    request = of_request(version=0, topics=[of_request.TopicRequest(name=topic)], response_partition_limit=10)
    return connection.call(request, DescribeTopicPartitionsResponse, lambda answer: answer.topics[0].error_code == 0)


def fenced(connection: Connection, _: str) -> bool:
    request: Any = DescribeClusterRequest(version=2, endpoint_type=1, include_fenced_brokers=True)
    return connection.call(request, DescribeClusterResponse, lambda answer: answer.error_code == 0)


def quorum(connection: Connection, _: str) -> bool:
    return connection.call(describe_quorum_request(2), DescribeQuorumResponse, lambda answer: answer.error_code == 0)


def reassignments(connection: Connection, _: str) -> bool:
    try:
        listed(connection, 10)
    except PermissionDenied:
        return False
    return True


def epoch_ends(connection: Connection, topic: str) -> bool:
    of_request: Any = OffsetForLeaderEpochRequest
    of_topic = of_request.OffsetForLeaderTopic
    parts = [of_topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
    request = of_request(version=4, replica_id=-1, topics=[of_topic(topic=topic, partitions=parts)])
    return connection.call(
        request, OffsetForLeaderEpochResponse, lambda answer: answer.topics[0].partitions[0].error_code == 0
    )


def is_described(connection: Connection, kind: Resource, name: str) -> bool:
    return describe_configs(connection, kind, [name], ["min.insync.replicas"])[name].error == 0


ASKED: dict[PolledEvidence, Callable[[Connection, str], bool]] = {
    evidence.PARTITIONS: lambda connection, topic: metadata(connection, topic, 5),
    evidence.LEADER_EPOCHS: lambda connection, topic: metadata(connection, topic, 7),
    evidence.ELIGIBLE_REPLICAS: described,
    evidence.FENCED_BROKERS: fenced,
    evidence.QUORUM: quorum,
    evidence.REASSIGNMENTS: reassignments,
    evidence.LOG_ENDS: lambda connection, topic: 0 in list_offsets(connection, LOG_END, {topic: [0]}).offsets[topic],
    evidence.EPOCH_ENDS: epoch_ends,
    evidence.TIMES: lambda connection, _: is_described(connection, Resource.BROKER, ""),
    evidence.MINIMA: lambda connection, topic: is_described(connection, Resource.TOPIC, topic),
}
"""Brokers are asked for the defaults of their configurations, which each of them answers."""
