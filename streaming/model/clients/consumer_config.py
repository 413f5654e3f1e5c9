"""What an application says to its consumer. Values only."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from streaming.model.messages.consumer_fetch import IsolationLevel

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicId


class ResetPolicy(Enum):
    """``auto.offset.reset``: where to begin without a position, or with one that does not exist any more."""

    EARLIEST = auto()
    LATEST = auto()
    NONE = auto()


class GroupProtocol(Enum):
    """``group.protocol``."""

    CLASSIC = "classic"
    """Consumers assign partitions to each other."""
    CONSUMER = "consumer"
    """The coordinator does (KIP-848, 4.0)."""


class ConsumerConfig(NamedTuple):
    """The consumer's configuration (``ConsumerConfig``)."""

    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """``isolation.level``."""
    reset: ResetPolicy = ResetPolicy.LATEST
    """``auto.offset.reset``."""
    rack: str | None = None
    """``client.rack``."""
    group: str | None = None
    """``group.id``; None: it reads what it is told to read, and commits nothing."""
    topics: frozenset[TopicId] = frozenset()
    """What it subscribes to."""
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    """``group.protocol``."""
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    """``partition.assignment.strategy``, of the classic protocol."""
    server_assignor: str | None = None
    """``group.remote.assignor``, of the consumer protocol; None: the coordinator's choice."""
    auto_commit_interval_ms: int | None = 5_000
    """``auto.commit.interval.ms``; None: the application commits."""

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept through a rebalance: only if every assignor can do that."""
        return set(self.assignors) == {"cooperative-sticky"}
