"""One record of the bus in Kafka: the unchanged payload, and in headers what its place in the directory says.

    key        cluster id
    source     the source of the log
    position   where the record begins in its log, and ``end`` where it ends
    log_id     of the collector run that wrote it
    runs       the log ids of this log that its shipper knows, oldest first: a reader that has applied a record of one
               of them has applied a part of this log
    damage     only if the payload is no record: damaged bytes, or the start of a record that is too large

All of a log is in one partition: the job recognises what it has applied by its position in the log, so it would take a
record that another partition delivers late for one that was applied. That is why samples are not spread by broker: the
samples of all brokers are one log. Invariant: tests/bus/test_kafka_records.py.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.frames import HEADER_BYTES, DamagedRange
from streaming.contracts.observations import Channel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.bus.frames import BusFrame
    from streaming.settings import KafkaBusSettings

SOURCE: Final = "source"
POSITION: Final = "position"
END: Final = "end"
LOG_ID: Final = "log_id"
RUNS: Final = "runs"
DAMAGE: Final = "damage"
MOST_RUNS: Final = 32
KEPT_BYTES: Final = 1024
"""Bytes that are shipped of a record that is too large."""
_OVERHEAD: Final = 512  # of a record batch and its fields, without headers and key

_CLUSTER_ID: Final = re.compile(rb'"cluster_id":"([^"\\]+)"')
_COLLECTED_AT: Final = re.compile(rb'"collected_at":(\d+)')


class LogRecord(NamedTuple):
    """One piece of a log that is shipped: a record, or damaged bytes.

    Attributes:
        position: where it begins in its log.
        end: where it ends in its log.
        log_id: of the run that wrote it.
        payload: the bytes.
        damage: what is wrong with the bytes; None for a record.
    """

    position: int
    end: int
    log_id: int
    payload: bytes
    damage: str | None


def topic_of(settings: KafkaBusSettings, channel: Channel) -> str:
    """Return the topic of a channel."""
    return settings.replication_topic if channel is Channel.REPLICATION else settings.samples_topic


def record_of(item: BusFrame | DamagedRange, log_id: int, limit: int) -> LogRecord:
    """Return what is shipped for a record of the directory, in at most ``limit`` bytes including headers.

    A record that is too large is cut and marked as damaged, so that it does not stop its log: the job quarantines it,
    and notices from the sequence numbers that one observation is missing.
    """
    if isinstance(item, DamagedRange):
        raw = item.raw[: max(limit - _OVERHEAD, 0)]
        return LogRecord(item.position, item.end, log_id, raw, item.reason)
    size = len(item.payload) + HEADER_BYTES * MOST_RUNS + _OVERHEAD
    if size <= limit:
        return LogRecord(item.position, item.end, log_id, item.payload, None)
    damage = f"a record of {len(item.payload)} bytes is larger than its topic takes (max.message.bytes {limit})"
    return LogRecord(item.position, item.end, log_id, item.payload[:KEPT_BYTES], damage)


def headers_of(source: str, record: LogRecord, runs: Sequence[int]) -> list[tuple[str, bytes]]:
    """Return the headers of a record."""
    headers = {
        SOURCE: source,
        POSITION: str(record.position),
        END: str(record.end),
        LOG_ID: str(record.log_id),
        RUNS: ",".join(str(run) for run in runs[-MOST_RUNS:]),
    }
    if record.damage is not None:
        headers[DAMAGE] = record.damage
    return [(name, value.encode()) for name, value in headers.items()]


def cluster_id_in(payloads: Iterable[bytes]) -> str | None:
    """Return the cluster id of the first observation among payloads; None if there is no observation."""
    return next((match[1].decode() for payload in payloads if (match := _CLUSTER_ID.search(payload))), None)


def collected_at(payload: bytes) -> int | None:
    """Return when an observation was collected, in microseconds; None for other bytes."""
    match = _COLLECTED_AT.search(payload)
    return None if match is None else int(match[1])


def key_of(source: str, cluster_id: str | None) -> str:
    """Return the key of a log's records: its cluster, so a partition has whole clusters; without one, its source."""
    return cluster_id or source


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key: the "consistent" partitioner of librdkafka."""
    return zlib.crc32(key.encode()) % partitions
