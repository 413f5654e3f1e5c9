"""A view that may be stale is verified with another broker; where none can be reached, the doubt ends all the same."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.sources import admin_metadata
from streaming.sources.admin_metadata import MetadataRound, Read
from tests.sources.conftest import unlisted
from tests.sources.test_resumed_broker import Client, _done

if TYPE_CHECKING:
    import pytest

    from streaming.sources.admin_view import ClusterView

BOOTSTRAP = "127.0.0.1:9092"


class NatCluster:
    """One broker that advertises what nobody reaches. ``reached`` are the addresses that new clients can use."""

    def __init__(self) -> None:
        self.topics = ["orders", "payments"]
        self.reached = {BOOTSTRAP}
        self.asked: list[str] = []
        self.missing_because = KafkaError.UNKNOWN_TOPIC_OR_PART

    def connect(self, addresses: str) -> Any:
        self.asked.append(addresses)
        is_reached = addresses in self.reached
        return Client(
            list_topics=lambda timeout: self._metadata(is_reached=is_reached),  # noqa: ARG005 - as librdkafka names it
            describe_topics=self._described,
        )

    def _described(self, names: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        del request_timeout
        return {topic: self._description(topic) for topic in names.topic_names}

    def _description(self, topic: str) -> Future[Any]:
        if topic in self.topics:
            return _done()
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(self.missing_because)))
        return future

    def _metadata(self, *, is_reached: bool) -> Any:
        if not is_reached:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partition = SimpleNamespace(replicas=[1], isrs=[1], leader=1)
        return SimpleNamespace(
            cluster_id="c1",
            orig_broker_id=1,
            brokers={1: SimpleNamespace(id=1, host="fd00::2", port=9092)},
            topics={name: SimpleNamespace(partitions={0: partition}) for name in self.topics},
        )


def polled(polls: MetadataRound, before: ClusterView | None, seconds: float = 10.0) -> Read:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        polls.ask()
        wait(polls.pending())
        try:
            if (read := polls.take(before)) is not None:
                return read
        except KafkaException:
            continue
    raise AssertionError("the deletion is never believed")


def started(cluster: NatCluster) -> tuple[MetadataRound, ClusterView]:
    polls = MetadataRound(cluster.connect, BOOTSTRAP, unlisted(), cluster="demo", name="t", seconds=1)
    return polls, polled(polls, None).view


def test_a_broker_is_asked_again_by_its_bootstrap_address_where_what_it_advertises_is_not_reached() -> None:
    cluster = NatCluster()
    polls, before = started(cluster)
    try:
        cluster.topics.remove("payments")
        assert list(polled(polls, before).view.topics) == ["orders"]
        assert "[fd00::2]:9092" in cluster.asked
    finally:
        polls.close()


def test_a_doubt_ends_where_no_other_client_reaches_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_metadata, "_LONGEST_DOUBT", 300_000)
    cluster = NatCluster()
    polls, before = started(cluster)
    cluster.reached = set()
    try:
        cluster.topics.remove("payments")
        assert list(polled(polls, before).view.topics) == ["orders"]
    finally:
        polls.close()


def test_a_topic_that_is_not_to_be_seen_any_more_is_not_deleted_and_it_is_said_which_permission_is_missing() -> None:
    cluster = NatCluster()
    polls, before = started(cluster)
    try:
        cluster.topics.remove("payments")
        cluster.missing_because = KafkaError.TOPIC_AUTHORIZATION_FAILED
        for _ in range(3):
            after = polled(polls, before).view
            assert (after.topics, after.topic_ids) == (before.topics, before.topic_ids)
        assert "lacks Describe on topic payments" in str(polls.refusals[0])
        before = after
        cluster.missing_because = KafkaError.UNKNOWN_TOPIC_OR_PART
        assert list(polled(polls, before).view.topics) == ["orders"]
    finally:
        polls.close()


def test_a_topic_that_is_hidden_while_every_id_is_asked_for_again_is_not_deleted() -> None:
    cluster = NatCluster()
    polls, before = started(cluster)
    try:
        polls.ask_ids(before)
        cluster.topics.clear()
        cluster.missing_because = KafkaError.TOPIC_AUTHORIZATION_FAILED
        for _ in range(3):
            after = polled(polls, before).view
            assert (after.topics, after.topic_ids) == (before.topics, before.topic_ids)
            polls.ask_ids(after)
    finally:
        polls.close()
