"""A controller quorum in threads: it speaks Kafka's protocol as 4.3 was seen to do, and fails when it is told to."""

from __future__ import annotations

import gzip
import socket
import ssl
import struct
import threading
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from streaming.sources.metadata_log import messages, tail
from streaming.sources.metadata_log.decoding import EncodedBatch, split
from streaming.sources.metadata_log.messages import FetchSnapshotRequest, FetchSnapshotResponse, LogEnd
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import unsigned_varint

FIXTURES = Path(__file__).parents[2] / "fixtures" / "metadata_log"
SEGMENT = (FIXTURES / "segment.log").read_bytes()
"""The raw controller segment of a real cluster: 154 batches, 192 records."""
FRAMES = tuple(split(SEGMENT))
SNAPSHOT = gzip.decompress((FIXTURES / "snapshot.checkpoint.gz").read_bytes())
"""A KRaft snapshot of 3,000 partitions."""
NO_OP = b"\x01\x14\x00\x00"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OF_ZOOKEEPER = {4: 7, 55: -1}
"""LeaderAndIsr, which brokers take from a controller there, and no DescribeQuorum."""
TYPES = {
    request.API_KEY: (request, response)
    for request, response in (
        (ApiVersionsRequest, ApiVersionsResponse),
        (MetadataRequest, MetadataResponse),
        (DescribeQuorumRequest, DescribeQuorumResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
        (FetchRequest, FetchResponse),
        (FetchSnapshotRequest, FetchSnapshotResponse),
        (SaslHandshakeRequest, SaslHandshakeResponse),
        (SaslAuthenticateRequest, SaslAuthenticateResponse),
    )
}


class Hang(Exception):
    """A handler that raises this closes the connection without an answer."""


@dataclass
class Quorum:
    """What all nodes share: who leads, the log, and what goes wrong next.

    ``faults`` are called in turn for each Fetch before anything else; one that returns a response replaces the answer.
    """

    cluster_id: str = CLUSTER_ID
    log: list[EncodedBatch] = field(default_factory=list)
    epoch: int = 1
    leader: int = 1
    high_watermark: int | None = None
    log_start: int = 0
    snapshot: tuple[LogEnd, bytes] | None = None
    answer_bytes: int = 1 << 20
    snapshot_bytes: int = 100_000
    snapshot_error: int = 0
    versions: dict[int, int] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quorum_error: int = 0
    partition_error: int = 0
    fetch_error: int = 0
    faults: deque[Any] = field(default_factory=deque)
    nodes: dict[int, Node] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)  # node to port
    listeners: dict[str, int | None] = field(default_factory=lambda: {"CONTROLLER": None})  # name to another port
    voters: dict[int, int] = field(default_factory=dict)  # node to the time up to which it has the log
    observers: dict[int, int] = field(default_factory=dict)  # node to its directory; that of a voter is its number
    requests: list[Any] = field(default_factory=list)
    received_bytes: int = 0  # by all nodes, as sent_bytes
    sent_bytes: int = 0
    tls: ssl.SSLContext | None = None
    login: Any = None  # makes the server's side of a login; without one, nobody needs to log in
    news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else self.log_start

    def watermark(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    def append(self, *frames: EncodedBatch) -> None:
        with self.news:
            self.log.extend(frames)
            self.news.notify_all()

    def compact(self, offset: int, epoch: int = 1, snapshot: bytes = SNAPSHOT) -> None:
        """Begin the log with a KRaft snapshot of what was before an offset."""
        self.snapshot, self.log_start = (LogEnd(offset, epoch), snapshot), offset

    def elect(self, leader: int, epoch: int) -> None:
        with self.news:
            self.leader, self.epoch = leader, epoch

    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())


class Node:
    """One listening node; controllers and brokers answer alike here, but only the leader serves the log."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum, self.node_id = quorum, node_id
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.opened: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        for connection in self.opened:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.opened.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, Hang, struct.error), self._secured(connection) as secured:
            login = self.quorum.login() if self.quorum.login is not None else None
            stream = secured.makefile("rb")
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                data = stream.read(size)
                self.quorum.received_bytes += 4 + size
                key, version, correlation = struct.unpack(">hhi", data[:8])
                request_type, _ = TYPES[key]
                request = request_type.decode(data, version=version, header=True)
                if key in {SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY}:
                    response = login.answer(request)
                elif login is not None and not login.is_done and key != ApiVersionsRequest.API_KEY:
                    raise Hang
                else:
                    response = getattr(self, f"answer_{request_type.__name__}")(request)
                response.API_VERSION = version
                response.with_header(correlation_id=correlation)
                frame = response.encode(header=True, framed=True)
                self.quorum.sent_bytes += len(frame)  # before the client can have it
                secured.sendall(frame)

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self.quorum.tls is None:
            return connection
        self.opened.remove(connection)  # it has no descriptor any more once it is wrapped
        self.opened.append(self.quorum.tls.wrap_socket(connection, server_side=True))
        return self.opened[-1]

    def answer_ApiVersionsRequest(self, _: Any) -> Any:  # noqa: N802
        version = ApiVersionsResponse.ApiVersion
        newest = {1: 18, 3: 12, 17: 1, 18: 3, 36: 2, 55: 2, 59: 1} | self.quorum.versions
        keys = [version(api_key=key, min_version=0, max_version=top) for key, top in newest.items()]
        key = ApiVersionsResponse.FinalizedFeatureKey
        features = [key(name=name, max_version_level=level) for name, level in self.quorum.features.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0, finalized_features=features)

    def answer_MetadataRequest(self, _: Any) -> Any:  # noqa: N802
        broker = MetadataResponse.MetadataResponseBroker
        brokers = [broker(node_id=one, host="127.0.0.1", port=port) for one, port in self.quorum.brokers.items()]
        own = self.quorum.cluster_id
        return MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id=own, controller_id=1, topics=[])

    def answer_DescribeConfigsRequest(self, request: Any) -> Any:  # noqa: N802
        """Answer for the node alone, which therefore proves who it is."""
        (asked,) = request.resources
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=0 if asked.resource_name == str(self.node_id) else 42, configs=[],
            error_message=f"Unexpected broker id, expected {self.node_id}, but received {asked.resource_name}",
            resource_type=asked.resource_type, resource_name=asked.resource_name,
        )  # fmt: skip
        return DescribeConfigsResponse(throttle_time_ms=0, results=[result])

    def answer_DescribeQuorumRequest(self, _: Any) -> Any:  # noqa: N802
        topic = DescribeQuorumResponse.TopicData
        part = topic.PartitionData
        node = DescribeQuorumResponse.Node
        quorum = self.quorum
        unsaid = {"log_end_offset": 0, "last_fetch_timestamp": -1}
        voters = [
            part.ReplicaState(
                replica_id=one, replica_directory_id=uuid.UUID(int=one), last_caught_up_timestamp=until, **unsaid
            )
            for one, until in quorum.voters.items()
        ]
        observers = [
            part.ReplicaState(
                replica_id=one, replica_directory_id=uuid.UUID(int=directory), last_caught_up_timestamp=60_000, **unsaid
            )
            for one, directory in quorum.observers.items()
        ]
        described = part(
            partition_index=0, error_code=quorum.partition_error, error_message=None, leader_id=quorum.leader,
            leader_epoch=quorum.epoch, high_watermark=quorum.watermark(), current_voters=voters, observers=observers,
        )  # fmt: skip
        nodes = []
        for one, other in quorum.nodes.items():
            at = [(name, port or other.port) for name, port in quorum.listeners.items()]
            nodes.append(node(node_id=one, listeners=[node.Listener(name=n, host="127.0.0.1", port=p) for n, p in at]))
        topics = [topic(topic_name="__cluster_metadata", partitions=[described])]
        return DescribeQuorumResponse(error_code=quorum.quorum_error, error_message=None, topics=topics, nodes=nodes)

    def answer_FetchRequest(self, request: Any) -> Any:  # noqa: N802
        quorum = self.quorum
        quorum.requests.append(request)
        if quorum.faults:
            replaced = quorum.faults.popleft()(self, request)
            if replaced is not None:
                return replaced
        asked = request.topics[0].partitions[0]
        if error := self._refusal(asked.current_leader_epoch):
            return self.fetched(error)
        if asked.fetch_offset < quorum.log_start or (asked.fetch_offset == 0 and quorum.snapshot is not None):
            assert quorum.snapshot is not None
            return self.fetched(0, snapshot=quorum.snapshot[0])
        diverging = self._diverging(asked.fetch_offset, asked.last_fetched_epoch)
        if diverging is not None:
            return self.fetched(0, diverging=diverging)
        return self.fetched(0, records=self._records(asked.fetch_offset, request.max_wait_ms))

    def _refusal(self, epoch: int) -> int:
        quorum = self.quorum
        if quorum.fetch_error:
            return quorum.fetch_error
        if quorum.leader != self.node_id:
            return 6
        return 0 if epoch == quorum.epoch else 74 if epoch < quorum.epoch else 75

    def _records(self, offset: int, wait_ms: int) -> bytes:
        """Give what follows an offset: at least one batch, else cut anywhere, as Kafka does."""
        quorum = self.quorum
        with quorum.news:
            if offset >= quorum.end:
                quorum.news.wait(timeout=min(wait_ms, 20) / 1000)
            found = [frame.data for frame in quorum.log if frame.last_offset >= offset]
        return b"".join(found)[: max(len(found[0]), quorum.answer_bytes)] if found else b""

    def _diverging(self, offset: int, epoch: int) -> LogEnd | None:
        quorum = self.quorum
        if offset == quorum.log_start and (quorum.snapshot is None or quorum.snapshot[0] == LogEnd(offset, epoch)):
            return None
        if quorum.snapshot is not None and quorum.snapshot[0] == LogEnd(offset, epoch):
            return None
        before = next((f for f in quorum.log if f.base_offset <= offset - 1 <= f.last_offset), None)
        if before is not None and before.epoch == epoch:
            return None
        older = [f for f in quorum.log if f.epoch <= epoch]
        return LogEnd(older[-1].last_offset + 1, older[-1].epoch) if older else LogEnd(quorum.log_start, 0)

    def fetched(
        self, error: int, records: bytes = b"", diverging: LogEnd | None = None, snapshot: LogEnd | None = None
    ) -> Any:
        topic = FetchResponse.FetchableTopicResponse
        part = topic.PartitionData
        quorum = self.quorum
        content = part(
            partition_index=0, error_code=error, high_watermark=-1 if error else quorum.watermark(),
            last_stable_offset=-1, log_start_offset=quorum.log_start, aborted_transactions=None,
            preferred_read_replica=-1, records=records,
        )  # fmt: skip
        if diverging is not None:
            content.diverging_epoch = part.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
        if snapshot is not None:
            content.snapshot_id = part.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        nodes = []
        if error in {0, 6, 74, 75}:
            content.current_leader = part.LeaderIdAndEpoch(leader_id=quorum.leader, leader_epoch=quorum.epoch)
        if error in {6, 74, 75}:
            (moved, *_), endpoint = quorum.listeners.values(), FetchResponse.NodeEndpoint
            ports = {one: moved or other.port for one, other in quorum.nodes.items()}
            nodes = [endpoint(node_id=one, host="127.0.0.1", port=port, rack=None) for one, port in ports.items()]
        return FetchResponse(
            throttle_time_ms=0, error_code=0, session_id=0,
            responses=[topic(topic_id=messages.TOPIC_ID, partitions=[content])], node_endpoints=nodes,
        )  # fmt: skip

    def answer_FetchSnapshotRequest(self, request: Any) -> Any:  # noqa: N802
        topic = FetchSnapshotResponse.TopicSnapshot
        part = topic.PartitionSnapshot
        asked = request.topics[0].partitions[0]
        wanted = LogEnd(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if self.quorum.snapshot_error:
            return FetchSnapshotResponse(throttle_time_ms=0, error_code=self.quorum.snapshot_error, topics=[])
        if self.quorum.snapshot is None or self.quorum.snapshot[0] != wanted:
            return FetchSnapshotResponse(throttle_time_ms=0, error_code=-1, topics=[])
        data = self.quorum.snapshot[1]
        piece = data[asked.position : asked.position + self.quorum.snapshot_bytes]
        content = part(
            index=0, error_code=0, snapshot_id=part.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch),
            size=len(data), position=asked.position, unaligned_records=piece,
        )  # fmt: skip
        topics = [topic(name="__cluster_metadata", partitions=[content])]
        return FetchSnapshotResponse(throttle_time_ms=0, error_code=0, topics=topics)


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A quorum of three nodes; node 1 leads an empty log at epoch 1. It is asked again soon after an error."""
    monkeypatch.setattr(tail, "LONGEST_PAUSE", 0.05)
    made = Quorum()
    made.nodes |= {node_id: Node(made, node_id) for node_id in (1, 2, 3)}
    yield made
    for node in made.nodes.values():
        node.stop()


def batch(base_offset: int, epoch: int, *values: bytes, timestamp: int = 1_000, attributes: int = 0) -> EncodedBatch:
    """Write one record batch: a data batch of record values, or (attributes 0x20) a LeaderChange."""
    written = b""
    for index, value in enumerate(values):
        body = b"\0\0" + _varint(index) + (_keyed(value) if attributes & 0x20 else b"\1" + _varint(len(value)) + value)
        body += b"\0"
        written += _varint(len(body)) + body
    header = (attributes, len(values) - 1, timestamp, timestamp, -1, -1, -1, len(values))
    tail = struct.pack(">hiqqqhii", *header) + written
    data = struct.pack(">qiibI", base_offset, len(tail) + 9, epoch, 2, crc32c(tail)) + tail
    (frame,) = split(data)
    return frame


def _keyed(leader: bytes) -> bytes:
    key = struct.pack(">hh", 0, 2)
    value = struct.pack(">h", 0) + leader
    return _varint(len(key)) + key + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    return unsigned_varint(value << 1)


@pytest.fixture
def address(quorum: Any) -> Address:
    """Where node 1 listens."""
    return Address("127.0.0.1", quorum.nodes[1].port)
