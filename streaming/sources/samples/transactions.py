"""Transactions: those that coordinators have open, and those that hang because no coordinator knows of them (KIP-664).

Every broker is asked for what it coordinates, in two requests. When all have answered, the leaders of partitions that
have been held for long are asked who holds them, in one request each; where no transaction stays open, none is.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import MILLISECOND, NO_LEADER, BrokerId, Micros
from streaming.contracts.sample_blocks import TransactionsReported
from streaming.contracts.samples import TransactionObserved
from streaming.sources.permissions import DESCRIBE_TRANSACTIONAL_IDS, PROBE_PREFIX, READ_TOPICS, PermissionDenied, Probe
from streaming.sources.protocol.connection import RawRequest, RawResponse, compact_array, compact_string
from streaming.sources.protocol.primitives import INT16, INT32, INT64
from streaming.sources.samples.kind import NEVER, AnswerContent
from streaming.sources.source import AT_ONCE, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from streaming.contracts.observations import Observation
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.protocol.primitives import ByteReader
    from streaming.sources.samples.kind import Ask, BrokerAnswer
    from streaming.sources.samples.offsets import HeldPartition, HeldPartitions

if TYPE_CHECKING:
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


class ProducersAnswer(NamedTuple):
    """Response of a leader, and the question: its partitions, and what coordinators had said before."""

    held: Mapping[TopicPartition, HeldPartition]
    listed: Listed | None
    described: DescribedProducers


class TransactionsKind:
    """Asks for transactions; see :class:`kind.Kind`.

    Args:
        period: microseconds.
        held: the partitions that an open transaction holds.
        held_micros: how long one is before its leader is asked by whom.
        probe: the transactional id that does not exist.
    """

    names: Sequence[str] = (COORDINATORS, PRODUCERS)

    def __init__(
        self, period: Micros, held: HeldPartitions, *, held_micros: Micros = HELD_MICROS, probe: Probe | None = None
    ) -> None:
        self.probe = probe or Probe(PROBED)
        self._due, self._held, self._held_micros = Timer(period), held, held_micros
        self._round_micros = min(_ROUND_MICROS, period // 2)
        self._producers_at = NEVER
        self._unanswered: set[BrokerId] = set()
        self._open: dict[BrokerId, OpenTransactions] = {}
        self._open_before: dict[BrokerId, OpenTransactions] = {}
        self._held_long: dict[TopicPartition, HeldPartition] = {}
        self._hanging, self._begins = HangingTransactions(), BeginTimes()

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return min(self._due.next_at, self._producers_at)

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask the coordinators when the time has come, and when these have answered the leaders of held partitions."""
        if self._due.take_due(moment):
            self._held_long = self._held.for_long(view.topic_ids, self._held_micros)
            self._hanging.retain(self._held_long)
            self._begins.next_round(is_whole=_listed(view, self._open) is not None)
            self._open_before, self._open = self._open, {}
            self._unanswered = {broker for broker in view.brokers if ask(COORDINATORS, broker, self._opened)}
            self._producers_at = Micros(moment + self._round_micros) if self._held_long else NEVER
        elif moment >= self._producers_at:
            self._producers_at = NEVER
            listed = _listed(view, self._open)
            for leader, held in _by_leader(view, self._held_long).items():
                ask(PRODUCERS, leader, partial(_asked_producers, held, listed))

    def _opened(self, connection: Connection) -> OpenTransactions:
        return open_transactions(connection, self.probe)

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return the transactions that a broker has open as a coordinator, and those that hang in what it leads."""
        is_of_this_round = answer.kind == COORDINATORS and answer.broker in self._unanswered
        if is_of_this_round:
            self._unanswered.discard(answer.broker)
            if not self._unanswered and self._producers_at != NEVER:
                self._producers_at = AT_ONCE
        if answer.refusal is not None:
            return AnswerContent([], answer.refusal)
        if answer.kind == PRODUCERS:
            return self._judged(answer.value)
        opened: OpenTransactions = answer.value
        if is_of_this_round:
            self._open[answer.broker] = opened
        missing = PermissionDenied(DESCRIBE_TRANSACTIONAL_IDS) if opened.is_denied else None
        return AnswerContent([*self._reported_by(answer.broker, opened, view, envelope)], missing)

    def _judged(self, asked: ProducersAnswer) -> AnswerContent:
        """Judge by the answer of a leader. What it proves is reported in the next round, which begins at once then."""
        before = self._hanging.in_partitions(asked.held)
        self._hanging.judge(asked.held, asked.listed, asked.described.writing)
        if self._hanging.in_partitions(asked.held) != before:
            self._due.expire()
        denied = asked.described.denied
        return AnswerContent([], None if denied is None else PermissionDenied(READ_TOPICS, on=f"topic {denied}"))

    def _reported_by(
        self, broker: BrokerId, opened: OpenTransactions, view: ClusterView, envelope: dict[str, Any]
    ) -> Iterator[Observation]:
        """Report the transactions of a broker, and that these are all; nothing if it does not say what it has."""
        if not opened.is_listed:
            return
        self._begins.answered(envelope["occurred_not_before"])
        for each in opened.transactions:
            yield self._observed(broker, each, envelope)
        coordinated = {
            (each.producer_id, each.producer_epoch)
            for answered in (*self._open.values(), *self._open_before.values())
            for each in answered.transactions
        }
        for producer in sorted(self._hanging.in_partitions(self._held_long) - coordinated):
            partitions = self._hanging.of(*producer)
            if leader_of(view, partitions[0]) == broker:
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
            started_at=self._begins.of(opened, envelope["collected_at"]),
            transaction_partitions=_names(sorted({*opened.partitions, *hanging})),
            is_hanging=bool(hanging),
            reporter=coordinator,
        )


def _asked_producers(
    held: Mapping[TopicPartition, HeldPartition], listed: Listed | None, connection: Connection
) -> ProducersAnswer:
    by_topic: dict[str, list[int]] = {}
    for topic, number in held:
        by_topic.setdefault(topic, []).append(number)
    return ProducersAnswer(held, listed, describe_producers(connection, by_topic))


def _by_leader(
    view: ClusterView, held: Mapping[TopicPartition, HeldPartition]
) -> dict[BrokerId, dict[TopicPartition, HeldPartition]]:
    """Group partitions by their leaders, those first that have been held longest."""
    by_leader: dict[BrokerId, dict[TopicPartition, HeldPartition]] = {}
    for partition, each in sorted(held.items(), key=lambda item: item[1].since):
        leader = leader_of(view, partition)
        led = by_leader.setdefault(leader, {})
        if leader in view.brokers and len(led) < MOST_PARTITIONS:
            led[partition] = each
    return {leader: led for leader, led in by_leader.items() if led}


def leader_of(view: ClusterView, partition: TopicPartition) -> BrokerId:
    """Return the leader of a partition; none if it is not known."""
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


# ListTransactions and DescribeTransactions 0 (KIP-664, Kafka 3.0): what a coordinator has open, in two requests.
#
# Kafka lists only what may be described, and does not say that it left something out. So one transactional id is
# described, too, that does not exist: where that is denied, others may be.


LIST: Final = 66
DESCRIBE: Final = 65
PROBED: Final = f"{PROBE_PREFIX}transaction"
UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of a transaction that is open, or whose end is not written to all its partitions yet."""
_DENIED: Final = 53  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOT_FOUND: Final = 105  # it has expired since it was listed
_NUMBERS: Final = struct.Struct(">iqqh")  # timeout, start, producer id and epoch


class OpenTransaction(NamedTuple):
    """A transaction that its coordinator has not ended yet.

    Attributes:
        transactional_id: of its producer.
        state: as Kafka names it, one of ``UNDECIDED``.
        timeout_ms: how long it may be open.
        started_at: when it began, by the coordinator's clock; None while it has no partition.
        producer_id, producer_epoch: who writes it.
        partitions: those that are in it, and have no marker of its end yet.
    """

    transactional_id: str
    state: str
    timeout_ms: int
    started_at: Micros | None
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class OpenTransactions(NamedTuple):
    """Response of a coordinator.

    Attributes:
        transactions: those that it has open.
        is_listed: whether it said what it has; otherwise it is no coordinator (yet).
        is_complete: whether these are all.
        is_denied: whether there are transactional ids that may not be described.
    """

    transactions: tuple[OpenTransaction, ...] = ()
    is_listed: bool = False
    is_complete: bool = False
    is_denied: bool = False


def open_transactions(connection: Connection, probe: Probe | None = None) -> OpenTransactions:
    """Ask one coordinator for its open transactions; older than Kafka 3.0 it returns none.

    The probe is a transactional id that does not exist; it is described when it is due, else denied as it was last.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(LIST, 0) < 0:
        return OpenTransactions()
    error, listed = RawResponse(_read_listed).value_of(connection, RawRequest(LIST, 0, _LISTED))
    probe = probe or Probe(PROBED)
    is_probed = probe.take_due(monotonic())
    names = (probe.name, *listed) if is_probed else listed
    body = compact_array(map(compact_string, names)) + b"\0"
    described = RawResponse(_read_described).value_of(connection, RawRequest(DESCRIBE, 0, body)) if names else ()
    if is_probed:
        own = {failed for failed, one in described if one.transactional_id == probe.name}
        probe.note(monotonic(), is_denied=_DENIED in own)
    is_denied = probe.is_denied or any(failed == _DENIED for failed, _ in described)
    described = [each for each in described if each[1].transactional_id != probe.name]
    errors = {failed for failed, _ in described}
    return OpenTransactions(
        transactions=tuple(one for failed, one in described if not failed and one.state in UNDECIDED),
        is_listed=not error,
        is_complete=not error and not is_denied and errors <= {0, _NOT_FOUND},
        is_denied=is_denied,
    )


_LISTED: Final = compact_array(map(compact_string, UNDECIDED)) + compact_array(()) + b"\0"
COMMITTED: Final = "CompleteCommit"


def committed_transactions(connection: Connection, producers: Collection[int]) -> dict[int, Micros]:
    """Ask a coordinator which producers have committed their last transaction, all markers of which are written.

    Return when that began, by the coordinator's clock, by producer id.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(LIST, 0) < 0:
        return {}
    filters = compact_array([compact_string(COMMITTED)]) + compact_array(map(INT64.pack, producers)) + b"\0"
    _, names = RawResponse(_read_listed).value_of(connection, RawRequest(LIST, 0, filters))
    body = compact_array(map(compact_string, names)) + b"\0"
    described = RawResponse(_read_described).value_of(connection, RawRequest(DESCRIBE, 0, body)) if names else ()
    return {
        one.producer_id: one.started_at
        for error, one in described
        if not error and one.state == COMMITTED and one.started_at is not None
    }


def _read_listed(reader: ByteReader) -> tuple[int, tuple[str, ...]]:
    error = reader.number(INT16)
    reader.array(reader.string)  # states that it does not know
    return error, reader.array(lambda: _transactional_id(reader)) or ()


def _transactional_id(reader: ByteReader) -> str:
    transactional_id = reader.string()
    reader.raw(8)  # the producer id, which is described, too
    reader.string()
    reader.tags()
    return transactional_id


def _read_described(reader: ByteReader) -> Sequence[tuple[int, OpenTransaction]]:
    return reader.array(lambda: _transaction(reader)) or ()


def _transaction(reader: ByteReader) -> tuple[int, OpenTransaction]:
    error, transactional_id, state = reader.number(INT16), reader.string(), reader.string()
    timeout_ms, started_ms, producer_id, producer_epoch = reader.structure(_NUMBERS)
    topics = reader.array(lambda: _partitions(reader)) or ()
    reader.tags()
    return error, OpenTransaction(
        transactional_id=transactional_id,
        state=state,
        timeout_ms=timeout_ms,
        started_at=Micros(started_ms * MILLISECOND) if started_ms >= 0 else None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=tuple(chain.from_iterable(topics)),
    )


def _partitions(reader: ByteReader) -> list[TopicPartition]:
    topic, numbers = reader.string(), reader.numbers("i") or ()
    reader.tags()
    return [(topic, number) for number in numbers]


class BeginTimes:
    """Begins of open transactions by the clock here, whatever the clocks of their coordinators.

    One began after the last round in which every coordinator answered and none had it, and before it was first there.
    """

    def __init__(self) -> None:
        self._asked_at: Micros | None = None
        self._whole_at: Micros | None = None
        # By producer id, epoch and the time of the coordinator: of this round, the one before, and the last whole one.
        self._seen, self._last, self._whole = (dict[tuple[int, int, int], Micros]() for _ in range(3))

    def next_round(self, *, is_whole: bool) -> None:
        """Begin a round; ``is_whole``: in the one before every coordinator said all that it has."""
        if is_whole:
            self._whole, self._whole_at = self._seen, self._asked_at
        self._last, self._seen, self._asked_at = self._seen, {}, None

    def answered(self, asked_at: Micros) -> None:
        """Note when one that answered in this round was asked."""
        self._asked_at = min(self._asked_at or asked_at, asked_at)

    def of(self, opened: OpenTransaction, now: Micros) -> Micros | None:
        """Return when a transaction of this round began; None while it has no partition."""
        if opened.started_at is None:
            return None
        key = opened.producer_id, opened.producer_epoch, opened.started_at
        begun = self._last.get(key) or self._whole.get(key)
        if begun is None:
            begun = min(max(opened.started_at, self._whole_at or opened.started_at), now)
        self._seen[key] = begun
        return begun


# DescribeProducers 0 (KIP-664, Kafka 2.8): which producers have a transaction open in a partition, as its leader sees.
#
# Requires Read on the topic.


API_KEY: Final = 61
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_PRODUCER: Final = struct.Struct(">qiiqiq")  # id, epoch, sequence, timestamp, epoch of the coordinator, start offset


class OpenProducer(NamedTuple):
    """A producer in a partition where it has a transaction open, and the first offset of that."""

    producer_id: int
    producer_epoch: int
    start_offset: int


class DescribedProducers(NamedTuple):
    """The answer: who writes in each partition that did not fail; a topic that may not be read."""

    writing: dict[TopicPartition, tuple[OpenProducer, ...]]
    denied: str | None = None


def describe_producers(connection: Connection, partitions: Mapping[str, Sequence[int]]) -> DescribedProducers:
    """Ask the leader of partitions, by topic, who has a transaction open in them; older than Kafka 2.8 it returns none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    active = active_producers(connection, partitions)
    writing = {
        partition: tuple(
            OpenProducer(one.producer_id, one.producer_epoch, one.start_offset) for one in producers if one.is_open
        )
        for partition, producers in active.of.items()
    }
    return DescribedProducers(writing, active.denied)


class ActiveProducer(NamedTuple):
    """A producer with an id, of a transaction or idempotent, that has written in a partition in the last day.

    Attributes:
        last_at: time of its newest batch; of a marker by the leader's clock, else as the producer says.
        has_marker: there is one of a transaction that has ended.
        start_offset: first one of the transaction that it has open, else -1.
    """

    producer_id: int
    producer_epoch: int
    last_at: Micros
    has_marker: bool
    start_offset: int

    @property
    def is_open(self) -> bool:
        """True while it has a transaction open."""
        return self.start_offset >= 0

    @property
    def has_ended_transaction(self) -> bool:
        """True if its newest batch is the marker of a transaction."""
        return self.has_marker and not self.is_open


class ActiveProducers(NamedTuple):
    """The answer: who has written in each partition that did not fail; a topic that may not be read."""

    of: dict[TopicPartition, tuple[ActiveProducer, ...]]
    denied: str | None = None


def active_producers(connection: Connection, partitions: Mapping[str, Sequence[int]]) -> ActiveProducers:
    """Ask the leader of partitions, by topic, who has written in them; older than Kafka 2.8 it returns none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    if connection.newest(API_KEY, 0) < 0:
        return ActiveProducers({})
    topics = (
        compact_string(topic) + compact_array(map(INT32.pack, numbers)) + b"\0" for topic, numbers in partitions.items()
    )
    answers = RawResponse(_read).value_of(connection, RawRequest(API_KEY, 0, compact_array(topics) + b"\0"))
    of = {
        (topic, number): producers
        for topic, parts in answers
        for number, error, producers in parts
        if not error and number in partitions.get(topic, ())
    }
    denied = (topic for topic, parts in answers if any(error == _TOPIC_AUTHORIZATION_FAILED for _, error, _ in parts))
    return ActiveProducers(of, next(denied, None))


Partition = tuple[int, int, tuple[ActiveProducer, ...]]


def _read(reader: ByteReader) -> tuple[tuple[str, tuple[Partition, ...]], ...]:
    return reader.array(lambda: _topic(reader)) or ()


def _topic(reader: ByteReader) -> tuple[str, tuple[Partition, ...]]:
    topic, parts = reader.string(), reader.array(lambda: _partition(reader)) or ()
    reader.tags()
    return topic, parts


def _partition(reader: ByteReader) -> Partition:
    number, error = reader.number(INT32), reader.number(INT16)
    reader.nullable_string()
    producers = reader.records(_PRODUCER)
    reader.tags()
    return (
        number,
        error,
        tuple(ActiveProducer(one[0], one[1], Micros(one[3] * MILLISECOND), one[4] >= 0, one[5]) for one in producers),
    )


# Hanging transactions: a partition has one open, and no coordinator will ever end it (KIP-664). Pure.
#
# ``kafka-transactions find-hanging`` waits until a transaction is older than any timeout allows. That is not
# necessary: what was open before the coordinators were asked, is in no answer of theirs, and is open afterwards, is
# unknown to them all: a coordinator forgets a transaction only after its markers are in all its partitions. It has to
# be so twice, in two rounds in a row, because a coordinator may have moved while they were asked.


if TYPE_CHECKING:
    Listed = Mapping[int, Collection[TopicPartition]]
    """Partitions with a transaction that coordinators have open, by producer id."""


class HangingTransactions:
    """Those that are proven to hang, partition by partition."""

    def __init__(self) -> None:
        self._suspected: dict[TopicPartition, set[OpenProducer]] = {}
        self._proven: dict[TopicPartition, set[OpenProducer]] = {}

    def retain(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was proven of other partitions."""
        for gone in self._suspected.keys() - set(partitions):
            del self._suspected[gone], self._proven[gone]

    def judge(
        self,
        held: Mapping[TopicPartition, HeldPartition],
        listed: Listed | None,
        writing: Mapping[TopicPartition, Collection[OpenProducer]],
    ) -> None:
        """Judge by the answer of one leader, whose partitions were ``held`` before the coordinators were asked.

        If one of these did not answer, or not all, nothing new is proven. ``writing`` was asked after that.
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


def _producer(writing: OpenProducer) -> tuple[int, int]:
    return writing.producer_id, writing.producer_epoch
