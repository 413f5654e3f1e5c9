"""The effective ``min.insync.replicas`` of every topic, whether it is diskless, and the times of a broker.

All by DescribeConfigs (:class:`DescribedConfigs`).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

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
from streaming.sources.permissions import DESCRIBE_BROKER_CONFIGS, DESCRIBE_TOPIC_CONFIGS, PermissionDenied
from streaming.sources.polling.metadata import AddressRotation
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import (
    CLUSTER_AUTHORIZATION_FAILED,
    Resource,
    ResourceConfig,
    describe_configs,
)
from streaming.sources.protocol.identity import require_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.sources.permissions import Permission
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection, DescribedValue, Dial

_OWN: Final = 1  # as Kafka numbers where a value comes from
_UNKNOWN: Final = -1  # Kafka's error code
_AUTHORIZATION_FAILED: Final = frozenset({29, CLUSTER_AUTHORIZATION_FAILED})  # of a topic, of the cluster
_ANOTHER_BROKER: Final = 42  # what a broker responds that is asked for the configuration of another one
_BATCH: Final = 200  # topics per request


class Described(NamedTuple):
    """A topic whose configuration is asked for, or a broker by its number."""

    kind: Resource
    name: str


if TYPE_CHECKING:
    Responses = dict[Described, Future[ResourceConfig]]


class ConfigDescriber(Protocol):
    """Describes configurations; :class:`DescribedConfigs`, which is replaced in tests."""

    def describe(self, resources: Sequence[Described]) -> Responses:
        """Request the configuration of topics, or of one broker."""


@dataclass(slots=True)
class ConfigsRound:
    """The requests in flight, the last values reported, and what is missing to read those of topics and of brokers."""

    refusal: ConnectionRefused | None = None
    broker_refusal: ConnectionRefused | None = None
    _requested_at: Micros | None = None
    _responses: Responses = field(default_factory=dict)
    _reported: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _times: dict[str, str | None] = field(default_factory=dict)

    def ask(self, describer: ConfigDescriber, view: ClusterView, now: Micros, *, everything: bool) -> None:
        """Request the configuration of every topic, unless a response is outstanding.

        Args:
            describer: is asked.
            view: contains the topics.
            now: time of the request.
            everything: report every value again, not only changed ones.
        """
        if self._responses:
            return
        self._reported = {} if everything else self._reported
        self._times = {} if everything else self._times
        if view.brokers:
            self._responses |= describer.describe([Described(Resource.BROKER, str(min(view.brokers)))])  # alike in all
        names = list(view.topics)
        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            self._responses |= describer.describe([Described(Resource.TOPIC, name) for name in some])
        self._requested_at = now

    def forget(self, deleted: Iterable[str], envelope: dict[str, Any]) -> list[Observation]:
        """Unset the values of topics that do not exist any more: of their names there may be others, with their own.

        Nor is an outstanding response believed, which may be of either.
        """
        names = dict.fromkeys(deleted)
        self._reported = {place: value for place, value in self._reported.items() if place[0] not in names}
        self._responses = {
            resource: response
            for resource, response in self._responses.items()
            if resource.kind is Resource.BROKER or resource.name not in names
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

    def pending(self) -> list[Future[ResourceConfig]]:
        """Return the futures to wait for."""
        return [future for future in self._responses.values() if not future.done()]

    def take(self, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Return the changed values once all responses have arrived."""
        if not self._responses or self.pending() or self._requested_at is None:
            return []
        responses, self._responses = self._responses, {}
        self.refusal = self.broker_refusal = None
        changed = [*self._changed(responses), *self._changed_times(responses)]
        window = {"occurred_not_before": self._requested_at, "occurred_not_after": max(self._requested_at, now)}
        return [
            ConfigObserved(**{**envelope, **window}, topic=topic, key=key, value=value, origin=ConfigOrigin.DESCRIBE)
            for topic, key, value in changed
        ]

    def _changed(self, responses: Responses) -> Iterator[tuple[str, str, str | None]]:
        for name, described in _of_kind(Resource.TOPIC, responses):
            if described.error:
                on = f"topic {name}"
                self.refusal = _missing_permission(described.error, DESCRIBE_TOPIC_CONFIGS, on=on) or self.refusal
                continue
            for key, value in _values(described.values):
                if (name, key) not in self._reported or self._reported[name, key] != value:
                    self._reported[name, key] = value
                    yield name, key, value

    def _changed_times(self, responses: Responses) -> Iterator[tuple[str, str, str | None]]:
        """Give the times of a broker that changed; without the permission Kafka's defaults are assumed."""
        for _, described in _of_kind(Resource.BROKER, responses):
            self.broker_refusal = _missing_permission(described.error, DESCRIBE_BROKER_CONFIGS) or self.broker_refusal
            values = {} if described.error else described.values
            for key in CLUSTER_TIMES:
                value = values[key].value if key in values else None
                if value is not None and self._times.get(key) != value:
                    self._times[key] = value
                    yield "", key, value


def _of_kind(kind: Resource, responses: Responses) -> Iterator[tuple[str, ResourceConfig]]:
    """Give the answers for resources of one kind, without those that no broker gave."""
    for resource, future in responses.items():
        failure = future.exception()
        if failure is not None and not isinstance(failure, ConnectionRefused):
            raise failure
        if failure is None and resource.kind is kind:
            yield resource.name, future.result()


def _missing_permission(error: int, permission: Permission, *, on: str = "") -> PermissionDenied | None:
    return PermissionDenied(permission, on=on) if error in _AUTHORIZATION_FAILED else None


def _values(entries: Mapping[str, DescribedValue]) -> Iterator[tuple[str, str | None]]:
    """Give the configurations of a topic that matter here.

    A topic is diskless by its own value: the broker's default is only that of new topics, and not of internal ones.
    Of brokers that do not know the configuration, as those of Apache Kafka, there is nothing to say.
    """
    yield MIN_ISR, entries[MIN_ISR].value if MIN_ISR in entries else None
    flags = [entries[key] for key in DISKLESS_KEYS if key in entries]
    if flags:
        own = (each.value for each in flags if each.source == _OWN)
        yield DISKLESS, next(filter(is_true, own), None)


# DescribeConfigs on a connection of its own: only the keys that matter.
#
# Topics are asked for at any broker, the next one where one fails; the configuration of a broker at that broker. Where
# what brokers advertise is not reached, bootstrap servers are asked: one of them may be that broker.


_KEYS: Final = {Resource.TOPIC: [MIN_ISR, *DISKLESS_KEYS], Resource.BROKER: [*CLUSTER_TIMES]}
_ATTEMPTS: Final = 2


class DescribedConfigs:
    """Describes configurations: one future per resource; one request at a time.

    Args:
        dial: opens a connection.
        bootstrap: asked where what brokers advertise is not reached.
        name: prefix of the thread's name.
        seconds: timeout of each request.
    """

    def __init__(self, dial: Dial, bootstrap: Sequence[Address], *, name: str, seconds: float) -> None:
        self._brokers: Mapping[int, Address] = {}
        self._cluster_id: str | None = None
        self._dial, self._seconds = dial, seconds
        self._bootstrap, self._turns = bootstrap, AddressRotation(bootstrap)
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name} configurations")

    def at(self, view: ClusterView) -> DescribedConfigs:
        """Ask the brokers of a view from now on, and none of another cluster; return itself."""
        self._brokers = {broker: Address(*at) for broker, at in view.brokers.items()}
        self._cluster_id = view.cluster_id
        return self

    def describe(self, resources: Sequence[Described]) -> Responses:
        """Request the configuration of topics, or of one broker."""
        futures: Responses = {resource: Future() for resource in resources}
        self._thread.submit(self._describe, futures)
        return futures

    def close(self) -> None:
        """End the thread and the connection; a request in flight ends by its own timeout."""
        self._thread.submit(self._hang_up)
        self._thread.shutdown(wait=False)

    def _describe(self, futures: Responses) -> None:
        try:
            by_name = self._answered(list(futures))
        except Exception as failure:  # noqa: BLE001 - whatever it is, a caller waits for the futures
            for future in futures.values():
                future.set_exception(failure)
            return
        for resource, future in futures.items():
            future.set_result(by_name.get(resource.name, ResourceConfig(_UNKNOWN, {})))

    def _answered(self, resources: Sequence[Described]) -> dict[str, ResourceConfig]:
        if resources[0].kind is Resource.BROKER:
            own = self._brokers[int(resources[0].name)]
            connection, answer = self._first_answer([own, *self._bootstrap[:1]], resources)
            connection.close()
            return answer
        if self._connection is not None:
            try:
                return _described(self._connection, resources)
            except ConnectionRefused:
                self._hang_up()
        self._turns.advertised = list(self._brokers.values())
        addresses = self._turns.next(None, is_asked=True)[:_ATTEMPTS]
        self._connection, answer = self._first_answer(addresses, resources)
        return answer

    def _first_answer(
        self, addresses: Sequence[Address], resources: Sequence[Described]
    ) -> tuple[Connection, dict[str, ResourceConfig]]:
        failure = ConnectionRefused("no broker is listed")
        for address in addresses:
            try:
                connection = self._dial(address, response_seconds=self._seconds)
                try:
                    require_cluster(connection, self._cluster_id)
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


def _described(connection: Connection, resources: Sequence[Described]) -> dict[str, ResourceConfig]:
    kind = resources[0].kind
    described = describe_configs(connection, kind, [each.name for each in resources], _KEYS[kind])
    other = next((each for each in described.values() if each.error == _ANOTHER_BROKER), None)
    if kind is Resource.BROKER and other is not None:
        raise ConnectionRefused(f"{connection.address} does not lead to broker {resources[0].name}")
    return described
