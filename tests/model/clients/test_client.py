"""A client finds leaders by asking, and asks again when it was told wrong."""

from __future__ import annotations

from typing import Any

from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.clients.client import Client
from streaming.model.messages.clients import TRANSACTION_STATE, CoordinatorKey

NODE = BrokerId(1_000)


class Seeker(Client):
    """Wants to know one leader or coordinator, and notes whenever that changes."""

    def __init__(self, wanted: TopicPartition | CoordinatorKey, lab: Any, bootstrap: tuple[int, ...]) -> None:
        super().__init__(NODE, [BrokerId(broker) for broker in bootstrap], lab.constants)
        self.wanted = wanted
        self.known: list[tuple[int, BrokerId | None]] = []

    def poll(self, now: int) -> None:
        found = self.coordinator_of if isinstance(self.wanted, CoordinatorKey) else self.leader_of
        node = found(self.wanted)  # type: ignore[operator]
        if not self.known or self.known[-1][1] != node:
            self.known.append((now, node))


def seek(lab: Any, wanted: TopicPartition | CoordinatorKey, *bootstrap: int) -> Seeker:
    seeker = Seeker(wanted, lab, bootstrap)
    seeker.act(lab.cluster.now)
    lab.cluster.connect(NODE, seeker)
    return seeker


def test_every_broker_tells_the_leader_of_a_partition_also_one_that_does_not_host_it(it: Any) -> None:
    (key,) = it.topic("t", [(2, 3)])
    for broker in (1, 2, 3):
        seeker = seek(it, key, broker)
        it.run(it.cluster.now + 10)
        assert [leader for _, leader in seeker.known] == [None, 2]
        assert seeker.leader_epoch_of(key) == 0


def test_a_broken_connection_makes_it_ask_the_next_broker_until_there_is_a_leader(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    seeker = seek(it, key, 1, 2, 3)
    it.run(1_000)
    it.cluster.kill(1)
    it.run(20_000)
    assert [leader for _, leader in seeker.known[:4]] == [None, 1, None, 1]  # the others still think so
    assert seeker.known[-1][1] == 1, "nothing made it ask again: it sends nothing"
    seeker.forget_leader(key)
    seeker.act(it.cluster.now)
    it.cluster.flush(NODE)
    it.run(21_000)
    assert seeker.known[-1][1] == 2
    assert seeker.leader_epoch_of(key) == 1


def test_a_broker_that_does_not_answer_costs_a_request_timeout(lab: Any) -> None:
    it = lab(request_timeout_ms=2_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.cluster.pause(3)
    seeker = seek(it, key, 3, 2)
    asked = it.cluster.now
    it.run(5_000)
    assert [(asked, None), (asked + 2_000 + 100 + 2, 1)] == seeker.known


def test_an_unknown_topic_is_asked_for_again_and_again(it: Any) -> None:
    key = TopicPartition(TopicId("later"), 0)
    seeker = seek(it, key, 1)
    it.run(3_000)
    assert seeker.known == [(500, None)]
    it.topic("later", [(3, 1)])
    it.run(4_000)
    assert seeker.known[-1][1] == 3


def test_the_coordinator_is_the_leader_of_the_partition_that_the_key_hashes_to(it: Any) -> None:
    seeker = seek(it, CoordinatorKey(TRANSACTION_STATE, "console-consumer-1"), 1)
    it.run(1_000)
    assert seeker.known == [(500, None)], "COORDINATOR_NOT_AVAILABLE while the topic is missing"
    assignments = [(1, 2, 3)] * 50
    assignments[24] = (3, 1, 2)
    it.topic(TRANSACTION_STATE, assignments)
    it.run(2_000)
    assert seeker.known[-1][1] == 3
    it.cluster.kill(3)
    it.run(2_001)
    assert seeker.known[-1][1] is None
