"""Whom the kinds quorum and transactions ask, in which order, and what follows from the answers."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.sample_blocks import TransactionsReported
from streaming.contracts.samples import QuorumMemberObserved, TransactionObserved
from streaming.errors import ConnectionRefused
from streaming.settings import CollectSettings
from streaming.sources.permissions import DESCRIBE_CLUSTER, DESCRIBE_TRANSACTIONAL_IDS, READ_TOPICS, PermissionDenied
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.quorum_messages import Leader, Quorum, QuorumMember
from streaming.sources.samples.kind import AnswerContent, BrokerAnswer
from streaming.sources.samples.offsets import HeldPartitions
from streaming.sources.samples.quorum import QuorumKind
from streaming.sources.samples.source import kinds_of
from streaming.sources.samples.transactions import (
    COORDINATORS,
    MOST_PARTITIONS,
    PRODUCERS,
    TRANSACTION_STATE,
    DescribedProducers,
    OpenProducer,
    OpenTransaction,
    OpenTransactions,
    ProducersAnswer,
    TransactionsKind,
)
from tests.blocks import ENVELOPE

SECOND = 1_000_000
NOW = Micros(1_000 * SECOND)
ONE, TWO, THREE = (BrokerId(number) for number in (1, 2, 3))
GONE = ConnectionRefused("it does not respond")


def view(*, leaders: tuple[int, ...] = (1, 2), orders: int = 1) -> ClusterView:
    """Three brokers; broker 1 leads ``orders``, and ``leaders`` coordinate transactions."""

    def led(leader: int) -> PartitionView:
        return PartitionView((ONE, TWO, THREE), (ONE, TWO, THREE), BrokerId(leader))

    topics = {
        "orders": {number: led(1) for number in range(orders)},
        TRANSACTION_STATE: {number: led(leader) for number, leader in enumerate(leaders)},
    }
    addresses = {broker: ("h", int(broker)) for broker in (ONE, TWO, THREE)}
    topic_ids = {"orders": TopicId("a"), TRANSACTION_STATE: TopicId("b")}
    return ClusterView(ClusterId("id"), 1, addresses, topics, topic_ids)


class Cluster:
    """Takes the questions that a kind puts; ``silent`` brokers have not answered the last one."""

    def __init__(self, kind: Any, seen: ClusterView) -> None:
        self.kind, self.view, self.moment = kind, seen, Micros(1)
        self.silent: set[BrokerId] = set()
        self.put: list[tuple[str, BrokerId]] = []
        self.works: dict[tuple[str, BrokerId], Any] = {}

    def ask(self, *, seconds: float = 0) -> list[tuple[str, BrokerId]]:
        """Let time pass, and return what is asked."""
        self.moment, self.put = Micros(self.moment + round(seconds * SECOND)), []

        def ask(kind: str, broker: BrokerId, work: Any) -> bool:
            if broker in self.silent:
                return False
            self.put.append((kind, broker))
            self.works[kind, broker] = work
            return True

        self.kind.ask(self.view, ask, self.moment)
        return self.put

    def answer(
        self, kind: str, broker: BrokerId, value: Any = None, refusal: Any = None, envelope: Any = ENVELOPE
    ) -> AnswerContent:
        shown: AnswerContent = self.kind.shown(self.view, BrokerAnswer(kind, broker, NOW, value, refusal), envelope)
        return shown


MEMBERS = (QuorumMember(101, True, 95, 50, 50), QuorumMember(1, False, None, 40, None))


def test_one_broker_is_asked_for_the_quorum_and_the_next_one_if_it_does_not_answer() -> None:
    cluster = Cluster(QuorumKind(Micros(10 * SECOND)), view())
    assert cluster.ask() == [("quorum", ONE)]
    assert cluster.answer("quorum", ONE, refusal=GONE).refusal is GONE
    assert cluster.ask() == [("quorum", TWO)]
    shown = cluster.answer("quorum", TWO, Quorum(0, Leader(101, 4), {}, MEMBERS, 90))
    leader, observer = shown.observations
    assert isinstance(leader, QuorumMemberObserved)
    assert isinstance(observer, QuorumMemberObserved)
    assert (leader.node, leader.controller, leader.controller_epoch, leader.high_watermark) == (101, 101, 4, 90)
    assert (leader.log_end_offset, leader.last_caught_up_at) == (95, 50_000)
    assert (observer.is_voter, observer.log_end_offset, observer.last_fetch_at) == (False, None, 40_000)
    assert observer.last_caught_up_at is None
    assert cluster.ask(seconds=9.9) == []
    assert cluster.ask(seconds=0.2) == [("quorum", TWO)], "who answered last"


def test_while_a_broker_hangs_another_one_is_asked_for_the_quorum() -> None:
    cluster = Cluster(QuorumKind(Micros(10 * SECOND)), view())
    cluster.ask()
    cluster.silent = {ONE}
    assert cluster.ask(seconds=10) == [("quorum", TWO)]


def test_every_broker_is_asked_once_in_a_period_where_none_knows_a_leader() -> None:
    cluster = Cluster(QuorumKind(Micros(10 * SECOND)), view())
    leaderless = Quorum(0, Leader(-1, 5), {}, MEMBERS, 90)
    assert cluster.ask() == [("quorum", ONE)]
    assert cluster.answer("quorum", ONE, Quorum(-1, Leader(-1, -1), {})).observations == []
    assert cluster.ask() == [("quorum", TWO)]
    assert cluster.answer("quorum", TWO, refusal=GONE).observations == []
    assert cluster.ask() == [("quorum", THREE)]
    assert cluster.answer("quorum", THREE, leaderless).observations == []
    assert cluster.ask(seconds=9) == []


def test_a_leader_of_the_quorum_that_does_not_know_yet_that_it_is_none_is_left_out_once() -> None:
    cluster = Cluster(QuorumKind(Micros(10 * SECOND)), view())
    new, old = (Quorum(0, Leader(node, epoch), {}, MEMBERS, 90) for node, epoch in ((102, 5), (101, 4)))
    controllers = []
    for answer in (new, old, new, old, old):
        cluster.ask(seconds=10)
        shown = cluster.answer("quorum", ONE, answer).observations
        controllers.append({one.controller for one in shown if isinstance(one, QuorumMemberObserved)})
    assert controllers == [{102}, set(), {102}, set(), {101}]


def test_a_voter_that_died_before_its_leader_led_is_behind_as_soon_as_it_would_have_fetched() -> None:
    """Kafka gives no time of it (4.4.0: the active controller is killed), and at first of no voter."""
    cluster, caught_up = Cluster(QuorumKind(Micros(10 * SECOND)), view()), []
    for epoch, seconds in ((4, 0), (4, 10), (4, 20), (5, 30), (5, 41)):
        now = 1_000 * seconds + 50
        members = (QuorumMember(101, True, 95, now, now), QuorumMember(102, True, None, None, None))
        cluster.ask(seconds=10)
        _, voter = cluster.answer("quorum", ONE, Quorum(0, Leader(101, epoch), {}, members, 90)).observations
        assert isinstance(voter, QuorumMemberObserved)
        caught_up.append(voter.last_caught_up_at)
    assert caught_up == [None, None, 50_000, None, 30_050_000]


def test_a_cluster_with_zookeeper_and_a_missing_permission_are_answers() -> None:
    cluster = Cluster(QuorumKind(Micros(10 * SECOND)), view())
    cluster.ask()
    assert cluster.answer("quorum", ONE, None) == ([], None)
    assert cluster.ask() == []
    denied = PermissionDenied(DESCRIBE_CLUSTER)
    cluster.ask(seconds=10)
    assert cluster.answer("quorum", ONE, refusal=denied).refusal is denied
    assert cluster.ask() == []


def transactions(seen: ClusterView, *, held: int = 1) -> tuple[Cluster, HeldPartitions]:
    """A cluster of which so many partitions are held."""
    at = [Micros(0)]
    partitions = HeldPartitions(lambda: at[0])
    ends = {number: 9 + number for number in range(held)}
    partitions.put(seen.topic_ids, {"orders": ends}, {"orders": dict.fromkeys(ends, 4)})
    at[0] = Micros(100 * SECOND)
    return Cluster(TransactionsKind(Micros(30 * SECOND), partitions), seen), partitions


def opened(producer: int, *partitions: int) -> OpenTransaction:
    numbers = tuple(("orders", number) for number in partitions)
    return OpenTransaction(f"id-{producer}", "Ongoing", 60_000, Micros(4), producer, 0, numbers)


def answered(*transactions: OpenTransaction) -> OpenTransactions:
    return OpenTransactions(transactions, is_listed=True, is_complete=True)


NONE_OPEN = (answered(), answered(), answered())
WRITING = {("orders", 0): (OpenProducer(8, 0, 4),)}


def played_round(cluster: Cluster, *by_broker: OpenTransactions | None, writing: Any = WRITING) -> list[Any]:
    """Play a round, and return the transactions that hang; None for a broker that does not answer."""
    cluster.ask(seconds=30)
    reported: list[Any] = []
    for broker, opened in zip((ONE, TWO, THREE), by_broker, strict=True):
        if opened is not None:
            reported += cluster.answer(COORDINATORS, broker, opened).observations
    cluster.ask(seconds=0 if None not in by_broker else 6)
    asked: ProducersAnswer = cluster.works[PRODUCERS, ONE].args
    held, listed = asked[0], asked[1]  # type: ignore[misc]
    cluster.answer(PRODUCERS, ONE, ProducersAnswer(held, listed, DescribedProducers(writing)))
    return [one for one in reported if isinstance(one, TransactionObserved) and one.is_hanging]


def answered_by_all(cluster: Cluster) -> None:
    """No coordinator has an open transaction."""
    cluster.ask()
    for broker in (ONE, TWO, THREE):
        cluster.answer(COORDINATORS, broker, answered())


def test_every_coordinator_is_asked_and_then_the_leaders_of_held_partitions() -> None:
    cluster, _ = transactions(view())
    assert cluster.ask() == [(COORDINATORS, broker) for broker in (ONE, TWO, THREE)]
    row, end = cluster.answer(COORDINATORS, ONE, answered(opened(7, 0))).observations
    assert end == TransactionsReported(**ENVELOPE, broker=ONE)
    assert row == TransactionObserved(
        **ENVELOPE, transactional_id="id-7", producer_id=7, producer_epoch=0, coordinator=ONE,
        transaction_state="Ongoing", timeout_ms=60_000, started_at=Micros(4),
        transaction_partitions=("orders-0",), reporter=ONE,
    )  # fmt: skip
    cluster.answer(COORDINATORS, TWO, answered())
    assert cluster.ask(seconds=1) == [], "one has not answered"
    cluster.answer(COORDINATORS, THREE, answered())
    assert cluster.ask() == [(PRODUCERS, ONE)]
    assert cluster.ask(seconds=20) == []


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_a_transaction_began_when_it_was_first_there_whatever_the_clock_of_its_coordinator(ahead: int) -> None:
    """It begins 10 seconds before the third round, and is open in the fourth, too; then there is another one."""
    cluster, _ = transactions(view())
    began = []
    for number, second in enumerate((None, None, 50, 50, 115)):
        cluster.ask(seconds=30)
        at = {"occurred_not_before": Micros(NOW + 30 * number * SECOND)}
        at |= dict.fromkeys(("occurred_not_after", "collected_at"), Micros(at["occurred_not_before"] + SECOND))
        raw = () if second is None else (opened(7, 0)._replace(started_at=Micros(NOW + (second + ahead) * SECOND)),)
        for broker, found in ((ONE, raw), (TWO, ()), (THREE, ())):
            shown = cluster.answer(COORDINATORS, broker, answered(*found), envelope=ENVELOPE | at).observations
            began += [(each.started_at or 0) - NOW for each in shown if isinstance(each, TransactionObserved)]
    earliest, latest = (30, 30, 90), (61, 61, 121)
    assert all(low * SECOND <= each <= high * SECOND for low, each, high in zip(earliest, began, latest, strict=True))
    assert began[0] == began[1]


def test_leaders_wait_for_a_coordinator_that_does_not_answer_for_half_a_short_period() -> None:
    _, held = transactions(view())
    cluster = Cluster(TransactionsKind(Micros(6 * SECOND), held), view())
    cluster.ask()
    for broker in (ONE, TWO):
        cluster.answer(COORDINATORS, broker, answered())
    assert cluster.ask(seconds=2) == []
    assert cluster.ask(seconds=2) == [(PRODUCERS, ONE)]


def test_where_no_partition_is_held_no_leader_is_asked() -> None:
    cluster, _ = transactions(view(), held=0)
    answered_by_all(cluster)
    assert cluster.ask(seconds=20) == []


def test_what_hangs_is_reported_after_two_rounds_and_what_is_open_is_not_hanging() -> None:
    cluster, _ = transactions(view())
    writing = {("orders", 0): (OpenProducer(7, 0, 4), OpenProducer(8, 3, 5), OpenProducer(9, 0, 9))}
    whole = (answered(opened(7, 0)), answered(), answered())
    assert played_round(cluster, *whole, writing=writing) == []
    assert cluster.ask() == [], "one round proves nothing"
    assert played_round(cluster, *whole, writing=writing) == []
    assert cluster.kind.next_at == 0, "reported at once"
    (row,) = played_round(cluster, *whole, writing={("orders", 0): ()})
    assert row == TransactionObserved(
        **ENVELOPE, producer_id=8, producer_epoch=3, transaction_state="Unknown",
        transaction_partitions=("orders-0",), is_hanging=True, reporter=ONE,
    )  # fmt: skip
    assert cluster.kind.next_at == 0, "so is that somebody ended it"
    assert played_round(cluster, *whole, writing={("orders", 0): ()}) == []


def test_a_transaction_that_hangs_beside_another_one_of_its_producer_is_one_row() -> None:
    cluster, _ = transactions(view(), held=1)
    writing = {("orders", 0): (OpenProducer(7, 0, 4),)}
    whole = (answered(), answered(opened(7, 5)), answered())
    for _ in range(2):
        played_round(cluster, *whole, writing=writing)
    (row,) = played_round(cluster, *whole, writing=writing)
    assert (row.transactional_id, row.coordinator, row.reporter) == ("id-7", TWO, TWO)
    assert row.transaction_partitions == ("orders-0", "orders-5")


def test_nothing_new_is_proven_while_a_coordinator_does_not_answer_and_what_is_stays() -> None:
    cluster, _ = transactions(view())
    for _ in range(3):
        assert played_round(cluster, answered(), None, answered()) == []
    for _ in range(2):  # broker 3 coordinates nothing
        assert played_round(cluster, answered(), answered(), None) == []
    for _ in range(3):
        assert len(played_round(cluster, answered(), None, answered())) == 1
    assert played_round(cluster, None, answered(), answered()) == [], "its leader does not answer"


def test_a_broker_that_does_not_say_what_it_has_reports_nothing() -> None:
    cluster, _ = transactions(view())
    for _ in range(2):
        played_round(cluster, *NONE_OPEN)
    cluster.ask(seconds=30)
    assert cluster.answer(COORDINATORS, ONE, OpenTransactions()).observations == []


def test_a_late_answer_of_another_round_proves_nothing() -> None:
    cluster, _ = transactions(view())
    cluster.silent = {TWO}
    for _ in range(3):
        assert played_round(cluster, *NONE_OPEN) == []


def test_nothing_is_proven_while_transactional_ids_have_no_coordinator_or_it_is_hidden() -> None:
    for leaders in ((1, -1), ()):
        cluster, _ = transactions(view(leaders=leaders))
        for _ in range(3):
            assert played_round(cluster, *NONE_OPEN) == []


def test_a_leader_is_asked_for_those_that_are_held_longest_only() -> None:
    seen = view(orders=300)
    at = [Micros(0)]
    held = HeldPartitions(lambda: at[0])
    for number in range(300):
        at[0] = Micros(number)
        held.put(seen.topic_ids, {"orders": {number: 9}}, {"orders": {number: 4}})
    at[0] = Micros(200 * SECOND)
    cluster = Cluster(TransactionsKind(Micros(30 * SECOND), held), seen)
    answered_by_all(cluster)
    assert cluster.ask() == [(PRODUCERS, ONE)]
    asked = cluster.works[PRODUCERS, ONE].args[0]
    assert list(asked) == [("orders", number) for number in range(MOST_PARTITIONS)]


def test_a_missing_permission_is_said_and_the_rest_is_reported() -> None:
    cluster, _ = transactions(view())
    cluster.ask()
    shown = cluster.answer(COORDINATORS, ONE, OpenTransactions((opened(7, 0),), is_listed=True, is_denied=True))
    assert len(shown.observations) == 2
    assert isinstance(shown.refusal, PermissionDenied)
    assert shown.refusal.permission is DESCRIBE_TRANSACTIONAL_IDS
    described = DescribedProducers({}, "orders")
    refusal = cluster.answer(PRODUCERS, ONE, ProducersAnswer({}, {}, described)).refusal
    assert isinstance(refusal, PermissionDenied)
    assert (refusal.permission, refusal.on) == (READ_TOPICS, "topic orders")


def test_the_periods_are_those_of_the_configuration() -> None:
    kinds = kinds_of(CollectSettings(quorum_interval=3, transactions_interval=7, directories_interval=5), print)
    for kind in kinds:
        Cluster(kind, view()).ask()
    next_at = {kind.names[0]: (kind.next_at - 1) / SECOND for kind in kinds}
    # What leaders have is known after a second: followers are asked then.
    assert next_at.items() >= {"directories": 5, "leader offsets": 1, "quorum": 3, COORDINATORS: 7}.items()
