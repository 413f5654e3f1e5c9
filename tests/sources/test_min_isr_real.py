"""Real brokers of 3.9.1 whose files disagree on ``min.insync.replicas``: the value of each leader counts."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from deploy.sandbox import wait_until
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import PartitionState
from streaming.sources.polling.source import AdminSource
from tests.plugins.sandbox import MakeSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.long]
SECOND = Micros(1_000_000)


def test_what_a_leader_of_its_own_minimum_refuses_is_what_is_reported(kafka_cluster: MakeSandbox) -> None:
    files = {broker: {"min.insync.replicas": str(1 if broker == 1 else 2)} for broker in (1, 2, 3)}
    cluster = kafka_cluster(version="3.9", node_properties=files)
    for topic, leader in (("led1", 1), ("led2", 2)):
        cluster.admin.create_topic(topic, assignment=[[leader, 3]])
    state = ReplicationState()
    source = AdminSource(
        bootstrap_servers=cluster.bootstrap_servers, client={}, cluster="t", name="admin:t",
        source_kind=SourceKind.POLL,
        poll_micros=SECOND, view_micros=SECOND, config_micros=SECOND,
    )  # fmt: skip

    def seen() -> dict[str, PartitionState]:
        told = source.poll(Micros(time.time_ns() // 1_000))
        state.apply(fold(state, [each for each in told if each.channel is Channel.REPLICATION]).touched)
        return {partition.topic: partition for partition in state.partitions()}

    def minima() -> list[tuple[int | None, bool | None]]:
        return [(each.min_isr_effective, each.is_under_min_isr) for _, each in sorted(seen().items())]

    with closing(source):
        wait_until(lambda: minima() == [(1, False), (2, False)], "the minimum of each leader")
        cluster.stop(3)
        wait_until(lambda: minima() == [(1, False), (2, True)], "that only broker 2 refuses writes")
        for _ in range(20):
            assert minima() == [(1, False), (2, True)]
            time.sleep(0.5)
        assert {broker.broker: broker.min_isr for broker in state.brokers.values()} == {1: 1, 2: 2, 3: 2}
