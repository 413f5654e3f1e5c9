"""What Kafka's nodes send: batches of the metadata log, responses."""

from __future__ import annotations

import struct
from copy import deepcopy
from random import Random
from typing import Any, cast

from crc32c import crc32c
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumResponse,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.record.util import decode_varint, encode_varint

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Observation, SnapshotReason, SourceKind
from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.decoding import EncodedBatch, decode_batches, split
from streaming.sources.metadata_log.image import ClusterImage
from streaming.sources.polling.broker import ConnectedBroker, MetadataDecoder
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion
from streaming.sources.polling.reassignments import listed
from streaming.sources.polling.view import snapshot
from streaming.sources.polling.watching.asking import Reply, Requests
from streaming.sources.protocol.addresses import Address, Peer
from streaming.sources.protocol.connection import NEVER, NO_SESSION, Connection
from streaming.sources.protocol.quorum_messages import METADATA_TOPIC, describe_quorum_request, read_quorum
from streaming.sources.protocol.security import Security
from streaming.sources.source import monotonic
from tests.fuzz.mutation import odd_bytes
from tests.fuzz.targets import EPOCH, LOG, QUARANTINED, REFUSED, VALUE, checked


class Records:
    """Batches of the metadata log, and what the image of the cluster makes of them."""

    name, weight = "metadata records", 10
    _HEADER = struct.Struct(">qiibIhiqqqhii")

    def __init__(self) -> None:
        self._batches = list(split((LOG / "segment.log").read_bytes()))
        self._begins: list[tuple[int, ClusterImage]] = []
        image = ClusterImage(cluster_id=ClusterId("fuzz"), cluster="fuzz", source="metadata_log:a")
        for place, batch in enumerate(self._batches):
            if place % 10 == 0:
                self._begins.append((place, deepcopy(image)))
            for decoded in decode_batches(batch.data):
                image.apply(decoded, Micros(EPOCH))

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        number = dice.randrange(len(self._begins))
        place, _ = self._begins[number]
        chosen = self._batches[place : place + dice.randint(1, 10)]
        if inside:
            at = dice.randrange(len(chosen))
            chosen = [self._odd(dice, batch) if place == at else batch for place, batch in enumerate(chosen)]
        data = b"".join(batch.data for batch in chosen)
        return bytes([number]) + (data if inside else odd_bytes(dice, data))

    def outcome(self, data: bytes) -> str:
        image = deepcopy(self._begins[data[0]][1])
        seen: list[Observation] = []
        for batch in decode_batches(data[1:]):
            seen += image.apply(batch, Micros(EPOCH))
        checked(seen)
        return QUARANTINED if image.undecodable else VALUE

    def _odd(self, dice: Random, batch: EncodedBatch) -> EncodedBatch:
        """Damage the values of records, and mend lengths and checksum."""
        header = list(self._HEADER.unpack_from(batch.data))
        body, records = batch.data[self._HEADER.size :], []
        for _ in range(header[-1]):
            length, at = decode_varint(body, 0)
            records.append(body[at : at + length])
            body = body[at + length :]
        if not records:
            return batch
        at = dice.randrange(len(records))
        records[at] = self._odd_record(dice, records[at])
        if dice.random() < 0.1:
            records.insert(at, records[at])
            header[-1] += 1
        body = b"".join(encoded_varint(len(each)) + each for each in records)
        header[1] = self._HEADER.size - 12 + len(body)
        data = self._HEADER.pack(*header) + body
        header[4] = crc32c(data[21:])
        return batch._replace(data=self._HEADER.pack(*header) + body)

    @staticmethod
    def _odd_record(dice: Random, record: bytes) -> bytes:
        """Damage the value of a record behind its type, or with it."""
        at = 1
        for _ in range(2):
            at = decode_varint(record, at)[1]
        length, at = decode_varint(record, at)
        key_end = at + max(0, length)
        length, at = decode_varint(record, key_end)
        value = record[at : at + length]
        kept = dice.choice((0, 3, 3, 3))
        odd = value[:kept] + odd_bytes(dice, value[kept:])
        return record[:key_end] + encoded_varint(len(odd)) + odd + record[at + length :]


def encoded_varint(number: int) -> bytes:
    data = bytearray()
    encode_varint(number, data.append)
    return bytes(data)


class _Socket:
    """Answers the one request of a connection with given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def settimeout(self, seconds: float) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Hold nothing open."""

    def sendall(self, data: bytes) -> None:
        """Send nothing."""

    def recv(self, *_: int) -> bytes:
        """Have nothing to say while nothing is asked."""
        raise BlockingIOError

    def recv_into(self, view: memoryview) -> int:
        piece = self._data[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _quorum() -> Any:
    data = DescribeQuorumResponse.TopicData.PartitionData
    voter = data.ReplicaState(
        replica_id=101, replica_directory_id=messages.TOPIC_ID, log_end_offset=5, last_fetch_timestamp=7,
        last_caught_up_timestamp=7,
    )  # fmt: skip
    part = data(
        partition_index=0, error_code=0, error_message=None, leader_id=101, leader_epoch=3, high_watermark=5,
        current_voters=[voter], observers=[],
    )  # fmt: skip
    node = DescribeQuorumResponse.Node
    listener = node.Listener(name="CONTROLLER", host="h", port=9093)
    return DescribeQuorumResponse(
        version=2, error_code=0, error_message=None, nodes=[node(node_id=101, listeners=[listener])],
        topics=[DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=[part])],
    )  # fmt: skip


def _fetched(records: bytes) -> Any:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=0, error_code=0, high_watermark=5, last_stable_offset=5, log_start_offset=0,
        diverging_epoch=None, current_leader=None, snapshot_id=None, aborted_transactions=None,
        preferred_read_replica=-1, records=records,
    )  # fmt: skip
    return FetchResponse(
        version=17, throttle_time_ms=0, error_code=0, session_id=0,
        responses=[topic(topic_id=messages.TOPIC_ID, partitions=[part])], node_endpoints=[],
    )  # fmt: skip


def _reassignments() -> Any:
    topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    part = topic.OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
    )
    topics = [topic(name="orders", partitions=[part])]
    fine = {"throttle_time_ms": 0, "error_code": 0, "error_message": None}
    return ListPartitionReassignmentsResponse(version=0, topics=topics, **fine)


def _listed() -> list[Any]:
    """Return what a broker says of a topic that lacks a replica.

    By Metadata, by DescribeTopicPartitions, and by Metadata of Kafka 1.0.
    """
    topic = MetadataResponse.MetadataResponseTopic
    part = {"error_code": 0, "partition_index": 0, "leader_id": 1, "leader_epoch": 3, "replica_nodes": [1, 2, 3]}
    part |= {"isr_nodes": [1], "offline_replicas": [2]}
    of_topic = {"error_code": 0, "name": "orders", "topic_id": messages.TOPIC_ID, "is_internal": False}
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)
    listed, listed_by_old = (
        MetadataResponse(
            version=version, throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1,
            topics=[topic(**of_topic, partitions=[topic.MetadataResponsePartition(**part)])],
        )
        for version in (12, 5)
    )  # fmt: skip
    described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    eligible = described.DescribeTopicPartitionsResponsePartition(
        **part, eligible_leader_replicas=[2], last_known_elr=[]
    )
    topics = [described(**of_topic, partitions=[eligible])]
    described_by = DescribeTopicPartitionsResponse(version=0, throttle_time_ms=0, topics=topics, next_cursor=None)
    return [listed, described_by, listed_by_old]


class _Fed(Connection):
    """A connection that is open, and gets given bytes for its next request."""

    def __init__(self, data: bytes) -> None:
        self.address, self.peer, self.socket = Address("h", 1), Peer(), cast("Any", _Socket(data))
        self.versions, self.session = {46: (0, 0), 3: (0, 12), 75: (0, 0)}, NO_SESSION
        self.features = {}
        self.muted_until, self._step_seconds, self._response_seconds = 0.0, NEVER, 10.0
        self._correlation, self._is_closed, self._is_reopening = 0, False, False
        self._security, self._is_served = Security(), False


class Responses:
    """Responses of brokers and controllers."""

    name, weight = "responses", 10

    def __init__(self) -> None:
        records = b"".join(batch.data for batch in list(split((LOG / "segment.log").read_bytes()))[:3])
        made = (_quorum(), _fetched(records), _reassignments(), *_listed())
        self._frames = [self._framed(response) for response in made]
        self._whole = self._frames[3:5]

    @staticmethod
    def _framed(response: Any) -> bytes:
        response.with_header(correlation_id=1)
        return bytes(response.encode(header=True, framed=True))

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        number = dice.randrange(len(self._frames))
        frame = self._frames[number]
        if not inside:
            return bytes([number]) + odd_bytes(dice, frame)
        body = odd_bytes(dice, frame[9:])  # behind size, correlation id and tags of the header
        odd = frame[4:9] + body
        return bytes([number]) + struct.pack(">i", len(odd)) + odd

    def outcome(self, data: bytes) -> str:
        connection = _Fed(data[1:])
        try:
            match data[0]:
                case 0:
                    request = describe_quorum_request(2)
                    connection.call(request, DescribeQuorumResponse, read_quorum)
                case 1:
                    asked: dict[str, Any] = {"cluster_id": "c", "leader_epoch": 1, "high_watermark": 0, "wait_ms": 1}
                    request = messages.fetch_request(17, end=messages.LogEnd(0, 1), **asked)
                    fetched = connection.call(request, FetchResponse, messages.read_fetch)
                    list(decode_batches(fetched.records))
                case 2:
                    listed(connection, 1.0)
                case 3:
                    self._viewed(connection, data[1:] + _next(self._whole[1]))
                case 5:
                    connection.versions = {3: (0, 5)}
                    self._viewed(connection, data[1:])
                case _:
                    self._viewed(connection, self._whole[0] + _next(data[1:]))
        except ConnectionRefused:
            return REFUSED
        return VALUE

    @staticmethod
    def _viewed(connection: Connection, data: bytes) -> None:
        """Ask for the view of a broker, and report it."""
        connection.socket = _Socket(data)  # type: ignore[assignment]
        broker = ConnectedBroker(connection, MetadataDecoder(), cluster="c", stranger=-2)
        view = broker.answer((), Micros(monotonic() + 10_000_000)).view
        envelope = {"cluster_id": view.cluster_id, "cluster": "c", "source": "admin:a", "source_kind": SourceKind.POLL}
        moments = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(EPOCH))
        checked(snapshot(None, view, envelope | moments, snapshot_id="s", reason=SnapshotReason.START))


class Watched:
    """Answers to questions on kept connections."""

    name, weight = "watched answers", 5

    def __init__(self) -> None:
        broker = DescribeClusterResponse.DescribeClusterBroker
        brokers = [broker(broker_id=each, host="h", port=9092, rack=None, is_fenced=each == 2) for each in (1, 2, 3)]
        described = DescribeClusterResponse(
            version=2, throttle_time_ms=0, error_code=0, error_message=None, endpoint_type=1, cluster_id="c",
            controller_id=1, brokers=brokers, authorized_operations=set(),
        )  # fmt: skip
        offsets, ends = ListOffsetsResponse.ListOffsetsTopicResponse, OffsetForLeaderEpochResponse
        listed_ends = [
            offsets.ListOffsetsPartitionResponse(
                partition_index=each, error_code=each, timestamp=-1, offset=7, leader_epoch=1
            )
            for each in (0, 1)
        ]
        of_epochs = [
            ends.OffsetForLeaderTopicResult.EpochEndOffset(error_code=0, partition=each, leader_epoch=1, end_offset=7)
            for each in (0, 1)
        ]
        logs = [offsets(name="t", partitions=listed_ends)]
        epochs = [ends.OffsetForLeaderTopicResult(topic="t", partitions=of_epochs)]
        made = (
            described,
            _listed()[1],
            ListOffsetsResponse(version=7, throttle_time_ms=0, topics=logs),
            ends(version=4, throttle_time_ms=0, topics=epochs),
        )
        self._frames = [Responses._framed(response) for response in made]
        some = (("t", 0, 1), ("t", 1, 1))
        self._questions = [BrokerQuestion(ask, BrokerId(1), some) for ask in Ask if ask is not Ask.QUORUM]

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        number = dice.randrange(len(self._frames))
        frame = self._frames[number]
        if not inside:
            return bytes([number]) + odd_bytes(dice, frame)
        odd = frame[4:9] + odd_bytes(dice, frame[9:])
        return bytes([number]) + struct.pack(">i", len(odd)) + odd

    def outcome(self, data: bytes) -> str:
        connection = _Fed(data[1:])
        connection.versions = {DescribeClusterRequest.API_KEY: (0, 2), 75: (0, 0), 2: (0, 7), 23: (0, 4)}
        steps = Requests().of(self._questions[data[0]], connection)
        reply = Reply({})
        try:
            steps.send(connection.call(*next(steps)))
        except ConnectionRefused:
            return REFUSED
        except StopIteration as end:
            reply = end.value
        assert reply.content is not None or reply.error
        return VALUE


def _next(frame: bytes) -> bytes:
    """Return a response as that to the second request of a connection."""
    return frame[:4] + struct.pack(">i", 2) + frame[8:] if frame[4:8] == struct.pack(">i", 1) else frame
