"""A KRaft snapshot (KIP-630): fetched chunk by chunk, and read as a whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros, Offset
from streaming.contracts.records import RecordBatch, Skipped, Undecodable
from streaming.sources.metadata_log import messages
from streaming.sources.metadata_log.batches import decode, is_intact, last_contained_time, split
from streaming.sources.metadata_log.messages import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from streaming.sources.metadata_log.messages import LogEnd
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.quorum_messages import Leader

_FOOTER: Final = Skipped(api_key=-4, version=0)
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
        request = messages.fetch_snapshot_request(
            connection.newest(FetchSnapshotRequest.API_KEY, messages.FETCH_SNAPSHOT_NEWEST),
            cluster_id=cluster_id,
            leader_epoch=leader_epoch,
            snapshot=snapshot,
            position=len(data),
        )
        chunk = connection.call(request, FetchSnapshotResponse, messages.read_fetch_snapshot)
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
    return isinstance(last, Skipped) and last.api_key == _FOOTER.api_key


def _cut_off(batches: tuple[RecordBatch, ...], end: LogEnd) -> RecordBatch:
    """Stand for what is missing, behind all that is there: the state is then known to be unknown."""
    behind = batches[-1].base_offset + len(batches[-1].records) if batches else 0
    missing = Undecodable(reason=_CUT, value=b"")
    return RecordBatch(base_offset=Offset(behind), epoch=end.epoch, timestamp=Micros(0), records=(missing,))
