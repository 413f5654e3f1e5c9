"""Producers of a simulated cluster that wait for their answers, and the members of consumer groups.

The anonymous writers of ``traffic`` stand for the mass; these are for what happens to a single record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.clients.consumer import Consumer
from streaming.model.clients.positions import ConsumerConfig, GroupProtocol, ResetPolicy
from streaming.model.clients.producer import Producer
from streaming.model.clients.transactional_producer import Phase, TransactionalProducer
from streaming.model.messages.clients import Acks, IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.sources.simulated.scenario import GroupPlan, ProducerPlan
    from streaming.sources.simulated.stage import Stage

SEND_MS: Final = 200
_ACKS: Final = {"all": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE}


class SimulatedProducer:
    """One producer of a scenario: a batch each :data:`SEND_MS` to the partitions of its topic in turn."""

    def __init__(self, stage: Stage, plan: ProducerPlan) -> None:
        self._stage = stage
        self._plan = plan
        self._turn = 0
        self._began = 0
        self._has_aborted = False
        cluster, brokers = stage.cluster, stage.scenario.brokers
        if plan.transactional_id:
            self._producer: Producer = TransactionalProducer(plan.id, brokers, cluster.constants, plan.transactional_id)
        else:
            acks = _ACKS[plan.acks]
            self._producer = Producer(plan.id, brokers, cluster.constants, acks=acks, idempotence=plan.idempotent)
        cluster.connect(plan.id, self._producer)

    def act(self) -> None:
        """Send the next batch, and begin or end a transaction when it is time."""
        producer, now = self._producer, self._stage.cluster.now
        if self._plan.id not in self._stage.cluster.clients:
            return  # it was killed
        producer.act(now)
        if isinstance(producer, TransactionalProducer):
            self._act_in_transactions(producer, now)
        else:
            self._send(now)
        self._stage.cluster.flush(self._plan.id)

    def _act_in_transactions(self, producer: TransactionalProducer, now: int) -> None:
        if producer.phase is Phase.READY and not (self._has_aborted and self._plan.gives_up):
            producer.begin(now)
            self._began = now
        if producer.phase is not Phase.IN_TRANSACTION:
            return
        if producer.has_failed:
            producer.abort(now)
            self._has_aborted = True
        elif now - self._began >= self._plan.transaction_seconds * 1_000:
            producer.commit(now)
        else:
            self._send(now)

    def _send(self, now: int) -> None:
        topic_id = self._stage.topic_ids.get(self._plan.topic)
        if topic_id is None:
            return
        self._turn += 1
        partition = self._turn % self._stage.partitions_of(topic_id)
        size = max(1, round(self._plan.records_per_second * SEND_MS / 1_000))
        self._producer.send(now, TopicPartition(topic_id, partition), size)


def members(stage: Stage, plan: GroupPlan) -> Iterator[Consumer]:
    """Make the members of a group, under consecutive ids."""
    topics = frozenset(stage.topic_ids[name] for name in plan.topics if name in stage.topic_ids)
    config = ConsumerConfig(
        group=plan.name,
        topics=topics,
        protocol=GroupProtocol(plan.protocol),
        reset=ResetPolicy.EARLIEST,
        isolation=IsolationLevel.READ_COMMITTED if plan.reads_committed else IsolationLevel.READ_UNCOMMITTED,
    )
    for number in range(plan.members):
        node = BrokerId(plan.id + number)
        yield Consumer(node, stage.scenario.brokers, stage.cluster.constants, config)
