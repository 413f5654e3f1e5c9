"""A laboratory: a small cluster on a network of constant latency, every step watched.

By the invariants, and by the checker that judges real clusters' logs: it must find the true action and the true cause
behind every record that the model writes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.identifiers import BrokerId, Micros, TopicId, TopicPartition
from streaming.model.clients.consumer import Consumer
from streaming.model.clients.positions import ConsumerConfig, ResetPolicy
from streaming.model.clients.producer import Producer
from streaming.model.clients.transactional_producer import TransactionalProducer
from streaming.model.cluster.cluster import Cluster
from streaming.model.constants import PRESETS, Constants, MetadataMode, Switches
from streaming.model.controller.topics import NewTopic
from streaming.model.invariants.watch import Watch
from streaming.model.messages.network import CONTROLLER
from streaming.sources.simulated.faults import SimulatedNetwork
from tests.conformance.checker import Checker
from tests.conformance.truth import actions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.events import Cause
    from streaming.contracts.records import MetadataRecord
    from streaming.model.clients.producer import SentRecords
    from streaming.model.controller.metadata_writer import Commit
    from streaming.model.messages.registrations import PartitionRegistration, Transition
    from streaming.model.storage.batch import Batch
    from tests.conformance.actions import Action

# Processes start in no time, so that a leader's ISR checks fall on multiples of half the window.
QUICK = Constants(start_up_ms=0, auto_leader_rebalance_enable=False)


class Lab:
    """Drives a cluster in milliseconds, keeps everything it committed, and checks the invariants at every step."""

    def __init__(self, brokers: Sequence[int], constants: Constants, latency_ms: int) -> None:
        self.constants = constants
        self.network = SimulatedNetwork(Random(0), (latency_ms, latency_ms))
        self.cluster = Cluster(constants, self.network, origin=Micros(0))
        # A cluster without one of the checks breaks promises; the test says which.
        self.watch = Watch(self.cluster, stops=constants.switches == QUICK.switches)
        self.commits: list[Commit] = []
        self.actions: list[Action] = []
        self._checker = Checker(
            min_insync_replicas=constants.min_insync_replicas,
            unclean_leader_election=constants.unclean_leader_election_enable,
        )
        self._writers: list[tuple[TopicPartition, int, int, bool]] = []
        self._incarnations = 0
        for broker in brokers:
            self.start(broker)
        self.run(500)

    def start(self, broker: int, rack: str | None = None) -> None:
        self._incarnations += 1
        self.cluster.start(BrokerId(broker), f"incarnation-{self._incarnations}", rack)

    def topic(
        self,
        name: str,
        assignments: Sequence[tuple[int, ...]],
        min_isr: int = 1,
        *,
        unclean: bool = False,
        **config: Any,
    ) -> list[TopicPartition]:
        topic_id = TopicId(name)
        replicas = tuple(tuple(BrokerId(broker) for broker in each) for each in assignments)
        settings = {"min.insync.replicas": str(min_isr)}
        if unclean:
            settings["unclean.leader.election.enable"] = "true"
        settings |= {key.replace("_", "."): str(value) for key, value in config.items()}
        self.cluster.admin.create_topic(NewTopic(name, topic_id, replicas), settings)
        self.run(self.cluster.now + 100)
        return [TopicPartition(topic_id, number) for number in range(len(assignments))]

    @staticmethod
    def key(name: str, partition: int = 0) -> TopicPartition:
        return TopicPartition(TopicId(name), partition)

    def write(self, key: TopicPartition, count: int = 1, *, acks_all: bool = True) -> None:
        self.cluster.produce({key: count}, acks_all=acks_all)

    def keep_writing(self, key: TopicPartition, count: int, period_ms: int, *, acks_all: bool = True) -> None:
        self._writers.append((key, count, period_ms, acks_all))

    def producer(self, node: int = 1_000, **options: Any) -> Producer:
        """Start a producer; it asks the brokers in the order of their ids."""
        producer = Producer(BrokerId(node), sorted(self.cluster.brokers), self.constants, **options)
        self.cluster.connect(producer.node, producer)
        return producer

    def transactional(self, transactional_id: str, node: int = 1_000) -> TransactionalProducer:
        """Start a transactional producer; there must be a topic ``__transaction_state``."""
        brokers = sorted(self.cluster.brokers)
        producer = TransactionalProducer(BrokerId(node), brokers, self.constants, transactional_id)
        producer.act(self.cluster.now)
        self.cluster.connect(producer.node, producer)
        return producer

    def transact(self, producer: TransactionalProducer, step: Callable[[int], None]) -> None:
        """Call ``begin``, ``commit`` or ``abort``."""
        step(self.cluster.now)
        self.cluster.flush(producer.node)

    def consumer(self, node: int = 2_000, **options: Any) -> Consumer:
        """Start a consumer; it asks the brokers in the order of their ids."""
        consumer = Consumer(BrokerId(node), sorted(self.cluster.brokers), self.constants, ConsumerConfig(**options))
        self.cluster.connect(consumer.node, consumer)
        return consumer

    def reader(self, *keys: TopicPartition, node: int = 2_000, **options: Any) -> Consumer:
        """Start a consumer that was told what to read, from the earliest offset on unless told otherwise."""
        consumer = self.consumer(node, **{"reset": ResetPolicy.EARLIEST, **options})
        consumer.assign(self.cluster.now, keys)
        self.cluster.flush(consumer.node)
        return consumer

    def member(self, group: str, *topics: str, node: int = 2_000, **options: Any) -> Consumer:
        """Start a member of a group; there must be a topic ``__consumer_offsets``."""
        subscribed = frozenset(TopicId(topic) for topic in topics)
        consumer = self.consumer(node, **{"reset": ResetPolicy.EARLIEST, **options}, group=group, topics=subscribed)
        consumer.act(self.cluster.now)
        self.cluster.flush(consumer.node)
        return consumer

    def send(self, producer: Producer, key: TopicPartition, size: int = 1, **more: Any) -> SentRecords:
        sent = producer.send(self.cluster.now, key, size, **more)
        self.cluster.flush(producer.node)
        return sent

    def batches(self, broker: int, key: TopicPartition) -> list[Batch]:
        return self.cluster.disks[BrokerId(broker)].replicas[key].log.batches

    def hold(self, leader: int, follower: int) -> None:
        self.network.hold((BrokerId(leader), BrokerId(follower)))

    def release(self, leader: int, follower: int) -> None:
        link = (BrokerId(leader), BrokerId(follower))
        self.network.release(link)
        self.cluster.release(link)

    def inflict(self, fault: tuple[str, Any]) -> None:
        """Let one act of a random schedule happen: (what, to which node or link)."""
        action, subject = fault
        if action in {"hold", "release"}:
            getattr(self, action)(*subject)
        elif action == "start":
            self.start(subject)
        else:
            getattr(self.cluster, action)(subject)
        self.check()

    def heal(self, brokers: Sequence[int], controllers: Sequence[int] = ()) -> None:
        """End every fault: links between all nodes, and all processes; ``controllers`` may have been ended, too."""
        nodes = (*brokers, *(controllers or (CONTROLLER,)))
        for sender, receiver in permutations(nodes, 2):
            self.release(sender, receiver)
        for node in (*brokers, *controllers):
            self.cluster.resume(BrokerId(node))
            self.start(node)

    def run(self, until: int) -> None:
        for now in self._writing_times(until):
            self._steps(now)
            for key, count, period, acks_all in self._writers:
                if now % period == 0:
                    self.cluster.produce({key: count}, acks_all=acks_all)
        self._steps(until)

    def run_until(self, reached: Callable[[], bool], limit_ms: int = 100_000) -> None:
        """Run until something is the case; a bounded time."""
        limit = self.cluster.now + limit_ms
        while not reached():
            assert self.cluster.now < limit, "it never came true"
            self.run(self._next_change(limit))

    def _next_change(self, limit: int) -> int:
        """When anything can change at the earliest: the next event, or the next write."""
        soonest = min(
            self.cluster.next_at, *(-(-(self.cluster.now + 1) // it[2]) * it[2] for it in self._writers), limit
        )
        return max(soonest, self.cluster.now + 1)

    def _writing_times(self, until: int) -> list[int]:
        times = {
            t
            for _, _, period, _ in self._writers
            for t in range(-(-(self.cluster.now + 1) // period) * period, until + 1, period)
        }
        return sorted(times)

    def _steps(self, until: int) -> None:
        while self.cluster.next_at <= until:
            self.cluster.step()
        self.cluster.advance(until)
        self.check()

    def check(self) -> None:
        """Check everything; after every step the watch checks what the step changed."""
        commits = self.cluster.take_commits()
        self.commits += commits
        if self.constants.switches == Switches() and self.constants.metadata_mode is MetadataMode.KRAFT:
            for commit in commits:
                self.actions += actions_of(self._checker, commit)
        self.watch.check_everything()

    def state(self, key: TopicPartition) -> PartitionRegistration:
        return self.cluster.controller.registry.partitions[key]

    def is_whole(self, keys: Iterable[TopicPartition]) -> bool:
        """Return whether every replica of these partitions is in sync."""
        return all(set(state.isr) == set(state.replicas) for state in map(self.state, keys))

    def high_watermark(self, broker: int, key: TopicPartition) -> int:
        return self.cluster.disks[BrokerId(broker)].replicas[key].high_watermark

    def log_end(self, broker: int, key: TopicPartition) -> int:
        return self.cluster.disks[BrokerId(broker)].replicas[key].log.end

    def shrinks(self) -> int:
        return sum(broker.leadership.proposals.isr_shrinks for broker in self.cluster.brokers.values())

    def steps(self, key: TopicPartition) -> list[tuple[int, Transition]]:
        """Every step of a partition after its creation, with its time."""
        return [
            (commit.now, step)
            for commit in self.commits
            for step in commit.transitions
            if step.topic_partition == key and step.before is not None
        ]

    def causes(self, key: TopicPartition) -> list[Cause]:
        return [step.cause for _, step in self.steps(key)]

    def batches_since(self, now: int) -> list[tuple[MetadataRecord, ...]]:
        """Batches from ``now`` on, without the idle heartbeats of the log."""
        records = [commit.batch.records for commit in self.commits if commit.now >= now]
        return [each for each in records if type(each[0]).__name__ != "NoOp"]


@pytest.fixture
def lab() -> Callable[..., Lab]:
    """Make a laboratory: brokers, then constants that differ from a preset's, or from Kafka's defaults."""

    def make(brokers: Sequence[int] = (1, 2, 3), latency_ms: int = 1, preset: str = "", **constants: Any) -> Lab:
        return Lab(brokers, replace(PRESETS[preset] if preset else QUICK, **constants), latency_ms)

    return make


@pytest.fixture
def it(lab: Callable[..., Lab]) -> Lab:
    """Make the usual one: three brokers."""
    return lab()
