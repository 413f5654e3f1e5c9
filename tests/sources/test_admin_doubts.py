"""A view that may be stale is verified with another broker; where none can be reached, the doubt ends all the same.

A broker that was frozen, or is cut off, serves an old healthy view: no recovery is invented.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import SourceKind
from streaming.errors import ConnectionRefused
from streaming.sources.polling import view
from streaming.sources.polling.broker import BrokerReply
from streaming.sources.polling.metadata import NO_TOPIC, AddressRotation, MetadataRound, TimedView
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import Connection
from tests.changes.conftest import Story
from tests.examples import examples
from tests.sources.conftest import unlisted

BOOTSTRAP = Address("127.0.0.1", 9092)


@pytest.mark.parametrize("asks_between", [0, 1, 2, 5])
def test_each_broker_has_its_turn_however_often_the_one_that_is_connected_is_asked(asks_between: int) -> None:
    advertised = [Address("h", number) for number in range(3)]
    turns = AddressRotation([advertised[0]])
    turns.advertised = advertised
    connected, asked = advertised[0], set[Address]()
    for _ in range(3):
        for _ in range(asks_between):
            turns.next(connected, is_asked=False)
        connected, *_ = turns.next(connected, is_asked=True)
        asked.add(connected)
    assert asked == {*advertised}


class NatCluster:
    """One broker that advertises what nobody reaches. ``reached`` are the addresses that can be connected to."""

    def __init__(self) -> None:
        self.topics = ["orders", "payments"]
        self.reached = {BOOTSTRAP}
        self.asked: list[str] = []
        self.denied: set[str] = set()
        self.answers = True
        self.leader_epoch = 0

    def connect(self, address: Address) -> Asked:
        self.asked.append(str(address))
        if address not in self.reached:
            raise ConnectionRefused(f"{address} cannot be reached")
        return Asked(self, address)

    def answer(self, _: Address, listed_before: Collection[str]) -> BrokerReply:
        if not self.answers:
            raise ConnectionRefused("closed the connection")
        topics, denied = self.topics, self.denied.intersection(listed_before)
        parts = {0: PartitionView((BrokerId(1),), (BrokerId(1),), BrokerId(1), leader_epoch=self.leader_epoch)}
        ids = {name: TopicId(name) for name in topics}
        seen = {BrokerId(1): ("fd00::2", 9092)}
        view = ClusterView(ClusterId("c1"), -2, seen, dict.fromkeys(topics, parts), ids)
        return BrokerReply(view, hidden=frozenset(denied), denied=frozenset(denied))


class Asked:
    """A broker, asked on a connection."""

    def __init__(self, cluster: NatCluster | Brokers, address: Address) -> None:
        self.cluster, self.address = cluster, address

    def answer(self, listed_before: Collection[str], deadline: Micros) -> BrokerReply:  # noqa: ARG002 - as a broker is asked
        return self.cluster.answer(self.address, listed_before)

    def close(self) -> None:
        """Hang up on nobody."""


def polled(polls: MetadataRound, before: ClusterView | None, seconds: float = 10.0) -> TimedView:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        polls.ask(before)
        wait(polls.pending())
        try:
            if (read := polls.take(before)) is not None:
                return read
        except ConnectionRefused:
            continue
    raise AssertionError("the deletion is never believed")


@contextmanager
def started(cluster: NatCluster) -> Iterator[tuple[MetadataRound, ClusterView]]:
    with closing(MetadataRound(cluster.connect, [BOOTSTRAP], unlisted(), name="t", seconds=1)) as polls:
        yield polls, polled(polls, None).view


@pytest.mark.parametrize("reached", [{BOOTSTRAP}, set()], ids=["by its bootstrap address", "no other is reached"])
def test_where_what_is_advertised_is_not_reached_the_same_broker_is_believed_later(reached: set[Address]) -> None:
    cluster = NatCluster()
    with started(cluster) as (polls, before):
        cluster.reached = reached
        cluster.topics.remove("payments")
        assert list(polled(polls, before).view.topics) == ["orders"]
        assert "[fd00::2]:9092" in cluster.asked


def test_a_view_held_for_the_reassignments_is_late_where_a_partition_has_shown_an_election_since() -> None:
    """It is no other log: the view was compared with what was known when it came."""
    are_listed, cluster = threading.Event(), NatCluster()
    are_listed.set()

    def dial(address: Address, *, response_seconds: float) -> Connection:  # noqa: ARG001 - the signature of Dial
        are_listed.wait(60)
        raise ConnectionRefused(f"{address} cannot be reached")

    lists = ReassignmentsRound(dial, name="t", seconds=60)
    with closing(MetadataRound(cluster.connect, [BOOTSTRAP], lists, name="t", seconds=1)) as polls:
        before = polled(polls, None).view
        are_listed.clear()
        polls.ask(before)
        wait(polls.pending())
        assert polls.take(before) is None
        elected = {0: before.topics["orders"][0]._replace(leader_epoch=1)}
        known = replace(before, topics={**before.topics, "orders": elected})
        are_listed.set()
        wait(polls.pending())
        assert polls.take(known) is None
        cluster.leader_epoch = 1
        assert polled(polls, known).view.topics["orders"] == elected


def test_a_doubt_ends_where_nobody_answers_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the second opinion alone is missing that is no failure; it is one when it does not come at all."""
    cluster = NatCluster()
    with started(cluster) as (polls, before):
        cluster.topics.remove("payments")
        polls.ask(before)
        wait(polls.pending())
        assert polls.take(before) is None
        cluster.reached, cluster.answers = set(), False
        for _ in range(3):
            asked(polls, before)
        monkeypatch.setattr(view, "LONGEST_DOUBT", 0)
        with pytest.raises(ConnectionRefused, match="cannot be reached"):
            asked(polls, before)


def test_a_round_ends_in_its_time_however_long_brokers_take() -> None:
    answers = threading.Event()

    class Slow(Asked):
        def answer(self, listed_before: Collection[str], deadline: Micros) -> BrokerReply:
            answers.wait(60)
            return super().answer(listed_before, deadline)

    cluster = NatCluster()
    servers = [Address("h", number) for number in range(9)]
    polls = MetadataRound(lambda address: Slow(cluster, address), servers, unlisted(), name="t", seconds=0.5)
    began = time.monotonic()
    try:
        polls.ask(None)
        while time.monotonic() - began < 0.5:
            wait(polls.pending(), timeout=0.1)
            assert time.monotonic() - began > 0.5 or polls.take(None) is None
        with pytest.raises(ConnectionRefused, match="in time"):
            polls.take(None)
        assert time.monotonic() - began < 5
        assert polls.pending() == []
    finally:
        answers.set()
        polls.close()


def asked(polls: MetadataRound, before: ClusterView | None) -> None:
    polls.ask(before)
    while polls.pending():
        wait(polls.pending())
        assert polls.take(before) is None


def test_a_topic_that_is_not_to_be_seen_any_more_is_not_deleted_and_it_is_said_which_permission_is_missing() -> None:
    cluster = NatCluster()
    with started(cluster) as (polls, before):
        cluster.topics.remove("payments")
        cluster.denied = {"payments"}
        for _ in range(3):
            after = polled(polls, before).view
            assert (after.topics, after.topic_ids) == (before.topics, before.topic_ids)
        assert "lacks Describe on topic payments" in str(polls.refusals[0])
        cluster.denied = set()
        assert list(polled(polls, after).view.topics) == ["orders"]


@pytest.mark.parametrize(("topics", "sentence"), [(["orders"], "on topics of other names"), ([], "on the topics: ")])
def test_that_other_topics_may_be_hidden_is_said_until_they_are_not(topics: list[str], sentence: str) -> None:
    cluster = NatCluster()
    cluster.topics, cluster.denied = topics, {NO_TOPIC}
    with started(cluster) as (polls, before):
        assert list(before.topics) == topics
        assert sentence in str(polls.refusals[1])
        cluster.denied = set()
        assert polled(polls, before).view.topics == before.topics
        assert polls.refusals[1] is not None, "it is asked for now and then"
        polls.elsewhere_due.expire()
        polled(polls, before)
        assert polls.refusals[1] is None


BROKERS = (1, 2, 3)
ISRS = [(1, 2, 3), (1, 2), (1, 3), (2, 3), (1,), (2,)]


class Moment(NamedTuple):
    """The true state of the cluster."""

    alive: tuple[int, ...]
    isr: tuple[int, ...]


class Brokers:
    """Three brokers that answer with what each of them knows."""

    def __init__(self, history: list[Moment], stale: int, learned: int) -> None:
        self.history, self.now = history, 0
        self.stale, self.knows, self.learns_after = stale, 0, learned

    def connect(self, address: Address) -> Asked:
        return Asked(self, address)

    def answer(self, address: Address, _: Collection[str]) -> BrokerReply:
        return BrokerReply(self.view(address.port))

    def view(self, broker: int) -> ClusterView:
        at = self.now
        if broker == self.stale:
            at, self.learns_after = self.knows, self.learns_after - 1
            if self.learns_after < 0:
                self.knows = self.now
        alive, isr = self.history[at]
        orders = PartitionView(ids(*BROKERS), ids(*isr), BrokerId(isr[0]))
        listed = {BrokerId(n): ("h", n) for n in alive}
        return ClusterView(ClusterId("c1"), broker, listed, {"orders": {0: orders}}, {"orders": TopicId("x")})


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def answered(it: MetadataRound, before: ClusterView | None) -> TimedView | None:
    """Ask until something is believed, as often as a poll would."""
    for _ in range(10):
        it.ask(before)
        wait(it.pending())
        if (read := it.take(before)) is not None:
            return read
    return None


@st.composite
def fates(draw: st.DrawFn) -> tuple[int, list[Moment]]:
    """A broker that falls behind, and what happens meanwhile; the other two are alive and see it."""
    stale = draw(st.sampled_from(BROKERS))
    living = [BROKERS, tuple(n for n in BROKERS if n != stale)]
    moments = st.builds(Moment, st.sampled_from(living), st.sampled_from(ISRS))
    return stale, draw(st.lists(moments, min_size=2, max_size=6, unique=True))


@settings(max_examples=examples(20))
@given(fate=fates(), learned=st.integers(0, 3) | st.just(1_000), data=st.data())
def test_a_view_that_went_bad_is_never_made_good_by_a_broker_that_did_not_see_it(
    fate: tuple[int, list[Moment]], learned: int, data: st.DataObject
) -> None:
    """Whatever the stale broker knows at first, and whenever it catches up, or never: others are asked."""
    stale, history = fate
    cluster = Brokers(history, stale, learned)
    fresh = next(n for n in BROKERS if n != stale)
    servers = [Address("h", n) for n in BROKERS]
    polls = MetadataRound(cluster.connect, servers, unlisted(), name="t", seconds=5)
    polls._broker = cluster.connect(Address("h", fresh))
    before: ClusterView | None = None
    shown = 0
    try:
        for cluster.now in range(len(history)):
            if data.draw(st.booleans()):  # the connection was lost; another one goes to the resumed broker for instance
                polls._broker = cluster.connect(Address("h", data.draw(st.sampled_from(BROKERS)) if before else fresh))
            read = answered(polls, before)
            assert read is not None
            view = read.view
            at = next(n for n, it in enumerate(history) if shows(view, it))
            recovered = before is not None and at < shown and recovers(before, view)
            assert not recovered, f"{view} is older than {before}"
            shown, before = max(at, shown), view
    finally:
        polls.close()


def shows(view: ClusterView, moment: Moment) -> bool:
    return tuple(view.brokers) == moment.alive and view.topics["orders"][0].isr == moment.isr


def recovers(before: ClusterView, after: ClusterView) -> bool:
    was, now = before.topics["orders"][0], after.topics["orders"][0]
    return not set(now.isr) <= set(was.isr) or not after.brokers.keys() <= before.brokers.keys()


@settings(max_examples=examples(20))
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ISRS), st.booleans()), max_size=12))
def test_a_poll_with_a_lower_leader_epoch_is_stale_and_one_with_the_same_tells_another_isr(
    steps: list[tuple[int, tuple[int, ...], bool]],
) -> None:
    """Where a poll shows leader epochs: an old view is dropped for its epoch, however late it comes."""
    poll = Story("admin:a", SourceKind.POLL)
    poll.snapshot([{"partition_epoch": None}])
    expected, epoch = (1, 2, 3), 0
    for told, isr, in_snapshot in steps:
        fields = {"leader_epoch": told, "partition_epoch": None, "in_snapshot": in_snapshot}
        poll.later().partition(0, isr=isr, leader=isr[0], **fields)
        if told >= epoch:
            expected, epoch = isr, told
    state = ReplicationState()
    state.apply(fold(state, poll.seen).touched)

    (partition,) = state.partitions()
    assert (partition.isr, partition.leader_epoch) == (expected, epoch)
