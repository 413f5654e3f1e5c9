"""What a running broker of the model answers: each kind of question, and the whole metadata, from its own image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, TopicPartition
from streaming.model.messages.registrations import PartitionRegistration
from streaming.model.nodes.quorum.controllers import Controllers
from streaming.model.storage.log import UNDEFINED_OFFSET
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Content, Presence, QuorumLeader
from streaming.sources.polling.view import ClusterView, PartitionView, Reassignment, in_order
from streaming.sources.simulated.simulation import Simulation
from tests.judge.polls.forwarding import Forwarding
from tests.judge.polls.images import Image, Images

CLUSTER_ID = ClusterId("judged")
_WHOLE_TOPIC = -1


class Answers:
    """Answers of brokers that serve requests; who does is decided by the listeners.

    Args:
        simulation: the model, and its network.
        images: what each broker has read.
        addresses: of brokers, as all of them advertise them.
        lists_fenced: whether DescribeCluster lists fenced brokers (KIP-1073, 4.0).
        random: who is named as the controller: any broker, since clients are not to know the real one (KIP-590).
    """

    def __init__(
        self,
        simulation: Simulation,
        images: Images,
        addresses: Mapping[BrokerId, tuple[str, int]],
        *,
        lists_fenced: bool,
        random: Random,
    ) -> None:
        self._cluster = simulation.cluster
        self._forwarding = Forwarding(simulation)
        self._images = images
        self._addresses = addresses
        self._lists_fenced = lists_fenced
        self._random = random

    def waits_for_controller(self, question: BrokerQuestion, asked: int) -> bool:
        """Return whether a question that was asked at a time is not answered before a controller answers the broker."""
        return question.ask is Ask.QUORUM and not self._forwarding.is_answered(question.broker, asked)

    def to(self, question: BrokerQuestion) -> Content:
        """Answer a question now."""
        image = self._images.of(question.broker)
        match question.ask:
            case Ask.PRESENCE:
                return self._presence(image)
            case Ask.QUORUM:
                return self._quorum()
            case Ask.PARTITIONS:
                topics = dict.fromkeys(topic for topic, _, _ in question.partitions)
                return {topic: self._partitions(image, topic, question) for topic in topics if topic in image.topic_ids}
            case Ask.LOG_ENDS:
                return dict(self._log_ends(image, question))
            case Ask.EPOCH_ENDS:
                return dict(self._epoch_ends(image, question))

    def view(self, broker: BrokerId) -> ClusterView:
        """Give the whole metadata, and what is being reassigned as far as a controller says so."""
        image = self._images.of(broker)
        topics = {
            topic: {number: self._view_of(image, topic, number, state) for number, state in sorted(parts.items())}
            for topic, parts in sorted(image.partitions.items())
        }
        has_reassignments = self._forwarding.is_answered(broker, self._cluster.now)
        if not has_reassignments:
            topics = {
                topic: {number: part._replace(reassignment=Reassignment()) for number, part in parts.items()}
                for topic, parts in topics.items()
            }
        return ClusterView(
            cluster_id=CLUSTER_ID,
            answered_by=broker,
            brokers={each: self._addresses[each] for each in sorted(image.unfenced)},
            topics=topics,
            topic_ids=dict(image.topic_ids),
            partition_counts={topic: len(parts) for topic, parts in topics.items()},
            has_reassignments=has_reassignments,
            has_elr=True,
            racks={each: rack for each in image.unfenced if (rack := image.brokers[each].rack)},
        )

    def _presence(self, image: Image) -> Presence:
        alive = sorted(image.unfenced)
        controller = self._random.choice(alive) if alive else None
        return Presence(controller, image.unfenced, image.fenced if self._lists_fenced else None)

    def _quorum(self) -> QuorumLeader:
        """Only asked of a broker that reaches the active controller."""
        controllers = self._cluster.controllers
        described = controllers.describe(self._cluster.now) if isinstance(controllers, Controllers) else None
        return QuorumLeader(-1, 0) if described is None else QuorumLeader(described.leader, described.epoch)

    def _partitions(self, image: Image, topic: str, question: BrokerQuestion) -> dict[int, PartitionView]:
        numbers = {number for name, number, _ in question.partitions if name == topic}
        return {
            number: self._view_of(image, topic, number, state)._replace(reassignment=Reassignment())
            for number, state in sorted(image.partitions[topic].items())
            if number in numbers or _WHOLE_TOPIC in numbers
        }

    def _view_of(self, image: Image, topic: str, number: int, state: PartitionRegistration) -> PartitionView:
        """A leader that is not alive to this broker is none (``KRaftMetadataCache``)."""
        alive = image.unfenced
        key = TopicPartition(image.topic_ids[topic], number)
        return PartitionView(
            replicas=state.replicas,
            isr=in_order(state.isr, state.replicas),
            leader=state.leader if state.leader in alive else NO_LEADER,
            reassignment=Reassignment(state.adding_replicas, state.removing_replicas),
            leader_epoch=state.leader_epoch,
            elr=state.elr,
            last_known_elr=state.last_known_elr,
            offline=tuple(
                broker for broker in state.replicas if broker not in alive or self._is_offline(image, broker, key)
            ),
        )

    def _is_offline(self, image: Image, broker: BrokerId, key: TopicPartition) -> bool:
        """Return whether a replica lies in a directory that its broker is not registered with any more (KIP-858)."""
        names = image.brokers[broker].log_dirs
        disk = self._cluster.disks.get(broker)
        placed = None if disk is None else disk.log_dirs.placed.get(key)
        return bool(names) and placed is not None and placed not in names

    def _asked(self, image: Image, question: BrokerQuestion) -> Iterable[tuple[str, int, int, TopicPartition]]:
        for topic, number, epoch in question.partitions:
            topic_id = image.topic_ids.get(topic)
            if topic_id is not None:
                yield topic, number, epoch, TopicPartition(topic_id, number)

    def _log_ends(self, image: Image, question: BrokerQuestion) -> Iterable[tuple[tuple[str, int], int]]:
        """Where its own replicas end, led or not; a replica that it lacks is an error of that partition."""
        disk = self._cluster.disks[question.broker]
        for topic, number, _, key in self._asked(image, question):
            if disk.has(key):
                yield (topic, number), disk.replicas[key].log.end

    def _epoch_ends(self, image: Image, question: BrokerQuestion) -> Iterable[tuple[tuple[str, int], int]]:
        """Where epochs end in the logs that it leads; of others it answers NOT_LEADER_OR_FOLLOWER."""
        led = self._cluster.brokers[question.broker].leadership.led
        for topic, number, epoch, key in self._asked(image, question):
            if (partition := led.get(key)) is not None:
                _, end = partition.replica.log.end_offset_for(epoch)
                if end != UNDEFINED_OFFSET:
                    yield (topic, number), end
