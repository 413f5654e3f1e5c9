"""Real brokers of 3.9.1 that disagree on ``min.insync.replicas``, by file or at run time: the leader's counts."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

from deploy.sandbox import Sandbox, wait_until
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import MIN_ISR, Channel, SourceKind
from streaming.contracts.state import PartitionState
from streaming.settings import ClusterSettings, Settings
from streaming.sources.metadata_log.opening import open_metadata_log
from streaming.sources.polling.source import AdminSource
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.config_messages import Resource
from streaming.sources.protocol.connection import Connection
from streaming.sources.protocol.security import Security
from tests.plugins.sandbox import MakeSandbox
from tests.topic_writer import TopicWriter

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


def set_for(cluster: Sandbox, broker: str, minimum: str | None) -> None:
    """Set the minimum of one broker alone, or with "" the cluster's default, which no client in Python lets through."""
    of_resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = of_resource.AlterableConfig(name=MIN_ISR, config_operation=0 if minimum else 1, value=minimum)
    resource = of_resource(resource_type=int(Resource.BROKER), resource_name=broker, configs=[config])
    request = IncrementalAlterConfigsRequest(version=1, resources=[resource], validate_only=False)
    with closing(Connection(parse_servers(cluster.bootstrap_servers)[0], Security())) as connection:
        (error,) = connection.call(
            request, IncrementalAlterConfigsResponse, lambda answer: [each.error_code for each in answer.responses]
        )
    assert not error


@pytest.mark.parametrize("is_log", [True, False], ids=["log", "polled"])
def test_what_is_set_for_a_broker_alone_counts_before_the_default_of_the_cluster_as_brokers_take_writes(
    kafka_cluster: MakeSandbox, tmp_path: Path, *, is_log: bool
) -> None:
    cluster = kafka_cluster(version="3.9")
    for topic, leader in (("led1", 1), ("led2", 2)):
        cluster.admin.create_topic(topic, assignment=[[leader, 3]])
    set_for(cluster, "", "2")
    set_for(cluster, "1", "1")
    settings = Settings(cluster=ClusterSettings(name="t", bootstrap_servers=cluster.bootstrap_servers))
    polled = AdminSource(
        bootstrap_servers=cluster.bootstrap_servers, client={}, cluster="t", name="admin:t",
        source_kind=SourceKind.NONE if is_log else SourceKind.POLL,
        poll_micros=SECOND, view_micros=SECOND, config_micros=SECOND,
    )  # fmt: skip
    log = [open_metadata_log(settings, path=tmp_path / "log.json", report=lambda _: None)] if is_log else []
    state = ReplicationState()

    def minima() -> list[tuple[int | None, bool | None]]:
        for source in [*log, polled]:
            told = source.poll(Micros(time.time_ns() // 1_000))
            state.apply(fold(state, [each for each in told if each.channel is Channel.REPLICATION]).touched)
        seen = {partition.topic: partition for partition in state.partitions()}
        return [(each.min_isr_effective, each.is_under_min_isr) for _, each in sorted(seen.items())]

    def are_taken(topic: str) -> bool:
        with TopicWriter(cluster.bootstrap_servers, topic, acks="all") as writer:
            time.sleep(2)  # what is refused is tried again until then
        return writer.delivered > 0

    with ExitStack() as stack:
        for source in [*log, polled]:
            stack.enter_context(closing(source))
        wait_until(lambda: minima() == [(1, False), (2, False)], "the minimum of each leader")
        cluster.stop(3)
        wait_until(lambda: minima() == [(1, False), (2, True)], "that only broker 2 refuses writes")
        assert [are_taken("led1"), are_taken("led2")] == [True, False]
        set_for(cluster, "1", None)
        wait_until(lambda: minima() == [(2, True), (2, True)], "that the default counts again")
