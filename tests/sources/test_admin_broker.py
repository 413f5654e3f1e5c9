"""One broker, asked over a socket: what it lists, what it hides, and which replicas are eligible."""

from __future__ import annotations

import uuid
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.contracts.identifiers import (
    NO_LEADER,
    UNSEEN_LEADER,
    BrokerId,
    ClusterId,
    Micros,
    synthetic_topic_id,
    topic_id_from_uuid,
)
from streaming.errors import ConnectionRefused
from streaming.sources.polling.broker import ConnectedBrokers, MetadataDecoder
from streaming.sources.polling.view import PartitionView, with_leaders
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from streaming.sources.source import monotonic
from tests.plugins.fake_kafka import CLUSTER_ID, KRAFT, METADATA, TOPIC_AUTHORIZATION_FAILED, FakeKafka, Part
from tests.plugins.fake_kafka import DESCRIBE_TOPIC_PARTITIONS as DESCRIBE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from streaming.sources.polling.broker import Broker, BrokerReply

    MakeKafka = Callable[..., FakeKafka]


def connected(cluster: FakeKafka, broker: int = 1, seconds: float = 2.0) -> Broker:
    opened = ConnectedBrokers(dialer(Security()), cluster="test", seconds=seconds)
    return opened(Address("127.0.0.1", cluster.ports[broker]))


def ask(broker: Broker, before: Collection[str] = (), seconds: float = 10.0) -> BrokerReply:
    return broker.answer(before, Micros(monotonic() + int(seconds * 1_000_000)))


def answered(cluster: FakeKafka, before: Collection[str] = ()) -> BrokerReply:
    with closing(connected(cluster)) as broker:
        return ask(broker, before)


def degrade(cluster: FakeKafka, topic: str, number: int, **fields: Any) -> None:
    """Let a partition lose its last replica, which stays eligible."""
    part = cluster.view.topics[topic].parts[number]
    part.isr, part.elr = part.replicas[:-1], part.replicas[-1:]
    for name, value in fields.items():
        setattr(part, name, value)


def described(cluster: FakeKafka) -> list[Any]:
    return [request for _, request in cluster.asked(DescribeTopicPartitionsRequest)]


@pytest.mark.parametrize("version", [5, 8, 9, 10, 11, 12])
def test_a_view_is_what_the_broker_lists_in_one_request_on_one_connection(fake_kafka: MakeKafka, version: int) -> None:
    cluster = fake_kafka(3, orders=2)
    cluster.newest[METADATA] = version
    cluster.view.topics["orders"].parts[1] = Part([2, 3, 1], [1, 2], 2, leader_epoch=7, offline=[3])
    with closing(connected(cluster, 2)) as broker:
        for _ in range(3):
            view = ask(broker).view

    has_id = version >= 10
    epoch = (lambda number: number) if has_id else (lambda _: None)
    written = topic_id_from_uuid(cluster.view.topics["orders"].id)
    assert view.topics == {
        "orders": {
            0: PartitionView((1, 2, 3), (1, 2, 3), 1, leader_epoch=epoch(0)),  # type: ignore[arg-type]
            1: PartitionView((2, 3, 1), (2, 1), 2, leader_epoch=epoch(7), offline=(3,)),  # type: ignore[arg-type]
        }
    }
    assert view.topic_ids == {"orders": written if has_id else synthetic_topic_id(ClusterId(CLUSTER_ID), "orders")}
    assert (view.cluster_id, view.answered_by) == (CLUSTER_ID, 2)
    assert view.brokers == {each: ("127.0.0.1", port) for each, port in cluster.ports.items()}
    assert len(cluster.asked(MetadataRequest)) == 3
    assert not any(request.allow_auto_topic_creation for _, request in cluster.asked(MetadataRequest))


def test_a_broker_not_at_the_address_it_advertises_is_another_one_with_each_connection(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(1)
    cluster.advertised[1] = ("broker.internal", 9092)
    brokers = ConnectedBrokers(dialer(Security()), cluster="test", seconds=2.0)
    address = Address("127.0.0.1", cluster.ports[1])
    with closing(brokers(address)) as one, closing(brokers(address)) as other:
        said = [ask(each).view.answered_by for each in (one, one, other)]
    assert said[0] == said[1] < 0
    assert said[2] not in (*said[:2], 1)
    assert said[2] < 0


@pytest.mark.parametrize("version", [5, 12])
def test_a_partition_without_replicas_is_counted_and_nothing_is_said_of_it(fake_kafka: MakeKafka, version: int) -> None:
    cluster = fake_kafka(2, orders=3)
    cluster.newest[METADATA] = version
    cluster.view.topics["orders"].parts[2] = Part([], [], -1)
    view = answered(cluster).view
    assert sorted(view.topics["orders"]) == [0, 1]
    assert view.partition_count("orders") == 3


def test_a_topic_of_which_no_partition_has_replicas_is_not_deleted(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(2, orders=1)
    before = answered(cluster).view.topics
    cluster.view.topics["orders"].parts[0] = Part([], [], -1)
    found = answered(cluster, before)
    assert (found.view.topics, found.hidden, found.denied) == ({}, {"orders"}, frozenset())


@pytest.mark.parametrize("version", [5, 12])
def test_a_topic_that_is_not_listed_is_asked_for_by_its_name(fake_kafka: MakeKafka, version: int) -> None:
    cluster = fake_kafka(1, orders=1, denied=1, deleted=1)
    cluster.newest[METADATA] = version
    before = answered(cluster).view.topics
    cluster.view.topics["denied"].error = TOPIC_AUTHORIZATION_FAILED
    cluster.delete_topic("deleted")
    found = answered(cluster, before)
    assert found.view.topics.keys() == {"orders"}
    assert found.hidden == found.denied == {"denied"}
    assert answered(cluster, ["orders"]).hidden == frozenset()


@pytest.mark.parametrize("version", [6, 12])
def test_a_leader_without_the_listener_that_is_asked_leads_all_the_same(fake_kafka: MakeKafka, version: int) -> None:
    cluster = fake_kafka(3, orders=3)
    cluster.newest[METADATA] = version
    cluster.features = KRAFT
    cluster.take_listener_from(3)
    view = answered(cluster).view
    assert [part.leader for part in view.topics["orders"].values()] == [1, 2, 3]
    assert (sorted(view.brokers), view.unseen) == ([1, 2], {3})


def test_a_zookeeper_cluster_whose_isrs_still_have_a_dead_broker_hides_none(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, orders=3)
    cluster.view.brokers = [1, 2]
    cluster.view.topics["orders"].parts = [Part([1, 2, 3], [1, 2, 3], 1)]
    assert answered(cluster).view.unseen == frozenset()


def test_of_two_leaders_that_cannot_be_seen_nobody_says_which_it_is(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, orders=3)
    cluster.features = KRAFT
    cluster.take_listener_from(2, 3)
    cluster.view.topics["orders"].parts[2].isr = [3]
    view = answered(cluster).view
    assert [part.leader for part in view.topics["orders"].values()] == [1, UNSEEN_LEADER, 3]
    assert view.unseen == {2, 3}
    before = replace(view, topics={"orders": {1: view.topics["orders"][1]._replace(leader=BrokerId(2))}})
    assert with_leaders(view, before).topics["orders"][1].leader == 2, "it is the same leader epoch"
    later = replace(view, topics={"orders": {1: view.topics["orders"][1]._replace(leader_epoch=9)}})
    assert with_leaders(later, before).topics["orders"][1].leader == UNSEEN_LEADER


def test_a_broker_in_the_last_isr_of_a_partition_without_a_leader_may_be_dead(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(2, orders=2)
    cluster.view.brokers = [1]
    cluster.view.topics["orders"].parts = [Part([1, 2], [1], 1), Part([2], [2], -1)]
    view = answered(cluster).view
    assert ([part.leader for part in view.topics["orders"].values()], view.unseen) == ([1, NO_LEADER], frozenset())


def test_a_description_that_has_no_errors_does_not_take_a_leader_away(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, orders=3)
    cluster.features = KRAFT
    cluster.take_listener_from(3)
    degrade(cluster, "orders", 2, isr=[3, 1], elr=[])
    view = answered(cluster).view
    assert len(described(cluster)) == 1
    assert view.has_elr
    assert view.topics["orders"][2].leader == 3
    newer = cluster.view.topics["orders"].parts[2]
    cluster.listed, cluster.view = cluster.view, deepcopy(cluster.view)
    cluster.view.topics["orders"].parts[2].leader_epoch = newer.leader_epoch + 1
    view = answered(cluster).view
    assert (view.topics["orders"][2].leader, view.has_elr) == (3, False), "who leads in that epoch is not known yet"


def test_a_healthy_cluster_has_no_eligible_replicas_and_is_not_asked_for_them(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, orders=4)
    view = answered(cluster).view
    assert view.has_elr
    assert described(cluster) == []


def test_eligible_replicas_are_those_of_every_page(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, a=3, healthy=3, b=3, c=3)
    cluster.page = 2
    for name in ("c", "a", "b"):
        for number in range(3):
            degrade(cluster, name, number)
    degrade(cluster, "b", 1, isr=[], leader=-1, elr=[], last_known_elr=[3])
    view = answered(cluster).view
    assert view.has_elr
    assert [view.topics[name][0].elr for name in ("a", "healthy", "b", "c")] == [(3,), (), (3,), (3,)]
    assert (view.topics["b"][1].elr, view.topics["b"][1].last_known_elr) == ((), (3,))
    assert [[each.name for each in request.topics] for request in described(cluster)] == [
        ["a", "b", "c"], ["a", "b", "c"], ["b", "c"], ["c"], ["c"]
    ]  # fmt: skip


def test_what_is_described_later_is_newer_than_what_was_listed(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, orders=1)
    degrade(cluster, "orders", 0)
    listed = deepcopy(cluster.view)
    part = cluster.view.topics["orders"].parts[0]
    part.isr, part.elr, part.leader, part.leader_epoch, part.offline = [2], [1, 3], 2, 5, [3]
    cluster.listed = listed
    (seen,) = answered(cluster).view.topics["orders"].values()
    assert (seen.isr, seen.elr, seen.leader, seen.leader_epoch, seen.offline) == ((2,), (1, 3), 2, 5, (3,))


def test_what_is_described_of_another_topic_under_the_same_name_is_not_of_the_one_that_was_listed(
    fake_kafka: MakeKafka,
) -> None:
    cluster = fake_kafka(3, orders=1)
    degrade(cluster, "orders", 0)
    cluster.listed = deepcopy(cluster.view)
    again = cluster.view.topics["orders"]
    again.id, again.parts[0].isr = uuid.UUID(int=1), [2]
    view = answered(cluster).view
    assert (view.topics["orders"][0].isr, view.has_elr) == ((1, 2), False)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda cluster: cluster.newest.update({DESCRIBE: -1}),  # before Kafka 3.7
        lambda cluster: setattr(cluster.view.topics["orders"].parts[0], "elr", None),
        lambda cluster: cluster.refuse(DESCRIBE),
    ],
)
def test_where_a_broker_does_not_say_which_replicas_are_eligible_that_is_unknown_and_the_rest_is_not(
    fake_kafka: MakeKafka, trouble: Callable[[FakeKafka], None]
) -> None:
    cluster = fake_kafka(2, orders=1)
    degrade(cluster, "orders", 0)
    trouble(cluster)
    view = answered(cluster).view
    assert not view.has_elr
    assert (view.topics["orders"][0].isr, view.topics["orders"][0].elr) == ((1,), ())


def test_a_page_that_does_not_come_in_time_ends_the_connection_and_leaves_the_view(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(2, orders=1)
    degrade(cluster, "orders", 0)
    broker = connected(cluster)
    view = ask(broker, seconds=0).view
    assert not view.has_elr
    assert described(cluster) == []
    with pytest.raises(ConnectionRefused, match="the connection is closed"):
        ask(broker)


def test_a_topic_that_did_not_change_is_not_decoded_again_and_one_that_did_is(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(3, same=2, changed=2, deleted=2)
    broker = connected(cluster)
    before = ask(broker).view
    cluster.set_leader("changed", 1, 3)
    cluster.delete_topic("deleted")
    cluster.create_topic("new", partitions=1, replicas=1)
    after = ask(broker).view
    fresh = answered(cluster).view
    broker.close()
    assert after.topics["same"] is before.topics["same"]
    assert (after.topics, after.topic_ids) == (fresh.topics, fresh.topic_ids)
    assert after.topics["changed"][1].leader == 3


@pytest.mark.parametrize("cut", [4, 9, 40, -1])
def test_a_response_that_is_cut_is_refused(fake_kafka: MakeKafka, cut: int) -> None:
    cluster = fake_kafka(1, orders=1)
    request = MetadataRequest(version=12, topics=None)
    response = cluster._MetadataRequest(1, request)
    response.API_VERSION = 12
    response.with_header(correlation_id=1)
    data = bytes(response.encode(header=True, framed=False))
    assert [topic.name for topic in MetadataDecoder().decode(data, version=12).topics] == ["orders"]
    with pytest.raises(ValueError, match="ends at byte"):
        MetadataDecoder().decode(data[:cut], version=12)
