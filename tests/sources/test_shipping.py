"""The thread of a collector that ships its bus: what it says, what its metrics are, and what ends nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.sandbox import Sandbox
from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.observations import Channel
from streaming.sources.collector import shipping
from streaming.sources.collector.shipping import Shipping
from tests.end_to_end.stories import long_story
from tests.plugins.kafka_bus import bus_settings, stored

pytestmark = pytest.mark.kafka
STORY = long_story(seed=1, steps=20)
LOG = {"channel": "replication", "source": "metadata_log:a"}


@pytest.fixture
def broker(kafka_single: Sandbox) -> Sandbox:
    return kafka_single


def value(thread: Shipping, name: str, labels: dict[str, str] | None = None) -> float | None:
    registry = CollectorRegistry()
    registry.register(thread)
    return registry.get_sample_value(f"isrwatch_collector_bus_{name}", labels or {})


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_written_is_shipped_at_once_and_the_rest_at_the_end(broker: Sandbox, tmp_path: Path) -> None:
    settings, said = bus_settings(broker.bootstrap_servers), list[str]()
    thread = Shipping(tmp_path, settings, said.append)
    with closing(DirectoryPublisher(tmp_path, segment_bytes=1 << 20)) as publisher:
        thread.start()
        publisher.publish(STORY[:10])
        eventually(lambda: value(thread, "shipped_records_total") == 10)
        assert value(thread, "waiting_bytes", LOG) == 0
        assert value(thread, "oldest_waiting_seconds") == 0
        assert (value(thread, "up"), thread.problems(), said) == (1, [], [])
        publisher.publish(STORY[10:])
    thread.stop()
    found = stored(settings, Channel.REPLICATION)
    assert len(found) == len(STORY)
    assert value(thread, "shipped_position", LOG) == found[-1].end


def test_a_bus_that_does_not_answer_is_told_once_and_unhealthy_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.bus.kafka.shipper.SECONDS", 0.5)
    monkeypatch.setattr(shipping, "UNHEALTHY_AFTER_SECONDS", 1.0)
    monkeypatch.setattr(shipping, "LAST_SECONDS", 0.1)
    said: list[str] = []
    thread = Shipping(tmp_path, bus_settings("127.0.0.1:1"), said.append)
    with closing(DirectoryPublisher(tmp_path, segment_bytes=1 << 20)) as publisher:
        publisher.publish(STORY)
        thread.start()
        eventually(thread.problems)
    assert value(thread, "up") == 0
    assert (value(thread, "waiting_bytes", LOG) or 0) > len(STORY)
    assert (value(thread, "oldest_waiting_seconds") or 0) > 86_400  # the story is of the past
    thread.stop()
    (sentence,) = said
    assert sentence.startswith("the bus at 127.0.0.1:1 does not answer: ")
    assert sentence.endswith("; what is collected waits in the bus directory, up to bus.max_bytes; trying again")
    assert thread.problems()[0].startswith("nothing is shipped to the bus: the bus at 127.0.0.1:1 does not answer")


def test_a_second_process_on_the_directory_waits_for_its_turn(broker: Sandbox, tmp_path: Path) -> None:
    settings, said = bus_settings(broker.bootstrap_servers), list[str]()
    first, second = (Shipping(tmp_path, settings, said.append) for _ in range(2))
    first.start()
    eventually((tmp_path / ".shipper.lock").exists)
    time.sleep(0.2)
    second.start()
    eventually(said.copy)
    assert said == ["another process ships this bus directory to Kafka: this one does once that has ended"]
    first.stop()
    with closing(DirectoryPublisher(tmp_path, segment_bytes=1 << 20)) as publisher:
        publisher.publish(STORY)
        eventually(lambda: value(second, "shipped_records_total") == len(STORY))
    second.stop()
