"""Record batch v2 (KIP-98) in the metadata log: splitting, checksum, control records.

Two steps, because a response may contain batches that are not committed yet: :func:`split` finds the batches in a
response, :func:`decode` decodes one of them. :func:`decode_batches` does both, for segments and snapshots.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from streaming.contracts import records
from streaming.contracts.identifiers import Micros, Offset
from streaming.errors import Quarantined
from streaming.sources.metadata_log.decoding import decode_record
from streaming.sources.protocol.primitives import INT8, INT16, INT32, INT64, ByteReader

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


class EncodedBatch(NamedTuple):
    """One batch, not decoded: the offsets of its first and last record, and the leader epoch it was written in."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


def split(data: bytes) -> Iterator[EncodedBatch]:
    """Split a run of batches.

    Kafka cuts a response at any byte, so an incomplete batch at the end is left out: the next Fetch returns all of it.
    """
    position = 0
    while position + _RECORDS_AT <= len(data):
        base_offset, length, epoch, _, _ = _PREFIX.unpack_from(data, position)
        end = position + _LENGTH_ENDS_AT + length
        if length < _RECORDS_AT - _LENGTH_ENDS_AT or end > len(data):
            return
        last_delta = _HEADER.unpack_from(data, position + _PREFIX.size)[1]
        # The CRC is not verified yet: a corrupt delta must not move the end offset of the log beyond any real one.
        plausible = last_delta if 0 <= last_delta < length else 0
        yield EncodedBatch(base_offset, base_offset + plausible, epoch, data[position:end])
        position = end


def is_intact(batch: EncodedBatch) -> bool:
    """Return whether the checksum is valid; a batch of an unknown format counts as intact, and fails to decode."""
    _, _, _, magic, checksum = _PREFIX.unpack_from(batch.data)
    return bool(magic != _MAGIC or crc32c(batch.data[_PREFIX.size :]) == checksum)


def decode(batch: EncodedBatch) -> records.RecordBatch:
    """Decode one batch. A batch that cannot be decoded becomes one :class:`records.Undecodable`.

    Its bytes are then cut after the header, because the rest may contain credentials.
    """
    attributes, _, base_time, max_time, *_ = _HEADER.unpack_from(batch.data, _PREFIX.size)
    decoded: tuple[records.MetadataRecord, ...]
    try:
        decoded = tuple(_records(batch, attributes))
    except Quarantined as reason:
        decoded = (records.Undecodable(reason=str(reason), value=batch.data[:_RECORDS_AT]),)
    return records.RecordBatch(
        base_offset=Offset(batch.base_offset),
        epoch=batch.epoch,
        timestamp=Micros(1000 * (max_time if attributes & _LOG_APPEND_TIME else base_time)),
        records=decoded,
    )


def decode_batches(data: bytes) -> Iterator[records.RecordBatch]:
    """Decode all complete batches of a segment, a snapshot or a response."""
    return map(decode, split(data))


def last_contained_time(batch: EncodedBatch) -> Micros | None:
    """Return the append time of the newest record that a snapshot contains, from its header record, else None."""
    attributes = _HEADER.unpack_from(batch.data, _PREFIX.size)[0]
    if not attributes & _CONTROL:
        return None
    for key, value in _raw_records(batch):
        kind = ByteReader(key, 2).number(INT16)
        if kind == _SNAPSHOT_HEADER:
            return Micros(1000 * ByteReader(value, 2).number(INT64))
    return None


def _records(batch: EncodedBatch, attributes: int) -> Iterator[records.MetadataRecord]:
    magic = _PREFIX.unpack_from(batch.data)[3]
    if magic != _MAGIC:
        raise Quarantined(f"batch at offset {batch.base_offset} has magic {magic}, this program reads {_MAGIC}")
    if not is_intact(batch):
        raise Quarantined(f"batch at offset {batch.base_offset} does not match its checksum")
    if attributes & _COMPRESSION:
        raise Quarantined(f"batch at offset {batch.base_offset} is compressed, which no controller does")
    for key, value in _raw_records(batch):
        yield _control_record(key, value, batch.epoch) if attributes & _CONTROL else decode_record(value)


def _raw_records(batch: EncodedBatch) -> Iterator[tuple[bytes, bytes]]:
    """Return key and value of each record.

    Invariant: the records of a batch of the metadata log have consecutive offsets: record ``i`` is at base offset + i.
    """
    count = _HEADER.unpack_from(batch.data, _PREFIX.size)[-1]
    reader = ByteReader(batch.data, _RECORDS_AT)
    for index in range(count):
        end = reader.varint() + reader.position
        reader.number(INT8)  # attributes of a record: unused
        reader.varint()  # timestamp delta: the controller appends all records of a batch at once
        if reader.varint() != index:
            raise Quarantined(f"batch at offset {batch.base_offset} skips offsets")
        key, value = _bytes(reader), _bytes(reader)
        if not reader.position <= end <= len(batch.data):
            raise Quarantined(f"record {index} of the batch at offset {batch.base_offset} has a wrong length")
        reader.position = end
        yield key, value


def _bytes(reader: ByteReader) -> bytes:
    length = reader.varint()
    return b"" if length < 0 else reader.raw(length)


def _control_record(key: bytes, value: bytes, epoch: int) -> records.MetadataRecord:
    """Decode a control record: the key is version and type; the value of LeaderChange is version, leader, ..."""
    header = ByteReader(key)
    version, kind = header.number(INT16), header.number(INT16)
    if kind == _LEADER_CHANGE:
        return records.LeaderChange(controller=ByteReader(value, 2).number(INT32), epoch=epoch)
    # Snapshot header and footer, KRaft version, voters. Negative, because the keys of data records start at 0, too.
    return records.Skipped(api_key=-kind, version=version)
