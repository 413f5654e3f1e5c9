"""The registry of invariants, and the observer that asks them after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RegisterBroker
from streaming.model.invariants import leaders, logs, metadata
from streaming.model.invariants.ghost import Ghost, View, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.controller.metadata_writer import Commit


class Invariant(NamedTuple):
    """A promise about one partition. ``complaint`` gives None while it is kept."""

    name: str
    complaint: Callable[[View], str | None]

    @property
    def statement(self) -> str:
        """Promise, in a sentence."""
        return (self.complaint.__doc__ or "").partition("\n")[0].partition(" Source:")[0]


# Invariants of the controller's state and of each broker's belief: asked when metadata moved.
VIEWS: Final = (
    Invariant("TypeOk", metadata.type_ok),
    Invariant("LeaderInIsr", metadata.leader_in_isr),
    Invariant("IsrWellFormed", metadata.isr_well_formed),
    Invariant("ValidControllerIsrAndElr", metadata.valid_controller_isr_and_elr),
    Invariant("ValidControllerState", metadata.valid_controller_state),
    Invariant("LastKnownLeader", metadata.last_known_leader),
    Invariant("ValidReplicaState", leaders.valid_replica_state),
    Invariant("ValidFetcherState", leaders.valid_fetcher_state),
    Invariant("OneProposalInFlight", leaders.one_proposal_in_flight),
    Invariant("MetadataLogMatching", leaders.metadata_log_matching),
)
# Invariants of logs and high watermarks: asked whenever one moved.
DATA: Final = (
    Invariant("UncleanExclusion", metadata.unclean_exclusion),
    Invariant("ReplicationQuorumSuperset", leaders.replication_quorum_superset),
    Invariant("OffsetsOrdered", logs.offsets_ordered),
    Invariant("EpochCacheIncreasing", logs.epoch_cache_increasing),
    Invariant("ValidHighWatermark", leaders.valid_high_watermark),
    Invariant("HighWatermarkGrows", leaders.high_watermark_grows),
    Invariant("LatestOffsetGrows", leaders.latest_offset_grows),
    Invariant("WeakIsr", leaders.weak_isr),
    Invariant("StrongIsr", leaders.strong_isr),
    Invariant("LogMatching", logs.log_matching),
    Invariant("LeaderCandidateCompleteness", logs.leader_candidate_completeness),
    Invariant("LeaderCompleteness", logs.leader_completeness),
    Invariant("NoCommittedRecordLostGlobally", logs.no_committed_record_lost_globally),
    Invariant("ConsistentRead", logs.consistent_read),
    Invariant("SequencesAreUnique", logs.sequences_are_unique),
    Invariant("ReadCommitted", logs.read_committed),
)
INVARIANTS: Final = (*VIEWS, *DATA)
# Invariants of a step, of the log, of all brokers, or noticed by the ghost in passing.
OTHERS: Final = ("EpochsGrow", "MetadataOffsetsGrow", "BrokerEpochsGrow", "ValidBrokerState", "NoSplitBrain")


class Violation(AssertionError):
    """A promise is broken: its name, where, and how."""

    def __init__(self, invariant: str, where: TopicPartition | str, complaint: str) -> None:
        super().__init__(f"{invariant} is broken: {where}: {complaint}")
        self.invariant = invariant
        self.complaint = complaint


class Watch(Ghost):
    """An observer that checks every step of a cluster, and stops it where a promise is broken.

    Args:
        cluster: before any of its brokers started.
        stops: raise at the first violation; else continue and gather each promise's first.

    Attributes:
        violations: what was gathered.

    It costs as much as a step touched, times the brokers; nothing for partitions at rest. Call :meth:`check` after a
    command that is no step, such as a fault.
    """

    def __init__(self, cluster: Cluster, *, stops: bool = True) -> None:
        super().__init__(cluster)
        self.violations: list[Violation] = []
        self._stops = stops
        self._metadata_end = cluster.controller.writer.committed_offset
        self._broker_epochs: dict[BrokerId, tuple[int, str]] = {}
        cluster.observe(self)

    def stepped(self) -> None:
        """The cluster took one event: check what it touched."""
        if self.touched:
            self.check()

    def check(self) -> None:
        """Check the partitions that were touched since the last check.

        Raises:
            Violation: a promise is broken.
        """
        touched, self.touched = self.touched, {}
        for key, has_new_metadata in touched.items():
            self._check_partition(key, INVARIANTS if has_new_metadata else DATA)

    def check_everything(self) -> None:
        """Check every partition, touched or not: for small clusters.

        Raises:
            Violation: a promise is broken.
        """
        self.touched = dict.fromkeys(self._registry.partitions, True)
        self.check()
        self._check_brokers()

    def committed(self, commit: Commit) -> None:
        """The controller wrote a batch: check the steps it tells of."""
        base = commit.batch.base_offset
        if base != self._metadata_end:
            complaint = f"a batch at {base} after {self._metadata_end}"
            self._report(Violation("MetadataOffsetsGrow", "metadata log", complaint))
        self._metadata_end = base + len(commit.batch.records)
        for step in commit.transitions:
            if broken := metadata.epochs_grow(step):
                self._report(Violation("EpochsGrow", step.topic_partition, broken))
            self.take_step(step)
        for record in commit.batch.records:
            if isinstance(record, RegisterBroker):
                self._check_registration(record)
        self._check_brokers()

    def _check_registration(self, record: RegisterBroker) -> None:
        """A process that registers again, because it heard no answer, keeps its epoch."""
        before, incarnation_id = self._broker_epochs.get(record.broker, (-1, ""))
        self._broker_epochs[record.broker] = (record.broker_epoch, record.incarnation_id)
        if record.broker_epoch < before or (record.broker_epoch == before and record.incarnation_id != incarnation_id):
            complaint = f"{record.broker_epoch} after {before}"
            self._report(Violation("BrokerEpochsGrow", f"broker {record.broker}", complaint))

    def _check_brokers(self) -> None:
        if complaint := metadata.valid_broker_state(self._cluster):
            self._report(Violation("ValidBrokerState", "brokers", complaint))

    def _check_partition(self, key: TopicPartition, invariants: tuple[Invariant, ...]) -> None:
        view = look(self._cluster, self, key)
        if view is None:
            return
        for name, what in view.memory.broken:
            self._report(Violation(name, key, what))
        for invariant in invariants:
            if complaint := invariant.complaint(view):
                self._report(Violation(invariant.name, key, complaint))

    def _report(self, violation: Violation) -> None:
        if self._stops:
            raise violation
        if violation.invariant not in {violation.invariant for violation in self.violations}:
            self.violations.append(violation)
