"""The ids of topics, asked apart from their partitions: the request waits for one broker, which may hang.

Knows confluent-kafka's admin client. KRaft brokers name any live broker as the controller, and DescribeTopics goes
there; the metadata themselves come from any broker at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.contracts.identifiers import ClusterId, TopicId, synthetic_topic_id, topic_id_from_uuid
from streaming.sources.admin_refusals import error_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, TopicDescription

    from streaming.sources.admin_view import PartitionView

    Topics = Mapping[str, Mapping[int, PartitionView]]
    Placement = tuple[tuple[int, ...], ...]

_BATCH: Final = 500  # topics in one request
_NO_ID: Final = topic_id_from_uuid(UUID(int=0))


@dataclass(slots=True)
class TopicIds:
    """What is known, and the question that is under way.

    An id is settled as long as the topic's replicas are as they were when it was asked: a topic that is deleted and
    made again is mostly placed elsewhere. ``failure`` is why the last question was not answered.
    """

    seconds: float
    known: dict[str, TopicId] = field(default_factory=dict)
    failure: KafkaException | None = None
    _placed: dict[str, Placement] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _client: AdminClient | None = None  # held: one that is let go of may never give its answers
    _answers: dict[str, Future[TopicDescription]] = field(default_factory=dict)
    _asked: dict[str, Placement] = field(default_factory=dict)

    def ask(self, client: AdminClient, topics: Topics, *, everything: bool = False) -> None:
        """Ask for the ids that are not settled, or for all, unless an answer is still owed."""
        if self._answers:
            return
        self._gone.clear()
        names = list(topics) if everything else self.unsettled(topics)
        self._asked = {name: _placement(topics[name]) for name in names}
        for start in range(0, len(names), _BATCH):
            batch = TopicCollection(names[start : start + _BATCH])
            self._answers |= client.describe_topics(batch, request_timeout=self.seconds)
        self._client = client if self._answers else None

    def unsettled(self, topics: Topics) -> list[str]:
        """Name the topics whose id is not known for certain."""
        return [
            name
            for name, parts in topics.items()
            if name not in self._gone and (name not in self.known or self._placed[name] != _placement(parts))
        ]

    def forget_others(self, topics: Topics) -> None:
        """Forget the topics that are not there: one that comes again under an old name is another."""
        for name in self.known.keys() - topics.keys():
            del self.known[name], self._placed[name]

    def pending(self) -> list[Future[TopicDescription]]:
        """Give what to wait for."""
        return [future for future in self._answers.values() if not future.done()]

    def take(self, cluster_id: ClusterId) -> None:
        """Take over what was answered."""
        if not self._answers or self.pending():
            return
        self.failure = None
        answers, self._answers, self._client = self._answers, {}, None
        for name, future in answers.items():
            try:
                self.known[name] = topic_id(str(future.result().topic_id), cluster_id, name)
                self._placed[name] = self._asked[name]
            except KafkaException as failure:
                if error_of(failure).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self.failure = failure
                    continue
                # Deleted since the list was read.
                self._gone.add(name)
                self.known.pop(name, None)
                self._placed.pop(name, None)


def topic_id(told: str, cluster_id: ClusterId, topic: str) -> TopicId:
    """Spell a topic id as Kafka does: librdkafka writes the other alphabet of base64. Make one up where none is."""
    spelled = TopicId(told.replace("+", "-").replace("/", "_"))
    return synthetic_topic_id(cluster_id, topic) if spelled == _NO_ID else spelled


def _placement(parts: Mapping[int, PartitionView]) -> Placement:
    return tuple(view.replicas for view in parts.values())
