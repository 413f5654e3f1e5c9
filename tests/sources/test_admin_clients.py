"""Clients of librdkafka end on our threads: on one of its own it aborts the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streaming.errors import ConfigurationError
from streaming.sources.polling.librdkafka import new_client

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
