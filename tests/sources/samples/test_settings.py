"""Settings, asked of brokers that speak Kafka's protocol: what is asked of whom, what is missing where one fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import SourceKind
from streaming.contracts.settings import BrokerFeatureObserved, BrokerSettingsObserved, TopicSettingsObserved
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, DESCRIBE_TOPIC_CONFIGS, PermissionDenied
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.config_messages import DescribedValue, Resource, ResourceConfig
from streaming.sources.samples.kind import NEVER, BrokerAnswer
from streaming.sources.samples.settings import (
    BROKERS,
    TOPICS,
    BrokerSettingsAnswer,
    Feature,
    SettingsKind,
    TopicsAnswer,
)
from tests.blocks import ENVELOPE, singly
from tests.plugins.fake_kafka import DESCRIBE_CONFIGS, MIN_ISR, FakeKafka
from tests.sources.samples.opened import open_samples, until

TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
OF_ORDERS = {
    MIN_ISR: "2",
    "unclean.leader.election.enable": "true",
    "cleanup.policy": "compact,delete",
    "leader.replication.throttled.replicas": "0:1",
    "follower.replication.throttled.replicas": "",
    "errors.deadletterqueue.group.enable": "true",
}
OF_BROKER = {
    "leader.replication.throttled.rate": "1000",
    "follower.replication.throttled.rate": str(2**63 - 1),
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "9000",
    "unclean.leader.election.enable": "false",
}

PERIOD = Micros(60_000_000)
IN_SYNC = PartitionView((BrokerId(1), BrokerId(2)), (BrokerId(1), BrokerId(2)), BrokerId(1))
VIEW = ClusterView(
    ClusterId("c"), 1, {BrokerId(broker): ("h", broker) for broker in (1, 2, 3)}, {"orders": {0: IN_SYNC}},
    {"orders": TopicId("id")},
)  # fmt: skip


@pytest.fixture
def cluster(fake_kafka: Callable[[int], FakeKafka]) -> FakeKafka:
    cluster = fake_kafka(3)
    cluster.create_topic("orders", partitions=3, replicas=2)
    cluster.configs = {"orders": OF_ORDERS, "1": OF_BROKER}
    cluster.features = {"metadata.version": (30, 27), "kraft.version": (1, 0)}
    return cluster


def sampled(cluster: FakeKafka, enough: Callable[[list[Any]], bool], period: float = 60.0) -> list[Any]:
    """Sample until there is enough; refusals come last."""

    def kinds() -> list[SettingsKind]:
        return [SettingsKind(Micros(round(period * 1_000_000)))]

    refused: list[ConnectionRefused] = []
    source = open_samples(cluster.bootstrap_servers, kinds, PERIOD, seconds=1.0)
    with closing(source):
        return [*until(source, enough, refused), *refused]


def of(kind: type[Any], seen: list[Any]) -> list[Any]:
    return [each for each in seen if isinstance(each, kind)]


def test_any_broker_is_asked_for_topics_and_each_for_itself_and_only_for_what_matters(cluster: FakeKafka) -> None:
    seen = sampled(cluster, lambda seen: len(of(BrokerFeatureObserved, seen)) == 6 and len(seen) == 10)
    (orders,) = of(TopicSettingsObserved, seen)
    assert (orders.topic, orders.partition_count, orders.replication_factor, orders.min_isr) == ("orders", 3, 2, 2)
    assert (orders.allows_unclean_election, orders.cleanup_policy) == (True, "compact,delete")
    assert (orders.leader_throttled_replicas, orders.follower_throttled_replicas) == ("0:1", "")
    assert orders.takes_dead_letters is True
    assert (orders.source_kind, orders.cluster_id) == (SourceKind.NONE, cluster.cluster_id)
    settings = {each.broker: each for each in of(BrokerSettingsObserved, seen)}
    assert settings.keys() == {1, 2, 3}
    assert (settings[1].leader_throttled_rate, settings[1].follower_throttled_rate) == (1000, None)
    assert (settings[1].replica_lag_time_max_ms, settings[1].broker_session_timeout_ms) == (30_000, 9000)
    assert settings[1].allows_unclean_election is False
    assert settings[2].replica_lag_time_max_ms is None
    features = of(BrokerFeatureObserved, seen)
    assert {(each.broker, each.feature, each.supported_level, each.finalized_level) for each in features} == {
        (broker, *each) for broker in (1, 2, 3) for each in (("metadata.version", 30, 27), ("kraft.version", 1, 0))
    }
    described = [(broker, each) for broker, one in cluster.asked(DescribeConfigsRequest) for each in one.resources]
    asked = [(broker, each) for broker, each in described if "node.id" not in each.configuration_keys]
    assert len(described) - len(asked) == 3, "once per connection who answers"
    of_brokers = [(broker, each.resource_name) for broker, each in asked if each.resource_type == Resource.BROKER]
    assert sorted(of_brokers) == [(1, "1"), (2, "2"), (3, "3")]
    assert [each.resource_name for _, each in asked if each.resource_type == Resource.TOPIC] == ["orders"]
    keys = {each.resource_type: {*each.configuration_keys} for _, each in asked}
    assert keys == {Resource.TOPIC: {*OF_ORDERS}, Resource.BROKER: {MIN_ISR, *OF_BROKER}}


def test_a_proxy_that_leaves_a_broker_out_and_values_of_another_kind_end_nothing(cluster: FakeKafka) -> None:
    cluster.configs["2"], cluster.left_out = {"replica.lag.time.max.ms": "30s", MIN_ISR: "2"}, {"3"}
    seen = sampled(cluster, lambda seen: len(of(BrokerFeatureObserved, seen)) == 6 and len(seen) >= 9)
    settings = {each.broker: each for each in of(BrokerSettingsObserved, seen)}
    assert settings.keys() == {1, 2}
    assert (settings[2].replica_lag_time_max_ms, settings[2].min_isr) == (None, 2)


def test_what_topics_leave_to_brokers_that_disagree_is_not_that_of_the_asked_one() -> None:
    kind, static, own = SettingsKind(PERIOD), 4, 1

    def answer(broker: int, name: str, value: Any) -> Any:
        return kind.shown(VIEW, BrokerAnswer(name, BrokerId(broker), Micros(0), value), ENVELOPE).observations

    def minimum(source: int) -> int | None:
        described = ResourceConfig(0, {MIN_ISR: DescribedValue("2", source)})
        (topic,) = singly(answer(1, TOPICS, TopicsAnswer({"orders": TopicId("id")}, {"orders": described})))
        least: int | None = topic.min_isr
        return least

    for broker, value in ((1, "2"), (2, "2")):
        described = ResourceConfig(0, {MIN_ISR: DescribedValue(value, static)})
        answer(broker, BROKERS, BrokerSettingsAnswer(described, ()))
    assert minimum(static) == 2
    answer(2, BROKERS, BrokerSettingsAnswer(ResourceConfig(0, {MIN_ISR: DescribedValue("1", static)}), ()))
    assert (minimum(static), minimum(own)) == (None, 2)


def test_a_broker_of_kafka_3_6_is_asked_for_its_features_in_its_version(cluster: FakeKafka) -> None:
    cluster.newest[ApiVersionsRequest.API_KEY] = 3
    cluster.features = {"metadata.version": (14, 14)}
    seen = sampled(cluster, lambda seen: len(of(BrokerFeatureObserved, seen)) == 3)
    found = {(each.broker, each.feature, each.finalized_level) for each in of(BrokerFeatureObserved, seen)}
    assert found == {(broker, "metadata.version", 14) for broker in (1, 2, 3)}


def test_thousands_of_topics_are_asked_for_in_batches_and_travel_in_blocks(cluster: FakeKafka) -> None:
    for number in range(1, 1201):
        cluster.create_topic(f"t-{number}", partitions=1, replicas=1)
    seen = sampled(cluster, lambda seen: len(of(TopicSettingsObserved, seen)) == 1201)
    requests = [one.resources for _, one in cluster.asked(DescribeConfigsRequest)]
    assert [len(each) for each in requests if each[0].resource_type == Resource.TOPIC] == [500, 500, 201]
    of_topics = {each.topic: (each.min_isr, each.cleanup_policy) for each in of(TopicSettingsObserved, seen)}
    assert of_topics.pop("orders") == (2, "compact,delete")
    assert {*of_topics.values()} == {(1, None)}


def test_the_next_broker_describes_the_topics_where_one_is_hung_or_dead(cluster: FakeKafka) -> None:
    cluster.hang(2, 30_000)  # whose turn is first
    seen = sampled(cluster, lambda seen: len(of(TopicSettingsObserved, seen)) == 1)
    assert {each.broker for each in of(BrokerSettingsObserved, seen)} == {1, 3}
    assert of(ConnectionRefused, seen) == []


def test_each_round_another_broker_describes_the_topics(cluster: FakeKafka) -> None:
    seen = sampled(cluster, lambda seen: len(of(TopicSettingsObserved, seen)) == 3, 0.05)
    assert sorted(each.broker for each in of(TopicSettingsObserved, seen)) == [1, 2, 3]


def test_a_topic_that_was_created_again_meanwhile_keeps_no_settings_of_the_old_one() -> None:
    kind = SettingsKind(PERIOD)
    described = {"orders": ResourceConfig(0, {MIN_ISR: DescribedValue("2", 5)}), "gone": ResourceConfig(3, {})}
    for asked_of, count in ((dict(VIEW.topic_ids), 1), ({"orders": "another"}, 0), ({}, 0)):
        answer = BrokerAnswer(TOPICS, BrokerId(1), Micros(1), TopicsAnswer(asked_of, described))
        shown = kind.shown(VIEW, answer, dict(ENVELOPE))
        assert (len(shown.observations), shown.refusal) == (count, None)


def test_a_missing_permission_is_named_and_costs_nothing_else() -> None:
    kind = SettingsKind(PERIOD)
    described = {
        "orders": ResourceConfig(0, {MIN_ISR: DescribedValue("2", 5)}),
        "secret": ResourceConfig(TOPIC_AUTHORIZATION_FAILED, {}),
    }
    of_topics = TopicsAnswer(dict(VIEW.topic_ids), described)
    shown = kind.shown(VIEW, BrokerAnswer(TOPICS, BrokerId(1), Micros(1), of_topics), dict(ENVELOPE))
    assert [each.topic for each in singly(shown.observations) if isinstance(each, TopicSettingsObserved)] == ["orders"]
    assert isinstance(shown.refusal, PermissionDenied)
    assert (shown.refusal.permission, shown.refusal.on) == (DESCRIBE_TOPIC_CONFIGS, "topic secret")
    of_broker = BrokerSettingsAnswer(
        ResourceConfig(CLUSTER_AUTHORIZATION_FAILED, {}), (Feature("metadata.version", 30, 27),)
    )
    shown = kind.shown(VIEW, BrokerAnswer(BROKERS, BrokerId(1), Micros(1), of_broker), dict(ENVELOPE))
    assert [type(each) for each in shown.observations] == [BrokerFeatureObserved]
    assert isinstance(shown.refusal, PermissionDenied)
    assert shown.refusal.permission == DESCRIBE_BROKER_CONFIGS


def test_a_missing_permission_is_raised_once(cluster: FakeKafka) -> None:
    cluster.fail(DESCRIBE_CONFIGS, *[CLUSTER_AUTHORIZATION_FAILED] * 3, 0, *[CLUSTER_AUTHORIZATION_FAILED] * 3)
    seen = sampled(cluster, lambda seen: len(of(BrokerFeatureObserved, seen)) >= 18, 0.3)
    assert len(of(PermissionDenied, seen)) == 1


def test_when_every_broker_was_asked_the_topics_wait_for_the_next_round() -> None:
    kind = SettingsKind(PERIOD)
    asked: list[tuple[str, BrokerId]] = []

    def ask(name: str, broker: BrokerId, _work: Any) -> bool:
        asked.append((name, broker))
        return True

    kind.ask(VIEW, ask, Micros(1))
    for _ in range(3):
        (broker,) = [broker for name, broker in asked if name == TOPICS][-1:]
        kind.shown(VIEW, BrokerAnswer(TOPICS, broker, Micros(1), refusal=ConnectionRefused("gone")), dict(ENVELOPE))
        kind.ask(VIEW, ask, Micros(2))
    assert [broker for name, broker in asked if name == TOPICS] == [2, 3, 1]
    assert sorted(broker for name, broker in asked if name == BROKERS) == [1, 2, 3]
    assert kind.next_at == 60_000_001
    assert kind.next_at < NEVER
