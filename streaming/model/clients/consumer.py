"""A consumer: reads the partitions it was told to read (``KafkaConsumer``).

Departs from Kafka: the application takes every record the moment it arrives, so there is no poll to be late for
(``max.poll.interval.ms``), and a position is what was processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.clients.client import Client
from streaming.model.clients.consumer_config import ConsumerConfig
from streaming.model.clients.fetching import Fetching
from streaming.model.clients.positions import FetchState, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.constants import Constants
    from streaming.model.invariants.records import Records


DEFAULT_CONFIG: Final = ConsumerConfig()


class Consumer(Client):
    """A consumer without a group, which was told what to read."""

    def __init__(
        self,
        node: BrokerId,
        bootstrap: Sequence[BrokerId],
        constants: Constants,
        config: ConsumerConfig = DEFAULT_CONFIG,
    ) -> None:
        super().__init__(node, bootstrap, constants)
        self.fetching = Fetching(self, config)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Where it is in each partition it reads."""
        return self.fetching.positions

    @property
    def consumed(self) -> Mapping[TopicPartition, Records]:
        """What its application got, by partition."""
        return self.fetching.consumed

    def assign(self, now: int, keys: Iterable[TopicPartition]) -> None:
        """Application says what to read."""
        self.fetching.add(keys)
        self.act(now)

    def seek(self, now: int, key: TopicPartition, offset: int) -> None:
        """Application says where to read on."""
        self.fetching.seek(key, offset)
        self.act(now)

    def poll(self, now: int) -> None:
        """Read on."""
        for key, position in self.positions.items():
            if position.state is FetchState.INITIALIZING:
                self.fetching.reset(key)
        self.fetching.poll(now)
