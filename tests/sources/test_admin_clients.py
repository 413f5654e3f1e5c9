"""Clients of librdkafka end on our threads: on one of its own it aborts the process."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from streaming.contracts.identifiers import Micros
from streaming.sources.admin_clients import AdminClients

PATIENCE = 10
SCRIPT = """
import gc, time
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from streaming.sources.admin_metadata import MetadataRound
from streaming.sources.admin_reassignments import ReassignmentsRound, dialer_of

gc.disable()
mock = AdminClient({"test.mock.num.brokers": "1", "test.mock.broker.rtt": "300", "log_level": 0})
(broker,) = mock.list_topics(timeout=10).brokers.values()
polls = MetadataRound(
    lambda servers: AdminClient({"bootstrap.servers": servers, "log_level": 0}),
    f"{broker.host}:{broker.port}", ReassignmentsRound(dialer_of({}), name="t", seconds=10),
    cluster="c", name="t", seconds=10,
)
polls.client.list_topics(timeout=10)
(response,) = polls.client.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
response.add_done_callback(lambda _: gc.collect())
cycle = [polls.client]
cycle.append(cycle)
polls.close()
del cycle, polls
while not response.done():
    time.sleep(0.01)
time.sleep(0.2)
print("alive")
"""


class Client(SimpleNamespace):
    """Says whether it was closed."""

    __hash__ = object.__hash__
    is_closed = False

    def __exit__(self, *_: object) -> None:
        self.is_closed = True


def made(count: int) -> tuple[AdminClients, list[Any]]:
    clients = AdminClients(lambda servers: Client(servers=servers))  # type: ignore[arg-type,return-value]
    return clients, [clients.made(str(number)) for number in range(count)]


def test_a_client_whose_last_response_makes_the_collector_run_does_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert run.stdout == "alive\n", run.stderr


def test_a_client_that_was_replaced_is_closed_a_while_later_and_one_in_use_never() -> None:
    clients, (replaced, used) = made(2)
    for now in (0, PATIENCE, PATIENCE + 1, 10 * PATIENCE):
        clients.close_unused([used], Micros(now), PATIENCE)
        assert (replaced.is_closed, used.is_closed) == (now > PATIENCE, False)


def test_a_client_that_is_used_again_is_not_closed_for_the_time_before() -> None:
    clients, (client,) = made(1)
    for now, used in ((0, []), (PATIENCE, [client]), (PATIENCE + 1, []), (2 * PATIENCE, [])):
        clients.close_unused(used, Micros(now), PATIENCE)
    assert not client.is_closed


def test_at_the_end_a_client_that_a_thread_reads_with_is_closed_once_it_has_read() -> None:
    clients, (idle, reading) = made(2)
    response: Future[object] = Future()
    clients.is_read_by(reading, response)
    clients.close()
    assert (idle.is_closed, reading.is_closed) == (True, False)
    response.set_result(None)
    assert reading.is_closed
