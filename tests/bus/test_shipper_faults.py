"""The shipper against librdkafka's own stand-in for a broker, which fails requests as a test tells it to."""

from __future__ import annotations

import ctypes
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.bus.kafka.shipper import STATE, Shipper
from streaming.bus.kafka.topics import BusTopic
from streaming.contracts.observations import Channel
from streaming.errors import IsrwatchError
from streaming.settings import KafkaBusSettings
from tests.bus.conftest import Heartbeats, payloads
from tests.plugins.kafka_bus import bus_settings, stored

A = "poll:a"
PRODUCE = 0


class Broker:
    """One broker of librdkafka, within this process."""

    def __init__(self, library: Any, cluster: Any) -> None:
        self._library, self._cluster = library, cluster
        address = library.rd_kafka_mock_cluster_bootstraps
        address.restype = ctypes.c_char_p
        self.settings: KafkaBusSettings = bus_settings(address(cluster).decode())
        for topic in (self.settings.replication_topic, self.settings.samples_topic):
            library.rd_kafka_mock_topic_create(cluster, topic.encode(), 1, 1)

    def refuse_next(self, error: int) -> None:
        """Answer the next request to produce with an error."""
        errors = (ctypes.c_int * 1)(error)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, ctypes.c_int16(PRODUCE), 1, errors)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library: Any = ctypes.CDLL(str(next(libraries.glob("librdkafka*"))))
    for function in ("conf_new", "new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{function}").restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(512)
    client = ctypes.c_void_p(library.rd_kafka_new(0, ctypes.c_void_p(library.rd_kafka_conf_new()), error, len(error)))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    running = Broker(library, cluster)
    names = running.settings.replication_topic, running.settings.samples_topic
    topics = {name: BusTopic(name, "id", 1, 1_000_000, "") for name in names}
    ours = "streaming.bus.kafka.shipper"
    for place in (f"{ours}.ensure", f"{ours}.described", "tests.plugins.kafka_bus.described"):
        monkeypatch.setattr(place, lambda *_: topics)  # it answers no administrator
    try:
        yield running
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)


def publisher_of(directory: Path) -> DirectoryPublisher:
    return DirectoryPublisher(directory, segment_bytes=1_000, fsync=False)


def ship(shipper: Shipper, most: int = 10) -> None:
    assert shipper.lock()
    for _ in range(most):
        try:
            if not shipper.round():
                return
        except IsrwatchError:
            continue
    pytest.fail("the shipper does not come to an end")


def test_nothing_passes_a_record_that_was_refused(broker: Broker, tmp_path: Path) -> None:
    """The job would take the record for one that it has applied already, and lose it.

    A broker takes any request as the first one of a new producer, also the one that follows a refused one.
    """
    noise = random.Random(1)
    with closing(publisher_of(tmp_path)) as publisher:
        for _ in range(8):
            publisher.publish_raw(Channel.REPLICATION, A, noise.randbytes(300_000))
    shipper = Shipper(tmp_path, broker.settings)
    broker.refuse_next(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    ship(shipper)
    shipper.close()
    came = [each.position for each in stored(broker.settings)]
    reader = DirectoryReader(tmp_path)
    items = reader.read(Channel.REPLICATION, A, 0, reader.end_positions(Channel.REPLICATION)[A])
    assert list(dict.fromkeys(came)) == [item.position for item in items if isinstance(item, BusFrame)]


def test_a_log_that_another_one_replaces_between_two_rounds_is_shipped_from_its_beginning(
    broker: Broker, heartbeat: Heartbeats, tmp_path: Path
) -> None:
    """Also if it is longer than the first one was, so that its end says nothing."""
    said: list[str] = []
    shipper = Shipper(tmp_path, broker.settings, said.append)
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(moment) for moment in range(1, 4)])
    ship(shipper)
    shutil.rmtree(tmp_path / Channel.REPLICATION)
    with closing(publisher_of(tmp_path)) as publisher:
        publisher.publish([heartbeat(moment) for moment in range(10, 20)])
    ship(shipper)
    shipper.close()
    assert [each.payload for each in stored(broker.settings)[3:]] == payloads(tmp_path)
    assert "was replaced, restored from a copy, or cut since it was shipped" in said[0]


@pytest.mark.parametrize("content", ["[]", '{"format": 1, "topics": {}, "logs": []}'])
def test_nothing_is_deleted_while_the_progress_cannot_be_stored(
    broker: Broker, heartbeat: Heartbeats, tmp_path: Path, content: str
) -> None:
    """The next shipper would count it as lost. A progress that makes no sense is none."""
    (tmp_path / STATE).write_text(content)
    with closing(publisher_of(tmp_path)) as publisher:
        for moment in range(20):
            publisher.publish([heartbeat(moment)])
    kept = payloads(tmp_path)
    shipper = Shipper(tmp_path, broker.settings)
    (tmp_path / f".{STATE}.draft").mkdir()
    ship(shipper)
    shipper.delete_shipped()
    assert payloads(tmp_path) == kept
    (tmp_path / f".{STATE}.draft").rmdir()
    shipper.delete_shipped()
    assert len(payloads(tmp_path)) < len(kept)
    shipper.close()
