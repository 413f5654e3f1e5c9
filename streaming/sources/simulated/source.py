"""The simulated cluster as a source: what a monitor would see of a simulation.

What it reports comes from the metadata records that the model's controller writes, read as a real log is read. What is
*true* (:meth:`SimulatedSource.trace`, :meth:`SimulatedSource.partitions`) comes from the model's states alone, so that
a mistake in records, image or pipeline cannot hide in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId, TopicPartition
from streaming.contracts.observations import Observation, SnapshotReason
from streaming.model.controller.metadata_writer import MICROS_PER_MS
from streaming.sources.metadata_log.image import ClusterImage
from streaming.sources.simulated.reports import Reports
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.events import Cause
    from streaming.model.controller.metadata_writer import Commit
    from streaming.model.invariants.ghost import Loss
    from streaming.model.messages.registrations import PartitionRegistration, TopicRegistration, Transition
    from streaming.sources.simulated.scenario import Scenario

OFFSETS_MS: Final = 10_000
METRICS_MS: Final = 15_000
SETTINGS_MS: Final = 60_000
SNAPSHOT_MS: Final = 3_600_000


class SimulatedSource:
    """Plays a scenario; the same seed gives the same observations, however time is cut into polls.

    Args:
        scenario: the cluster and its fate.
        seed: of latencies, traffic and ids.
        cluster_id: Kafka's cluster id, as observations carry it.
        cluster: the cluster's name.
        name: the source's name on the bus.
        epoch: wall-clock time of simulated time 0, UTC microseconds.
        watched: remember what writers lost; a run then takes longer.
        on_commit: called with every commit of the controller, also with those before simulated time 0.

    Attributes:
        simulation: the play itself.
    """

    def __init__(  # noqa: PLR0913 - a cluster has an identity, a fate and a time
        self,
        scenario: Scenario,
        *,
        seed: int,
        cluster_id: ClusterId,
        cluster: str,
        name: str,
        epoch: Micros,
        watched: bool = False,
        on_commit: Callable[[Commit], None] | None = None,
    ) -> None:
        self.name = name
        self._origin = Micros(epoch - WARM_UP_MS * MICROS_PER_MS)
        self._on_commit = on_commit
        self.simulation = Simulation(scenario, seed=seed, origin=self._origin, watched=watched)
        self._image = ClusterImage(cluster_id=cluster_id, cluster=cluster, source=name)
        self._reports = Reports(self.simulation.cluster, cluster_id=cluster_id, cluster=cluster, source=name)
        self._observations: list[Observation] = []
        self._trace: list[TraceEntry] = []
        self._warm_up()

    def _warm_up(self) -> None:
        """Bring the cluster up unseen, then look at it in Kafka's and a monitor's usual periods."""
        self.simulation.play(WARM_UP_MS - 1, self._observe)
        self._observations.clear()
        self._trace.clear()
        agenda = self.simulation.agenda
        agenda.at(WARM_UP_MS, lambda: self._snapshot(SnapshotReason.START))
        agenda.at(WARM_UP_MS, lambda: self._report(self._reports.times))
        agenda.every(SNAPSHOT_MS, WARM_UP_MS + SNAPSHOT_MS, lambda: self._snapshot(SnapshotReason.PERIODIC))
        for report in (
            self._reports.offsets,
            self._reports.groups,
            self._reports.transactions,
            self._reports.log_directories,
            self._reports.quorum,
            self._reports.speed,
        ):
            agenda.every(OFFSETS_MS, WARM_UP_MS, partial(self._report, report))
        agenda.every(METRICS_MS, WARM_UP_MS, lambda: self._report(self._reports.metrics))
        agenda.every(SETTINGS_MS, WARM_UP_MS, lambda: self._report(self._reports.settings))

    # -------------------------------------------------------------- the interface of a source

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Play up to ``now`` and return what was seen on the way; the first poll begins with a snapshot."""
        self.simulation.play((now - self._origin) // MICROS_PER_MS, self._observe)
        observations, self._observations = self._observations, []
        return observations

    def acknowledge(self) -> None:
        """Nothing to remember: each process starts its own simulation."""

    def close(self) -> None:
        """Nothing to let go of."""

    # -------------------------------------------------------------- the truth

    def trace(self) -> tuple[TraceEntry, ...]:
        """Give every step of every partition since simulated time 0, from the model's states."""
        return tuple(self._trace)

    def partitions(self) -> dict[TopicPartition, PartitionRegistration]:
        """Give the true current state of every partition."""
        return dict(self.simulation.cluster.controller.registry.partitions)

    def topics(self) -> dict[TopicId, TopicRegistration]:
        """Give every topic that exists."""
        return dict(self.simulation.cluster.controller.registry.topics)

    def losses(self) -> tuple[Loss, ...]:
        """Give every loss of acknowledged records; none unless ``watched``."""
        watch = self.simulation.watch
        return () if watch is None else tuple(watch.losses)

    # -------------------------------------------------------------- seeing

    def _observe(self) -> None:
        for commit in self.simulation.cluster.take_commits():
            if self._on_commit is not None:
                self._on_commit(commit)
            self._observations += self._image.apply(commit.batch, commit.batch.timestamp)
            time = Micros(self._origin + commit.now * MICROS_PER_MS)
            self._trace += (traced(step, time) for step in commit.transitions)

    def _snapshot(self, reason: SnapshotReason) -> None:
        now = self.simulation.now
        self._observations += self._image.snapshot(snapshot_id=f"{self.name}-{now}", reason=reason, collected_at=now)

    def _report(self, report: Callable[[Micros], list[Observation]]) -> None:
        self._observations += report(self.simulation.now)


# The truth of a simulation: every step of every partition, from the model's states and from nothing else.


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


def traced(step: Transition, time: Micros) -> TraceEntry:
    """Tell one step of the model as an entry of the trace."""
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
        time=time,
        cause=step.cause,
        deleted=step.after is None,
    )
