"""The offsets of a job in the topics of the bus, and how far it is behind.

The tables hold the applied position of each log, and that alone decides what is new (``jobs.shards``). They also hold
an offset per partition, which only says where reading continues. Its name contains the id of the topic, so a topic that
was created again has none and is read from its beginning. So is one without an id (before Kafka 2.8) that ends before
the offset. If the record at an offset was deleted, reading continues at the oldest one: the gap in the sequence numbers
of the logs is then recorded as missed.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import OffsetSpec

from streaming.bus.kafka.records import topic_of
from streaming.bus.kafka.topics import SECONDS, administrator, ensure, error_of, offsets_of, unreachable
from streaming.errors import ConfigurationError, ConnectionRefused, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka.admin import AdminClient

    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.observations import Channel
    from streaming.settings import KafkaBusSettings

_FRESH_SECONDS: Final = 1.0


def offset_name(topic: str, identity: str, partition: int) -> str:
    """Return the name under which the tables store the offset of a partition."""
    return f"kafka/{topic}/{identity}/{partition}"


class TopicOffsets(NamedTuple):
    """A topic at one moment: its id, and the oldest and the next offset of each partition."""

    identity: str
    begins: dict[int, int]
    ends: dict[int, int]


class Consumed(NamedTuple):
    """Progress of a batch in one log: its partition, and the end of the newest record."""

    partition: int
    end: int


@dataclass(slots=True)
class _ChannelReading:
    """Progress of a channel: logs, next offset of each partition, records and bytes read; and the topic's offsets."""

    logs: dict[str, Consumed] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0
    size: int = 0
    identity: str = ""
    is_other: bool = False
    latest: TopicOffsets | None = None
    looked_at: float = float("-inf")


class KafkaReader:
    """The bus as a job sees it, except for the records, which Spark reads. Safe for several threads.

    ``left`` has, by channel and source, the log ids of logs that another log of the same source has replaced.
    """

    def __init__(self, settings: KafkaBusSettings, report: Callable[[str], None] = lambda _: None) -> None:
        self.settings, self.report = settings, report
        self._admin: AdminClient | None = None
        self._channels: dict[Channel, _ChannelReading] = {}
        self.left: defaultdict[tuple[Channel, str], set[int]] = defaultdict(set)
        self._reported: set[tuple[Channel, str, int | None]] = set()
        self._lock = threading.RLock()

    def _client(self) -> AdminClient:
        self._admin = self._admin or administrator(self.settings)
        return self._admin

    def start(self, channel: Channel, stored: Callable[[str], int]) -> dict[int, int]:
        """Return the offset of each partition where a query begins; create missing topics.

        ``stored`` returns the offset that the tables hold under a name, -1 for none.

        Raises:
            ConnectionRefused: the bus does not answer, or there is no topic.
        """
        topic = topic_of(self.settings, channel)
        try:
            ensure(self._client(), self.settings)
        except ConfigurationError as refusal:  # which the collector or an administrator may fix
            raise ConnectionRefused(str(refusal)) from None
        now = self.look(channel)
        starts: dict[int, int] = {}
        for partition, begin in sorted(now.begins.items()):
            at, end = stored(offset_name(topic, now.identity, partition)), now.ends[partition]
            is_other = at > end and not now.identity
            starts[partition] = begin if is_other else min(max(at, begin), end)
            if 0 <= at < begin:
                self.report(
                    f"{begin - at} records of {topic}/{partition} were deleted before the job had read them: they are "
                    "recorded as missed; raise the retention of the topic, or give the job time to"
                )
            elif at > end:
                self.report(
                    f"{topic}/{partition} ends {at - end} records before what was applied: its brokers have lost them, "
                    "see min.insync.replicas and unclean.leader.election.enable"
                )
        with self._lock:
            reading = self._channels[channel] = _ChannelReading(identity=now.identity, offsets=dict(starts))
            reading.latest, reading.looked_at = now, time.monotonic()
        return starts

    def look(self, channel: Channel) -> TopicOffsets:
        """Ask for the offsets of a topic; ``ConnectionRefused`` if the bus does not answer."""
        admin, topic = self._client(), topic_of(self.settings, channel)
        try:
            described = admin.describe_topics(TopicCollection([topic]), request_timeout=SECONDS)[topic].result()
        except KafkaException as refusal:
            raise unreachable(self.settings, error_of(refusal)) from None
        partitions = [(topic, each.id) for each in described.partitions]
        begins, ends = (
            {at: offset for (_, at), offset in offsets_of(admin, self.settings, partitions, spec).items()}
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return TopicOffsets(str(described.topic_id or ""), begins, ends)

    def identity(self, channel: Channel) -> str:
        """Return the id of the topic that the query began to read."""
        return self._channels.setdefault(channel, _ChannelReading()).identity

    def check_same(self, channel: Channel) -> None:
        """Raise ``IsrwatchError`` if the topic was created again since its query began: its offsets restarted."""
        if self._channels.setdefault(channel, _ChannelReading()).is_other:
            raise IsrwatchError(
                f"the topic {topic_of(self.settings, channel)} of the bus was created again: it is read from its "
                "beginning"
            )

    def note(
        self, channel: Channel, logs: Mapping[str, Consumed], offsets: Mapping[int, int], records: int, size: int
    ) -> None:
        """Record what a batch has applied: logs, next offsets, and how many records and bytes."""
        with self._lock:
            reading = self._channels.setdefault(channel, _ChannelReading())
            reading.logs.update(logs)
            reading.offsets.update(offsets)
            reading.records, reading.size = reading.records + records, reading.size + size

    def leave(self, channel: Channel, source: str, before: Iterable[int], at: LogPosition, runs: Iterable[int]) -> None:
        """Leave a log, which was read up to ``at``, because a record of another one of its source arrived.

        ``before`` has the log ids of its runs, ``runs`` those of the other log.
        """
        left = {*before, *([] if at.log_id is None else [at.log_id])}
        self.left[channel, source] |= left - set(runs)
        self.report(
            f"the log {channel}/{source} on the bus was replaced, restored from a copy, or cut since it was "
            "read: it is read from its beginning; what the bus has lost meanwhile is recorded as missed"
        )

    def report_two(self, channel: Channel, source: str, log_id: int | None) -> None:
        """Report, once, that records of a log that was left still arrive: two collectors ship it."""
        if (channel, source, log_id) not in self._reported:
            self._reported.add((channel, source, log_id))
            self.report(
                f"two collectors ship the log {channel}/{source}: the records of the one that began first "
                "are refused; give each collector a name of its own (collect.collector), then start the job again"
            )

    def logs(self, channel: Channel) -> list[str]:
        """List the sources with a record that was read since the start, sorted."""
        with self._lock:
            return sorted(self._channels.setdefault(channel, _ChannelReading()).logs)

    def bytes_behind(self, channel: Channel, source: str, position: int) -> tuple[int, int]:  # noqa: ARG002 - of the protocol
        """Return the end of what was read of a log, and an estimate of the unread bytes of its partition.

        The estimate counts every unread record, other logs included, with the mean size of the records read.
        While the bus does not answer, the last one stands.
        """
        with self._lock:
            reading = self._channels[channel]
            self._refresh(channel, reading)
            consumed = reading.logs[source]
            ends = {} if reading.latest is None else reading.latest.ends
            records = max(ends.get(consumed.partition, 0) - reading.offsets.get(consumed.partition, 0), 0)
            return consumed.end, records * (reading.size // max(reading.records, 1))

    def unread(self, channel: Channel) -> int:
        """Return how many records wait in a topic of which none was read since the start; 0 once one was."""
        with self._lock:
            reading = self._channels.setdefault(channel, _ChannelReading())
            self._refresh(channel, reading)
            if reading.logs or reading.latest is None:
                return 0
            ends = reading.latest.ends.items()
            return sum(max(end - reading.offsets.get(partition, end), 0) for partition, end in ends)

    def _refresh(self, channel: Channel, reading: _ChannelReading) -> None:
        if time.monotonic() - reading.looked_at < _FRESH_SECONDS:
            return
        reading.looked_at = time.monotonic()
        try:
            reading.latest = self.look(channel)
        except IsrwatchError:
            return
        reading.is_other |= bool(reading.identity) and reading.latest.identity != reading.identity

    def has_records(self, channel: Channel) -> bool:
        """Return whether the topic of a channel has ever had a record."""
        return any(self.look(channel).ends.values())

    def delete_below(self, channel: Channel, source: str, position: int, log_id: int | None = None) -> None:
        """Do nothing: the topics have a retention."""

    def flush(self, channel: Channel) -> None:
        """Do nothing: brokers keep what they have acknowledged."""
