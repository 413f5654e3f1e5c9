"""Clients of librdkafka end on our threads: on one of its own it aborts the process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, time
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from streaming.sources.admin_clients import close, new_client

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


def test_a_client_whose_last_response_makes_the_collector_run_does_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert run.stdout == "alive\n", run.stderr
