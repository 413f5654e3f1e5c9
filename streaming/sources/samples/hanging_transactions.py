"""Which transactions hang: a partition has one open, and no coordinator will ever end it (KIP-664). Pure.

``kafka-transactions find-hanging`` waits until a transaction is older than any timeout allows. That is not necessary:
what was open before the coordinators were asked, is in no answer of theirs, and is open afterwards, is unknown to them
all: a coordinator forgets a transaction only after its markers are in all its partitions. It has to be so twice, in two
rounds in a row, because a coordinator may have moved while they were asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.sources.samples.described_producers import Writing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.sources.samples.held_partitions import Held

    TopicPartition = tuple[str, int]
    Listed = Mapping[int, Collection[TopicPartition]]
    """What the coordinators have open: by producer id the partitions."""


class HangingTransactions:
    """Those that are proven to hang, partition by partition."""

    def __init__(self) -> None:
        self._suspected: dict[TopicPartition, set[Writing]] = {}
        self._proven: dict[TopicPartition, set[Writing]] = {}

    def retain(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was proven of other partitions."""
        for gone in self._suspected.keys() - set(partitions):
            del self._suspected[gone], self._proven[gone]

    def judge(
        self,
        held: Mapping[TopicPartition, Held],
        listed: Listed | None,
        writing: Mapping[TopicPartition, Collection[Writing]],
    ) -> None:
        """Judge by the answer of one leader.

        Args:
            held: its partitions, as they were before the coordinators were asked.
            listed: what these answered; None if one of them did not, or not all: then nothing new is proven.
            writing: who has a transaction open in these partitions, asked after that.
        """
        for partition, producers in writing.items():
            suspected, proven = self._suspected.get(partition, set()), self._proven.get(partition, set())
            older = {one for one in producers if one.start_offset < held[partition].high_watermark}
            if listed is None:
                self._suspected[partition], self._proven[partition] = set(), proven & older
            else:
                unlisted = {one for one in older if partition not in listed.get(one.producer_id, ())}
                self._suspected[partition], self._proven[partition] = unlisted, (suspected | proven) & unlisted

    def of(self, producer_id: int, producer_epoch: int) -> list[TopicPartition]:
        """Return the partitions in which a transaction of a producer hangs."""
        producer = producer_id, producer_epoch
        return sorted(partition for partition, proven in self._proven.items() if producer in map(_producer, proven))

    def in_partitions(self, partitions: Collection[TopicPartition]) -> set[tuple[int, int]]:
        """Return id and epoch of each producer whose transaction hangs in one of these partitions."""
        return {_producer(one) for partition in partitions for one in self._proven.get(partition, ())}


def _producer(writing: Writing) -> tuple[int, int]:
    return writing.producer_id, writing.producer_epoch
