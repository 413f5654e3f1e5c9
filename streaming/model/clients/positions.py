"""Positions of a consumer by partition, and what it has to learn before it may read on (``SubscriptionState``)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.constants import Error
from streaming.model.messages.clients import IsolationLevel
from streaming.model.storage.batch import Marker
from streaming.model.storage.log import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.model.messages.clients import ConsumerFetchedPartition

if TYPE_CHECKING:
    Run = tuple[int, int, int]  # leader epoch, first offset, offset after the last


class FetchState(Enum):
    """Next step for a partition (``SubscriptionState.FetchStates``)."""

    INITIALIZING = auto()
    """Ask the group's coordinator for the committed offset."""
    AWAIT_RESET = auto()
    """Ask the leader where its log begins or ends."""
    AWAIT_VALIDATION = auto()
    """Ask a new leader whether its log still has what was read (KIP-320)."""
    FETCHING = auto()
    FAILED = auto()
    """The application has to say where to continue: there is no reset policy."""


# States that may come before; a seek or a new assignment starts over.
MAY_FOLLOW: Final[dict[FetchState, frozenset[FetchState]]] = {
    FetchState.INITIALIZING: frozenset(),
    FetchState.AWAIT_RESET: frozenset({FetchState.INITIALIZING, FetchState.FETCHING, FetchState.AWAIT_VALIDATION}),
    FetchState.AWAIT_VALIDATION: frozenset({FetchState.FETCHING}),
    FetchState.FETCHING: frozenset({FetchState.INITIALIZING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION}),
    FetchState.FAILED: frozenset({FetchState.INITIALIZING, FetchState.FETCHING, FetchState.AWAIT_VALIDATION}),
}


class Position:
    """One partition of a consumer.

    Attributes:
        offset: the next record to read.
        epoch: leader epoch of the record before it; ``NO_EPOCH`` if unknown.
        validated_epoch: the newest leader epoch in which the position is known to be right.
        is_asking: a question about it is on its way.
        retry_at: not before.
        preferred: a replica to read from instead of the leader, until ``preferred_until`` (KIP-392).
        error: why it failed.
    """

    __slots__ = (
        "epoch", "error", "is_asking", "offset", "preferred", "preferred_until", "retry_at", "state", "validated_epoch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = FetchState.INITIALIZING
        self.offset = -1
        self.epoch = NO_EPOCH
        self.validated_epoch = NO_EPOCH
        self.is_asking = False
        self.retry_at = 0
        self.preferred: BrokerId | None = None
        self.preferred_until = 0
        self.error = Error.NONE

    def move(self, state: FetchState) -> None:
        """Take a step of the table."""
        assert self.state in MAY_FOLLOW[state], f"{self.state.name} -> {state.name}"  # noqa: S101 - a step that the table lacks is a mistake in this package
        self.state, self.is_asking = state, False

    def begin(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """Read on from ``offset``, which is right in ``leader_epoch``."""
        self.move(FetchState.FETCHING)
        self.offset, self.epoch, self.validated_epoch = offset, epoch, leader_epoch
        self.preferred = None

    def lose(self, policy: ResetPolicy, error: Error) -> None:
        """The position does not exist (any more)."""
        self.error = error
        self.move(FetchState.FAILED if policy is ResetPolicy.NONE else FetchState.AWAIT_RESET)

    def is_due(self, state: FetchState, now: int) -> bool:
        """Return whether the question that belongs to a state should be asked now."""
        return self.state is state and not self.is_asking and now >= self.retry_at


def returned(answer: ConsumerFetchedPartition, isolation: IsolationLevel) -> list[Run]:
    """Give the records of an answer that the application gets to see.

    No markers, nothing that compaction took out, and with ``read_committed`` nothing of an aborted transaction.
    """
    skipped = list(_skipped(answer, isolation))
    ends = (*(offset for _, offset in answer.epochs[1:]), answer.end_offset)
    runs = []
    for (epoch, start), end in zip(answer.epochs, ends, strict=True):
        at = start
        for first, after in [span for span in skipped if span[0] < end and start < span[1]]:
            if at < first:
                runs.append((epoch, at, first))
            at = after
        if at < end:
            runs.append((epoch, at, end))
    return runs


def _skipped(answer: ConsumerFetchedPartition, isolation: IsolationLevel) -> Iterator[tuple[int, int]]:
    coming = sorted(answer.aborted, key=lambda transaction: transaction.first_offset)
    aborted: set[int] = set()
    for batch in answer.batches:
        while coming and coming[0].first_offset <= batch.last_offset:
            aborted.add(coming.pop(0).producer_id)
        if batch.marker is Marker.ABORT:
            aborted.discard(batch.producer_id)
        is_aborted = batch.is_transactional and batch.producer_id in aborted
        if batch.marker is not None or (is_aborted and isolation is IsolationLevel.READ_COMMITTED):
            yield batch.base_offset, batch.end_offset
        elif batch.deltas is not None:
            left = set(batch.offsets)
            yield from ((at, at + 1) for at in range(batch.base_offset, batch.end_offset) if at not in left)


# Requests of an application to its consumer. Values only.


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
    """Topics that it subscribes to."""
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
        """True if partitions are kept through a rebalance: only if every assignor can do that."""
        return set(self.assignors) == {"cooperative-sticky"}
