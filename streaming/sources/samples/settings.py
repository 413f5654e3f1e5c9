"""Settings of every topic, asked of any one broker, and of every broker, asked of itself; with its features."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from streaming.contracts.observations import MIN_ISR, is_true
from streaming.contracts.sample_blocks import SAMPLES_PER_BLOCK, TopicsSettingsObserved, reported
from streaming.contracts.settings import UNCLEAN, BrokerFeatureObserved, BrokerSettingsObserved
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, DESCRIBE_TOPIC_CONFIGS, PermissionDenied
from streaming.sources.protocol.config_messages import Resource, ResourceConfig, describe_configs
from streaming.sources.protocol.connection import CLIENT_ID, CLUSTER_AUTHORIZATION_FAILED
from streaming.sources.protocol.identity import NodeIdentity, Role, require
from streaming.sources.samples.kind import NEVER, AnswerContent
from streaming.sources.source import AT_ONCE, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, Micros, TopicId
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.kind import Ask, BrokerAnswer

TOPICS: Final = "topic settings"
BROKERS: Final = "broker settings"
_TOPICS_PER_REQUEST: Final = 500
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_INVALID_REQUEST: Final = 42  # the answer of another broker
_UNKNOWN: Final = -1  # Kafka's error code
_OF_TOPIC: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "min_isr": (MIN_ISR, int),
    "allows_unclean_election": (UNCLEAN, is_true),
    "cleanup_policy": ("cleanup.policy", str),
    "leader_throttled_replicas": ("leader.replication.throttled.replicas", str),
    "follower_throttled_replicas": ("follower.replication.throttled.replicas", str),
    "takes_dead_letters": ("errors.deadletterqueue.group.enable", is_true),
}
_OF_BROKER: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "leader_throttled_rate": ("leader.replication.throttled.rate", int),
    "follower_throttled_rate": ("follower.replication.throttled.rate", int),
    "replica_lag_time_max_ms": ("replica.lag.time.max.ms", int),
    "broker_session_timeout_ms": ("broker.session.timeout.ms", int),
    "allows_unclean_election": (UNCLEAN, is_true),
    "min_isr": (MIN_ISR, int),
}
"""Field to Kafka's key, and how its value is read."""
_LEFT_TO_BROKERS: Final = frozenset({2, 3, 4, 5})
"""Sources of a topic's value, as Kafka numbers them, that are the asked broker's own, or the cluster's default, which
does not count for a broker with another one of its own."""
_UNLIMITED: Final = 2**63 - 1  # reported by brokers that list a rate which was never set


class TopicsAnswer(NamedTuple):
    """Response of a broker: the topics and their ids at the time of the question, and their settings."""

    topic_ids: Mapping[str, TopicId]
    described: Mapping[str, ResourceConfig]


class BrokerSettingsAnswer(NamedTuple):
    """Response of a broker about itself."""

    described: ResourceConfig
    features: tuple[Feature, ...]


class SettingsKind:
    """Asks for settings; see :class:`kind.Kind`."""

    names: Sequence[str] = (TOPICS, BROKERS)

    def __init__(self, period: Micros) -> None:
        self._due = Timer(period)
        self._topics_at = NEVER
        self._turn = 0
        self._unasked: list[BrokerId] = []
        self._own: dict[BrokerId, dict[str, Any]] = {}

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return min(self._due.next_at, self._topics_at)

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask every broker for its own, and one for those of the topics; where it does not answer the next one."""
        if self._due.take_due(moment):
            for broker in view.brokers:
                ask(BROKERS, broker, partial(_of_broker, NodeIdentity(Role.BROKER, broker, view.cluster_id)))
            self._turn += 1
            self._unasked, self._topics_at = _rotated(list(view.brokers), self._turn), AT_ONCE
        if moment >= self._topics_at:
            self._topics_at = NEVER
            question = partial(_of_topics, dict(view.topic_ids))
            while self._unasked:
                broker = self._unasked.pop(0)
                if broker in view.brokers and ask(TOPICS, broker, question):
                    break

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return the settings that a broker reports."""
        if answer.refusal is not None:
            if answer.kind == TOPICS:
                self._topics_at = AT_ONCE
            return AnswerContent([], answer.refusal)
        if answer.kind == BROKERS:
            self._own[answer.broker] = _read(_OF_BROKER, answer.value.described)
            return _shown_of_broker(answer.broker, answer.value, envelope)
        asked_of, described = answer.value
        still = {topic: each for topic, each in asked_of.items() if view.topic_ids.get(topic) == each}
        settings = {topic: each for topic, each in described.items() if topic in still and not each.error}
        blocks = [*_blocks(answer.broker, view, self._without_disputed(view, settings), envelope)]
        denied = (topic for topic, each in described.items() if each.error == _TOPIC_AUTHORIZATION_FAILED)
        return AnswerContent(
            blocks, next((PermissionDenied(DESCRIBE_TOPIC_CONFIGS, on=f"topic {topic}") for topic in denied), None)
        )

    def _without_disputed(
        self, view: ClusterView, settings: Mapping[str, ResourceConfig]
    ) -> Mapping[str, ResourceConfig]:
        """Leave out what topics leave to the brokers, where these disagree: the asked one speaks for itself only."""
        own = [each for broker, each in self._own.items() if broker in view.brokers]
        shared = _OF_TOPIC.keys() & _OF_BROKER.keys()
        disputed = {_OF_TOPIC[name][0] for name in shared if len({each[name] for each in own if name in each}) > 1}
        if not disputed:
            return settings
        return {
            topic: described._replace(
                values={
                    key: value
                    for key, value in described.values.items()
                    if key not in disputed or value.source not in _LEFT_TO_BROKERS
                }
            )
            for topic, described in settings.items()
        }


def _rotated(brokers: list[BrokerId], turn: int) -> list[BrokerId]:
    start = turn % len(brokers) if brokers else 0
    return brokers[start:] + brokers[:start]


def _of_topics(topic_ids: Mapping[str, TopicId], connection: Connection) -> TopicsAnswer:
    names, keys = list(topic_ids), [key for key, _ in _OF_TOPIC.values()]
    described: dict[str, ResourceConfig] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        described |= describe_configs(connection, Resource.TOPIC, names[start : start + _TOPICS_PER_REQUEST], keys)
    return TopicsAnswer(topic_ids, described)


def _of_broker(broker: NodeIdentity, connection: Connection) -> BrokerSettingsAnswer:
    """Ask a broker about itself, which also proves each time that a connection still leads to it."""
    keys = [key for key, _ in _OF_BROKER.values()]
    answer = describe_configs(connection, Resource.BROKER, [str(broker.id)], keys)
    described = answer.get(str(broker.id), ResourceConfig(_UNKNOWN, {}))  # a proxy may leave it out
    if described.error == _INVALID_REQUEST:
        require(connection, broker)
    return BrokerSettingsAnswer(described, describe_features(connection))


def _shown_of_broker(broker: BrokerId, said: BrokerSettingsAnswer, envelope: dict[str, Any]) -> AnswerContent:
    features = [BrokerFeatureObserved(**envelope, broker=broker, **_by_field(feature)) for feature in said.features]
    if said.described.error:
        is_denied = said.described.error == CLUSTER_AUTHORIZATION_FAILED
        return AnswerContent(features, PermissionDenied(DESCRIBE_BROKER_CONFIGS) if is_denied else None)
    settings = {name: value for name, value in _read(_OF_BROKER, said.described).items() if value != _UNLIMITED}
    return AnswerContent([BrokerSettingsObserved(**envelope, broker=broker, **settings), *features])


def _by_field(feature: Feature) -> dict[str, Any]:
    name, supported, finalized = feature
    return {"feature": name, "supported_level": supported, "finalized_level": finalized}


def _read(fields: Mapping[str, tuple[str, Callable[[str], Any]]], described: ResourceConfig) -> dict[str, Any]:
    """Return the value of each field that the broker knows, and that can be read: other products have other values."""
    values: dict[str, Any] = {}
    for name, (key, read) in fields.items():
        each = described.values.get(key)
        with suppress(ValueError):
            values |= {} if each is None or each.value is None else {name: read(each.value)}
    return values


def _blocks(
    broker: BrokerId, view: ClusterView, described: Mapping[str, ResourceConfig], envelope: Mapping[str, Any]
) -> Iterator[TopicsSettingsObserved]:
    """Gather topics into blocks."""
    rows = [(_read(_OF_TOPIC, each), topic) for topic, each in described.items() if view.topics.get(topic)]
    for start in range(0, len(rows), SAMPLES_PER_BLOCK):
        some = rows[start : start + SAMPLES_PER_BLOCK]
        arrays = {
            "topic_id": tuple(view.topic_ids[topic] for _, topic in some),
            "topic": tuple(topic for _, topic in some),
            "partition_count": tuple(view.partition_count(topic) for _, topic in some),
            "replication_factor": tuple(_replication_factor(view, topic) for _, topic in some),
            **{name: tuple(row.get(name) for row, _ in some) for name in _OF_TOPIC},
        }
        yield TopicsSettingsObserved(**envelope, broker=broker, arrays=reported(arrays))


def _replication_factor(view: ClusterView, topic: str) -> int:
    return min(len(partition.replicas) for partition in view.topics[topic].values())


# ApiVersions 4: the features that a broker supports, and the levels that the cluster uses.
#
# Version 3 leaves out every feature that can be off, as it can say no level 0 (KAFKA-17011): then those are not known.


OLDEST: Final = 3
NEWEST: Final = 4


class Feature(NamedTuple):
    """One feature: its name, the highest level that the broker supports, and the level that is finalized, 0 for off."""

    name: str
    supported_level: int
    finalized_level: int


def describe_features(connection: Connection) -> tuple[Feature, ...]:
    """Ask a broker for its features; one that is too old to have any has none.

    Raises:
        ConnectionRefused: it does not respond.
    """
    version = connection.newest(ApiVersionsRequest.API_KEY, NEWEST)
    if version < OLDEST:
        return ()
    request: Any = ApiVersionsRequest(version=version, client_software_name=CLIENT_ID, client_software_version="1")
    return connection.call(request, ApiVersionsResponse, _read_features)


def _read_features(response: Any) -> tuple[Feature, ...]:  # noqa: ANN401 - kafka-python's messages ship no types
    finalized = {each.name: each.max_version_level for each in response.finalized_features or ()}
    return tuple(
        Feature(each.name, each.max_version, finalized.get(each.name, 0)) for each in response.supported_features or ()
    )
