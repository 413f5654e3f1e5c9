"""Transactions: those that coordinators have open, and those that hang because no coordinator knows of them (KIP-664).

Every broker is asked for what it coordinates, in two requests. When all have answered, the leaders of partitions that
have been held for long are asked who holds them, in one request each; where no transaction stays open, none is.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.contracts.sample_blocks import TransactionsReported
from streaming.contracts.samples import TransactionObserved
from streaming.sources.permissions import DESCRIBE_TRANSACTIONAL_IDS, READ_TOPICS, Denied
from streaming.sources.samples.described_producers import DescribedProducers, describe_producers
from streaming.sources.samples.described_transactions import OpenTransactions, open_transactions
from streaming.sources.samples.hanging_transactions import HangingTransactions
from streaming.sources.samples.kind import NEVER, Shown
from streaming.sources.timer import AT_ONCE, Timer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.contracts.observations import Observation
    from streaming.sources.admin_view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.broker_calls import BrokerAnswer
    from streaming.sources.samples.described_transactions import OpenTransaction
    from streaming.sources.samples.hanging_transactions import Listed
    from streaming.sources.samples.held_partitions import Held, HeldPartitions
    from streaming.sources.samples.kind import Ask

    TopicPartition = tuple[str, int]

COORDINATORS: Final = "open transactions"
PRODUCERS: Final = "producers"
TRANSACTION_STATE: Final = "__transaction_state"
HELD_MICROS: Final = Micros(60_000_000)
"""So long a partition is held before its leader is asked by whom. Most transactions are over by then."""
MOST_PARTITIONS: Final = 100
"""So many of them of one leader, those that have been held longest; a response names every producer of each."""
_ROUND_MICROS: Final = 5_000_000
_UNKNOWN: Final = "Unknown"


class AskedProducers(NamedTuple):
    """What a leader answered, and what it was asked for: its partitions, and what coordinators had said before."""

    held: Mapping[TopicPartition, Held]
    listed: Listed | None
    described: DescribedProducers


class TransactionsKind:
    """Asks for transactions; see :class:`kind.Kind`.

    Args:
        period: microseconds.
        held: the partitions that an open transaction holds.
        held_micros: how long one is before its leader is asked by whom.
    """

    names: Sequence[str] = (COORDINATORS, PRODUCERS)

    def __init__(self, period: Micros, held: HeldPartitions, *, held_micros: Micros = HELD_MICROS) -> None:
        self._due, self._held, self._held_micros = Timer(period), held, held_micros
        self._round_micros = min(_ROUND_MICROS, period // 2)
        self._producers_at = NEVER
        self._unanswered: set[BrokerId] = set()
        self._open: dict[BrokerId, OpenTransactions] = {}
        self._open_before: dict[BrokerId, OpenTransactions] = {}
        self._held_long: dict[TopicPartition, Held] = {}
        self._hanging = HangingTransactions()

    @property
    def next_at(self) -> Micros:
        """When it is due, by the monotonic clock."""
        return min(self._due.next_at, self._producers_at)

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask the coordinators when the time has come, and when these have answered the leaders of held partitions."""
        if self._due.take_due(moment):
            self._held_long = self._held.for_long(view.topic_ids, self._held_micros)
            self._hanging.retain(self._held_long)
            self._open_before, self._open = self._open, {}
            self._unanswered = {broker for broker in view.brokers if ask(COORDINATORS, broker, open_transactions)}
            self._producers_at = Micros(moment + self._round_micros) if self._held_long else NEVER
        elif moment >= self._producers_at:
            self._producers_at = NEVER
            listed = _listed(view, self._open)
            for leader, held in _by_leader(view, self._held_long).items():
                ask(PRODUCERS, leader, partial(_asked_producers, held, listed))

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> Shown:
        """Return the transactions that a broker has open as a coordinator, and those that hang in what it leads."""
        is_of_this_round = answer.kind == COORDINATORS and answer.broker in self._unanswered
        if is_of_this_round:
            self._unanswered.discard(answer.broker)
            if not self._unanswered and self._producers_at != NEVER:
                self._producers_at = AT_ONCE
        if answer.refusal is not None:
            return Shown([], answer.refusal)
        if answer.kind == PRODUCERS:
            return self._judged(answer.value)
        opened: OpenTransactions = answer.value
        if is_of_this_round:
            self._open[answer.broker] = opened
        missing = Denied(DESCRIBE_TRANSACTIONAL_IDS) if opened.is_denied else None
        return Shown([*self._reported_by(answer.broker, opened, view, envelope)], missing)

    def _judged(self, asked: AskedProducers) -> Shown:
        """Judge by the answer of a leader. What it proves is reported in the next round, which begins at once then."""
        before = self._hanging.in_partitions(asked.held)
        self._hanging.judge(asked.held, asked.listed, asked.described.writing)
        if self._hanging.in_partitions(asked.held) != before:
            self._due.expire()
        denied = asked.described.denied
        return Shown([], None if denied is None else Denied(READ_TOPICS, on=f"topic {denied}"))

    def _reported_by(
        self, broker: BrokerId, opened: OpenTransactions, view: ClusterView, envelope: dict[str, Any]
    ) -> Iterator[Observation]:
        """Report the transactions of a broker, and that these are all; nothing if it does not say what it has."""
        if not opened.is_listed:
            return
        for each in opened.transactions:
            yield self._observed(broker, each, envelope)
        coordinated = {
            (each.producer_id, each.producer_epoch)
            for answered in (*self._open.values(), *self._open_before.values())
            for each in answered.transactions
        }
        for producer in sorted(self._hanging.in_partitions(self._held_long) - coordinated):
            partitions = self._hanging.of(*producer)
            if _leader(view, partitions[0]) == broker:
                yield TransactionObserved(
                    **envelope,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    transaction_state=_UNKNOWN,
                    transaction_partitions=_names(partitions),
                    is_hanging=True,
                    reporter=broker,
                )
        yield TransactionsReported(**envelope, broker=broker)

    def _observed(
        self, coordinator: BrokerId, opened: OpenTransaction, envelope: dict[str, Any]
    ) -> TransactionObserved:
        hanging = self._hanging.of(opened.producer_id, opened.producer_epoch)
        return TransactionObserved(
            **envelope,
            transactional_id=opened.transactional_id,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            coordinator=coordinator,
            transaction_state=opened.state,
            timeout_ms=opened.timeout_ms,
            started_at=opened.started_at,
            transaction_partitions=_names(sorted({*opened.partitions, *hanging})),
            is_hanging=bool(hanging),
            reporter=coordinator,
        )


def _asked_producers(
    held: Mapping[TopicPartition, Held], listed: Listed | None, connection: Connection
) -> AskedProducers:
    by_topic: dict[str, list[int]] = {}
    for topic, number in held:
        by_topic.setdefault(topic, []).append(number)
    return AskedProducers(held, listed, describe_producers(connection, by_topic))


def _by_leader(view: ClusterView, held: Mapping[TopicPartition, Held]) -> dict[BrokerId, dict[TopicPartition, Held]]:
    """Group partitions by their leaders, those first that have been held longest."""
    by_leader: dict[BrokerId, dict[TopicPartition, Held]] = {}
    for partition, each in sorted(held.items(), key=lambda item: item[1].since):
        leader = _leader(view, partition)
        led = by_leader.setdefault(leader, {})
        if leader in view.brokers and len(led) < MOST_PARTITIONS:
            led[partition] = each
    return {leader: led for leader, led in by_leader.items() if led}


def _leader(view: ClusterView, partition: TopicPartition) -> BrokerId:
    topic, number = partition
    partition_view = view.topics.get(topic, {}).get(number)
    return NO_LEADER if partition_view is None else partition_view.leader


def _listed(view: ClusterView, opened: Mapping[BrokerId, OpenTransactions]) -> Listed | None:
    """Return what the coordinators have open; None unless it is visible who they are, and all of them have said it."""
    coordinators = {partition.leader for partition in view.topics.get(TRANSACTION_STATE, {}).values()}
    if not coordinators or not all(broker in opened and opened[broker].is_complete for broker in coordinators):
        return None
    listed: dict[int, set[TopicPartition]] = {}
    for answered in opened.values():
        for each in answered.transactions:
            listed.setdefault(each.producer_id, set()).update(each.partitions)
    return listed


def _names(partitions: Sequence[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{topic}-{number}" for topic, number in partitions)
