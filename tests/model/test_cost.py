"""Cost grows with what changes, not with what exists; and where new replicas go."""

from __future__ import annotations

from random import Random

from streaming.contracts.identifiers import BrokerId, Micros, TopicId, TopicPartition
from streaming.model.cluster.cluster import Cluster
from streaming.model.constants import Constants
from streaming.model.controller.placement import UsableBroker, assign_replicas
from streaming.model.controller.topics import NewTopic
from streaming.sources.simulated.faults import SimulatedNetwork


class CountingNetwork(SimulatedNetwork):
    """A network of constant latency that counts what passes."""

    def __init__(self) -> None:
        super().__init__(Random(0), (1, 1))
        self.messages = 0
        self.records: list[int] = []

    def arrival(self, now: int, sender: BrokerId, receiver: BrokerId, records: int) -> int | None:
        self.messages += 1
        self.records.append(records)
        return super().arrival(now, sender, receiver, records)


def cluster_with(partitions: int) -> tuple[Cluster, CountingNetwork]:
    network = CountingNetwork()
    cluster = Cluster(Constants(), network, origin=Micros(0))
    brokers = [BrokerId(n) for n in (1, 2, 3)]
    for broker in brokers:
        cluster.start(broker, f"incarnation-{broker}")
    cluster.advance(3_000)
    assignments = assign_replicas(map(UsableBroker, brokers), partitions, 3)
    cluster.admin.create_topic(NewTopic("t", TopicId("t"), assignments), {})
    cluster.advance(10_000)
    return cluster, network


def test_idle_partitions_cost_nothing() -> None:
    counts = []
    for partitions in (30, 3_000):
        cluster, network = cluster_with(partitions)
        network.messages = 0
        cluster.advance(20_000)
        counts.append(network.messages)
        sessions = [it for broker in cluster.brokers.values() for it in broker.leadership.sessions()]
        assert not any(session.unsettled for session in sessions)
    assert counts[0] == counts[1]


def test_a_write_moves_only_its_own_partition() -> None:
    cluster, network = cluster_with(300)
    key = TopicPartition(TopicId("t"), 0)
    network.records = []
    cluster.produce({key: 5}, acks_all=True)
    unsettled = [len(it.unsettled) for it in cluster.brokers[BrokerId(1)].leadership.sessions()]
    cluster.advance(11_000)
    assert unsettled == [1, 1]
    assert sorted(network.records, reverse=True)[:3] == [5, 5, 0]
    assert {cluster.disks[BrokerId(n)].replicas[key].log.end for n in (1, 2, 3)} == {5}


def test_a_follower_of_an_idle_partition_gets_a_whole_window_after_the_next_write() -> None:
    """What is not written down for every partition at every fetch is still known when it is needed."""
    cluster, network = cluster_with(3)
    key = TopicPartition(TopicId("t"), 0)
    network.hold((BrokerId(1), BrokerId(2)))
    cluster.advance(100_000)
    assert set(cluster.controller.registry.partitions[key].isr) == {1, 2, 3}
    last_fetch = cluster.brokers[BrokerId(1)].leadership.sessions()[0].last_fetch_ms
    assert 9_000 < last_fetch <= 10_600
    cluster.produce({key: 1}, acks_all=True)
    assert cluster.brokers[BrokerId(1)].leadership.led[key].remotes[BrokerId(2)].last_caught_up_ms == last_fetch
    cluster.advance(116_000)
    assert set(cluster.controller.registry.partitions[key].isr) == {1, 3}


def test_brokers_that_end_together_leave_nothing_behind() -> None:
    cluster, _ = cluster_with(3)
    for broker in (1, 2, 3):
        cluster.kill(BrokerId(broker))
    steps = 0
    while cluster.next_at <= 40_000:
        cluster.step()
        steps += 1
    assert steps < 200, "the controller's own timers, and a few messages that found nobody"
