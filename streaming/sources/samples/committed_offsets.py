"""The committed offsets of many groups of one coordinator: OffsetFetch 8 and 9 (KIP-709), all topics in one request.

Of share groups their lag, as the coordinator counts it: DescribeShareGroupOffsets 1 (KIP-1226). It does not follow from
the start offset of a share partition, behind which records are processed in any order.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.errors import Quarantined
from streaming.sources.protocol.primitives import INT16, INT32, INT64
from streaming.sources.protocol.raw import RawRequest, RawResponse, compact_array, compact_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader

    ByTopic = dict[str, dict[int, int]]
    """Offset or lag by topic and partition."""

OFFSET_FETCH: Final = 9
SHARE_OFFSETS: Final = 90
LAGS_SINCE: Final = 1
OLDEST: Final = 8  # the first with many groups in a request, Kafka 3.0
NEWEST: Final = 9
_EVERY_TOPIC: Final = b"\0\0"  # null, and no tagged fields
_OF_GROUP: Final = {8: _EVERY_TOPIC, 9: b"\0\xff\xff\xff\xff" + _EVERY_TOPIC}  # of no member, with no epoch
_PLAIN: Final = struct.Struct(">iqiBh")  # number, offset, leader epoch, length of the metadata plus one, error
_HEAD: Final = struct.Struct(">iqi")
_EMPTY: Final = 1


class OfGroup(NamedTuple):
    """The offsets of one group, or its lags; with an error of Kafka there are none."""

    error: int
    group: str
    values: ByTopic


def committed_offsets(connection: Connection, groups: Iterable[str]) -> tuple[OfGroup, ...]:
    """Ask a coordinator for all that groups have committed, in one request; topics that are hidden are left out.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.newest(OFFSET_FETCH, NEWEST)
    body = compact_array(compact_string(group) + _OF_GROUP[version] for group in groups) + b"\0\0"  # stable or not
    return RawResponse(_read).value_of(connection, RawRequest(OFFSET_FETCH, version, body))


def share_lags(connection: Connection, groups: Iterable[str]) -> tuple[OfGroup, ...]:
    """Ask a coordinator for the lag of share groups; none before Kafka 4.2.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(SHARE_OFFSETS, LAGS_SINCE) < LAGS_SINCE:
        return ()
    body = compact_array(compact_string(group) + _EVERY_TOPIC for group in groups) + b"\0"
    return RawResponse(_read_shares).value_of(connection, RawRequest(SHARE_OFFSETS, LAGS_SINCE, body))


def _read(reader: ByteReader) -> tuple[OfGroup, ...]:
    reader.number(INT32)  # the time for which the request was throttled
    return reader.array(lambda: _group(reader)) or ()


def _group(reader: ByteReader) -> OfGroup:
    group, topics = reader.string(), reader.array(lambda: _topic(reader)) or ()
    error = reader.number(INT16)
    reader.tags()
    return OfGroup(error, group, dict(topics))


def _topic(reader: ByteReader) -> tuple[str, dict[int, int]]:
    topic, records = reader.string(), _partitions(reader)
    reader.tags()
    return topic, {number: offset for number, offset, _, _, error in records if not error and offset >= 0}


def _partitions(reader: ByteReader) -> Sequence[tuple[int, ...]]:
    """Read the partitions of a topic; those without metadata, as most are, at once.

    A record with metadata is recognised by their length, because all records before it are of the width of ``_PLAIN``.
    """
    start = reader.position
    if reader.unsigned_varint() > 1 and _partition(reader)[3] == _EMPTY:
        reader.position = start
        with suppress(Quarantined):
            records = reader.records(_PLAIN)
            if all(length == _EMPTY for _, _, _, length, _ in records):
                return records
    reader.position = start
    return reader.array(lambda: _partition(reader)) or ()


def _partition(reader: ByteReader) -> tuple[int, ...]:
    (number, offset, epoch), length = reader.structure(_HEAD), reader.unsigned_varint()
    reader.raw(max(0, length - 1))  # metadata
    error = reader.number(INT16)
    reader.tags()
    return number, offset, epoch, length, error


def _read_shares(reader: ByteReader) -> tuple[OfGroup, ...]:
    reader.number(INT32)  # the time for which the request was throttled
    return reader.array(lambda: _share_group(reader)) or ()


def _share_group(reader: ByteReader) -> OfGroup:
    group, topics = reader.string(), reader.array(lambda: _share_topic(reader)) or ()
    error, _ = reader.number(INT16), reader.nullable_string()
    reader.tags()
    return OfGroup(error, group, dict(topics))


def _share_topic(reader: ByteReader) -> tuple[str, dict[int, int]]:
    topic, _ = reader.string(), reader.raw(16)  # its id
    records = reader.array(lambda: _share_partition(reader)) or ()
    reader.tags()
    return topic, {number: lag for number, lag, error in records if not error and lag >= 0}


def _share_partition(reader: ByteReader) -> tuple[int, int, int]:
    (number, _, _), lag = reader.structure(_HEAD), reader.number(INT64)
    error, _ = reader.number(INT16), reader.nullable_string()
    reader.tags()
    return number, lag, error
