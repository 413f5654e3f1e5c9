"""The requests of polling, as frames that are sent again and again, and what is kept of each answer. No socket.

What is kept is plain JSON: the fields that a monitor can conclude anything from, without what moves all the time. Of
what moves, an answer has the number apart: :attr:`Read.moving`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from streaming.sources.protocol.quorum_messages import describe_quorum_request, read_quorum

CLIENT_ID: Final = "recorder"
QUORUM: Final = "DescribeQuorum"
DEBUG_REPLICA: Final = -2
LATEST: Final = -1
LATE_MILLIS: Final = 2000
"""An observer of the quorum that has not fetched for so long is late; a broker waits 500 ms at most for an answer."""
_OF_BROKERS, _OF_CONTROLLERS = 1, 2

Content = dict[str, Any]


class Read(NamedTuple):
    """What is kept of an answer.

    Attributes:
        content: changes when something has happened.
        moving: by name what moves by itself while all is well: a number, or the numbers of partitions.
    """

    content: Content
    moving: Mapping[str, Any] = {}


class Asked(NamedTuple):
    """One request of polling.

    Attributes:
        name: of the probe.
        frame: its bytes, with a correlation id of 0.
        read: reads the answer, without its size.
    """

    name: str
    frame: bytes
    read: Callable[[bytes], Read]


def of_controller() -> list[Asked]:
    """Return what controllers answer."""
    return [_versions(), _cluster(2, _OF_CONTROLLERS), _quorum()]


def of_broker(partitions: Mapping[str, int], epochs: Mapping[tuple[str, int], int], version: str) -> list[Asked]:
    """Return what brokers answer.

    Args:
        partitions: how many each topic has.
        epochs: leader epoch of each partition before the fault; OffsetForLeaderEpoch asks for the end of these.
        version: of Kafka.
    """
    return [
        _versions(),
        _cluster(1 if version.startswith("3") else 2, _OF_BROKERS),
        _metadata(),
        _quorum(),
        _partitions(sorted(partitions)),
        _log_ends(partitions),
        _epoch_ends(epochs),
    ]


def of_presence() -> list[Asked]:
    """Return the few that show most of what happens to brokers and partitions."""
    return [_metadata(), _cluster(2, _OF_BROKERS)]


def _asked(name: str, request: Any, response: Any, read: Callable[[Any], Read]) -> Asked:
    request.with_header(correlation_id=0, client_id=CLIENT_ID)
    version = request.API_VERSION

    def decoded(data: bytes) -> Read:
        return read(response.decode(data, version=version, header=True))

    return Asked(name, request.encode(header=True, framed=True), decoded)


def _versions() -> Asked:
    def read(answer: Any) -> Read:
        content = {"error": answer.error_code} if answer.error_code else {}
        return Read(content, {"image": answer.finalized_features_epoch})

    request = ApiVersionsRequest(version=3, client_software_name=CLIENT_ID, client_software_version="1")
    return _asked("ApiVersions", request, ApiVersionsResponse, read)


def _cluster(version: int, kind: int) -> Asked:
    def read(answer: Any) -> Read:
        unfenced = sorted(one.broker_id for one in answer.brokers if not getattr(one, "is_fenced", False))
        content: Content = {"listed": unfenced}
        if kind == _OF_CONTROLLERS:
            content["controller"] = answer.controller_id
        elif version >= 2:
            content["fenced"] = sorted(one.broker_id for one in answer.brokers if one.is_fenced)
        if answer.error_code:
            content["error"] = answer.error_code
        return Read(content)

    own = {"include_fenced_brokers": True} if version >= 2 and kind == _OF_BROKERS else {}
    request = DescribeClusterRequest(version=version, endpoint_type=kind, **own)
    return _asked("DescribeCluster", request, DescribeClusterResponse, read)


def _metadata() -> Asked:
    def read(answer: Any) -> Read:
        content: Content = {"listed": sorted(one.node_id for one in answer.brokers)}
        for topic in answer.topics:
            if topic.error_code:
                content[topic.name] = {"error": topic.error_code}
            for part in topic.partitions if not topic.is_internal else ():
                content[f"{topic.name}-{part.partition_index}"] = {
                    **({"error": part.error_code} if part.error_code else {}),
                    "leader": part.leader_id,
                    "epoch": part.leader_epoch,
                    "replicas": list(part.replica_nodes),
                    "isr": sorted(part.isr_nodes),
                    "offline": sorted(part.offline_replicas),
                }
        return Read(content)

    return _asked("Metadata", MetadataRequest(version=12, topics=None), MetadataResponse, read)


def _quorum() -> Asked:
    def read(answer: Any) -> Read:
        quorum = read_quorum(answer)
        content: Content = {"leader": quorum.leader.node, "epoch": quorum.leader.epoch}
        if quorum.error:
            return Read({"error": quorum.error, **content})
        now = max((each.last_fetch_ms or 0 for each in quorum.members), default=0)
        late = [each.node for each in quorum.members if now - (each.last_fetch_ms or 0) > LATE_MILLIS]
        members = sorted(each.node for each in quorum.members)
        content |= {"members": members, "late": sorted(set(late) - {quorum.leader.node})}
        return Read(content, {"quorum high watermark": quorum.high_watermark})

    return _asked(QUORUM, describe_quorum_request(2), DescribeQuorumResponse, read)


def _partitions(topics: list[str]) -> Asked:
    def read(answer: Any) -> Read:
        content: Content = {}
        for topic in answer.topics:
            if topic.error_code:
                content[topic.name] = {"error": topic.error_code}
            for part in topic.partitions:
                content[f"{topic.name}-{part.partition_index}"] = {
                    **({"error": part.error_code} if part.error_code else {}),
                    "leader": part.leader_id,
                    "epoch": part.leader_epoch,
                    "replicas": list(part.replica_nodes),
                    "isr": sorted(part.isr_nodes),
                    "elr": sorted(part.eligible_leader_replicas or ()),
                    "last_known_elr": sorted(part.last_known_elr or ()),
                    "offline": sorted(part.offline_replicas),
                }
        return Read(content)

    of_request = DescribeTopicPartitionsRequest
    request = of_request(
        version=0, topics=[of_request.TopicRequest(name=name) for name in topics], response_partition_limit=2000
    )
    return _asked("DescribeTopicPartitions", request, DescribeTopicPartitionsResponse, read)


def _log_ends(partitions: Mapping[str, int]) -> Asked:
    def read(answer: Any) -> Read:
        parts = [(topic.name, part) for topic in answer.topics for part in topic.partitions]
        content = {
            f"{name}-{part.partition_index}": {"error": part.error_code} for name, part in parts if part.error_code
        }
        ends = {f"{name}-{part.partition_index}": part.offset for name, part in parts if not part.error_code}
        return Read(content, {"log ends": ends})

    of_topic = ListOffsetsRequest.ListOffsetsTopic
    of_partition = of_topic.ListOffsetsPartition
    topics = [
        of_topic(name=name, partitions=[of_partition(partition_index=n, timestamp=LATEST) for n in range(count)])
        for name, count in sorted(partitions.items())
    ]
    request = ListOffsetsRequest(version=7, replica_id=DEBUG_REPLICA, isolation_level=0, topics=topics)
    return _asked("ListOffsets", request, ListOffsetsResponse, read)


def _epoch_ends(epochs: Mapping[tuple[str, int], int]) -> Asked:
    def read(answer: Any) -> Read:
        content: Content = {}
        ends: dict[str, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                name = f"{topic.topic}-{part.partition}"
                if part.error_code:
                    content[name] = {"error": part.error_code}
                else:
                    ends[name] = part.end_offset
                    if part.leader_epoch != epochs[topic.topic, part.partition]:
                        content[name] = {"epoch": part.leader_epoch}
        return Read(content, {"epoch ends": ends})

    of_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    of_partition = of_topic.OffsetForLeaderPartition
    topics = [
        of_topic(
            topic=name,
            partitions=[
                of_partition(partition=number, current_leader_epoch=-1, leader_epoch=epoch)
                for (topic, number), epoch in sorted(epochs.items())
                if topic == name
            ],
        )
        for name in sorted({topic for topic, _ in epochs})
    ]
    request = OffsetForLeaderEpochRequest(version=4, replica_id=-1, topics=topics)
    return _asked("OffsetForLeaderEpoch", request, OffsetForLeaderEpochResponse, read)
