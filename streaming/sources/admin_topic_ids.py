"""The ids of topics, requested separately from the metadata: the request depends on one broker, which may hang.

Depends on confluent-kafka's admin client. DescribeTopics goes to the controller, and KRaft brokers return any live
broker as the controller; metadata can be requested from any broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.contracts.identifiers import ClusterId, TopicId, synthetic_topic_id, topic_id_from_uuid
from streaming.sources.admin_refusals import error_of, missing_permission
from streaming.sources.permissions import DESCRIBE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, TopicDescription

    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_view import PartitionView

    Topics = Mapping[str, Mapping[int, PartitionView]]
    Placement = tuple[tuple[int, ...], ...]

_BATCH: Final = 500  # topics per request
_NO_ID: Final = topic_id_from_uuid(UUID(int=0))
_NO_TOPIC: Final = "__isrwatch_no_topic"
"""Asked for by name: brokers leave topics that may not be described out of a list, but deny a name, existing or not."""


@dataclass(slots=True)
class TopicIds:
    """The known topic ids, and the requests in flight.

    Invariant: an id is settled as long as the replicas of its topic are those of the time of the request, because a
    topic that is deleted and recreated nearly always has another placement (:meth:`ask` with ``everything`` finds the
    rest). ``failure`` is why the last request failed.

    A topic that is not in the list of all topics any more is requested by its name: the list leaves out what is
    forbidden, and that is not deleted. ``hidden`` are those of which no answer says that they are deleted.
    ``others_refusal`` is why others, never seen, may be left out.
    """

    seconds: float
    by_name: dict[str, TopicId] = field(default_factory=dict)
    failure: KafkaException | None = None
    hidden: frozenset[str] = frozenset()
    refusal: ConnectionRefused | None = None
    others_refusal: ConnectionRefused | None = None
    _vanished: frozenset[str] = frozenset()
    _placed: dict[str, Placement] = field(default_factory=dict)
    _deleted: set[str] = field(default_factory=set)
    _client: AdminClient | None = None  # referenced: a client that is collected may not complete its futures
    _responses: dict[str, Future[TopicDescription]] = field(default_factory=dict)
    _requested: dict[str, Placement] = field(default_factory=dict)

    def ask(
        self, client: AdminClient, topics: Topics, *, vanished: Collection[str] = (), everything: bool = False
    ) -> None:
        """Request the ids that are not settled, or all, unless a response is outstanding; and who is hidden."""
        if self._responses:
            self.hidden |= frozenset(vanished)  # until they are asked for, with the next view
            return
        self._deleted.clear()
        names = list(topics) if everything else self.unsettled(topics)
        self._requested = {name: _placement(topics[name]) for name in names}
        self._vanished = frozenset(vanished)
        if not everything:  # that asks for no vanished topic
            self.hidden &= self._vanished
        names += [*self._vanished, *([_NO_TOPIC] if everything else [])]
        for start in range(0, len(names), _BATCH):
            batch = TopicCollection(names[start : start + _BATCH])
            self._responses |= client.describe_topics(batch, request_timeout=self.seconds)
        self._client = client if self._responses else None

    def unsettled(self, topics: Topics) -> list[str]:
        """Return the topics whose id is not settled."""
        return [
            name
            for name, parts in topics.items()
            if name not in self._deleted and (name not in self.by_name or self._placed[name] != _placement(parts))
        ]

    def forget_others(self, topics: Topics) -> None:
        """Forget all other topics: a new topic with an old name has another id."""
        for name in self.by_name.keys() - topics.keys():
            del self.by_name[name], self._placed[name]

    def pending(self) -> list[Future[TopicDescription]]:
        """Return the futures to wait for."""
        return [future for future in self._responses.values() if not future.done()]

    def take(self, cluster_id: ClusterId) -> None:
        """Store the ids once all responses have arrived."""
        if not self._responses or self.pending():
            return
        self.failure = None
        responses, self._responses, self._client = self._responses, {}, None
        if (answer := responses.pop(_NO_TOPIC, None)) is not None:
            on = "topics of other names" if responses else ""
            self.others_refusal = missing_permission(answer.exception(), DESCRIBE_TOPICS, on=on)
        self._hide({name: responses.pop(name) for name in self._vanished})
        for name, future in responses.items():
            try:
                self.by_name[name] = topic_id(str(future.result().topic_id), cluster_id, name)
                self._placed[name] = self._requested[name]
            except KafkaException as failure:
                if not _says_deleted(failure):
                    self.failure = failure
                    continue
                # Deleted since the list was read.
                self._deleted.add(name)
                self.by_name.pop(name, None)
                self._placed.pop(name, None)

    def _hide(self, vanished: Mapping[str, Future[TopicDescription]]) -> None:
        """Note which topics are not in the list although nobody says that they do not exist."""
        hidden = []
        for name, future in vanished.items():
            failure = future.exception()
            if failure is None or not _says_deleted(failure):
                hidden.append(name)
            if failure is not None:
                self.refusal = missing_permission(failure, DESCRIBE_TOPICS, on=f"topic {name}") or self.refusal
        self.hidden = (self.hidden - vanished.keys()) | frozenset(hidden)


def _says_deleted(failure: BaseException) -> bool:
    return isinstance(failure, KafkaException) and error_of(failure).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def topic_id(librdkafka_id: str, cluster_id: ClusterId, topic: str) -> TopicId:
    """Return a topic id in Kafka's URL-safe base64 (librdkafka uses the other alphabet), a synthetic one for none."""
    spelled = TopicId(librdkafka_id.replace("+", "-").replace("/", "_"))
    return synthetic_topic_id(cluster_id, topic) if spelled == _NO_ID else spelled


def _placement(parts: Mapping[int, PartitionView]) -> Placement:
    return tuple(view.replicas for view in parts.values())
