"""Which node answers at an address: proven, another one, or unknown, by what brokers of each version answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.protocol.admin import DescribeConfigsRequest

from streaming.sources.metadata_log.quorum import Bootstrap
from streaming.sources.protocol.addresses import Address, parse_servers
from streaming.sources.protocol.connection import Connection, dialer
from streaming.sources.protocol.identity import DENIED, NodeIdentity, Responder, Role, WrongNode, require, responder
from streaming.sources.protocol.security import Security
from tests.plugins.fake_kafka import CLUSTER_ID, DESCRIBE_CONFIGS, OF_KAFKA_1_0, FakeKafka, View

Make = Callable[..., FakeKafka]
ONE = NodeIdentity(Role.BROKER, 1, CLUSTER_ID)
ANY = NodeIdentity(Role.BROKER, None, CLUSTER_ID)
OTHER_CLUSTER = "zzzzzzzzzzzzzzzzzzzzzg"


def connected(cluster: FakeKafka, broker: int = 1) -> Connection:
    return Connection(Address("127.0.0.1", cluster.ports[broker]), Security())


def of_kafka_4_4(cluster: FakeKafka) -> FakeKafka:
    cluster.newest[18] = 5
    return cluster


def test_a_broker_of_kafka_4_4_proves_its_id_without_a_permission_and_in_one_request(fake_kafka: Make) -> None:
    cluster = of_kafka_4_4(fake_kafka())
    cluster.denies_broker_configs = True
    connection, before = connected(cluster), len(cluster.requests)
    assert responder(connection, ONE) == Responder(ONE, True, 1, CLUSTER_ID, Role.BROKER)
    assert (cluster.identities, len(cluster.requests)) == ([(1, (CLUSTER_ID, 1))], before)


@pytest.mark.parametrize("prepared", [of_kafka_4_4, lambda cluster: cluster])
def test_another_broker_is_named(fake_kafka: Make, prepared: Callable[[FakeKafka], FakeKafka]) -> None:
    cluster = prepared(fake_kafka())
    assert responder(connected(cluster, 2), ONE) == Responder(ONE, False, 2, CLUSTER_ID, Role.BROKER)
    with pytest.raises(WrongNode, match=rf"the address of broker 1, 127.0.0.1:{cluster.ports[2]}, leads to broker 2, "):
        require(connected(cluster, 2), ONE)


def test_another_broker_of_kafka_4_4_is_named_without_a_permission(fake_kafka: Make) -> None:
    cluster = of_kafka_4_4(fake_kafka())
    cluster.denies_broker_configs = True
    with pytest.raises(WrongNode, match=r"the address of broker 1, .*, leads to broker 3, so nothing"):
        require(connected(cluster, 3), ONE)
    cluster.cluster_ids[2] = OTHER_CLUSTER
    with pytest.raises(WrongNode, match=rf"leads to broker 2 of another cluster, {OTHER_CLUSTER}, so nothing"):
        require(connected(cluster, 2), ONE)
    cluster.view.brokers.remove(3)  # it lists only others
    with pytest.raises(WrongNode, match=r"leads to another broker, so nothing"):
        require(connected(cluster, 3), ONE)


def test_without_the_permission_it_is_unknown_who_answers_before_kafka_4_4(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    cluster.denies_broker_configs = True
    for broker in (1, 2):
        by = require(connected(cluster, broker), ONE)
        assert (by.is_meant, by.why_unknown) == (None, DENIED)


@pytest.mark.parametrize("prepared", [of_kafka_4_4, lambda cluster: cluster])
def test_a_broker_of_another_cluster_with_the_same_id_is_named(
    fake_kafka: Make, prepared: Callable[[FakeKafka], FakeKafka]
) -> None:
    cluster = prepared(fake_kafka())
    cluster.cluster_ids[1] = OTHER_CLUSTER
    with pytest.raises(WrongNode, match=rf"leads to broker 1 of another cluster, {OTHER_CLUSTER}, so"):
        require(connected(cluster), ONE)
    with pytest.raises(
        WrongNode, match=rf"the address of cluster {CLUSTER_ID}, .* of another cluster, {OTHER_CLUSTER}"
    ):
        require(connected(cluster), ANY)


def test_any_broker_of_the_cluster_will_do_where_none_is_meant(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    assert responder(connected(cluster, 3), ANY).is_meant is True
    assert not cluster.asked(DescribeConfigsRequest)


def test_a_broker_of_kafka_1_0_says_who_it_is(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    cluster.newest = {**dict.fromkeys(cluster.newest, -1), **OF_KAFKA_1_0}
    assert responder(connected(cluster), ONE).is_meant is True
    assert responder(connected(cluster, 3), ONE).node_id == 3


def test_an_answer_without_an_id_leaves_it_unknown(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    cluster.newest[DESCRIBE_CONFIGS] = -1
    assert responder(connected(cluster), ONE).why_unknown == "it does not support DescribeConfigs"
    cluster.newest[DESCRIBE_CONFIGS] = 4
    cluster.fail(DESCRIBE_CONFIGS, 42)  # without Kafka's sentence: of another make
    assert responder(connected(cluster), ONE).why_unknown == "it responds with error 42"


def test_an_id_in_the_answer_counts_where_a_broker_describes_every_other_one(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    cluster.ids[2] = 1  # it answers for 1, as if it were that
    cluster.configs["1"] = {"node.id": "2"}
    assert responder(connected(cluster, 2), ONE).is_meant is False


def test_a_controller_is_no_broker(fake_kafka: Make) -> None:
    cluster = fake_kafka()
    cluster.newest |= {3: -1, 59: 1}  # Metadata, FetchSnapshot
    cluster.ids[1] = 101
    with pytest.raises(WrongNode, match=r"the address of broker 1, .*, leads to controller 101, so"):
        require(connected(cluster), ONE)
    assert responder(connected(cluster), NodeIdentity(Role.CONTROLLER, 101, CLUSTER_ID)).is_meant is True
    with pytest.raises(WrongNode, match=r"the address of controller 102, .*, leads to controller 101, so"):
        require(connected(cluster), NodeIdentity(Role.CONTROLLER, 102, CLUSTER_ID))


def test_a_bootstrap_server_that_is_of_another_cluster_now_is_not_asked_unless_all_are(fake_kafka: Make) -> None:
    cluster = fake_kafka(2)
    bootstrap = Bootstrap(parse_servers(cluster.bootstrap_servers), dialer(Security()))
    assert bootstrap.brokers().keys() == {1, 2}
    assert bootstrap.cluster_id() == CLUSTER_ID
    cluster.cluster_ids[1] = OTHER_CLUSTER
    cluster.views[1] = View(brokers=[2])
    assert (bootstrap.cluster_id(), bootstrap.brokers().keys()) == (CLUSTER_ID, {1, 2})
    cluster.disconnect(2)
    for _ in range(2):
        with pytest.raises(WrongNode, match=rf"of another cluster, {OTHER_CLUSTER}, so"):
            bootstrap.cluster_id()
    cluster.bring_up(2)
    cluster.cluster_ids[2] = OTHER_CLUSTER
    assert bootstrap.cluster_id() == OTHER_CLUSTER
