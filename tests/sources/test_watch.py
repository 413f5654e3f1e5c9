"""Questions on kept connections, and how they end where a broker is dead, hangs, is cut off, or is another one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.contracts.identifiers import BrokerId
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence, QuorumLeader
from streaming.sources.polling.view import ClusterView
from streaming.sources.polling.watching import line
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol import sockets
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.plugins.fake_kafka import METADATA, OF_KAFKA_1_0, FakeKafka

Make = Callable[..., FakeKafka]
PRESENCE_OF = [BrokerQuestion(Ask.PRESENCE, BrokerId(broker)) for broker in range(5)]
SECOND = 1_000_000
EVERY = 250_000
"""Silence is reported so often here."""
DESCRIBE_CLUSTER = DescribeClusterRequest.API_KEY
API_VERSIONS = 18


def view_of(cluster: FakeKafka) -> ClusterView:
    """Return the view of the first broker."""
    connection = dialer(Security())(Address("127.0.0.1", cluster.ports[1]), response_seconds=5)
    with closing(connection):
        return ConnectedBrokers(dialer(Security()), cluster="c", seconds=5).view(connection)


class Watched:
    """A watch of a cluster, what it has met since that was looked at, and ever."""

    def __init__(self, cluster: FakeKafka) -> None:
        self.peers, self.mets, self.all = Peers(), list[Met](), list[Met]()
        self.watch = Watch(dialer(Security(), self.peers), name="test")
        self.view = view_of(cluster)
        self.watch.look_at(self.view)
        cluster.requests.clear()

    def ask(self, *questions: BrokerQuestion) -> None:
        self.watch.ask(questions)

    def until(self, enough: Callable[[list[Met]], Any], seconds: float = 15.0) -> list[Met]:
        """Wait until enough was met since the last call."""
        until = time.monotonic() + seconds
        while not enough(self.mets):
            assert time.monotonic() < until, self.mets
            with suppress(TimeoutError):
                self.watch.pending()[0].result(0.2)
            taken = self.watch.take()
            self.mets += taken
            self.all += taken
        mets, self.mets = self.mets, []
        return mets

    def answers(self, *questions: BrokerQuestion) -> list[Met]:
        """Ask, and wait until each has ended; return them in the order of the questions."""
        self.ask(*questions)
        mets = self.until(lambda mets: {each.question for each in mets} >= {*questions})
        return [next(each for each in mets if each.question == question) for question in questions]


@pytest.fixture
def watched() -> Iterator[Callable[[FakeKafka], Watched]]:
    with ExitStack() as stack:

        def make(cluster: FakeKafka) -> Watched:
            made = Watched(cluster)
            stack.callback(made.watch.close)
            return made

        yield make


Watching = Callable[[FakeKafka], Watched]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a quarter of the time: of an answer, and of a connection."""
    monkeypatch.setattr(line, "SILENT_EVERY", EVERY)
    monkeypatch.setattr(line, "SECOND_CONNECTION_AFTER", 2 * EVERY)
    monkeypatch.setattr(sockets, "CONNECT_SECONDS", 0.75)


def hows(mets: Iterable[Met]) -> list[Meeting]:
    return [each.how for each in mets]


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("test ")]


def has(*ways: Meeting) -> Callable[[list[Met]], bool]:
    return lambda mets: {*ways} <= {each.how for each in mets}


def test_who_is_there_is_asked_on_one_connection_that_is_kept(fake_kafka: Make, watched: Watching) -> None:
    cluster = fake_kafka(4, orders=2)
    cluster.fenced = {4}
    cluster.view.brokers.remove(4)
    watching = watched(cluster)
    for _ in range(3):
        mets = watching.answers(*PRESENCE_OF[1:4])
        assert hows(mets) == [Meeting.ANSWERED] * 3
        assert {each.content for each in mets} == {Presence(BrokerId(1), frozenset({1, 2, 3}), frozenset({4}))}
        assert {each.connection for each in mets} == {1}
        assert all(each.asked <= each.ended < each.asked + SECOND for each in mets)
    assert cluster.connections() == 3
    assert len(cluster.asked(DescribeClusterRequest)) == 9


@pytest.mark.parametrize(("newest", "metadata"), [({}, 12), ({METADATA: 10}, 10), (OF_KAFKA_1_0, 5)])
def test_an_older_broker_lists_whom_its_metadata_list_without_a_topic(
    fake_kafka: Make, watched: Watching, newest: dict[int, int], metadata: int
) -> None:
    cluster = fake_kafka(3, orders=1)
    cluster.newest = {**(newest if newest == OF_KAFKA_1_0 else cluster.newest | newest)}
    cluster.newest[DESCRIBE_CLUSTER] = 1
    (met,) = watched(cluster).answers(PRESENCE_OF[2])
    assert met[3:] == (Meeting.ANSWERED, 1, Presence(BrokerId(1), frozenset({1, 2, 3}), None), 0)
    asked = [request for broker, request in cluster.asked(MetadataRequest) if broker == 2][-1]
    assert (asked.API_VERSION, [*asked.topics]) == (metadata, [])


def test_of_kraft_no_broker_is_said_to_be_the_controller(fake_kafka: Make, watched: Watching) -> None:
    cluster = fake_kafka(2, orders=1)
    cluster.features = {"metadata.version": (29, 29)}
    (met,) = watched(cluster).answers(PRESENCE_OF[1])
    assert met.content == Presence(None, frozenset({1, 2}), frozenset())


def test_partitions_are_described_in_as_many_responses_as_it_takes(fake_kafka: Make, watched: Watching) -> None:
    cluster = fake_kafka(3, orders=5, payments=3, others=1)
    cluster.page = 2
    cluster.view.topics["orders"].parts[1].elr = [3]
    cluster.view.topics["orders"].parts[1].isr = [1]
    some = (("orders", -1, -1), ("payments", 2, -1))
    watching = watched(cluster)
    (met,) = watching.answers(BrokerQuestion(Ask.PARTITIONS, BrokerId(2), some))
    assert {topic: [*parts] for topic, parts in met.content.items()} == {"orders": [0, 1, 2, 3, 4], "payments": [2]}  # type: ignore[union-attr]
    assert met.content["orders"][1].elr == (3,)  # type: ignore[call-overload,index]
    assert len(cluster.asked(DescribeTopicPartitionsRequest)) == 4
    cluster.newest[DescribeTopicPartitionsRequest.API_KEY] = -1
    cluster.disconnect(2)
    watching.until(has(Meeting.REFUSED))
    cluster.bring_up(2)
    (by_name,) = watching.answers(met.question)
    assert [*by_name.content["orders"]] == [0, 1, 2, 3, 4]  # type: ignore[call-overload,index]
    assert by_name.content["orders"][1].isr == (1,)  # type: ignore[call-overload,index]


def test_log_ends_are_those_of_the_replica_that_is_asked_and_epochs_end_where_the_leader_says(
    fake_kafka: Make, watched: Watching
) -> None:
    cluster = fake_kafka(3, orders=2)
    first, second = cluster.view.topics["orders"].parts
    first.ends, second.ends, first.epoch_ends = {1: 110, 2: 100}, {2: 7}, {3: 90, 5: 110}
    ends = BrokerQuestion(Ask.LOG_ENDS, BrokerId(2), (("orders", 0, -1), ("orders", 1, -1)))
    epochs = BrokerQuestion(Ask.EPOCH_ENDS, BrokerId(1), (("orders", 0, 4), ("orders", 1, 4)))
    of_replica, of_leader = watched(cluster).answers(ends, epochs)
    assert (of_replica.content, of_replica.error) == ({("orders", 0): 100, ("orders", 1): 7}, 0)
    assert (of_leader.content, of_leader.error) == ({("orders", 0): 90}, 6), "it does not lead the second one"
    assert [one.replica_id for _, one in cluster.asked(ListOffsetsRequest)] == [-2]
    assert [one.API_VERSION for _, one in cluster.asked(OffsetForLeaderEpochRequest)] == [4]


def test_what_is_denied_or_not_supported_is_an_error_of_an_answer(fake_kafka: Make, watched: Watching) -> None:
    cluster = fake_kafka(1, orders=1)
    cluster.refuse_topic("orders")
    cluster.newest[OffsetForLeaderEpochRequest.API_KEY] = 2
    some = (("orders", 0, 1),)
    watching = watched(cluster)
    mets = watching.answers(
        *(BrokerQuestion(ask, BrokerId(1), some) for ask in (Ask.LOG_ENDS, Ask.EPOCH_ENDS, Ask.QUORUM))
    )
    assert [each[3:] for each in mets] == [(Meeting.ANSWERED, 1, None, error) for error in (29, 29, 35)]


def test_a_broker_that_ends_is_met_as_closed_at_once_and_then_as_refused(fake_kafka: Make, watched: Watching) -> None:
    watching = watched(cluster := fake_kafka(3, orders=1))
    watching.answers(*PRESENCE_OF[1:4])
    began = time.monotonic_ns() // 1000
    cluster.disconnect(2)
    closed, refused = watching.until(has(Meeting.REFUSED))
    assert [each.question for each in (closed, refused)] == [PRESENCE_OF[2]] * 2
    assert [(closed.how, closed.connection), (refused.how, refused.connection)] == [
        (Meeting.CLOSED, 1), (Meeting.REFUSED, 2)
    ]  # fmt: skip
    assert began <= closed.ended <= refused.asked <= refused.ended < began + 500_000
    (again,) = watching.answers(PRESENCE_OF[2])
    assert (again.how, again.connection) == (Meeting.REFUSED, 3)
    cluster.bring_up(2)
    (back,) = watching.answers(PRESENCE_OF[2])
    assert (back.how, back.connection) == (Meeting.ANSWERED, 4)


def test_a_question_that_is_on_its_way_when_the_broker_ends_is_closed(fake_kafka: Make, watched: Watching) -> None:
    watching = watched(cluster := fake_kafka(2, orders=1))
    watching.answers(PRESENCE_OF[2])
    cluster.hang(2, 600_000)
    watching.ask(PRESENCE_OF[2], BrokerQuestion(Ask.QUORUM, BrokerId(2)))
    time.sleep(0.2)
    cluster.disconnect(2)
    mets = watching.until(lambda mets: len(mets) == 2)
    assert [(each.question.ask, each.how) for each in mets] == [
        (Ask.PRESENCE, Meeting.CLOSED), (Ask.QUORUM, Meeting.REFUSED)
    ]  # fmt: skip


def test_silence_is_met_each_second_and_a_late_answer_counts_with_its_times(
    fake_kafka: Make, watched: Watching
) -> None:
    watching = watched(cluster := fake_kafka(3, orders=1))
    watching.answers(*PRESENCE_OF[1:4])
    cluster.hang(2, 640)
    watching.ask(PRESENCE_OF[2])
    began = time.monotonic()
    (other,) = watching.answers(PRESENCE_OF[3])
    assert time.monotonic() - began < 0.5, "nobody waits for another broker"
    assert other.how is Meeting.ANSWERED
    mets = watching.until(has(Meeting.ANSWERED))
    silent, late = [each for each in mets if each.connection == 1 and each.how is Meeting.SILENT], mets[-1]
    assert [round((each.ended - each.asked) / EVERY) for each in silent] == [1, 2]
    assert (late.asked, late.connection) == (silent[0].asked, 1)
    assert 640_000 <= late.ended - late.asked < SECOND
    cluster.hang(2, 0)
    assert watching.answers(PRESENCE_OF[2])[0].connection == 1, "the first connection is kept"


def test_a_broker_that_answers_on_a_second_connection_alone_is_asked_there(fake_kafka: Make, watched: Watching) -> None:
    """As one that was started again behind a balancer, which has not closed the connection to the process before."""
    watching = watched(cluster := fake_kafka(2, orders=1))
    watching.answers(PRESENCE_OF[2])
    cluster.hang(2, 600_000)
    watching.ask(PRESENCE_OF[2])
    time.sleep(0.1)
    cluster.hang(2, 0)
    mets = watching.until(has(Meeting.ANSWERED))
    assert mets[-1].connection == 2
    assert mets[-1].asked - mets[0].asked >= 2 * EVERY


def test_a_broker_whose_controller_is_silent_answers_all_else_on_another_connection(
    fake_kafka: Make, watched: Watching
) -> None:
    watching, quorum = watched(cluster := fake_kafka(2, orders=1)), BrokerQuestion(Ask.QUORUM, BrokerId(2))
    cluster.newest[DescribeQuorumRequest.API_KEY] = 2
    cluster.held.add(DescribeQuorumRequest.API_KEY)
    watching.ask(quorum, PRESENCE_OF[2])
    mets = watching.until(has(Meeting.ANSWERED))
    assert (mets[-1].question, mets[-1].connection) == (PRESENCE_OF[2], 2)
    assert hows(watching.answers(PRESENCE_OF[2])) == [Meeting.ANSWERED]
    watching.ask(quorum)
    mets = watching.until(has(Meeting.SILENT))
    assert {(each.question, each.connection) for each in mets} == {(quorum, 1)}
    cluster.held.clear()
    late = watching.until(has(Meeting.ANSWERED))[-1]
    assert (late.question, late.connection, late.content) == (quorum, 1, QuorumLeader(101, 1))
    assert late.asked == mets[0].asked
    (again,) = watching.answers(quorum)
    assert (again.how, again.connection) == (Meeting.ANSWERED, 2)
    assert len(cluster.asked(DescribeQuorumRequest)) == 2
    assert cluster.connections() == 1, "one is enough again"


def hung(cluster: FakeKafka, broker: int) -> None:
    """Let the process of a broker stand still: the system accepts connections, and nobody answers."""
    cluster.hang(broker, 600_000)


def test_of_a_hung_broker_the_address_accepts_one_more_connection(fake_kafka: Make, watched: Watching) -> None:
    watching = watched(cluster := fake_kafka(2, orders=1))
    watching.answers(*PRESENCE_OF[1:3])
    hung(cluster, 2)
    watching.ask(PRESENCE_OF[2])
    mets = watching.until(lambda mets: any(each.connection == 2 for each in mets))
    first, second = mets[0], mets[-1]
    assert set(hows(mets)) == {Meeting.SILENT}
    assert 2 * EVERY <= second.asked - first.asked < 4 * EVERY
    assert second.ended - second.asked < SECOND // 2
    mets = watching.until(lambda mets: mets)
    assert {(each.connection, each.how) for each in mets} == {(1, Meeting.SILENT)}, "one connection is enough"
    assert cluster.connections() == 3


@pytest.fixture
def relay() -> Iterator[Callable[[int], Relay]]:
    with ExitStack() as stack:
        yield lambda port: stack.enter_context(closing(Relay(port)))


class Relay:
    """An address in front of a broker: a load balancer, or a network that can be cut.

    Attributes:
        to: the port of the broker.
        is_cut: it passes nothing on.
        opened: how many connections it has accepted.
    """

    def __init__(self, to: int) -> None:
        self.to, self.is_cut, self.opened = to, False, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._filler: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._filler:
            each.close()

    def swallow(self) -> None:
        """Let the queue of connections be full, so that packets of new ones are dropped; pass nothing on."""
        self.is_cut = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        time.sleep(0.05)
        full = socket.socket()
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind(("127.0.0.1", self.port))
        full.listen(0)
        self._filler.append(full)
        for _ in range(3):
            one = socket.socket()
            self._filler.append(one)
            one.settimeout(0.05)
            with suppress(OSError):
                one.connect(("127.0.0.1", self.port))

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.opened += 1
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
            except OSError:
                near.close()  # the broker is dead, and the balancer accepts all the same
                continue
            far.settimeout(None)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(1 << 16):
                while self.is_cut:
                    time.sleep(0.02)
                far.sendall(data)
        for each in (near, far):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


Relaying = Callable[[int], Relay]


def test_a_broker_that_is_cut_off_is_unreachable_and_its_answer_counts_when_it_comes(
    fake_kafka: Make, watched: Watching, relay: Relaying
) -> None:
    cluster = fake_kafka(2, orders=1)
    between = relay(cluster.ports[2])
    cluster.advertised[2] = ("127.0.0.1", between.port)
    watching = watched(cluster)
    watching.answers(PRESENCE_OF[2])
    between.swallow()
    watching.ask(PRESENCE_OF[2])
    (*silent, unreachable) = watching.until(has(Meeting.UNREACHABLE))
    assert {each.how for each in silent} == {Meeting.SILENT}, silent
    assert (unreachable.connection, unreachable.question) == (2, PRESENCE_OF[2])
    assert unreachable.asked - silent[0].asked >= 2 * EVERY
    between.is_cut = False
    late = watching.until(has(Meeting.ANSWERED))[-1]
    assert (late.asked, late.connection, late.how) == (silent[0].asked, 1, Meeting.ANSWERED)


def test_many_brokers_that_are_cut_off_delay_nobody(fake_kafka: Make, watched: Watching, relay: Relaying) -> None:
    watching, hole = watched(cluster := fake_kafka(1, orders=1)), relay(1)
    hole.swallow()
    away = {BrokerId(broker): ("127.0.0.1", hole.port) for broker in range(2, 32)}
    watching.watch.look_at(replace(watching.view, brokers={**watching.view.brokers, **away}))
    watching.ask(*(BrokerQuestion(Ask.PRESENCE, broker) for broker in away))
    times = [watching.answers(PRESENCE_OF[1])[0] for _ in range(20)]
    assert max(met.ended - met.asked for met in times) < SECOND // 4
    watching.until(lambda _: len(watching.all) == len(times) + len(away))
    mets = [met for met in watching.all if met.question.broker in away]
    assert set(hows(mets)) == {Meeting.UNREACHABLE}
    assert max(met.ended - met.asked for met in mets) < 2 * SECOND, "none waits for another one"
    assert cluster.connections() == 1


def test_an_address_that_accepts_for_a_dead_broker_never_answers(
    fake_kafka: Make, watched: Watching, relay: Relaying
) -> None:
    cluster = fake_kafka(2, orders=1)
    between = relay(cluster.ports[2])
    cluster.advertised[2] = ("127.0.0.1", between.port)
    watching = watched(cluster)
    watching.answers(PRESENCE_OF[2])
    cluster.disconnect(2)
    watching.until(lambda mets: hows(mets) == [Meeting.CLOSED, Meeting.CLOSED])
    for number in range(3, 6):
        (met,) = watching.answers(PRESENCE_OF[2])
        assert (met.how, met.connection) == (Meeting.CLOSED, number)
    assert between.opened == 5


def of_kafka_4_4(cluster: FakeKafka) -> None:
    cluster.newest[API_VERSIONS] = 5
    cluster.denies_broker_configs = True


@pytest.mark.parametrize("prepare", [of_kafka_4_4, lambda _: None], ids=["4.4", "earlier"])
def test_another_broker_at_an_address_is_the_wrong_node(
    fake_kafka: Make, watched: Watching, prepare: Callable[[FakeKafka], None]
) -> None:
    cluster = fake_kafka(3, orders=1)
    prepare(cluster)
    cluster.advertised[2] = ("127.0.0.1", cluster.ports[3])
    mets = watched(cluster).answers(*PRESENCE_OF[1:4])
    assert [(each.how, each.content is None) for each in mets] == [
        (Meeting.ANSWERED, False), (Meeting.WRONG_NODE, True), (Meeting.ANSWERED, False)
    ]  # fmt: skip


def test_a_broker_that_comes_back_as_another_one_is_the_wrong_node(fake_kafka: Make, watched: Watching) -> None:
    watching = watched(cluster := fake_kafka(3, orders=1))
    watching.answers(PRESENCE_OF[2])
    cluster.ids[2] = 3
    cluster.disconnect(2)
    watching.until(has(Meeting.REFUSED))
    cluster.bring_up(2)
    (met,) = watching.answers(PRESENCE_OF[2])
    assert (met.how, met.content) == (Meeting.WRONG_NODE, None)


def test_without_a_permission_partitions_prove_who_answers(fake_kafka: Make, watched: Watching) -> None:
    """Of Kafka before 4.4: only the leader answers consumers, and only who holds partitions answers for replicas."""
    cluster = fake_kafka(3, orders=3)
    cluster.denies_broker_configs = True
    mets = (watching := watched(cluster)).answers(*PRESENCE_OF[1:4])
    assert hows(mets) == [Meeting.ANSWERED] * 3
    for part in cluster.view.topics["orders"].parts:
        part.leader = 1
    watching.view = view_of(cluster)
    watching.watch.look_at(watching.view)
    cluster.disconnect(2)
    watching.until(has(Meeting.REFUSED))
    cluster.bring_up(2)
    (met,) = watching.answers(PRESENCE_OF[2])
    assert (met.how, met.content) == (Meeting.WRONG_NODE, None), "all hold all partitions, and it leads none"
    assert len(cluster.asked(DescribeConfigsRequest)) == 4


def test_a_broker_that_is_listed_elsewhere_is_asked_there(fake_kafka: Make, watched: Watching, relay: Relaying) -> None:
    watching = watched(cluster := fake_kafka(2, orders=1))
    watching.answers(PRESENCE_OF[2])
    between = relay(cluster.ports[2])
    watching.watch.look_at(
        replace(watching.view, brokers={**watching.view.brokers, BrokerId(2): ("127.0.0.1", between.port)})
    )
    (met,) = watching.answers(PRESENCE_OF[2])
    assert (met.how, met.connection, between.opened) == (Meeting.ANSWERED, 2, 1)


def test_of_a_broker_that_nobody_has_listed_nothing_is_known(fake_kafka: Make, watched: Watching) -> None:
    (met,) = watched(fake_kafka(1, orders=1)).answers(PRESENCE_OF[4])
    assert met[3:] == (Meeting.WRONG_NODE, 0, None, 0)


def test_a_node_that_mutes_us_is_asked_when_it_reads_again_and_is_not_silent(
    fake_kafka: Make, watched: Watching
) -> None:
    cluster = fake_kafka(1, orders=1)
    cluster.throttle_ms = 400
    watching = watched(cluster)
    (first,) = watching.answers(PRESENCE_OF[1])
    mets = watching.answers(PRESENCE_OF[1])
    assert hows(mets) == [Meeting.ANSWERED]
    assert mets[0].asked - first.ended >= 400_000
    assert mets[0].ended - mets[0].asked < EVERY


def test_a_watch_at_rest_has_no_connection_and_begins_again_when_it_is_asked(
    fake_kafka: Make, watched: Watching
) -> None:
    watching = watched(cluster := fake_kafka(2, orders=1))
    watching.answers(*PRESENCE_OF[1:3])
    watching.watch.rest()
    until = time.monotonic() + 5
    while cluster.connections() or threads():  # the thread ends after its connections
        assert time.monotonic() < until
        time.sleep(0.01)
    assert hows(watching.answers(*PRESENCE_OF[1:3])) == [Meeting.ANSWERED] * 2


def test_no_thread_is_left_but_the_one_that_serves_all_connections(fake_kafka: Make, watched: Watching) -> None:
    watching = watched(fake_kafka(4, orders=1))
    watching.answers(*PRESENCE_OF[1:5])
    assert threads() == ["test watch"]
