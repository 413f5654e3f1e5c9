"""A view that may be stale is verified with another broker; where none can be reached, the doubt ends all the same."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.errors import ConnectionRefused
from streaming.sources.polling import view
from streaming.sources.polling.broker import Answer
from streaming.sources.polling.metadata import NO_TOPIC, AddressRotation, MetadataRound, TimedView
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.addresses import Address
from tests.sources.conftest import unlisted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streaming.contracts.identifiers import Micros

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

    def connect(self, address: Address) -> Asked:
        self.asked.append(str(address))
        if address not in self.reached:
            raise ConnectionRefused(f"{address} cannot be reached")
        return Asked(self, address)


class Asked:
    """The broker, on a connection."""

    def __init__(self, cluster: NatCluster, address: Address) -> None:
        self.cluster, self.address = cluster, address

    def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:  # noqa: ARG002 - as a broker is asked
        if not self.cluster.answers:
            raise ConnectionRefused("closed the connection")
        topics, denied = self.cluster.topics, self.cluster.denied.intersection(listed_before)
        parts = {0: PartitionView((BrokerId(1),), (BrokerId(1),), BrokerId(1))}
        view = ClusterView(
            ClusterId("c1"), -2, {BrokerId(1): ("fd00::2", 9092)}, dict.fromkeys(topics, parts),
            {name: TopicId(name) for name in topics},
        )  # fmt: skip
        return Answer(view, hidden=frozenset(denied), denied=frozenset(denied))

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
        monkeypatch.setattr(view, "_LONGEST", 0)
        with pytest.raises(ConnectionRefused, match="cannot be reached"):
            asked(polls, before)


def test_a_round_ends_in_its_time_however_long_brokers_take() -> None:
    answers = threading.Event()

    class Slow(Asked):
        def answer(self, listed_before: Collection[str], deadline: Micros) -> Answer:
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
        polls._elsewhere_due.expire()
        polled(polls, before)
        assert polls.refusals[1] is None
