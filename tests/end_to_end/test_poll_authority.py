"""Where no controller may be read, a poller orders the partitions: what it sees comes out at the other end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.sandbox.writer import TopicWriter

if TYPE_CHECKING:
    from tests.plugins.pipeline import Pipeline
    from tests.plugins.sandbox import MakeSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

TOPIC = "orders"


def test_a_polled_cluster_is_told_with_inferred_causes(pipeline: Pipeline, kafka_cluster: MakeSandbox) -> None:
    sandbox = kafka_cluster(brokers=3)
    sandbox.admin.create_topic(
        TOPIC, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], configs={"min.insync.replicas": "2"}
    )
    config = pipeline.directory / "isrwatch.toml"
    config.write_text(
        f'[cluster]\nname = "polled"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
        '[collect]\nprimary_source = "poll"\npoll_seconds = 1\noffsets_seconds = 2\n'
    )
    pipeline.collect("--config", str(config))
    job = pipeline.job()
    pipeline.export()
    size = f'kafka_topic_partition_in_sync_replica{{topic="{TOPIC}",partition="2"}}'

    def in_sync() -> float | None:
        return (pipeline.metrics() or {}).get(size)

    with TopicWriter(sandbox.bootstrap_servers, TOPIC):
        pipeline.eventually(lambda: in_sync() == 3, "three in sync", job)
        sandbox.kill(3)
        pipeline.eventually(lambda: in_sync() == 2, "two in sync", job)
        sandbox.start(3)
        pipeline.eventually(lambda: in_sync() == 3, "three in sync again", job)

    shrinks = [row for row in pipeline.rows("partition_changes") if row["left_isr"]]
    assert {(row["topic"], tuple(row["left_isr"])) for row in shrinks} == {(TOPIC, (3,))}
    assert {row["evidence"] for row in shrinks} == {"inferred"}
    assert all(row["occurred_not_before"] < row["occurred_not_after"] for row in shrinks)
    states = [row for row in pipeline.rows("partition_state") if row["topic"] == TOPIC]
    assert {(row["min_isr_effective"], row["partition_epoch"]) for row in states} == {(2, None)}
