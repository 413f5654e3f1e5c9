"""Ships the logs of a collector's directory to the topics of the bus, then deletes them from the directory."""

# Theory of operation
#
# The collector writes its directory as usual, and knows nothing of Kafka. A shipper reads each log from the position up
# to which it was shipped, just as the job does without Kafka, and sends one Kafka record per log record. So the same
# code handles back-pressure, the limit of the directory (``bus.max_bytes``), and the deletion and reporting of unread
# segments, with Kafka and without.
#
# A *round* takes a few megabytes of every log with new records, sends them, and waits until the brokers have
# acknowledged all of them (``acks=all`` by an idempotent producer, so in order). It ends at a record that is refused:
# behind later ones the job would take it for an old one. Only after a whole round does the position move, is written to
# ``shipped.json``, and whole segments below it are deleted. A new producer sends a failed round again, as a whole.
# Records that arrive twice because of that, a kill, or an outdated ``shipped.json`` change nothing: the job applies
# each position of a log only once.
#
# The shipper syncs a segment to disk before it ships it, so a power cut never takes from a log what the bus has of it.
#
# A replaced log. The directory says whether a log still contains the record that was shipped last
# (``DirectoryReader.last_common``). If not, the log was replaced, restored, or cut: it is shipped from its beginning,
# and its records no longer name the earlier runs, which is how the job recognises another log. A topic with another id
# was created again: everything that the directory still has is shipped again. So it is if a topic ends before the
# newest offset that its brokers have acknowledged: an unclean election lost records. A producer notices that, and the
# next one looks before it sends anything, so the job finds no gap that the directory could fill.
#
# Two shippers. A directory has one shipper process (``lock``); others wait for their turn. Two directories whose
# collectors have the same name are noticed by the job, from alternating log ids (``jobs.shards.reading``), rather
# than fenced by a transactional id: by ``python -m tests.benchmarks.bus_fencing`` a round of one record takes 2.5 and
# 3.5 ms with the idempotent producer, and 12.8 and 41.9 ms in a transaction (two runs on two cores under load 8, three
# brokers; 20 records take 1.7 and 2.8, and 6.8 and 33.7 ms), while an idle producer takes 0.0006 cores either way. That
# is more than the 10 ms that fencing is worth; and two collectors that fence each other would each be silent half of
# the time, whereas refusing one leaves the other complete.
#
# Invariants
#   1. The shipper deletes only what the brokers have acknowledged. tests/bus/test_shipper.py.
#   2. Whatever is killed or refused, each record of a log arrives at least once, and the first time in order. The same
#      file, and tests/bus/test_shipper_faults.py.
#   3. No record stops its log: one that is too large is cut (``records.record_of``). The same file.

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import OffsetSpec

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.bus.kafka.records import (
    MOST_RUNS,
    LogRecord,
    cluster_id_in,
    collected_at,
    headers_of,
    key_of,
    partition_of,
    record_of,
    topic_of,
)
from streaming.bus.kafka.topics import (
    SECONDS,
    BusTopic,
    administrator,
    client_properties,
    described,
    ensure,
    error_of,
    offsets_of,
    quiet_logger,
    unreachable,
)
from streaming.bus.log import sync_file
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError, ConnectionRefused, IsrwatchError
from streaming.locks import Lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import Message
    from confluent_kafka.admin import AdminClient

    from streaming.settings import KafkaBusSettings

ROUND_BYTES: Final = 4 << 20
"""Bytes of one log in a round."""
STATE: Final = "shipped.json"
_LOCK: Final = ".shipper.lock"
_FORMAT: Final = 1
_NOTHING: Final = -1
_LEAST_LIMIT: Final = 4096
_BATCH_BYTES: Final = 1_000_000
_TOO_LARGE: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}

Log = tuple[Channel, str]


@dataclass(slots=True)
class Shipped:
    """Progress of one log.

    Attributes:
        last: position of the last record that was shipped, -1 for none.
        end: position after it, where the next round begins.
        log_id: of the run that wrote it; None for none.
        runs: the earlier log ids, oldest first; the directory may have no segment of them any more.
        partition: where all of the log is; None before the first record.
        key: of its records.
        offset: of the newest record that the brokers have acknowledged, -1 for none.
    """

    last: int = _NOTHING
    end: int = 0
    log_id: int | None = None
    runs: list[int] = field(default_factory=list)
    partition: int | None = None
    key: str = ""
    offset: int = _NOTHING

    def begin_again(self) -> None:
        """Ship again what the directory has; the job knows the log by its runs."""
        self.runs = [*self.runs, *([] if self.log_id is None else [self.log_id])]
        self.last, self.end, self.log_id, self.offset = _NOTHING, 0, None, _NOTHING


@dataclass(slots=True)
class ShipperCounts:
    """Counts of a shipper since its start, and of waiting records.

    Attributes:
        records: shipped since the start.
        cut: how many of them were cut because they were too large.
        lost_bytes: bytes that the directory deleted at its limit before they were shipped.
        waiting: bytes of each log that are not shipped yet.
        oldest: when the oldest waiting record of each log was collected, in microseconds.
        error: the newest failure, in one sentence; None once a round has succeeded.
    """

    records: int = 0
    cut: int = 0
    lost_bytes: int = 0
    waiting: dict[Log, int] = field(default_factory=dict)
    oldest: dict[Log, int] = field(default_factory=dict)
    error: str | None = None


class Shipper:
    """Ships one directory. Not thread-safe: one thread calls it."""

    def __init__(
        self,
        directory: Path,
        settings: KafkaBusSettings,
        report: Callable[[str], None] = lambda _: None,
        *,
        delivery_seconds: float = 15.0,
    ) -> None:
        """Connect to nothing yet; a round that takes ``delivery_seconds`` counts as failed, and is sent again."""
        self._directory, self._settings, self._report = directory, settings, report
        self._delivery_seconds = delivery_seconds
        self._reader = DirectoryReader(directory)
        self._topics: dict[str, BusTopic] = {}
        self._limits: dict[str, int] = {}
        self._refused_sizes: dict[str, int] = {}
        self._halved: dict[str, int] = {}
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._lock: int | None = None
        self._compared: set[Log] = set()
        self._said: set[object] = set()
        self._logs: dict[Log, Shipped] = {}
        self._identities: dict[str, str] = {}
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._has_advanced = True
        self.counts = ShipperCounts()

    @property
    def positions(self) -> dict[Log, int]:
        """By log, the position after the last record that the brokers have acknowledged."""
        return {log: shipped.end for log, shipped in self._logs.items()}

    def lock(self) -> bool:
        """Become the shipper of the directory; return False if another process is."""
        if self._lock is not None:
            return True
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        # On a file system without locks two of them ship everything twice, which the job recognises.
        try:
            is_another = try_lock(lock) is Lock.OF_ANOTHER
        except OSError:
            os.close(lock)
            raise
        if is_another:
            os.close(lock)
            return False
        self._lock = lock
        self._restore()
        return True

    def round(self, *channels: Channel) -> int:
        """Ship a few megabytes of every log with new records, of these channels or all; return how many bytes.

        Raises:
            ConnectionRefused: the bus did not acknowledge all of it; the next round sends it again.
            ConfigurationError: the bus refuses, and will until its settings or ours change.
        """
        chosen = channels or tuple(Channel)
        try:
            producer = self._connected()  # first: it says how large a record may be
            pieces = [*self._news(*chosen)]
            if pieces:
                self._send(producer, pieces)
        except IsrwatchError as refusal:
            self.counts.error = str(refusal)
            self._disconnect()
            for _ in self._news(*chosen):  # counts what is waiting
                pass
            raise
        self.counts.error = None
        if not pieces:
            return 0
        shipped = sum(self._advance(log, records) for log, records in pieces)
        self._store()
        return shipped

    def delete_shipped(self) -> None:
        """Delete shipped segments, after syncing to disk that they are shipped; else they would count as lost later.

        Raises:
            ConnectionRefused: a topic is gone or was created again, which a producer does not notice: nothing is
                deleted, and the next rounds ship everything again.
        """
        if not self._has_advanced:
            return
        self._check_topics()
        if not self._store():
            return
        self._has_advanced = False
        sync_file(self._directory / STATE)
        for (channel, source), shipped in self._logs.items():
            if shipped.log_id is not None:
                self._reader.delete_below(channel, source, shipped.end, shipped.log_id)

    def close(self) -> None:
        """Disconnect, and let another process be the shipper of the directory."""
        self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _news(self, *channels: Channel) -> Iterator[tuple[Log, list[LogRecord]]]:
        """Yield the new records of each log of some channels."""
        ends = {
            (channel, source): end
            for channel in channels
            for source, end in self._reader.end_positions(channel).items()
        }
        for log, end in ends.items():
            shipped = self._logs.setdefault(log, Shipped())
            if log not in self._compared or end < shipped.end or self._has_another_run(log, shipped):
                self._compared.add(log)
                self._begin_again_where_replaced(log, shipped)
            self._skip_deleted(log, shipped, end)
            self.counts.waiting[log] = max(end - shipped.end, 0)
            records = self._read(log, shipped, end) if end > shipped.end else []
            self._note_oldest(log, records)
            if records:
                yield log, records

    def _note_oldest(self, log: Log, records: list[LogRecord]) -> None:
        """Note since when a log has been waiting, in one step: another thread may read it at any moment."""
        moment = collected_at(records[0].payload) if records else None
        if moment is None:
            self.counts.oldest.pop(log, None)
        else:
            self.counts.oldest[log] = moment

    def has_moved(self, channel: Channel) -> bool:
        """Return whether a log of a channel was created, written or cut since the last round."""
        return self._reader.has_moved(channel)

    def _has_another_run(self, log: Log, shipped: Shipped) -> bool:
        """Return whether the segment in which the last shipped record ends is of another run now."""
        there = [each for each in self._reader.segments(*log) if each.base < shipped.end]
        return any(each.log_id != shipped.log_id for each in there if each.end is None or each.end >= shipped.end)

    def _begin_again_where_replaced(self, log: Log, shipped: Shipped) -> None:
        channel, source = log
        at = LogPosition(shipped.last, shipped.log_id)
        if shipped.log_id is None or self._reader.last_common(channel, source, at) == at:
            return
        self._report(
            f"the log {channel}/{source} was replaced, restored from a copy, or cut since it was shipped: it is "
            "shipped from its beginning"
        )
        shipped.last, shipped.end, shipped.log_id, shipped.runs, shipped.offset = _NOTHING, 0, None, [], _NOTHING

    def _skip_deleted(self, log: Log, shipped: Shipped, end: int) -> None:
        """Continue where the log begins now, if the directory has deleted unshipped records at its limit."""
        begin = self._reader.start_positions(log[0]).get(log[1], end)
        if begin <= shipped.end:
            return
        if shipped.log_id is not None:
            self.counts.lost_bytes += begin - shipped.end
            self._report(
                f"{begin - shipped.end} bytes of {log[0]}/{log[1]} were deleted before the bus had them, because they "
                "were more than bus.max_bytes: they are recorded as missed"
            )
        shipped.end = begin

    def _read(self, log: Log, shipped: Shipped, end: int) -> list[LogRecord]:
        """Read the new records of a log, up to the size of a round; none if the directory has just deleted them."""
        try:
            return self._records(log, shipped, end)
        except (FileNotFoundError, IsrwatchError):
            self._compared.discard(log)
            if self._reader.start_positions(log[0]).get(log[1], 0) > shipped.end:
                return []  # the next round reports it
            raise

    def _records(self, log: Log, shipped: Shipped, end: int) -> list[LogRecord]:
        channel, source = log
        limit = self._limits.get(topic_of(self._settings, channel), 1 << 30)
        records: list[LogRecord] = []
        for segment in self._reader.segments(channel, source):
            lower, upper = max(shipped.end, segment.base), end if segment.end is None else min(end, segment.end)
            if lower >= upper:
                continue
            sync_file(segment.path)
            for item in self._reader.read(channel, source, lower, upper, segment.log_id):
                if records and item.end - records[0].position > ROUND_BYTES:
                    return records
                records.append(record_of(item, segment.log_id, limit))
                if isinstance(item, BusFrame) and records[-1].damage is not None:
                    self._say(f"{channel}/{source}: {records[-1].damage}: its begin alone is shipped", about=log)
        return records

    def _advance(self, log: Log, records: list[LogRecord]) -> int:
        """Note that records were acknowledged; return how many bytes of the log they take."""
        shipped, last = self._logs[log], records[-1]
        for log_id in dict.fromkeys(record.log_id for record in records):
            if shipped.log_id not in (None, log_id):
                shipped.runs = [*shipped.runs, shipped.log_id][-MOST_RUNS:]
            shipped.log_id = log_id
        self._has_advanced = True
        self.counts.oldest.pop(log, None)
        size = last.end - shipped.end
        shipped.last, shipped.end = last.position, last.end
        if shipped.partition is not None:
            place = topic_of(self._settings, log[0]), shipped.partition
            shipped.offset = self._acknowledged.get(place, shipped.offset)
        self.counts.records += len(records)
        self.counts.cut += sum(
            record.damage is not None and record.damage.startswith("a record of") for record in records
        )
        self.counts.waiting[log] = max(self.counts.waiting.get(log, 0) - size, 0)
        return size

    # What follows talks to Kafka.

    def _send(self, producer: Producer, pieces: list[tuple[Log, list[LogRecord]]]) -> None:
        """Send records, and wait until all of them are acknowledged."""
        refused: list[KafkaError] = []
        sizes: list[tuple[str, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)
                if error.code() in _TOO_LARGE:
                    sizes.append((message.topic() or "", len(message.value() or b"")))
                return
            self._acknowledged[message.topic() or "", message.partition() or 0] = message.offset() or 0

        deadline = time.monotonic() + self._delivery_seconds
        stopped: list[KafkaError] = []
        try:
            for log, records in pieces:
                self._produce(producer, log, records, delivered, deadline)
        except KafkaException as failure:
            stopped.append(error_of(failure))
        stopped += self._awaited(producer, deadline)
        left = len(producer)
        refused += stopped
        if refused:
            if sizes:
                self._refused_sizes = {topic: max(size for name, size in sizes if name == topic) for topic, _ in sizes}
            raise unreachable(self._settings, refused[0])
        if left:
            raise ConnectionRefused(
                f"the bus at {self._settings.bootstrap_servers} did not acknowledge {left} records within "
                f"{self._delivery_seconds:g} s"
            )

    @staticmethod
    def _awaited(producer: Producer, deadline: float) -> Iterator[KafkaError]:
        """Wait until no record is left; yield the error because of which the producer stops, after a refused one."""
        while len(producer) and (seconds := deadline - time.monotonic()) > 0:
            try:
                producer.poll(seconds)
            except KafkaException as failure:
                yield error_of(failure)

    def _produce(
        self,
        producer: Producer,
        log: Log,
        records: list[LogRecord],
        delivered: Callable[[KafkaError | None, Message], None],
        deadline: float,
    ) -> None:
        channel, source = log
        shipped = self._logs[log]
        topic = self._topics[topic_of(self._settings, channel)]
        if shipped.partition is None or shipped.partition >= topic.partitions:
            shipped.key = key_of(source, cluster_id_in(record.payload for record in records))
            shipped.partition = partition_of(shipped.key, topic.partitions)
        here = [segment.log_id for segment in self._reader.segments(channel, source)]
        before = [*shipped.runs, *([] if shipped.log_id is None else [shipped.log_id]), *here]
        runs = list(dict.fromkeys(before))
        for record in records:
            while True:
                try:
                    producer.produce(
                        topic.name,
                        record.payload,
                        key=shipped.key,
                        partition=shipped.partition,
                        headers=headers_of(source, record, runs),  # type: ignore[arg-type]  # a list of pairs
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
                    if time.monotonic() > deadline:
                        return  # the flush reports it

    def _connected(self) -> Producer:
        if self._producer is None:
            self._admin = self._admin or administrator(self._settings)
            self._topics = ensure(self._admin, self._settings, min(SECONDS, self._delivery_seconds))
            for topic in self._topics.values():
                self._take(topic)
            self._begin_again_where_lost(self._admin)
            limit = min(self._limits.values())
            properties = client_properties(
                self._settings,
                enable_idempotence=True,
                enable_gapless_guarantee=True,
                max_in_flight_requests_per_connection=1,  # a broker takes any as the first one of a new producer
                acks="all",
                linger_ms=1,
                batch_size=max(min(_BATCH_BYTES, limit - _LEAST_LIMIT // 2), 1),
                message_max_bytes=1_000_000_000,  # the topic decides
                message_timeout_ms=round(2 * self._delivery_seconds * 1000),  # the round ends before a record does
            )
            properties.setdefault("compression.type", "lz4")
            try:
                self._producer = Producer({**properties, "logger": quiet_logger()})
            except KafkaException as refusal:
                raise ConfigurationError(f"bus.kafka.client: {error_of(refusal).str()}") from None
        return self._producer

    def _take(self, topic: BusTopic) -> None:
        """Note the limits of a topic; forget what was shipped to it if it was created again."""
        if topic.differences:
            self._say(topic.differences)
        self._limits[topic.name] = self._limit(topic)
        before = self._identities.get(topic.name, topic.identity)
        self._identities[topic.name] = topic.identity
        if before == topic.identity:
            return
        self._report(
            f"the topic {topic.name} of the bus was created again: all that the directory has is shipped again"
        )
        for (channel, source), shipped in self._logs.items():
            if topic_of(self._settings, channel) == topic.name:
                shipped.begin_again()
                shipped.partition = None
                self._compared.discard((channel, source))
        raise ConnectionRefused(f"the topic {topic.name} of the bus was created again")  # the round is read again

    def _begin_again_where_lost(self, admin: AdminClient) -> None:
        """Ship again what the directory has of logs in partitions that end before what was acknowledged."""
        places = {
            log: (name, shipped.partition)
            for log, shipped in self._logs.items()
            if shipped.offset != _NOTHING and shipped.partition is not None
            if shipped.partition < self._topics[name := topic_of(self._settings, log[0])].partitions
        }
        ends = offsets_of(admin, self._settings, {*places.values()}, OffsetSpec.latest())
        for log, place in places.items():
            if (missing := self._logs[log].offset + 1 - ends[place]) > 0:
                self._say(
                    f"{place[0]}/{place[1]} ends {missing} records before what its brokers had acknowledged: all that "
                    "the directory has is shipped again"
                )
                self._logs[log].begin_again()
                self._compared.discard(log)
                self._acknowledged.pop(place, None)

    def _check_topics(self) -> None:
        """Refuse topics that were created again since records were shipped to them."""
        if self._producer is None or self._admin is None:
            return
        try:
            topics = described(self._admin, self._settings, min(SECONDS, self._delivery_seconds))
            for name in self._topics.keys() - topics.keys():
                raise ConnectionRefused(f"the topic {name} of the bus is gone")
            for topic in topics.values():
                self._take(topic)
            self._begin_again_where_lost(self._admin)
        except IsrwatchError:
            self._disconnect()
            raise

    def _limit(self, topic: BusTopic) -> int:
        """Return how large a record of a topic may be; half of one that it refused although it was within the limit."""
        largest, refused = topic.largest_record, self._refused_sizes.pop(topic.name, None)
        if refused is not None and refused <= largest:
            self._halved[topic.name] = max(refused // 2, _LEAST_LIMIT)
        return min(largest, self._halved.get(topic.name, largest))

    def _disconnect(self) -> None:
        """Drop records in flight: another producer sends them again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.purge()
                producer.flush(1.0)

    def _say(self, sentence: str, about: object = None) -> None:
        """Report a sentence once, or something about a subject once."""
        if (about or sentence) not in self._said:
            self._said.add(about or sentence)
            self._report(sentence)

    # The progress file in the directory. If it is missing or old, records are only shipped twice.

    def _restore(self) -> None:
        try:
            stored = json.loads((self._directory / STATE).read_text(encoding="utf-8"))
            if stored["format"] != _FORMAT:
                return
            self._identities = dict(stored["topics"])
            for name, values in stored["logs"].items():
                channel, _, source = name.partition("/")
                self._logs[Channel(channel), source] = Shipped(**values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._identities, self._logs = {}, {}

    def _store(self) -> bool:
        """Write the progress; return whether that was possible."""
        logs = {f"{channel}/{source}": asdict(shipped) for (channel, source), shipped in self._logs.items()}
        draft = self._directory / f".{STATE}.draft"
        try:
            draft.write_text(
                json.dumps({"format": _FORMAT, "topics": self._identities, "logs": logs}), encoding="utf-8"
            )
            draft.replace(self._directory / STATE)
        except OSError as error:
            self._say(
                f"cannot write {self._directory / STATE}: {error.strerror}; after a restart more is shipped twice, and "
                "nothing that is shipped is deleted meanwhile"
            )
            return False
        return True
