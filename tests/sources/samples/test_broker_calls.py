"""A hung broker delays only what is asked of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.errors import ConnectionRefused
from streaming.sources.protocol.addresses import Address
from streaming.sources.samples.kind import BrokerAnswer, BrokerCalls

NOW = Micros(1)
ONE, TWO = BrokerId(1), BrokerId(2)
PATIENCE = 20.0


class Node:
    """A connection to a node of a test."""

    def __init__(self, address: Address) -> None:
        self.address, self.is_closed = address, False

    def close(self) -> None:
        self.is_closed = True


class Nodes:
    """Dials; a port that is ``down`` refuses."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.opened: list[Node] = []

    def __call__(self, address: Address, *, response_seconds: float) -> Any:
        assert response_seconds == 1.0
        if address.port in self.down:
            raise ConnectionRefused(f"{address} cannot be reached")
        self.opened.append(Node(address))
        return self.opened[-1]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def calls(nodes: Nodes) -> Iterator[BrokerCalls]:
    opened = BrokerCalls(nodes, name="t", seconds=1.0)
    yield opened
    opened.close()


def answers(calls: BrokerCalls, count: int) -> list[BrokerAnswer]:
    found: list[BrokerAnswer] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, found
        found += calls.take(0.1)
    return found


def test_a_hung_broker_delays_nobody_and_is_not_asked_twice(calls: BrokerCalls) -> None:
    hangs = threading.Event()
    assert calls.ask("offsets", ONE, Address("h", 1), lambda _: hangs.wait(PATIENCE), NOW)
    assert calls.ask("offsets", TWO, Address("h", 2), lambda _: "two", NOW)
    assert answers(calls, 1) == [BrokerAnswer("offsets", TWO, NOW, "two")]
    assert not calls.ask("offsets", ONE, Address("h", 1), lambda _: "again", NOW)
    assert calls.ask("directories", ONE, Address("h", 1), lambda _: "later", NOW)
    assert calls.is_outstanding("offsets")
    hangs.set()
    assert [answer.value for answer in answers(calls, 2)] == [True, "later"]
    assert not calls.is_outstanding("offsets")


def test_a_connection_is_kept_and_opened_again_when_it_was_ended(nodes: Nodes, calls: BrokerCalls) -> None:
    def ended_once(connection: Any) -> str:
        if connection is nodes.opened[0] and len(nodes.opened) == 1:
            raise ConnectionRefused("end of stream")
        return "answered"

    calls.ask("a", ONE, Address("h", 1), lambda _: "first", NOW)
    answers(calls, 1)
    calls.ask("a", ONE, Address("h", 1), ended_once, NOW)
    assert [answer.value for answer in answers(calls, 1)] == ["answered"]
    assert [node.is_closed for node in nodes.opened] == [True, False]


def test_a_broker_that_cannot_be_reached_is_an_answer(nodes: Nodes, calls: BrokerCalls) -> None:
    nodes.down.add(1)
    calls.ask("a", ONE, Address("h", 1), lambda _: "never", NOW)
    (answer,) = answers(calls, 1)
    assert answer.value is None
    assert "h:1 cannot be reached" in str(answer.refusal)


def test_what_fails_and_is_no_refusal_is_raised_and_the_broker_can_be_asked_again(calls: BrokerCalls) -> None:
    def failing(_: Any) -> None:
        raise KeyError("what no broker answers")

    calls.ask("a", ONE, Address("h", 1), failing, NOW)
    with pytest.raises(KeyError, match="what no broker answers"):
        answers(calls, 1)
    assert calls.ask("a", ONE, Address("h", 1), lambda _: "again", NOW)
    assert [answer.value for answer in answers(calls, 1)] == ["again"]


def test_who_left_is_hung_up_on_and_so_is_who_moved(nodes: Nodes, calls: BrokerCalls) -> None:
    calls.ask("a", ONE, Address("h", 1), lambda _: 1, NOW)
    answers(calls, 1)
    calls.ask("a", ONE, Address("h", 3), lambda _: 3, NOW)
    assert [answer.value for answer in answers(calls, 1)] == [3]
    assert [node.is_closed for node in nodes.opened] == [True, False]
    calls.retain(())
    assert [node.is_closed for node in nodes.opened] == [True, True]


def test_what_a_broker_that_left_still_answers_is_dropped(nodes: Nodes, calls: BrokerCalls) -> None:
    begun, hangs, ended = threading.Event(), threading.Event(), threading.Event()

    def late(_: Any) -> None:
        begun.set()
        hangs.wait(PATIENCE)
        ended.set()

    calls.ask("a", ONE, Address("h", 1), late, NOW)
    assert begun.wait(PATIENCE)
    calls.retain(())
    hangs.set()
    assert ended.wait(PATIENCE)
    calls.ask("a", TWO, Address("h", 2), lambda _: 2, NOW)
    assert [answer.value for answer in answers(calls, 1)] == [2]
    assert nodes.opened[0].is_closed
