"""The simulated cluster as a source: it owns the clock, the seed, the network and the faults, and drives the model.

What it reports comes from the metadata records that the model's controller writes, read as a real log is read. What is
*true* (:meth:`SimulatedSource.trace`, :meth:`SimulatedSource.partitions`) comes from the model's states alone, so that
a mistake in records, image or pipeline cannot hide in both.
"""

from __future__ import annotations

import heapq
import uuid
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import (
    BrokerId,
    ClusterId,
    Micros,
    TopicId,
    TopicPartition,
    topic_id_from_uuid,
)
from streaming.contracts.observations import Observation, SnapshotReason
from streaming.model.cluster import Cluster
from streaming.model.controller.partition import PartitionRegistration, TopicRegistration, Transition
from streaming.model.controller.placement import spread
from streaming.sources.image import ClusterImage
from streaming.sources.simulated.network import SimulatedNetwork
from streaming.sources.simulated.reports import Reports
from streaming.sources.simulated.scenario import Action, Fault, Scenario, TopicPlan
from streaming.sources.simulated.scenario_file import load_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.events import Cause
    from streaming.model.controller.metadata_writer import Commit

__all__ = ["Scenario", "SimulatedSource", "TraceEntry", "load_scenario"]

MICROS_PER_MS: Final = 1_000
# The cluster starts and settles before simulated time 0; nobody sees that part.
CREATE_TOPICS_MS: Final = 3_000
PRODUCE_MS: Final = 4_000
WARM_UP_MS: Final = 10_000
TRAFFIC_MS: Final = 200
OFFSETS_MS: Final = 10_000
METRICS_MS: Final = 15_000
SNAPSHOT_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """The truth about one step of one partition: its state afterwards, when, and why.

    For a deletion ``deleted`` is set and the state is the last one.
    """

    topic_id: TopicId
    topic: str
    partition: int
    partition_epoch: int
    leader_epoch: int
    leader: BrokerId
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    time: Micros
    cause: Cause
    deleted: bool = False


class SimulatedSource:
    """Plays a scenario; the same seed gives the same observations, however time is cut into polls.

    Args:
        scenario: the cluster and its fate.
        seed: of latencies, traffic and ids.
        cluster_id: Kafka's cluster id, as observations carry it.
        cluster: the cluster's name.
        name: the source's name on the bus.
        epoch: wall-clock time of simulated time 0, UTC microseconds.
    """

    def __init__(  # noqa: PLR0913 - a cluster has an identity, a fate and a time
        self, scenario: Scenario, *, seed: int, cluster_id: ClusterId, cluster: str, name: str, epoch: Micros
    ) -> None:
        self.name = name
        self._scenario = scenario
        self._ids = Random(f"{seed} ids")  # noqa: S311 - reproducible on purpose
        self._traffic = Random(f"{seed} traffic")  # noqa: S311 - reproducible on purpose
        self._network = SimulatedNetwork(Random(f"{seed} network"))  # noqa: S311 - reproducible on purpose
        self._origin = Micros(epoch - WARM_UP_MS * MICROS_PER_MS)
        self._cluster = Cluster(scenario.constants, self._network, origin=self._origin)
        self._image = ClusterImage(cluster_id=cluster_id, cluster=cluster, source=name)
        self._reports = Reports(self._cluster, cluster_id=cluster_id, cluster=cluster, source=name)
        self._topic_ids: dict[str, TopicId] = {}
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._observations: list[Observation] = []
        self._trace: list[TraceEntry] = []
        self._warm_up()

    # -------------------------------------------------------------- the interface of a source

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Play up to ``now`` and return what was seen on the way; the first poll begins with a snapshot."""
        self._play((now - self._origin) // MICROS_PER_MS)
        observations, self._observations = self._observations, []
        return observations

    def acknowledge(self) -> None:
        """Nothing to remember: a simulation starts anew with each process."""

    def close(self) -> None:
        """Nothing to let go of."""

    # -------------------------------------------------------------- the truth

    def trace(self) -> tuple[TraceEntry, ...]:
        """Give every step of every partition since simulated time 0, from the model's states."""
        return tuple(self._trace)

    def partitions(self) -> dict[TopicPartition, PartitionRegistration]:
        """Give the true current state of every partition."""
        return dict(self._cluster.controller.registry.partitions)

    def topics(self) -> dict[TopicId, TopicRegistration]:
        """Give every topic that exists."""
        return dict(self._cluster.controller.registry.topics)

    # -------------------------------------------------------------- playing

    def _warm_up(self) -> None:
        """Bring the cluster up, then plan the scenario from time 0 on."""
        for broker in self._scenario.brokers:
            self._start(broker)
        for topic in self._scenario.topics:
            if topic.create_at is None:
                self._at(CREATE_TOPICS_MS, partial(self._create, topic))
        self._every(TRAFFIC_MS, PRODUCE_MS, self._produce)
        self._play(WARM_UP_MS)
        self._observations.clear()
        self._trace.clear()
        self._at(WARM_UP_MS, lambda: self._snapshot(SnapshotReason.START))
        self._every(SNAPSHOT_MS, WARM_UP_MS + SNAPSHOT_MS, lambda: self._snapshot(SnapshotReason.PERIODIC))
        self._every(OFFSETS_MS, WARM_UP_MS, lambda: self._report(self._reports.offsets))
        self._every(METRICS_MS, WARM_UP_MS, lambda: self._report(self._reports.metrics))
        self._plan(WARM_UP_MS)

    def _plan(self, begin: int) -> None:
        """Put one round of the scenario on the agenda, and the next one after it."""
        for fault in self._scenario.faults:
            self._at(begin + _ms(fault.at), partial(self._inflict, fault))
        for topic in self._scenario.topics:
            if topic.create_at is not None:
                self._at(begin + _ms(topic.create_at), partial(self._create, topic))
            if topic.delete_at is not None:
                self._at(begin + _ms(topic.delete_at), partial(self._delete, topic))
        if self._scenario.repeat:
            following = begin + _ms(self._scenario.duration)
            self._at(following, lambda: self._plan(following))

    def _at(self, at: int, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (at, self._number, act))

    def _every(self, period: int, first: int, act: Callable[[], None]) -> None:
        def once(at: int) -> None:
            act()
            self._at(at + period, lambda: once(at + period))

        self._at(first, lambda: once(first))

    def _play(self, until: int) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            at, _, act = heapq.heappop(self._agenda)
            self._advance(at)
            act()
            self._observe()
        self._advance(until)

    def _advance(self, until: int) -> None:
        if until > self._cluster.now:
            self._cluster.advance(until)
            self._observe()

    def _now(self) -> Micros:
        return Micros(self._origin + self._cluster.now * MICROS_PER_MS)

    # -------------------------------------------------------------- seeing

    def _observe(self) -> None:
        for commit in self._cluster.take_commits():
            self._observations += self._image.apply(commit.batch, commit.batch.timestamp)
            self._trace += (self._traced(commit, step) for step in commit.transitions)

    def _traced(self, commit: Commit, step: Transition) -> TraceEntry:
        state = step.after or step.before
        assert state is not None  # noqa: S101 - a step has a state on one side at least
        return TraceEntry(
            topic_id=step.topic_partition.topic_id,
            topic=step.topic.topic,
            partition=step.topic_partition.partition,
            partition_epoch=state.partition_epoch,
            leader_epoch=state.leader_epoch,
            leader=state.leader,
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            time=Micros(self._origin + commit.now * MICROS_PER_MS),
            cause=step.cause,
            deleted=step.after is None,
        )

    def _snapshot(self, reason: SnapshotReason) -> None:
        now = self._now()
        self._observations += self._image.snapshot(snapshot_id=f"{self.name}-{now}", reason=reason, collected_at=now)

    def _report(self, report: Callable[[Micros], list[Observation]]) -> None:
        self._observations += report(self._now())

    # -------------------------------------------------------------- doing

    def _inflict(self, fault: Fault) -> None:
        cluster, network = self._cluster, self._network
        if fault.broker is not None:
            act = {
                Action.KILL: cluster.kill,
                Action.START: self._start,
                Action.STOP: cluster.stop,
                Action.PAUSE: cluster.pause,
                Action.RESUME: cluster.resume,
            }[fault.action]
            act(fault.broker)
        elif fault.link is not None:
            if fault.action is Action.HOLD:
                network.hold(fault.link)
            elif fault.action is Action.SLOW:
                network.slow(fault.link, fault.records_per_second or 1)
            else:
                network.release(fault.link)
                cluster.release(fault.link)

    def _start(self, broker: BrokerId) -> None:
        self._cluster.start(broker, self._new_id())

    def _new_id(self) -> TopicId:
        return topic_id_from_uuid(uuid.UUID(int=self._ids.getrandbits(128)))

    def _create(self, plan: TopicPlan) -> None:
        topic_id = self._topic_ids[plan.name] = self._new_id()
        config = {"min.insync.replicas": str(plan.min_insync_replicas)}
        if plan.unclean_leader_election:
            config["unclean.leader.election.enable"] = "true"
        topic = TopicRegistration(
            topic=plan.name,
            topic_id=topic_id,
            partitions=plan.partitions,
            min_isr=plan.min_insync_replicas,
            unclean=plan.unclean_leader_election,
        )
        replicas = spread(self._scenario.brokers, plan.partitions, plan.replication_factor)
        self._cluster.create_topic(topic, plan.assignments or replicas, config)

    def _delete(self, plan: TopicPlan) -> None:
        self._cluster.delete_topic(self._topic_ids.pop(plan.name))

    def _produce(self) -> None:
        """Producers write: each partition a random share around its topic's rate."""
        for plan in self._scenario.topics:
            topic_id = self._topic_ids.get(plan.name)
            if topic_id is not None and plan.records_per_second > 0:
                mean = plan.records_per_second * TRAFFIC_MS / 1_000
                counts = {TopicPartition(topic_id, number): self._share(mean) for number in range(plan.partitions)}
                appends = {key: count for key, count in counts.items() if count}
                self._cluster.produce(appends, acks_all=plan.acks == "all")

    def _share(self, mean: float) -> int:
        """A whole number with this mean, up to twice as much."""
        return int(self._traffic.random() * 2 * mean + self._traffic.random())


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
