"""A group behind an unclean election of a real cluster: it stands beyond the end, until the end has passed it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from deploy.sandbox import Sandbox
from tests.chaos_kafka.answers import KafkasAdmin
from tests.chaos_kafka.schedule import Shape
from tests.chaos_kafka.stage import planned
from tests.sources.samples.test_group_positions_real import row_of, write
from tests.sources.samples.test_odd_clusters_real import Sampled, commit

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def spells(sampled: Sampled) -> list[tuple[str, str, str, bool]]:
    return [
        (row["condition"], row["subject"], row["part"], row["ended_at"] is None)
        for row in sampled.rows("sampled_conditions")
    ]


def test_a_group_that_committed_what_an_unclean_election_lost_is_beyond_the_end_by_as_much(tmp_path: Path) -> None:
    """50 of 60 records are lost, all committed; then come 20, which the group skips, and 40."""
    beyond = ("group_beyond_end", "g", "orders-0")
    with (
        Sandbox(planned(Shape(brokers=3, controllers=1), tmp_path), tmp_path / "sandbox") as cluster,
        KafkasAdmin(cluster.bootstrap_servers) as kafka,
    ):
        cluster.admin.create_topic("orders", assignment=[[2, 3]], configs={"min.insync.replicas": "1"})
        sampled = Sampled(cluster, tmp_path / "tables", kafka)
        with closing(sampled.source):
            write(cluster, "orders", 10)
            cluster.kill(3)
            cluster.admin.wait_isr("orders", 0, {2}, seconds=90)
            write(cluster, "orders", 50)
            commit(cluster, "g", [TopicPartition("orders", 0, 60)])
            row_of(sampled, "g", "orders", high_watermark=60, lag=0, beyond=0)
            cluster.kill(2)
            cluster.start(3)
            cluster.admin.elect_unclean("orders")
            row = row_of(sampled, "g", "orders", high_watermark=10, beyond=50)
            assert (row.lag, row.records_lost, row.standing_since) == (0, 0, None)
            assert spells(sampled) == [(*beyond, True)]
            write(cluster, "orders", 20)
            row_of(sampled, "g", "orders", high_watermark=30, beyond=30)
            write(cluster, "orders", 40)
            row = row_of(sampled, "g", "orders", high_watermark=70, beyond=0)
            assert (row.lag, row.records_lost) == (10, 0)
            assert spells(sampled) == [(*beyond, False)]
