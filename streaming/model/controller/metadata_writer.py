"""Writes of the controller: steps and records together, then one batch for all brokers.

Used by ``controller`` alone. State changes at once, so that a later step of the same operation sees it; records gather
until :meth:`MetadataWriter.commit` hands them to the quorum as one batch with one timestamp. What the quorum never gets
is undone by :meth:`MetadataWriter.begin_epoch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, Micros, Offset, TopicId, TopicPartition
from streaming.contracts.records import LeaderChange, MetadataRecord, RecordBatch
from streaming.model.controller.change import (
    Assignment,
    Change,
    Mode,
    Outcome,
    Target,
    assignment_of,
    build,
    record_of,
    record_of_creation,
)
from streaming.model.controller.registry import Registry
from streaming.model.messages.membership import MetadataDelta, MetadataPartition
from streaming.model.messages.network import Outbox
from streaming.model.messages.registrations import (
    BrokerRegistration,
    PartitionRegistration,
    TopicRegistration,
    Transition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.model.constants import Constants

# An election that had to reach beyond the ISR says more than the step that asked for it.
CAUSE_OF_ELECTION: Final = {
    Outcome.FROM_ELR: Cause.ELR_ELECTION,
    Outcome.LAST_KNOWN: Cause.LAST_KNOWN_LEADER,
    Outcome.OUT_OF_SYNC: Cause.UNCLEAN_ELECTION,
}


class StepOptions(NamedTuple):
    """Options of a step.

    Attributes:
        mode: how hard to look for a leader; None: as hard as the topic allows.
        leaving: a broker on its way out, which still counts as active until its own record.
        unclean_shutdown: it may have lost a suffix of its log.
        recovered: the leader says that it has recovered from an unclean election.
        assignment: where its replicas are to be.
        offline: brokers that cannot read their replica.
    """

    mode: Mode | None = None
    leaving: BrokerId | None = None
    unclean_shutdown: bool = False
    recovered: bool = False
    assignment: Assignment | None = None
    offline: tuple[BrokerId, ...] = ()


DEFAULT: Final = StepOptions()


class MetadataWriter:
    """The registry, the metadata log's end, and who follows it.

    Attributes:
        appended: batches that the quorum has not been handed yet.
        commits: what the quorum has committed and was not taken yet.
        end_offset: where the log ends once everything written is in it; falls only with :meth:`begin_epoch`.
        committed_offset: end of what others may see of it. Invariant: ≤ ``end_offset``, never falls.
        epoch: raft epoch of the active controller; never falls.

    Args:
        constants: timing and switches.
        origin: wall-clock time of model time 0, for batch timestamps.
        outbox: where metadata for the brokers goes.
    """

    def __init__(self, constants: Constants, *, origin: Micros, outbox: Outbox) -> None:
        self.registry = Registry()
        self.registry.journal.is_kept = constants.controllers > 1 or constants.controller_quorum_append_linger_ms > 0
        self.appended: list[Commit] = []
        self.commits: list[Commit] = []
        self.subscribers: dict[BrokerId, None] = {}
        self.end_offset = 0
        self.committed_offset = 0
        self.epoch = 0
        self.elr_enabled = constants.eligible_leader_replicas
        self.switches = constants.switches
        self.probe: CommitProbe | None = None
        self._origin = origin
        self._outbox = outbox
        self._records: list[MetadataRecord] = []
        self._brokers: dict[BrokerId, None] = {}
        self._topics: dict[TopicId, None] = {}

    def write(self, *records: MetadataRecord) -> None:
        """Add records to the operation."""
        self._records += records

    def set_broker(self, broker: BrokerId, registration: BrokerRegistration) -> None:
        """Replace a broker's registration."""
        self.registry.brokers[broker] = registration
        self._brokers[broker] = None

    def remove_broker(self, broker: BrokerId) -> None:
        """Forget a broker's registration."""
        del self.registry.brokers[broker]
        self._brokers[broker] = None

    def set_topic(self, topic: TopicRegistration) -> None:
        """Replace a topic's configuration."""
        self.registry.topics[topic.topic_id] = topic
        self._topics[topic.topic_id] = None

    def create(self, topic: TopicRegistration, key: TopicPartition, partition: PartitionRegistration) -> None:
        """Create a partition."""
        self.registry.replace(topic, key, partition, Cause.CREATED)
        self._records.append(record_of_creation(key, partition))

    def clear_elr(self, topic: TopicRegistration) -> None:
        """Apply ``ClearElr`` to a topic's partitions; that record stands for the steps of all of them."""
        for number in range(topic.partitions):
            key = TopicPartition(topic.topic_id, number)
            before = self.registry.partitions[key]
            if before.elr or before.last_known_elr:
                after = before._replace(elr=(), last_known_elr=(), partition_epoch=before.partition_epoch + 1)
                self.registry.replace(topic, key, after, Cause.CONFIG)

    def change(self, key: TopicPartition, isr: Iterable[BrokerId], cause: Cause, how: StepOptions = DEFAULT) -> bool:
        """Take a step of one partition towards ``isr``, elect if need be, write its record; tell if there was any."""
        before = self.registry.partitions[key]
        topic = self.registry.topics[key.topic_id]
        if self.registry.directories:
            offline = tuple(broker for broker in before.replicas if self.registry.is_offline(broker, key))
            how = how._replace(offline=offline)
        step = self.step(before, isr, how, min_isr=self.effective_min_isr(topic), unclean=topic.unclean)
        if step is None:
            return False
        if assignment_of(before) != assignment_of(step.after):
            cause = Cause.REASSIGNMENT
        self.registry.replace(topic, key, step.after, CAUSE_OF_ELECTION.get(step.outcome, cause))
        self._records.append(record_of(key, before, step.after))
        return True

    def step(
        self, before: PartitionRegistration, isr: Iterable[BrokerId], how: StepOptions, *, min_isr: int, unclean: bool
    ) -> Change | None:
        """Say what :meth:`change` would make of a partition under its topic's configuration; None if nothing."""
        target = Target(
            isr=tuple(isr),
            acceptable=self._acceptable(how),
            min_isr=min_isr,
            elr_enabled=self.elr_enabled,
            mode=how.mode or (Mode.UNCLEAN if unclean else Mode.ONLINE),
            unclean_shutdown=(how.leaving,) if how.unclean_shutdown and how.leaving is not None else (),
            recovered=how.recovered,
            assignment=how.assignment,
            switches=self.switches,
        )
        return build(before, target)

    def effective_min_isr(self, topic: TopicRegistration) -> int:
        """Cap the minimum at the replicas of partition 0, whatever partition is asked for, as the controller does."""
        first = self.registry.partitions.get(TopicPartition(topic.topic_id, 0))
        return topic.min_isr if first is None else min(topic.min_isr, len(first.replicas))

    def _acceptable(self, how: StepOptions) -> Callable[[BrokerId], bool]:
        excluded = (how.leaving, *how.offline)
        return lambda broker: broker not in excluded and self.registry.is_active(broker)

    def commit(self, now: int) -> None:
        """Hand the operation's records to the quorum as one batch and tell every broker; nothing if it wrote none."""
        if not self._records:
            return
        transitions = tuple(self.registry.transitions)
        batch = self._batch(now, self.epoch, self.end_offset, tuple(self._records))
        self.appended.append(Commit(now, batch, transitions))
        self.end_offset += len(self._records)
        self.registry.journal.mark(self.end_offset)
        self._publish(transitions)
        self._records.clear()
        self._brokers.clear()
        self._topics.clear()
        self.registry.transitions.clear()

    def leader_change(self, now: int, controller: int, epoch: int, offset: int) -> Commit:
        """Write the control batch that begins a raft epoch."""
        return Commit(now, self._batch(now, epoch, offset, (LeaderChange(controller=controller, epoch=epoch),)), ())

    def _batch(self, now: int, epoch: int, offset: int, records: tuple[MetadataRecord, ...]) -> RecordBatch:
        timestamp = Micros(self._origin + now * MICROS_PER_MS)
        return RecordBatch(base_offset=Offset(offset), epoch=epoch, timestamp=timestamp, records=records)

    def begin_epoch(self, epoch: int, common_offset: int, end_offset: int) -> None:
        """Another controller is active: undo what its log, equal up to ``common_offset``, does not have."""
        self.registry.revert(common_offset)
        self.appended.clear()
        self.epoch, self.end_offset = epoch, end_offset

    def committed(self, commit: Commit, end_offset: int) -> None:
        """The quorum has a batch that ends at ``end_offset``; now it may be seen."""
        self.commits.append(commit)
        self.committed_offset = end_offset
        if self.probe is not None:
            self.probe.committed(commit)
        self.registry.journal.forget(end_offset)

    def _publish(self, transitions: tuple[Transition, ...]) -> None:
        """Send what changed. Departs from Kafka: idle heartbeats of the log are not sent: they change nothing."""
        partitions = tuple(
            MetadataPartition(transition.topic_partition, transition.topic, transition.after)
            for transition in transitions
        )
        brokers = tuple((broker, self.registry.brokers.get(broker)) for broker in self._brokers)
        topics = tuple(self.registry.topics[topic_id] for topic_id in self._topics)
        if partitions or brokers or topics:
            delta = MetadataDelta(self.end_offset - 1, partitions, brokers, topics)
            for broker in self.subscribers:
                self._outbox.send(broker, delta)

    def snapshot_for(self, broker: BrokerId) -> MetadataDelta:
        """Give a new process everything it hosts, and every broker."""
        partitions = tuple(self._hosted(broker))
        topics = tuple({item.topic.topic_id: item.topic for item in partitions}.values())
        brokers = tuple(self.registry.brokers.items())
        return MetadataDelta(self.end_offset - 1, partitions, brokers, topics, snapshot=True)

    def _hosted(self, broker: BrokerId) -> Iterator[MetadataPartition]:
        for key in self.registry.hosted_by(broker):
            yield MetadataPartition(key, self.registry.topics[key.topic_id], self.registry.partitions[key])


# Results of one operation of the controller, and their observer. Values and an interface.


MICROS_PER_MS: Final = 1_000


class Commit(NamedTuple):
    """The batch as others may read it, and the true steps; ``now`` is model time in milliseconds."""

    now: int
    batch: RecordBatch
    transitions: tuple[Transition, ...]


class CommitProbe(Protocol):
    """An observer of the metadata log (see ``probe``)."""

    def committed(self, commit: Commit) -> None:
        """The controller wrote a batch to the metadata log."""
