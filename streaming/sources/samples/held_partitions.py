"""Partitions whose last stable offset stands still below the high watermark: the oldest open transaction holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.contracts.identifiers import Micros, TopicId

    ByTopic = Mapping[str, Mapping[int, int]]
    TopicPartition = tuple[str, int]


class Held(NamedTuple):
    """A partition that is held.

    Attributes:
        last_stable_offset: where, the first offset of the oldest open transaction.
        high_watermark: when this was first seen: all before it is of transactions that had begun then.
        since: when this was first seen, by the monotonic clock.
    """

    last_stable_offset: int
    high_watermark: int
    since: Micros


class HeldPartitions:
    """Notes which partitions are held, from the offsets of one leader after the other.

    Args:
        clock: the monotonic time.
    """

    def __init__(self, clock: Callable[[], Micros] = monotonic) -> None:
        self._clock = clock
        self._ids: dict[str, TopicId] = {}
        self._held: dict[str, dict[int, Held]] = {}

    def put(self, topic_ids: Mapping[str, TopicId], high_watermarks: ByTopic, last_stable: ByTopic) -> None:
        """Note the offsets of a leader's partitions. The high watermarks were read first, so none is held by chance."""
        now = self._clock()
        for topic, stable in last_stable.items():
            topic_id = topic_ids.get(topic)
            if topic_id is None:
                continue
            before = self._held.get(topic, {}) if self._ids.get(topic) == topic_id else {}
            kept = {number: held for number, held in before.items() if number not in stable}
            watermarks = high_watermarks.get(topic, {})
            if stable != watermarks:
                kept |= {
                    number: held
                    if (held := before.get(number)) is not None and held.last_stable_offset == offset
                    else Held(offset, watermarks[number], now)
                    for number, offset in stable.items()
                    if offset < watermarks.get(number, 0)
                }
            self._ids[topic], self._held[topic] = topic_id, kept

    def for_long(self, topic_ids: Mapping[str, TopicId], micros: Micros) -> dict[TopicPartition, Held]:
        """Return the partitions that have been held for so long, of topics that still exist; forget other topics."""
        gone = [topic for topic, topic_id in self._ids.items() if topic_ids.get(topic) != topic_id]
        for topic in gone:
            del self._ids[topic], self._held[topic]
        until = self._clock() - micros
        return {
            (topic, number): held
            for topic, parts in self._held.items()
            for number, held in parts.items()
            if held.since <= until
        }
