"""Topics that brokers, Streams and Connect keep their state in."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from streaming.contracts.identifiers import TopicId
from streaming.model.constants import Constants
from streaming.model.controller.placement import JavaRandom
from streaming.model.controller.topics import NewTopic
from streaming.model.coordinators.internal_topics import InternalTopic, changelog, connect, coordinators_topics


@pytest.mark.parametrize(
    ("name", "partitions", "factor", "config"),
    [
        ("__consumer_offsets", 50, 3, {"cleanup.policy": "compact"}),
        (
            "__transaction_state",
            50,
            3,
            {"cleanup.policy": "compact", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
        ),
        ("__share_group_state", 50, 3, {"cleanup.policy": "delete", "min.insync.replicas": "2"}),
        ("__remote_log_metadata", 50, 3, {"cleanup.policy": "delete"}),
    ],
)
def test_brokers_create_the_topics_of_their_coordinators(
    name: str, partitions: int, factor: int, config: dict[str, str]
) -> None:
    (topic,) = [it for it in coordinators_topics(Constants()) if it.name == name]
    assert (topic.partitions, topic.replication_factor, topic.config) == (partitions, factor, config)


def create(it: Any, topic: InternalTopic) -> None:
    assignments = it.cluster.admin.place(JavaRandom(Random(0).getrandbits), topic.partitions, topic.replication_factor)
    it.cluster.admin.create_topic(NewTopic(topic.name, TopicId(topic.name), assignments), topic.config)


def test_statement_27_a_changelog_has_the_partitions_of_its_source_and_is_compacted(it: Any) -> None:
    """Only as safe as its replication factor: with the default of 1 the store is gone with its broker."""
    careless = changelog("orders", "totals", 4)
    careful = changelog("orders", "windows", 4, replication_factor=3, windowed=True)
    create(it, careless)
    create(it, careful)
    registry = it.cluster.controller.registry
    topic = registry.topic_named("orders-totals-changelog")
    assert (topic.partitions, topic.log.compacts, topic.log.deletes) == (4, True, False)
    topic = registry.topic_named("orders-windows-changelog")
    assert (topic.partitions, topic.log.compacts, topic.log.deletes) == (4, True, True)
    assert {len(it.state(it.key("orders-totals-changelog", number)).replicas) for number in range(4)} == {1}
    it.run(1_000)
    it.cluster.kill(1)
    it.run(20_000)
    alone = [number for number in range(4) if it.state(it.key("orders-totals-changelog", number)).leader == -1]
    kept = [number for number in range(4) if it.state(it.key("orders-windows-changelog", number)).leader == -1]
    assert (bool(alone), kept) == (True, [])


def test_statement_28_connect_keeps_three_topics_whose_names_are_configured(it: Any) -> None:
    assert [(it.name, it.partitions, it.replication_factor, it.cleanup) for it in connect()] == [
        ("connect-configs", 1, 3, "compact"),
        ("connect-offsets", 25, 3, "compact"),
        ("connect-status", 5, 3, "compact"),
    ]
    for topic in connect("__config", "__offsets", "__status"):
        create(it, topic)
    registry = it.cluster.controller.registry
    assert [registry.topic_named(name).partitions for name in ("__config", "__offsets", "__status")] == [1, 25, 5]
    assert registry.topic_named("__config").log.compacts
