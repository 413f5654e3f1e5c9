"""Clients of librdkafka: how they end, and what becomes of responses when the cluster has changed meanwhile."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from streaming.contracts.identifiers import BrokerId, Micros, TopicId
from streaming.contracts.observations import SourceKind
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.polling.configs import ConfigsRound
from streaming.sources.polling.librdkafka import ClientBroker, ClientLeader, OffsetsRound, new_client
from streaming.sources.polling.view import ClusterView
from streaming.sources.protocol.addresses import Address
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaException

    from streaming.contracts.observations import Observation
    from streaming.sources.polling.librdkafka import PartitionLeader
    from tests.plugins.mock_kafka import MockKafka

    MakeMock = Callable[[int], MockKafka]

NOW = Micros(1)
SECONDS = 1.0
ENVELOPE = {"cluster_id": "c", "cluster": "c", "source": "admin:a", "authority": SourceKind.POLL, "collected_at": NOW}


def view_by(client: AdminClient) -> ClusterView:
    def explain(failure: KafkaException) -> ConnectionRefused:
        return ConnectionRefused(str(failure))

    asked = ClientBroker(Address("127.0.0.1", 1), client, explain, cluster="test", stranger=-2)
    return asked.answer((), Micros(monotonic() + 10_000_000)).view


def configs(client: AdminClient, view: ClusterView) -> Callable[[], Any]:
    asked = ConfigsRound(SECONDS)
    asked.ask(client, view, NOW, everything=True)
    return lambda: asked.take(ENVELOPE, NOW) or not asked.pending()


def test_a_client_lives_until_its_last_question_is_answered_and_no_longer(mock_kafka: MakeMock) -> None:
    cluster = mock_kafka(1)
    cluster.create_topic("orders", partitions=3, replicas=1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": "2"})
    view = view_by(client)
    cluster.hang(1, 600_000)
    is_over = configs(client, view)

    alive = weakref.ref(client)
    del client
    gc.collect()
    assert alive() is not None

    deadline = time.monotonic() + 60.0
    while not is_over():
        assert time.monotonic() < deadline, "an answer never came"
        time.sleep(0.05)
    is_over()
    gc.collect()
    assert alive() is None


def with_partition(view: ClusterView, **fields: Any) -> ClusterView:
    return replace(view, topics={"orders": {0: view.topics["orders"][0]._replace(**fields)}})


CHANGES = {
    "shrunk": (lambda view: with_partition(view, isr=(BrokerId(1),)), 1),
    "moved": (lambda view: with_partition(view, leader=BrokerId(2)), 0),
    "created again": (lambda view: replace(view, topic_ids={"orders": TopicId("the second orders")}), 0),
    "deleted": (lambda view: replace(view, topics={}, topic_ids={}), 0),
}


@pytest.mark.parametrize(("change", "reported"), CHANGES.values(), ids=CHANGES)
def test_offsets_of_librdkafka_are_those_of_the_leader_and_the_topic_of_now(
    mock_kafka: MakeMock, change: Callable[[ClusterView], ClusterView], reported: int
) -> None:
    cluster = mock_kafka(2)
    cluster.create_topic("orders", partitions=1, replicas=2)
    cluster.set_leader("orders", 0, 1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": "2"})
    view = view_by(client)
    assert len(samples(lambda address: ClientLeader(address, client, SECONDS), view, change(view))) == reported


def samples(connect: Callable[[Address], PartitionLeader], view: ClusterView, now: ClusterView) -> list[Observation]:
    with closing(OffsetsRound(connect, name="t")) as asked:
        asked.ask(view, NOW)
        wait(asked.pending())
        return asked.take(now, ENVELOPE, NOW)


# On a thread of its own the end of a client aborts the process.
SCRIPT = """
import gc, time
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from streaming.sources.polling.librdkafka import close, new_client

gc.disable()
mock = AdminClient({"test.mock.num.brokers": "1", "test.mock.broker.rtt": "300", "log_level": 0})
(broker,) = mock.list_topics(timeout=10).brokers.values()
client = new_client({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
client.list_topics(timeout=10)
(response,) = client.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
response.add_done_callback(lambda _: gc.collect())
cycle = [client]
cycle.append(cycle)
close(client)
del cycle, client
while not response.done():
    time.sleep(0.01)
time.sleep(0.2)
print("alive")
"""


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_gssapi_which_no_wheel_has_is_one_sentence_that_says_how_to_get_it(key: str) -> None:
    client = {"security.protocol": "SASL_PLAINTEXT", key: "GSSAPI", "sasl.kerberos.service.name": "kafka"}
    with pytest.raises(ConfigurationError) as refusal:
        new_client({**client, "bootstrap.servers": "127.0.0.1:1"})
    assert str(refusal.value).startswith("cluster.client sasl.mechanism is GSSAPI (Kerberos), which this librdkafka 2.")
    assert str(refusal.value).endswith("--no-binary confluent-kafka confluent-kafka")


def test_a_client_whose_last_response_makes_the_collector_run_does_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert run.stdout == "alive\n", run.stderr
