"""How brokers are asked: with few descriptors and threads, and by librdkafka where only that can log in."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import wait
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka.protocol.admin import DescribeConfigsRequest

from streaming.contracts.identifiers import Micros, topic_id_from_uuid
from streaming.errors import ConnectionRefused
from streaming.sources.polling.access import access_of
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import DescribedConfigs
from streaming.sources.polling.librdkafka import ClientBroker, ClientBrokers
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.security import Security
from streaming.sources.source import monotonic
from tests.plugins.fake_kafka import DESCRIBE_CONFIGS, METADATA, MIN_ISR, TOPIC_AUTHORIZATION_FAILED, FakeKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    MakeKafka = Callable[..., FakeKafka]
    Configs = tuple[FakeKafka, DescribedConfigs]

MANY = 120
THREADS = 50  # as many as leaders are asked at once, and a few
SCRIPT = """
import os, sys, time
from contextlib import suppress
from streaming.contracts.identifiers import Micros
from streaming.errors import ConnectionRefused
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.samples.source import open_samples

before = len(os.listdir("/proc/self/fd"))
(source,) = open_samples(
    Settings(cluster=ClusterSettings(bootstrap_servers=sys.argv[1]), collect=CollectSettings(offsets_seconds=0.2)),
    print,
)
many, until = int(sys.argv[2]), time.monotonic() + 60
while True:  # one round of all brokers: one that answered late has two connections for a moment
    led = set()
    while time.monotonic() < until and len(led) < many:
        with suppress(ConnectionRefused):  # one is late on a busy machine: it is asked again
            told = source.poll(Micros(time.time_ns() // 1000))
            led |= {item.broker for item in told if item.kind == "broker_offsets"}
    descriptors = len(os.listdir("/proc/self/fd")) - before
    if descriptors <= many + 10 or time.monotonic() > until:
        break
print(len(led), descriptors, len(os.listdir("/proc/self/task")))
source.close()
"""


def test_of_many_brokers_each_costs_one_descriptor_and_no_thread(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(MANY)
    cluster.create_topic("orders", partitions=MANY, replicas=3)
    command = [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, str(MANY)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    led, descriptors, threads = map(int, run.stdout.split())
    assert led == MANY
    assert descriptors <= MANY + 10
    assert threads <= THREADS


def described(
    configs: DescribedConfigs, *resources: ConfigResource
) -> dict[str, dict[str, str | None] | BaseException | None]:
    futures = configs.describe_configs(list(resources), request_timeout=1.0)
    wait(futures.values())
    return {
        resource.name: future.exception() or {key: entry.value for key, entry in future.result().items()}
        for resource, future in futures.items()
    }


@pytest.fixture
def configs(fake_kafka: MakeKafka) -> Iterator[Configs]:
    cluster = fake_kafka(3)
    asked = DescribedConfigs(dialer(Security()), [], name="t", seconds=1.0)
    asked.brokers = {broker: Address("127.0.0.1", port) for broker, port in cluster.ports.items()}
    with closing(asked):
        yield cluster, asked


TOPICS = [ConfigResource(ResourceType.TOPIC, name) for name in ("orders", "payments")]


def test_only_what_matters_of_topics_is_requested_and_a_broker_is_asked_for_its_own_times(configs: Configs) -> None:
    cluster, asked = configs
    assert described(asked, *TOPICS) == {"orders": {MIN_ISR: "1"}, "payments": {MIN_ISR: "1"}}
    assert described(asked, ConfigResource(ResourceType.BROKER, "2")).keys() == {"2"}
    (_, of_topics), (broker, of_broker) = cluster.asked(DescribeConfigsRequest)
    of_each = [MIN_ISR, "diskless.enable", "inkless.enable"]
    assert [[*each.configuration_keys] for each in of_topics.resources] == 2 * [of_each]
    assert broker == 2
    (own,) = of_broker.resources
    assert [*own.configuration_keys] == ["replica.lag.time.max.ms", "broker.session.timeout.ms"]


def test_where_a_broker_does_not_answer_the_next_one_describes_topics(configs: Configs) -> None:
    cluster, asked = configs
    for broker in (1, 2):
        described(asked, TOPICS[0])
        cluster.disconnect(broker)
        assert described(asked, TOPICS[0]) == {"orders": {MIN_ISR: "1"}}
    cluster.disconnect(3)
    refused = described(asked, TOPICS[0])["orders"]
    assert isinstance(refused, ConnectionRefused)


def test_a_configuration_that_may_not_be_described_is_an_error_of_kafka(configs: Configs) -> None:
    cluster, asked = configs
    cluster.fail(DESCRIBE_CONFIGS, TOPIC_AUTHORIZATION_FAILED)
    refused = described(asked, TOPICS[0])["orders"]
    assert isinstance(refused, KafkaException)
    assert refused.args[0].code() == TOPIC_AUTHORIZATION_FAILED


UNSECURED = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
}


@pytest.mark.parametrize(("client", "kind"), [({}, ConnectedBrokers), (UNSECURED, ClientBrokers)])
def test_a_login_that_only_librdkafka_has_is_left_to_it(client: dict[str, str], kind: type[Any]) -> None:
    access = access_of("127.0.0.1:1", client, cluster="c", name="t", seconds=1.0)
    access.close()
    assert isinstance(access.brokers, kind)


def asked_by_librdkafka(cluster: FakeKafka, before: tuple[str, ...] = ()) -> Any:
    def connect(address: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": address, "log_level": "0"})

    def explain(failure: KafkaException) -> ConnectionRefused:
        return ConnectionRefused(f"explained: {failure}")

    broker: ClientBroker = ClientBrokers(connect, explain, cluster="c")(Address("127.0.0.1", cluster.ports[1]))
    with closing(broker):
        return broker.answer(before, Micros(monotonic() + 2_000_000))


def test_librdkafka_gives_the_same_view_without_epochs(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(2, orders=2, denied=2)
    cluster.view.topics["denied"].error = TOPIC_AUTHORIZATION_FAILED
    found = asked_by_librdkafka(cluster, ("orders", "denied", "deleted"))
    assert found.view.topic_ids == {"orders": topic_id_from_uuid(cluster.view.topics["orders"].id)}
    assert [(each.replicas, each.isr, each.leader) for each in found.view.topics["orders"].values()] == [
        ((1, 2), (1, 2), 1), ((2, 1), (2, 1), 2)
    ]  # fmt: skip
    assert (found.view.has_elr, found.view.answered_by in found.view.brokers) == (False, True)
    assert found.hidden == found.denied == {"denied"}


def test_why_librdkafka_reads_nothing_is_one_sentence(fake_kafka: MakeKafka) -> None:
    cluster = fake_kafka(1)
    cluster.refuse(METADATA)
    with pytest.raises(ServiceRefused, match="explained"):
        asked_by_librdkafka(cluster)
