"""The effective ``min.insync.replicas`` of every topic, whether it is diskless, and the times of a broker.

All by DescribeConfigs. Depends on what describes them (:class:`DescribedConfigs`, or a client of librdkafka).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from streaming.contracts.observations import (
    CLUSTER_TIMES,
    DISKLESS,
    DISKLESS_KEYS,
    MIN_ISR,
    ConfigObserved,
    ConfigOrigin,
    Observation,
    is_true,
)
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, DESCRIBE_TOPIC_CONFIGS, missing_permission
from streaming.sources.polling.metadata import AddressRotation
from streaming.sources.protocol.connection import Resource, ResourceConfig, describe_configs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka.admin import ConfigEntry

    from streaming.contracts.identifiers import Micros
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection, Dial

_OWN: Final[object] = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # as a number, unlike what its type says
_BATCH: Final = 200  # topics per request: a response has every configuration of each


class ConfigDescriber(Protocol):
    """Describes configurations, as a client of librdkafka does."""

    def describe_configs(
        self, resources: list[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Request the configuration of each resource."""


@dataclass(slots=True)
class ConfigsRound:
    """The requests in flight, the last values reported, and what is missing to read those of topics and of brokers."""

    seconds: float
    refusal: ConnectionRefused | None = None
    broker_refusal: ConnectionRefused | None = None
    _client: ConfigDescriber | None = None  # referenced: a client that is collected may not complete its futures
    _requested_at: Micros | None = None
    _responses: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = field(default_factory=dict)
    _reported: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _times: dict[str, str | None] = field(default_factory=dict)

    def ask(self, client: ConfigDescriber, view: ClusterView, now: Micros, *, everything: bool) -> None:
        """Request the configuration of every topic, unless a response is outstanding.

        Args:
            client: a connected admin client.
            view: contains the topics.
            now: time of the request.
            everything: report every value again, not only changed ones.
        """
        if self._responses:
            return
        self._reported = {} if everything else self._reported
        self._times = {} if everything else self._times
        if view.brokers:
            broker = ConfigResource(ResourceType.BROKER, str(min(view.brokers)))  # alike in all
            self._responses |= client.describe_configs([broker], request_timeout=self.seconds)
        names = list(view.topics)
        for start in range(0, len(names), _BATCH):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + _BATCH]]
            self._responses |= client.describe_configs(resources, request_timeout=self.seconds)
        self._client, self._requested_at = client if self._responses else None, now

    def forget(self, deleted: Iterable[str], envelope: dict[str, Any]) -> list[Observation]:
        """Unset the values of topics that do not exist any more: of their names there may be others, with their own.

        Nor is an outstanding response believed, which may be of either.
        """
        names = dict.fromkeys(deleted)
        self._reported = {place: value for place, value in self._reported.items() if place[0] not in names}
        self._responses = {
            resource: response
            for resource, response in self._responses.items()
            if resource.restype == ResourceType.BROKER or resource.name not in names
        }
        return [
            ConfigObserved(**envelope, topic=name, key=key, origin=ConfigOrigin.DESCRIBE)
            for name in names
            for key in (MIN_ISR, DISKLESS)
        ]

    @property
    def is_outstanding(self) -> bool:
        """True if a round has not been taken yet, so that the next one cannot begin."""
        return bool(self._responses)

    def pending(self) -> list[Future[dict[str, ConfigEntry]]]:
        """Return the futures to wait for."""
        return [future for future in self._responses.values() if not future.done()]

    def take(self, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Return the changed values once all responses have arrived."""
        if not self._responses or self.pending() or self._requested_at is None:
            return []
        responses, self._responses, self._client = self._responses, {}, None
        self.refusal = self.broker_refusal = None
        brokers = {
            resource: response for resource, response in responses.items() if resource.restype == ResourceType.BROKER
        }
        topics = {resource: response for resource, response in responses.items() if resource not in brokers}
        changed = [*self._changed(topics), *self._changed_times(brokers)]
        window = {"occurred_not_before": self._requested_at, "occurred_not_after": max(self._requested_at, now)}
        return [
            ConfigObserved(**{**envelope, **window}, topic=topic, key=key, value=value, origin=ConfigOrigin.DESCRIBE)
            for topic, key, value in changed
        ]

    def _changed(
        self, responses: dict[ConfigResource, Future[dict[str, ConfigEntry]]]
    ) -> Iterator[tuple[str, str, str | None]]:
        for resource, future in responses.items():
            failure = future.exception()
            if failure is not None:
                on = f"topic {resource.name}"
                self.refusal = missing_permission(failure, DESCRIBE_TOPIC_CONFIGS, on=on) or self.refusal
                continue
            for key, value in _values(future.result()):
                if (resource.name, key) not in self._reported or self._reported[resource.name, key] != value:
                    self._reported[resource.name, key] = value
                    yield resource.name, key, value

    def _changed_times(
        self, responses: dict[ConfigResource, Future[dict[str, ConfigEntry]]]
    ) -> Iterator[tuple[str, str, str | None]]:
        """Give the times of a broker that changed; without the permission Kafka's defaults are assumed."""
        for future in responses.values():
            failure = future.exception()
            self.broker_refusal = missing_permission(failure, DESCRIBE_BROKER_CONFIGS) or self.broker_refusal
            entries = {} if failure is not None else future.result()
            for key in CLUSTER_TIMES:
                value = entries[key].value if key in entries else None
                if value is not None and self._times.get(key) != value:
                    self._times[key] = value
                    yield "", key, value


def _values(entries: Mapping[str, ConfigEntry]) -> Iterator[tuple[str, str | None]]:
    """Give the configurations of a topic that matter here.

    A topic is diskless by its own value: the broker's default is only that of new topics, and not of internal ones.
    Of brokers that do not know the configuration, as those of Apache Kafka, there is nothing to say.
    """
    yield MIN_ISR, entries[MIN_ISR].value if MIN_ISR in entries else None
    flags = [entries[key] for key in DISKLESS_KEYS if key in entries]
    if flags:
        own = (each.value for each in flags if each.source == _OWN)
        yield DISKLESS, next(filter(is_true, own), None)


# DescribeConfigs on direct connections, in the place of a client of librdkafka: only the keys that matter.
#
# Topics are asked for at any broker, the next one where one fails; the configuration of a broker at that broker. Where
# what brokers advertise is not reached, bootstrap servers are asked: one of them may be that broker.


if TYPE_CHECKING:
    Entries = dict[str, Any]

_KEYS: Final = {ResourceType.TOPIC: [MIN_ISR, *DISKLESS_KEYS], ResourceType.BROKER: [*CLUSTER_TIMES]}
_KINDS: Final = {ResourceType.TOPIC: Resource.TOPIC, ResourceType.BROKER: Resource.BROKER}
_ATTEMPTS: Final = 2


class DescribedConfigs:
    """Describes configurations as a client of librdkafka does: one future per resource; one request at a time.

    Attributes:
        brokers: where they are asked, by id.

    Args:
        dial: opens a connection.
        bootstrap: asked where what brokers advertise is not reached.
        name: prefix of the thread's name.
        seconds: timeout of each request.
    """

    def __init__(self, dial: Dial, bootstrap: Sequence[Address], *, name: str, seconds: float) -> None:
        self.brokers: Mapping[int, Address] = {}
        self._dial, self._seconds = dial, seconds
        self._bootstrap, self._turns = bootstrap, AddressRotation(bootstrap)
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name} configurations")

    def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        request_timeout: float,  # noqa: ARG002 - the signature of librdkafka's client; here each request has the same
    ) -> dict[ConfigResource, Future[Entries]]:
        """Request the configuration of topics, or of one broker."""
        futures: dict[ConfigResource, Future[Entries]] = {resource: Future() for resource in resources}
        self._thread.submit(self._describe, futures)
        return futures

    def close(self) -> None:
        """End the thread and the connection; a request in flight ends by its own timeout."""
        self._thread.submit(self._hang_up)
        self._thread.shutdown(wait=False)

    def _describe(self, futures: Mapping[ConfigResource, Future[Entries]]) -> None:
        try:
            by_name = self._answered(list(futures))
        except Exception as failure:  # noqa: BLE001 - whatever it is, a caller waits for the futures
            for future in futures.values():
                future.set_exception(failure)
            return
        for resource, future in futures.items():
            error, entries = by_name.get(resource.name, ResourceConfig(KafkaError.UNKNOWN, {}))
            if error:
                future.set_exception(KafkaException(KafkaError(error)))
            else:
                future.set_result(entries)

    def _answered(self, resources: Sequence[ConfigResource]) -> dict[str, ResourceConfig]:
        if resources[0].restype == ResourceType.BROKER:
            own = self.brokers[int(resources[0].name)]
            connection, answer = self._first_answer([own, *self._bootstrap[:1]], resources)
            connection.close()
            return answer
        if self._connection is not None:
            try:
                return _described(self._connection, resources)
            except ConnectionRefused:
                self._hang_up()
        self._turns.advertised = list(self.brokers.values())
        addresses = self._turns.next(None, is_asked=True)[:_ATTEMPTS]
        self._connection, answer = self._first_answer(addresses, resources)
        return answer

    def _first_answer(
        self, addresses: Sequence[Address], resources: Sequence[ConfigResource]
    ) -> tuple[Connection, dict[str, ResourceConfig]]:
        failure = ConnectionRefused("no broker is listed")
        for address in addresses:
            try:
                connection = self._dial(address, response_seconds=self._seconds)
                try:
                    return connection, _described(connection, resources)
                except BaseException:
                    connection.close()
                    raise
            except ConnectionRefused as refusal:
                failure = refusal
        raise failure

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _described(connection: Connection, resources: Sequence[ConfigResource]) -> dict[str, ResourceConfig]:
    kind = resources[0].restype
    return describe_configs(connection, _KINDS[kind], [each.name for each in resources], _KEYS[kind])
