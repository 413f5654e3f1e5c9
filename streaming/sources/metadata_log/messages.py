"""Requests, and the fields that are read from responses. Depends on kafka-python's message classes, not on a socket.

kafka-python has no FetchSnapshot: its classes are generated from the two JSON files next to this module.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest

from streaming.contracts.identifiers import Micros, Offset
from streaming.contracts.records import RecordBatch, SkippedRecord, UndecodableRecord
from streaming.sources.metadata_log.decoding import decode, is_intact, last_contained_time, split
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.quorum_messages import METADATA_TOPIC, Leader

if TYPE_CHECKING:
    from streaming.sources.protocol.connection import Connection

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


# A KRaft snapshot (KIP-630): fetched chunk by chunk, and read as a whole or not at all.


_FOOTER: Final = SkippedRecord(api_key=-4, version=0)
_CUT: Final = "the KRaft snapshot ends before its footer"


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A KRaft snapshot: the state at ``end``. The offsets of its batches are not those of the log.

    A snapshot does not contain the leader of the quorum. ``leader`` is set when no election followed the snapshot;
    otherwise the log behind it contains a LeaderChange. One that was cut off ends with a record that cannot be decoded.
    ``is_damaged`` is set where bytes are missing or do not match their checksum.
    """

    batches: tuple[RecordBatch, ...]
    end: LogEnd
    timestamp: Micros | None
    leader: Leader | None
    is_damaged: bool = False

    @property
    def unread_until(self) -> Offset:
        """The offset after which a snapshot must end to help where this one cannot be read.

        The same one helps when it was damaged: it is repaired, or the next leader has it whole.
        """
        return Offset(self.end.offset - self.is_damaged)


def fetch(connection: Connection, *, cluster_id: str, leader_epoch: int, snapshot: LogEnd) -> bytes | int:
    """Fetch all of a snapshot; return Kafka's error code where a chunk is refused.

    Kafka 4.3.1 responds with error -1 for a snapshot that was deleted meanwhile: the next Fetch returns a newer id.

    Raises:
        ConnectionRefused: the connection broke.
    """
    data, size = bytearray(), 1
    while len(data) < size:
        request = fetch_snapshot_request(
            connection.required(FetchSnapshotRequest.API_KEY, FETCH_SNAPSHOT_NEWEST, "FetchSnapshot"),
            cluster_id=cluster_id,
            leader_epoch=leader_epoch,
            snapshot=snapshot,
            position=len(data),
        )
        chunk = connection.call(request, FetchSnapshotResponse, read_fetch_snapshot)
        if chunk.error or not chunk.data:
            return chunk.error
        data += chunk.data
        size = chunk.size
    return bytes(data)


def read(data: bytes, end: LogEnd, leader: Leader) -> LoadedSnapshot:
    """Decode a snapshot; the leader is that of now."""
    frames = tuple(split(data))
    batches = tuple(map(decode, frames))
    is_cut = sum(len(frame.data) for frame in frames) < len(data) or not _has_footer(batches)
    if is_cut:
        batches += (_cut_off(batches, end),)
    times = filter(None, map(last_contained_time, frames[:1]))
    leads = leader if leader.epoch == end.epoch else None
    return LoadedSnapshot(batches, end, next(times, None), leads, is_cut or not all(map(is_intact, frames)))


def _has_footer(batches: tuple[RecordBatch, ...]) -> bool:
    last = batches[-1].records[-1] if batches and batches[-1].records else None
    return isinstance(last, SkippedRecord) and last.api_key == _FOOTER.api_key


def _cut_off(batches: tuple[RecordBatch, ...], end: LogEnd) -> RecordBatch:
    """Stand for what is missing, behind all that is there: the state is then known to be unknown."""
    behind = batches[-1].base_offset + len(batches[-1].records) if batches else 0
    missing = UndecodableRecord(reason=_CUT, value=b"")
    return RecordBatch(base_offset=Offset(behind), epoch=end.epoch, timestamp=Micros(0), records=(missing,))
