"""How brokers are asked: with few descriptors and threads, for what matters alone, and the next one if one fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import wait
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.admin import DescribeConfigsRequest

from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.errors import ConnectionRefused
from streaming.sources.polling.configs import Described, DescribedConfigs
from streaming.sources.polling.view import ClusterView
from streaming.sources.protocol.config_messages import Resource
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from tests.plugins.fake_kafka import DESCRIBE_CONFIGS, MIN_ISR, TOPIC_AUTHORIZATION_FAILED, FakeKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection

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
    Settings(cluster=ClusterSettings(bootstrap_servers=sys.argv[1]), collect=CollectSettings(offsets_interval=0.2)),
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
    configs: DescribedConfigs, *resources: Described
) -> dict[str, dict[str, str | None] | BaseException | None]:
    futures = configs.describe(resources)
    wait(futures.values())
    return {
        resource.name: future.exception() or {key: entry.value for key, entry in future.result().values.items()}
        for resource, future in futures.items()
    }


def view_of(cluster: FakeKafka) -> ClusterView:
    brokers = {BrokerId(broker): ("127.0.0.1", port) for broker, port in cluster.ports.items()}
    return ClusterView(ClusterId(cluster.cluster_id), 1, brokers, {})


@pytest.fixture
def configs(fake_kafka: MakeKafka) -> Iterator[Configs]:
    cluster = fake_kafka(3)
    asked = DescribedConfigs(dialer(Security()), [], name="t", seconds=1.0)
    with closing(asked):
        yield cluster, asked.at(view_of(cluster))


TOPICS = [Described(Resource.TOPIC, name) for name in ("orders", "payments")]


def test_only_what_matters_of_topics_is_requested_and_a_broker_is_asked_for_its_own_times(configs: Configs) -> None:
    cluster, asked = configs
    assert described(asked, *TOPICS) == {"orders": {MIN_ISR: "1"}, "payments": {MIN_ISR: "1"}}
    assert described(asked, Described(Resource.BROKER, "2")).keys() == {"2"}
    (_, of_topics), (broker, of_broker) = cluster.asked(DescribeConfigsRequest)
    of_each = [MIN_ISR, "diskless.enable", "inkless.enable"]
    assert [[*each.configuration_keys] for each in of_topics.resources] == 2 * [of_each]
    assert broker == 2
    (own,) = of_broker.resources
    assert [*own.configuration_keys] == [MIN_ISR, "replica.lag.time.max.ms", "broker.session.timeout.ms"]


def test_a_broker_that_hangs_delays_neither_topics_nor_other_brokers(configs: Configs) -> None:
    cluster, _ = configs
    is_asked, ends = threading.Event(), threading.Event()
    dial = dialer(Security())

    def dialled(address: Address, *, response_seconds: float) -> Connection:
        if not is_asked.is_set():  # the first one
            is_asked.set()
            ends.wait(60)
        return dial(address, response_seconds=response_seconds)

    with closing(DescribedConfigs(dialled, [], name="t", seconds=5.0)) as asked:
        asked.at(view_of(cluster))
        hung = asked.describe([Described(Resource.BROKER, "1")])
        assert is_asked.wait(10)
        others = asked.describe([Described(Resource.BROKER, "2")]) | asked.describe(TOPICS)
        try:
            assert not wait(others.values(), timeout=10).not_done
            assert not any(future.done() for future in hung.values())
        finally:
            ends.set()
            wait(hung.values(), timeout=10)


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
    (future,) = asked.describe(TOPICS[:1]).values()
    assert future.result(10).error == TOPIC_AUTHORIZATION_FAILED
