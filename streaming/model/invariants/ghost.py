"""Ghost state: what no process of the cluster knows as a whole, but its promises are about. An observer.

It remembers what was written, acknowledged and seen by consumers, and what excuses a loss: a record that was
acknowledged may be lost by an unclean election, by as many damaged disks at once as the minimum ISR, or, without
eligible leader replicas, by the damage of the one replica that was left in the ISR. By nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.health import effective_min_isr
from streaming.contracts.identifiers import NO_LEADER
from streaming.model.storage.log import Log, Records, Span, first_difference, holds, spans_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.constants import Constants
    from streaming.model.controller.registry import Registry
    from streaming.model.messages.registrations import (
        BrokerRegistration,
        PartitionRegistration,
        TopicRegistration,
        Transition,
    )
    from streaming.model.nodes.broker import Broker
    from streaming.model.storage.replica import LocalReplica

UNCLEAN: Final = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})
DAMAGE: Final = "as many damaged disks as the minimum ISR"
LAST_REPLICA: Final = "the last replica in the ISR was damaged"


class Loss(NamedTuple):
    """Acknowledged records that are gone, and the excuse."""

    topic_partition: TopicPartition
    records: int
    excuse: str


class Memory:
    """Memory of one partition.

    Attributes:
        states: every registration the controller ever wrote, by partition epoch.
        sent: everything that a leader appended.
        acked: acknowledged with acks=all.
        nacked: appended for acks=all, then refused or given up.
        waiting: appended for acks=all and not answered, by the leader that owes the answer.
        consumed: what was below the high watermark of any leader: a consumer that is always there first.
        true_high_watermark: what every member of the controller's ISR had when a leader moved its high watermark.
        writers: who appended, by leader epoch.
        epoch_marks: the last high watermark of each believer, by broker.
        latest: the largest answer that the controller's leader gave to "what is your latest offset?".
        damaged: brokers whose disk lost records, until a registered process has all that was consumed again.
        dropped: brokers that a reassignment took the replica from, by the partition epoch of that step.
        history: leader epoch of the last election that could lose records; logs and leaders before it are void.
        broken: promises that were broken in passing, as (invariant, what happened).
    """

    def __init__(self) -> None:
        self.states: dict[int, PartitionRegistration] = {}
        self.sent = Records()
        self.acked = Records()
        self.nacked = Records()
        self.waiting: dict[LeaderPartition, list[Span]] = {}
        self.consumed = Log()
        self.true_high_watermark = 0
        self.writers: dict[int, BrokerId] = {}
        self.epoch_marks: dict[BrokerId, tuple[LeaderPartition, int]] = {}
        self.latest = 0
        self.damaged: set[BrokerId] = set()
        self.dropped: dict[BrokerId, int] = {}
        self.history = 0
        self.broken: list[tuple[str, str]] = []

    def has_all_that_was_consumed(self, log: Log) -> bool:
        """Return whether a replica has every record that a consumer may have seen."""
        return log.end >= self.consumed.end and first_difference(log, self.consumed, self.consumed.end) is None


class Ghost:
    """Remembers; half of an observer (``probe.Probe``), of which ``watch.Watch`` is the other half.

    Attributes:
        memories: of every partition that was ever touched.
        touched: partitions to check after this step, and whether their metadata or leaders changed.
        losses: every loss of acknowledged records that had an excuse.
        may_have_lost: a disk lost records, or an election beyond the ISR did; promises of consumers end here.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.memories: dict[TopicPartition, Memory] = {}
        self.touched: dict[TopicPartition, bool] = {}
        self.losses: list[Loss] = []
        self.may_have_lost = False
        self._cluster = cluster

    @property
    def _registry(self) -> Registry:
        return self._cluster.controller.registry

    def memory(self, key: TopicPartition) -> Memory:
        """Give what is remembered of a partition."""
        memory = self.memories.get(key)
        if memory is None:
            memory = self.memories[key] = Memory()
        return memory

    # -------------------------------------------------------------- told by the protocol (Probe)

    def appended(self, leader: LeaderPartition, offset: int, *, acks_all: bool) -> None:
        """A leader wrote records; no other leader may ever write in its epoch."""
        memory, log = self.memory(leader.key), leader.replica.log
        epoch = leader.committed.leader_epoch
        span = Span(epoch, offset, log.end)
        writer = memory.writers.setdefault(epoch, leader.broker)
        if writer != leader.broker:
            self.touched.setdefault(leader.key, False)
            memory.broken.append(("NoSplitBrain", f"{writer} and {leader.broker} both wrote in epoch {epoch}"))
        memory.sent.add(span)
        if acks_all:
            memory.waiting.setdefault(leader, []).append(span)

    def advanced(self, leader: LeaderPartition) -> None:
        """A leader moved its high watermark: consumers see more, producers get their answers."""
        memory = self.memory(leader.key)
        self.touched.setdefault(leader.key, False)
        if leader.committed.leader_epoch < memory.history:
            return  # a leader of before an unclean election: its records are lost, and excused
        partition = self._registry.partitions.get(leader.key)
        if partition is not None:
            ends = [log.end for log in self._logs(leader.key, partition.isr)]
            reached = min(leader.replica.high_watermark, *ends) if ends else 0
            memory.true_high_watermark = max(memory.true_high_watermark, reached)
        self._consume(memory, leader)
        self._acknowledge(memory, leader, partition)

    def resigned(self, leader: LeaderPartition) -> None:
        """Waiting producers are told that it leads no more."""
        memory = self._touch(leader.key)
        for span in memory.waiting.pop(leader, ()):
            memory.nacked.add(span)
        memory.epoch_marks.pop(leader.broker, None)

    def replicated(self, key: TopicPartition) -> None:
        """A follower took in what its leader answered."""
        self.touched.setdefault(key, False)

    def informed(self, key: TopicPartition) -> None:
        """A broker took in new metadata."""
        self.touched[key] = True

    def process_changed(self, broker: BrokerId) -> None:
        """A process began or ended: those that waited for its answers get none."""
        for memory in self.memories.values():
            for leader in [leader for leader in memory.waiting if leader.broker == broker]:
                self.resigned(leader)
            memory.epoch_marks.pop(broker, None)
        for key in self._registry.hosted_by(broker):
            self.touched[key] = True

    def losing(self, broker: BrokerId, *, everything: bool) -> None:
        """A disk loses records: whatever its replicas stood for, they do not any more."""
        self.may_have_lost = True
        for key in self._registry.hosted_by(broker):
            memory, partition = self._touch(key), self._registry.partitions[key]
            (log,) = self._logs(key, (broker,))
            stood_for_it = broker in {*partition.isr, *partition.elr} or memory.has_all_that_was_consumed(log)
            if stood_for_it and log.end > (log.start if everything else log.flushed):
                memory.damaged.add(broker)

    # -------------------------------------------------------------- told by the watch, and asked

    def take_step(self, step: Transition) -> None:
        """The controller took a step; an election after too much damage begins a new history."""
        key, after = step.topic_partition, step.after
        if after is None:
            self.memories.pop(key, None)
            self.touched.pop(key, None)
            return
        memory = self._touch(key)
        memory.states[after.partition_epoch] = after
        if step.before is not None and step.before.replicas != after.replicas:
            gone = set(step.before.replicas) - set(after.replicas)
            memory.dropped |= dict.fromkeys(gone, after.partition_epoch)
        if step.before is None or after.leader in {NO_LEADER, step.before.leader}:
            return
        if step.cause in UNCLEAN:
            self._forgive(key, after, step.cause.value)
        elif (excuse := self.excuse(key, step.before)) and (
            after.leader not in memory.damaged or self.is_accepted(after.leader)
        ):  # else it is dead, or will be taken for another process soon: the next leader decides
            self._forgive(key, after, excuse)

    def is_accepted(self, broker: BrokerId) -> bool:
        """Return whether the running process of a broker is the one that the controller registered."""
        process, registration = self._cluster.brokers.get(broker), self._registry.brokers.get(broker)
        if process is None or registration is None:
            return False
        return process.lifecycle.incarnation_id == registration.incarnation_id

    def min_isr(self, key: TopicPartition, state: PartitionRegistration) -> int:
        """Give the effective minimum ISR of a partition."""
        return effective_min_isr(self._registry.topics[key.topic_id].min_isr, state.replicas) or 1

    def excuse(self, key: TopicPartition, state: PartitionRegistration) -> str:
        """Say what excuses a loss now; empty if nothing does."""
        memory = self.memory(key)
        for broker in list(memory.damaged):
            (log,) = self._logs(key, (broker,))
            if self.is_accepted(broker) and memory.has_all_that_was_consumed(log):
                memory.damaged.discard(broker)
        if len(memory.damaged) >= self.min_isr(key, state):
            return DAMAGE
        alone = len(state.isr) == 1 and not self._cluster.constants.elr_enabled
        return LAST_REPLICA if alone and state.isr[0] in memory.damaged else ""

    # -------------------------------------------------------------- within

    def _touch(self, key: TopicPartition) -> Memory:
        self.touched[key] = True
        return self.memory(key)

    def _logs(self, key: TopicPartition, brokers: Iterable[BrokerId]) -> Iterator[Log]:
        for broker in brokers:
            replica = self._cluster.disks[broker].replicas.get(key)
            yield Log() if replica is None else replica.log

    @staticmethod
    def _consume(memory: Memory, leader: LeaderPartition) -> None:
        log, consumed, end = leader.replica.log, memory.consumed, leader.replica.high_watermark
        difference = first_difference(log, consumed, end)
        if difference is not None:
            memory.broken.append(("ConsistentRead", f"{leader.broker} shows another record at {difference}"))
        elif end > consumed.end:
            for span in spans_of(log, consumed.end, end):
                consumed.append_fetched(span.end, ((span.epoch, span.start),))

    def _acknowledge(self, memory: Memory, leader: LeaderPartition, truth: PartitionRegistration | None) -> None:
        waiting, high_watermark = memory.waiting.get(leader, []), leader.replica.high_watermark
        done = [span for span in waiting if span.end <= high_watermark]
        if not done:
            return
        memory.waiting[leader] = waiting[len(done) :]
        for span in done:
            (memory.acked if leader.has_min_isr else memory.nacked).add(span)
            if leader.has_min_isr and truth is not None and truth.leader not in {NO_LEADER, leader.broker}:
                (log,) = self._logs(leader.key, (truth.leader,))
                if not holds(log, span) and truth.leader not in memory.damaged:
                    what = f"{leader.broker} acknowledged {span}, which leader {truth.leader} lacks"
                    memory.broken.append(("NoSplitBrain", what))

    def _forgive(self, key: TopicPartition, after: PartitionRegistration, excuse: str) -> None:
        """Take the new leader's log for all there is from now on."""
        self.may_have_lost = True
        memory = self.memory(key)
        (log,) = self._logs(key, (after.leader,))
        lost = memory.acked.missing_from(log)
        if lost:
            self.losses.append(Loss(key, sum(span.end - span.start for span in lost), excuse))
            memory.acked.keep_only(log)
        end = min(memory.consumed.end, log.end)
        difference = first_difference(log, memory.consumed, end)
        memory.consumed.truncate(end if difference is None else difference)
        memory.true_high_watermark = min(memory.true_high_watermark, memory.consumed.end)
        memory.latest = min(memory.latest, memory.consumed.end)
        memory.history = after.leader_epoch


# One partition as the observer sees it: the truth, every process's view, and the ghost's memory.


class View(NamedTuple):
    """Everything that an invariant of one partition may look at.

    Attributes:
        truth: the controller's state of the partition.
        constants: the cluster's configuration.
        registrations: the controller's state of the brokers.
        processes: the running brokers, paused ones included.
        believers: who believes to lead the partition; several during a change of leaders.
        replicas: what is on the brokers' disks.
        accepted: brokers whose running process is the one that the controller registered.
        excuse: what excuses a loss now; empty if nothing does.
    """

    key: TopicPartition
    topic: TopicRegistration
    truth: PartitionRegistration
    constants: Constants
    registrations: Mapping[BrokerId, BrokerRegistration]
    processes: Mapping[BrokerId, Broker]
    believers: Mapping[BrokerId, LeaderPartition]
    replicas: Mapping[BrokerId, LocalReplica]
    memory: Memory
    accepted: frozenset[BrokerId]
    excuse: str = ""

    @property
    def min_isr(self) -> int:
        """The effective minimum ISR."""
        return effective_min_isr(self.topic.min_isr, self.truth.replicas) or 1

    def log(self, broker: BrokerId) -> Log | None:
        """Give a broker's log, None if it has none yet."""
        replica = self.replicas.get(broker)
        return None if replica is None else replica.log

    def end(self, broker: BrokerId) -> int:
        """Give where a broker's log ends, 0 if it has none yet."""
        replica = self.replicas.get(broker)
        return 0 if replica is None else replica.log.end

    def is_accepted(self, broker: BrokerId) -> bool:
        """Return whether the running process of a broker is the one that the controller registered."""
        return broker in self.accepted

    def answers_for(self, broker: BrokerId) -> bool:
        """Return whether a broker has to hold what is committed: not while a damaged disk is not known as such."""
        return broker not in self.memory.damaged or (self.is_accepted(broker) and not self.excuse)

    def heirs(self) -> dict[BrokerId, LeaderPartition]:
        """Give those who believe to lead and belong to the present history."""
        return {
            broker: leader
            for broker, leader in self.believers.items()
            if leader.committed.leader_epoch >= self.memory.history
        }


def look(cluster: Cluster, ghost: Ghost, key: TopicPartition) -> View | None:
    """Look at one partition; None once it is deleted. Costs as much as there are brokers."""
    registry, memory = cluster.controller.registry, ghost.memory(key)
    truth = registry.partitions.get(key)
    if truth is None:
        return None
    replicas = {broker: disk.replicas[key] for broker, disk in cluster.disks.items() if key in disk.replicas}
    return View(
        key=key,
        topic=registry.topics[key.topic_id],
        truth=truth,
        constants=cluster.constants,
        registrations=registry.brokers,
        processes=cluster.brokers,
        believers={
            node: broker.leadership.led[key] for node, broker in cluster.brokers.items() if key in broker.leadership.led
        },
        replicas=replicas,
        memory=memory,
        accepted=frozenset(broker for broker in cluster.brokers if ghost.is_accepted(broker)),
        excuse=ghost.excuse(key, truth),
    )
