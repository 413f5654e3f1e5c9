"""Kept connections with logins, sessions that end, TLS, and a request that a busy node reads slowly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence, QuorumLeader
from streaming.sources.polling.view import ClusterView
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import from_client
from tests.sources.metadata_log import test_connection as logins
from tests.sources.metadata_log.test_sessions import CLUSTER_ID, Sessions

PRESENCE, QUORUM = (BrokerQuestion(ask, BrokerId(1)) for ask in (Ask.PRESENCE, Ask.QUORUM))
tls = logins.tls
Asking = Callable[[BrokerQuestion], list[Met]]


@pytest.fixture
def asking(quorum: Any, address: Address) -> Iterator[Callable[..., Asking]]:
    """Give a factory of what asks node 1, by properties of a client."""
    quorum.versions = {36: 1, 32: 4}
    quorum.brokers = {1: address.port}
    opened: list[Watch] = []

    def make(client: dict[str, str], peers: Peers | None = None) -> Asking:
        watch = Watch(dialer(from_client(client), peers), name="test")
        opened.append(watch)
        brokers = {BrokerId(1): (address.host, address.port)}
        watch.look_at(ClusterView(ClusterId(CLUSTER_ID), 1, brokers, topics={}, topic_ids={}))

        def ask(question: BrokerQuestion) -> list[Met]:
            watch.ask([question])
            mets, until = list[Met](), time.monotonic() + 10
            while not any(met.how is not Meeting.SILENT for met in mets):
                assert time.monotonic() < until
                watch.pending()[0].result(5)
                mets += watch.take()
            return mets

        return ask

    yield make
    for watch in opened:
        watch.close()


@pytest.mark.parametrize("millis", [1_500, 100], ids=["renewed", "opened again"])
def test_a_session_that_ends_is_renewed_without_a_closed_connection(
    quorum: Any, asking: Callable[..., Asking], millis: int
) -> None:
    sessions, peers = Sessions(quorum, logins.Server, millis=millis), Peers()
    ask = asking({**logins.LOGIN, "sasl.mechanism": "PLAIN"}, peers)
    for number in range(2 if millis > 1_000 else 3):
        time.sleep(0 if not number else 1.35 if millis > 1_000 else 0.1)
        (met,) = ask(PRESENCE)
        assert (met.how, met.content) == (Meeting.ANSWERED, Presence(None, frozenset({1}), None))
    assert sessions.logins == number + 1
    assert sum(peer.errors for peer in peers.all().values()) == 0
    assert len(quorum.nodes[1].opened) == (1 if millis > 1_000 else 3)


def test_a_login_that_is_refused_says_nothing_of_the_broker(quorum: Any, asking: Callable[..., Asking]) -> None:
    quorum.login = logins.Server
    client = {**logins.LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": "wrong"}
    (met,) = asking(client)(PRESENCE)
    assert (met.how, met.content) == (Meeting.WRONG_NODE, None)


def test_questions_and_the_end_of_a_connection_are_met_inside_tls(
    quorum: Any, tls: Path, asking: Callable[..., Asking]
) -> None:
    ask = asking({"security.protocol": "SSL", "ssl.ca.location": str(tls)})
    (met,) = ask(QUORUM)
    assert (met.how, met.content) == (Meeting.ANSWERED, QuorumLeader(1, 1))
    quorum.nodes[1].stop()
    mets = ask(QUORUM)
    assert [each.how for each in mets][:2] in ([Meeting.CLOSED, Meeting.REFUSED], [Meeting.CLOSED])
