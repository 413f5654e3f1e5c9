"""A consumer: reads the partitions it was told to read, or its share of what its group reads (``KafkaConsumer``).

Departs from Kafka: the application takes every record the moment it arrives, so a position is what was processed, and
there is no poll to be late for (``max.poll.interval.ms`` only limits rebalances).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.clients.client import Client
from streaming.model.clients.committing import OffsetCommits
from streaming.model.clients.fetching import ConsumerFetches
from streaming.model.clients.membership import ClassicMembership, ConsumerMembership
from streaming.model.clients.positions import ConsumerConfig, FetchState, GroupProtocol, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.clients.committing import Membership
    from streaming.model.constants import Constants, Error
    from streaming.model.storage.log import Records

DEFAULT_CONFIG: Final = ConsumerConfig()
_MEMBERSHIPS: Final = {GroupProtocol.CLASSIC: ClassicMembership, GroupProtocol.CONSUMER: ConsumerMembership}


class Consumer(Client):
    """A consumer.

    Attributes:
        fetching: its positions and what it read.
        membership: its place in its group; None without one.
        committing: its commits; None without a group.
    """

    def __init__(
        self,
        node: BrokerId,
        bootstrap: Sequence[BrokerId],
        constants: Constants,
        config: ConsumerConfig = DEFAULT_CONFIG,
    ) -> None:
        super().__init__(node, bootstrap, constants)
        self.config = config
        self.fetching = ConsumerFetches(self, config)
        self.membership: Membership | None = None
        self.committing: OffsetCommits | None = None
        if config.group is not None:
            self.membership = _MEMBERSHIPS[config.protocol](self, self, config, config.group)
            interval = config.auto_commit_interval_ms
            self.committing = OffsetCommits(self, self.membership, self.fetching, interval)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Position in each partition it reads."""
        return self.fetching.positions

    @property
    def consumed(self) -> Mapping[TopicPartition, Records]:
        """Records that its application got, by partition."""
        return self.fetching.consumed

    def assign(self, now: int, keys: Iterable[TopicPartition]) -> None:
        """Application says what to read. Enabled without a group."""
        self.fetching.add(keys)
        self.act(now)

    def seek(self, now: int, key: TopicPartition, offset: int) -> None:
        """Application says where to read on."""
        self.fetching.seek(key, offset)
        self.act(now)

    def commit(self, now: int, then: Callable[[int, Error], None]) -> None:
        """Application commits how far it has read. Enabled with a group."""
        assert self.membership is not None  # noqa: S101 - see above
        assert self.committing is not None  # noqa: S101 - see above
        self.committing.commit(now, self.membership.owned, then)
        self.act(now)

    def close(self) -> None:
        """The application ends: the group is told."""
        if self.membership is not None:
            self.membership.leave()
        super().close()

    def poll(self, now: int) -> None:
        """Stay in the group, commit, read on."""
        if self.membership is not None and self.committing is not None:
            self.membership.poll(now)
            self.committing.poll(now)
        else:
            for key, position in self.positions.items():
                if position.state is FetchState.INITIALIZING:
                    self.fetching.reset(key)
        self.fetching.poll(now)

    # -------------------------------------------------------------- told by its membership (Assignee)

    def take_over(self, keys: Iterable[TopicPartition]) -> None:
        """Read these, too, from where the group stopped."""
        self.fetching.add(keys)

    def give_up(self, now: int, keys: frozenset[TopicPartition], then: Callable[[int], None]) -> None:
        """Read these no more, commit how far they were read, then call ``then``."""
        if self.committing is None or self.config.auto_commit_interval_ms is None:
            self.drop(keys)
            then(now)
            return
        self.committing.commit(now, keys, lambda at, _error: then(at))
        self.drop(keys)

    def drop(self, keys: frozenset[TopicPartition]) -> None:
        """Read these no more."""
        self.fetching.remove(keys)
        if self.committing is not None:
            self.committing.forget(keys)
