"""A watch of a real cluster: a broker that is killed, one that is stopped, and one that stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from streaming.contracts.identifiers import BrokerId
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence, QuorumLeader
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from deploy.sandbox import Sandbox

pytestmark = [pytest.mark.kafka, pytest.mark.long]
SECOND = 1_000_000
BROKERS = [BrokerId(broker) for broker in (1, 2, 3)]


class Watching:
    """Asks every broker whether it is there, four times a second, and notes what is met."""

    def __init__(self, cluster: Sandbox) -> None:
        dial, address = dialer(Security()), parse_servers(cluster.bootstrap_servers)[0]
        with closing(dial(address, response_seconds=5)) as connection:
            view = ConnectedBrokers(dial, cluster="c", seconds=5).view(connection)
        self.watch, self.mets, self._due = Watch(dial, name="real"), list[Met](), 0.0
        self.watch.look_at(view)

    def ask(self, question: BrokerQuestion) -> Met:
        """Return how a question ended."""
        self.watch.ask([question])
        return self.until(lambda mets: any(met.question == question for met in mets))[-1]

    def until(self, enough: Callable[[list[Met]], object], seconds: float = 30.0) -> list[Met]:
        """Return what was met of broker 3, and of others, until that is enough."""
        mets, until = list[Met](), time.monotonic() + seconds
        while not enough(mets):
            assert time.monotonic() < until, mets[-20:]
            if time.monotonic() > self._due:
                self._due = time.monotonic() + 0.25
                self.watch.ask([BrokerQuestion(Ask.PRESENCE, broker) for broker in BROKERS])
            time.sleep(0.01)
            mets += self.watch.take()
        self.mets += mets
        return mets

    def since(self, moment: int, broker: int) -> list[Met]:
        """Return what was met of a broker after a moment."""
        return [met for met in self.mets if met.ended >= moment and met.question.broker == broker]


@pytest.fixture
def watching(kafka_4_4: Sandbox) -> Iterator[Watching]:
    kafka_4_4.admin.create_topic("watched", partitions=3, replication_factor=3)
    made = Watching(kafka_4_4)
    all_answered = {(broker, Meeting.ANSWERED) for broker in BROKERS}
    made.until(lambda mets: {(met.question.broker, met.how) for met in mets} >= all_answered)
    yield made
    made.watch.close()
    kafka_4_4.heal()
    kafka_4_4.admin.delete_topic("watched")


def of_three(*ways: Meeting) -> Callable[[list[Met]], bool]:
    return lambda mets: {met.how for met in mets if met.question.broker == 3} >= {*ways}


def first_answer(mets: list[Met]) -> Met:
    return next(met for met in mets if met.question.broker == 3 and met.how is Meeting.ANSWERED)


def ways_of(mets: list[Met]) -> list[Meeting]:
    """Return what was met, one after the other, each once as long as it lasts."""
    return [how for how, _ in groupby(met.how for met in mets)]


def test_killed_stopped_and_paused_brokers_are_met_as_what_they_are(kafka_4_4: Sandbox, watching: Watching) -> None:
    killed = monotonic()
    kafka_4_4.kill(3)
    watching.until(of_three(Meeting.REFUSED))
    mets = [met for met in watching.since(killed, 3) if met.how is not Meeting.ANSWERED]
    assert ways_of(mets)[:2] == [Meeting.CLOSED, Meeting.REFUSED]
    assert mets[0].ended - killed < SECOND // 2
    refused = next(met for met in mets if met.how is Meeting.REFUSED)
    assert refused.ended - mets[0].ended < SECOND // 4
    kafka_4_4.start(3)
    back = first_answer(watching.until(of_three(Meeting.ANSWERED)))
    assert back.connection > refused.connection

    stopped = monotonic()
    stopping = threading.Thread(target=kafka_4_4.stop, args=(3,))  # it is asked meanwhile
    stopping.start()
    watching.until(of_three(Meeting.REFUSED))
    stopping.join()
    mets = watching.since(stopped, 3)
    ways = ways_of(mets)
    assert ways[ways.index(Meeting.CLOSED) :][:2] == [Meeting.CLOSED, Meeting.REFUSED]
    assert set(ways[: ways.index(Meeting.CLOSED)]) <= {Meeting.ANSWERED}, "it is never silent"
    fenced = BrokerQuestion(Ask.PRESENCE, BrokerId(1))
    watching.until(
        lambda found: any(
            isinstance(met.content, Presence) and met.content.fenced == {3} for met in found if met.question == fenced
        )
    )
    kafka_4_4.start(3)
    watching.until(of_three(Meeting.ANSWERED))

    paused = monotonic()
    kafka_4_4.pause(3)
    mets = watching.until(lambda found: sum(met.how is Meeting.SILENT for met in found) >= 4)
    mets = [met for met in mets if met.question.broker == 3 and met.ended > paused + SECOND]
    assert {met.how for met in mets} == {Meeting.SILENT}
    assert len({met.connection for met in mets}) == 2, "the system accepts one more connection"
    kafka_4_4.resume(3)
    late = first_answer(watching.until(of_three(Meeting.ANSWERED)))
    assert (late.connection, late.asked) == (mets[0].connection, mets[0].asked)
    others = watching.since(killed, 1) + watching.since(killed, 2)
    assert {met.how for met in others} == {Meeting.ANSWERED}
    assert max(met.ended - met.asked for met in others) < SECOND, "nobody else is delayed"


def test_the_other_questions_are_answered_by_a_real_broker(watching: Watching) -> None:
    quorum = watching.ask(BrokerQuestion(Ask.QUORUM, BrokerId(1)))
    assert isinstance(quorum.content, QuorumLeader)
    assert quorum.content.leader == 101
    partitions = watching.ask(BrokerQuestion(Ask.PARTITIONS, BrokerId(2), (("watched", -1, -1),)))
    view = partitions.content["watched"]  # type: ignore[index,call-overload]
    assert {number: part.elr for number, part in view.items()} == dict.fromkeys(range(3), ())
    three = tuple(("watched", number, -1) for number in range(3))
    assert watching.ask(BrokerQuestion(Ask.LOG_ENDS, BrokerId(3), three)).content == {
        ("watched", number): 0 for number in range(3)
    }
    led = tuple(("watched", number, part.leader_epoch) for number, part in view.items() if part.leader == 1)
    ends = watching.ask(BrokerQuestion(Ask.EPOCH_ENDS, BrokerId(1), led))
    assert (ends.content, ends.error) == ({("watched", number): 0 for _, number, _ in led}, 0) or ends.content == {}
