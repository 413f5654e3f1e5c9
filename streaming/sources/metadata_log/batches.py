"""Record batch v2 (KIP-98) as the metadata log holds it: frames, checksum, control records.

Two steps, because an answer holds batches that must not be applied yet: :func:`split` finds the frames in an answer,
:func:`decode` reads one of them. :func:`decode_batches` does both, for segments and snapshots.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from streaming.contracts import records
from streaming.contracts.identifiers import Micros, Offset
from streaming.errors import Quarantined
from streaming.sources.metadata_log.decoding import decode_record
from streaming.sources.metadata_log.primitives import INT8, INT16, INT32, INT64, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

# base offset, length of what follows, partition leader epoch, magic, CRC-32C of what follows it
_PREFIX: Final = struct.Struct(">qiibI")
# attributes, last offset delta, base timestamp (ms), max timestamp (ms), producer id, epoch, sequence, record count
_HEADER: Final = struct.Struct(">hiqqqhii")
_LENGTH_ENDS_AT: Final = 12
_RECORDS_AT: Final = _PREFIX.size + _HEADER.size
_MAGIC: Final = 2
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_LEADER_CHANGE: Final = 2
_SNAPSHOT_HEADER: Final = 3


class Frame(NamedTuple):
    """One batch, still bytes: offsets of its first and last record, and the raft epoch it was written in."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


def split(data: bytes) -> Iterator[Frame]:
    """Find the frames of a run of batches; an incomplete one at the end is left out, as Kafka cuts answers anywhere."""
    position = 0
    while position + _RECORDS_AT <= len(data):
        base_offset, length, epoch, _, _ = _PREFIX.unpack_from(data, position)
        end = position + _LENGTH_ENDS_AT + length
        if length < _RECORDS_AT - _LENGTH_ENDS_AT or end > len(data):
            return
        last_delta = _HEADER.unpack_from(data, position + _PREFIX.size)[1]
        plausible = last_delta if 0 <= last_delta < length else 0  # not yet checked against the CRC
        yield Frame(base_offset, base_offset + plausible, epoch, data[position:end])
        position = end


def is_intact(frame: Frame) -> bool:
    """Tell whether the checksum holds."""
    _, _, _, magic, checksum = _PREFIX.unpack_from(frame.data)
    return bool(magic != _MAGIC or crc32c(frame.data[_PREFIX.size :]) == checksum)


def decode(frame: Frame) -> records.RecordBatch:
    """Read one batch. A batch that cannot be read as a whole holds one :class:`records.Undecodable`.

    Its bytes are then cut after the header: nobody can tell whether a credential stands in the rest.
    """
    attributes, _, base_time, max_time, *_ = _HEADER.unpack_from(frame.data, _PREFIX.size)
    found: tuple[records.MetadataRecord, ...]
    try:
        found = tuple(_records(frame, attributes))
    except Quarantined as reason:
        found = (records.Undecodable(reason=str(reason), value=frame.data[:_RECORDS_AT]),)
    return records.RecordBatch(
        base_offset=Offset(frame.base_offset),
        epoch=frame.epoch,
        timestamp=Micros(1000 * (max_time if attributes & _LOG_APPEND_TIME else base_time)),
        records=found,
    )


def decode_batches(data: bytes) -> Iterator[records.RecordBatch]:
    """Read all complete batches of a segment, a snapshot or an answer."""
    return map(decode, split(data))


def last_contained_time(frame: Frame) -> Micros | None:
    """Give the append time of the newest record a snapshot stands for (its header record says so), else None."""
    attributes = _HEADER.unpack_from(frame.data, _PREFIX.size)[0]
    if not attributes & _CONTROL:
        return None
    for key, value in _raw_records(frame):
        kind = Reader(key, 2).number(INT16)
        if kind == _SNAPSHOT_HEADER:
            return Micros(1000 * Reader(value, 2).number(INT64))
    return None


def _records(frame: Frame, attributes: int) -> Iterator[records.MetadataRecord]:
    magic = _PREFIX.unpack_from(frame.data)[3]
    if magic != _MAGIC:
        raise Quarantined(f"batch at offset {frame.base_offset} has magic {magic}, this program reads {_MAGIC}")
    if not is_intact(frame):
        raise Quarantined(f"batch at offset {frame.base_offset} does not match its checksum")
    if attributes & _COMPRESSION:
        raise Quarantined(f"batch at offset {frame.base_offset} is compressed, which no controller does")
    for key, value in _raw_records(frame):
        yield _control_record(key, value, frame.epoch) if attributes & _CONTROL else decode_record(value)


def _raw_records(frame: Frame) -> Iterator[tuple[bytes, bytes]]:
    """Give key and value of each record; offsets must be consecutive, because record ``i`` has base offset + i."""
    count = _HEADER.unpack_from(frame.data, _PREFIX.size)[-1]
    reader = Reader(frame.data, _RECORDS_AT)
    for index in range(count):
        end = reader.varint() + reader.position
        reader.number(INT8)  # attributes of a record: unused
        reader.varint()  # the controller appends all records of a batch at one moment
        if reader.varint() != index:
            raise Quarantined(f"batch at offset {frame.base_offset} skips offsets")
        key, value = _bytes(reader), _bytes(reader)
        if not reader.position <= end <= len(frame.data):
            raise Quarantined(f"record {index} of the batch at offset {frame.base_offset} has a wrong length")
        reader.position = end
        yield key, value


def _bytes(reader: Reader) -> bytes:
    length = reader.varint()
    return b"" if length < 0 else reader.raw(length)


def _control_record(key: bytes, value: bytes, epoch: int) -> records.MetadataRecord:
    """Read a record that raft itself wrote: key is version and type; LeaderChange's value is version, leader, ..."""
    header = Reader(key)
    version, kind = header.number(INT16), header.number(INT16)
    if kind == _LEADER_CHANGE:
        return records.LeaderChange(controller=Reader(value, 2).number(INT32), epoch=epoch)
    # Snapshot header and footer, raft version, voters. Negative, because data records count from 0, too.
    return records.Skipped(api_key=-kind, version=version)
