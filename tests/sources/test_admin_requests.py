"""What becomes of responses when the cluster has changed since the request, or the client was replaced."""

from __future__ import annotations

import gc
import time
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from streaming.contracts.identifiers import BrokerId, Micros, TopicId
from streaming.contracts.observations import SourceKind
from streaming.sources.admin_configs import ConfigsRound
from streaming.sources.admin_offsets import OffsetsRound
from streaming.sources.admin_topic_ids import TopicIds
from streaming.sources.admin_view import ClusterView, read_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugins.mock_kafka import MockKafka

NOW = Micros(1)
SECONDS = 1.0
ENVELOPE = {"cluster_id": "c", "cluster": "c", "source": "admin:a", "authority": SourceKind.POLL, "collected_at": NOW}


def offsets(client: AdminClient, view: ClusterView) -> Callable[[], Any]:
    asked = OffsetsRound(SECONDS)
    asked.ask(client, view, NOW)
    return lambda: asked.take(view, ENVELOPE, NOW) or not asked.pending()


def configs(client: AdminClient, view: ClusterView) -> Callable[[], Any]:
    asked = ConfigsRound(SECONDS)
    asked.ask(client, view, NOW, everything=True)
    return lambda: asked.take(ENVELOPE, NOW) or not asked.pending()


def topic_ids(client: AdminClient, view: ClusterView) -> Callable[[], Any]:
    asked = TopicIds(SECONDS)
    asked.ask(client, view.topics, everything=True)
    return lambda: asked.take(view.cluster_id) or not asked.pending()


@pytest.mark.parametrize("question", [offsets, configs, topic_ids])
def test_a_client_lives_until_its_last_question_is_answered_and_no_longer(
    mock_kafka: Callable[[int], MockKafka], question: Callable[[AdminClient, ClusterView], Callable[[], Any]]
) -> None:
    cluster = mock_kafka(1)
    cluster.create_topic("orders", partitions=3, replicas=1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": "2"})
    view = read_view(client, cluster="test", seconds=10.0)
    cluster.hang(1, 600_000)
    is_over = question(client, view)

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


def moved(view: ClusterView) -> ClusterView:
    return with_partition(view, leader=BrokerId(2))


def recreated(view: ClusterView) -> ClusterView:
    return replace(view, topic_ids={"orders": TopicId("the second orders")})


def deleted(view: ClusterView) -> ClusterView:
    return replace(view, topics={}, topic_ids={})


def shrunk(view: ClusterView) -> ClusterView:
    return with_partition(view, isr=(BrokerId(1),))


def with_partition(view: ClusterView, **fields: Any) -> ClusterView:
    return replace(view, topics={"orders": {0: view.topics["orders"][0]._replace(**fields)}})


@pytest.mark.parametrize(("change", "reported"), [(shrunk, 1), (moved, 0), (recreated, 0), (deleted, 0)])
def test_offsets_are_those_of_the_leader_and_the_topic_of_now(
    mock_kafka: Callable[[int], MockKafka], change: Callable[[ClusterView], ClusterView], reported: int
) -> None:
    cluster = mock_kafka(2)
    cluster.create_topic("orders", partitions=1, replicas=2)
    cluster.set_leader("orders", 0, 1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": "2"})
    view = replace(read_view(client, cluster="test", seconds=10.0), topic_ids={"orders": TopicId("orders")})
    asked = OffsetsRound(SECONDS)
    asked.ask(client, view, NOW)
    deadline = time.monotonic() + 60.0
    while asked.pending():
        assert time.monotonic() < deadline, "an answer never came"
        time.sleep(0.05)

    assert len(asked.take(change(view), ENVELOPE, NOW)) == reported
