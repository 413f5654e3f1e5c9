"""Requests, and the fields that are read from responses. Depends on kafka-python's message classes, not on a socket.

kafka-python has no FetchSnapshot: its classes are generated from the two JSON files beside this module.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest

from streaming.sources.address import Address
from streaming.sources.protocol.quorum_messages import METADATA_TOPIC, Leader

TOPIC_ID: Final = uuid.UUID(int=1)
NO_REPLICA: Final = -1  # a consumer: neither a voter nor an observer (KAFKA-12161)
FETCH_BYTES: Final = 8 * 1024 * 1024
SNAPSHOT_BYTES: Final = 1024 * 1024
FETCH_NEWEST: Final = 18  # KIP-1166: the leader responds as soon as the high watermark advances
FETCH_OLDEST: Final = 13  # KIP-516: the log is identified by its topic id
FETCH_HIGH_WATERMARK: Final = 18
FETCH_SNAPSHOT_NEWEST: Final = 1


class FetchSnapshotRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg,misc]
    """KIP-630."""


class FetchSnapshotResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg,misc]
    """KIP-630."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """An end of the log: the offset after the last record, and the leader epoch of that record."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchResponseFields:
    """The fields of a Fetch response; ``records`` are batches, of which the last may be incomplete."""

    error: int = 0
    high_watermark: int = -1
    records: bytes = b""
    diverging: LogEnd | None = None
    snapshot: LogEnd | None = None
    leader: Leader | None = None
    nodes: dict[int, Address] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A chunk of a KRaft snapshot of ``size`` bytes."""

    error: int
    size: int
    data: bytes


def fetch_request(  # noqa: PLR0913 - the fields of the request
    version: int, *, cluster_id: str, leader_epoch: int, end: LogEnd, high_watermark: int, wait_ms: int
) -> Any:  # noqa: ANN401 - kafka-python's messages ship no types
    """Return a Fetch request for the metadata log from ``end`` on."""
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
    )
    if version >= FETCH_HIGH_WATERMARK:
        partition.high_watermark = high_watermark
    return FetchRequest(
        version=version,
        cluster_id=cluster_id,
        replica_id=NO_REPLICA,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic_id=TOPIC_ID, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )


def read_fetch(response: Any) -> FetchResponseFields:  # noqa: ANN401 - as above
    """Return the fields of a Fetch response for one partition."""
    nodes = {node.node_id: Address(node.host, node.port) for node in response.node_endpoints or ()}
    if response.error_code or not response.responses:
        return FetchResponseFields(error=response.error_code or -1, nodes=nodes)
    part = response.responses[0].partitions[0]
    return FetchResponseFields(
        error=part.error_code,
        high_watermark=part.high_watermark,
        records=bytes(part.records or b""),
        diverging=_end(part.diverging_epoch),
        snapshot=_end(part.snapshot_id),
        leader=_leader(part.current_leader),
        nodes=nodes,
    )


def fetch_snapshot_request(version: int, *, cluster_id: str, leader_epoch: int, snapshot: LogEnd, position: int) -> Any:  # noqa: ANN401 - as above
    """Return a request for the bytes of a KRaft snapshot from ``position`` on."""
    topic = FetchSnapshotRequest.TopicSnapshot
    partition = topic.PartitionSnapshot(
        partition=0,
        current_leader_epoch=leader_epoch,
        snapshot_id=topic.PartitionSnapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
    )
    return FetchSnapshotRequest(
        version=version,
        cluster_id=cluster_id,
        replica_id=NO_REPLICA,
        max_bytes=SNAPSHOT_BYTES,
        topics=[topic(name=METADATA_TOPIC, partitions=[partition])],
    )


def read_fetch_snapshot(response: Any) -> SnapshotChunk:  # noqa: ANN401 - as above
    """Return the fields of a FetchSnapshot response."""
    if response.error_code or not response.topics:
        return SnapshotChunk(response.error_code or -1, 0, b"")
    part = response.topics[0].partitions[0]
    return SnapshotChunk(part.error_code, part.size, bytes(part.unaligned_records or b""))


def _end(structure: Any) -> LogEnd | None:  # noqa: ANN401 - as above
    """Read EpochEndOffset or SnapshotId; an end offset below 0 means none."""
    return None if structure is None or structure.end_offset < 0 else LogEnd(structure.end_offset, structure.epoch)


def _leader(structure: Any) -> Leader | None:  # noqa: ANN401 - as above
    return None if structure is None else Leader(structure.leader_id, structure.leader_epoch)
