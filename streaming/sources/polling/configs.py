"""The own ``min.insync.replicas`` of every topic and of every broker, whether a topic is diskless, the brokers' times.

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
from streaming.sources.protocol.config_messages import Resource, ResourceConfig, describe_configs
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED
from streaming.sources.protocol.identity import require_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.sources.permissions import Permission
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.config_messages import DescribedValue
    from streaming.sources.protocol.connection import Connection, Dial

# As Kafka numbers where a value comes from.
_OWN: Final = 1
_OF_BROKER: Final = frozenset({2, 4, 5})
"""A broker's own: dynamic, of its file, or Kafka's default. All other values are those of every leader, but that of the
cluster where one is set for a broker alone; brokers before 1.1 do not say where a value comes from."""
_OF_CLUSTER, _OF_BROKER_ALONE = 3, 2
_UNKNOWN: Final = -1  # Kafka's error code
_AUTHORIZATION_FAILED: Final = frozenset({29, CLUSTER_AUTHORIZATION_FAILED})  # of a topic, of the cluster
_ANOTHER_BROKER: Final = 42  # what a broker responds that is asked for the configuration of another one
_BATCH: Final = 200  # topics per request


class Described(NamedTuple):
    """A topic whose configuration is asked for, or a broker by its number.

    ``probe``: a topic without a minimum of its own; it shows that of a broker that may not be described itself.
    """

    kind: Resource
    name: str
    probe: str = ""


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
    _minima: dict[int, int] = field(default_factory=dict)
    _set_alone: frozenset[int] = frozenset()
    """Brokers for which a minimum is set alone."""
    _probe: str = ""

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
        self._minima = {} if everything else self._minima
        for broker in sorted(view.brokers):
            self._responses |= describer.describe([Described(Resource.BROKER, str(broker), self._probe)])
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
        of_brokers = self._changed_minima(responses)
        changed = [*self._changed(responses), *self._changed_times(responses)]
        window = {"occurred_not_before": self._requested_at, "occurred_not_after": max(self._requested_at, now)}
        common: dict[str, Any] = {**envelope, **window, "origin": ConfigOrigin.DESCRIBE}
        return [
            *(ConfigObserved(**common, topic="", key=MIN_ISR, **of_brokers) for _ in [0] if of_brokers),
            *(ConfigObserved(**common, topic=topic, key=key, value=value) for topic, key, value in changed),
        ]

    def _changed_minima(self, responses: Responses) -> dict[str, Any]:
        """Return the minimum of each broker's own configuration, if one of them is new; all of them at once."""
        described = {
            int(name): one.values[MIN_ISR]
            for name, one in _of_kind(Resource.BROKER, responses)
            if MIN_ISR in one.values
        }
        answered = {broker: _number(each.value) for broker, each in described.items()}
        alone = {broker for broker, each in described.items() if each.source == _OF_BROKER_ALONE}
        self._set_alone = (self._set_alone - described.keys()) | alone
        before, self._minima = self._minima, self._minima | answered
        if self._minima == before:
            return {}
        return {"brokers": tuple(self._minima), "values": tuple(self._minima.values())}

    def _changed(self, responses: Responses) -> Iterator[tuple[str, str, str | None]]:
        for name, described in _of_kind(Resource.TOPIC, responses):
            if described.error:
                on = f"topic {name}"
                self.refusal = _missing_permission(described.error, DESCRIBE_TOPIC_CONFIGS, on=on) or self.refusal
                continue
            if MIN_ISR in described.values and described.values[MIN_ISR].source in _OF_BROKER:
                self._probe = name
            for key, value in _values(described.values, is_of_all=not self._set_alone):
                if (name, key) not in self._reported or self._reported[name, key] != value:
                    self._reported[name, key] = value
                    yield name, key, value

    def _changed_times(self, responses: Responses) -> Iterator[tuple[str, str, str | None]]:
        """Give the times of the brokers that changed; without the permission Kafka's defaults are assumed.

        The longest, where brokers disagree: what follows from a time that is too short would be wrong.
        """
        longest: dict[str, str] = {}
        for _, described in _of_kind(Resource.BROKER, responses):
            self.broker_refusal = _missing_permission(described.error, DESCRIBE_BROKER_CONFIGS) or self.broker_refusal
            for key in () if described.error else CLUSTER_TIMES:
                value = described.values[key].value if key in described.values else None
                if value is not None and _number(value) >= _number(longest.get(key)):
                    longest[key] = value
        for key, value in longest.items():
            if self._times.get(key) != value:
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


def _number(value: str | None) -> int:
    """Read a number; -1 for none."""
    return int(value) if value is not None and value.strip().isdecimal() else -1


def _missing_permission(error: int, permission: Permission, *, on: str = "") -> PermissionDenied | None:
    return PermissionDenied(permission, on=on) if error in _AUTHORIZATION_FAILED else None


def _values(entries: Mapping[str, DescribedValue], *, is_of_all: bool) -> Iterator[tuple[str, str | None]]:
    """Give the configurations of a topic that matter here.

    A minimum that is neither the topic's nor the cluster's is that of the broker which was asked, and of no other. That
    of the cluster does not count for a broker that has another one of its own: then each broker says its own.
    A topic is diskless by its own value: the broker's default is only that of new topics, and not of internal ones.
    Of brokers that do not know the configuration, as those of Apache Kafka, there is nothing to say.
    """
    minimum = entries.get(MIN_ISR)
    of_leader = _OF_BROKER if is_of_all else _OF_BROKER | {_OF_CLUSTER}
    yield MIN_ISR, None if minimum is None or minimum.source in of_leader else minimum.value
    flags = [entries[key] for key in DISKLESS_KEYS if key in entries]
    if flags:
        own = (each.value for each in flags if each.source == _OWN)
        yield DISKLESS, next(filter(is_true, own), None)


# DescribeConfigs on a connection of its own: only the keys that matter.
#
# Topics are asked for at any broker, the next one where one fails; the configuration of a broker at that broker. Where
# what brokers advertise is not reached, bootstrap servers are asked: one of them may be that broker.


_KEYS: Final = {Resource.TOPIC: [MIN_ISR, *DISKLESS_KEYS], Resource.BROKER: [MIN_ISR, *CLUSTER_TIMES]}
_ATTEMPTS: Final = 2
_BROKERS_AT_ONCE: Final = 16


class DescribedConfigs:
    """Describes configurations: one future per resource; one request for topics at a time, and brokers side by side.

    So brokers whose addresses lead nowhere cost a round the timeout of a few of them, and not the sum of all.

    Args:
        dial: opens a connection.
        bootstrap: asked where what brokers advertise is not reached.
        name: prefix of the threads' names.
        seconds: timeout of each request.
    """

    def __init__(self, dial: Dial, bootstrap: Sequence[Address], *, name: str, seconds: float) -> None:
        self._brokers: Mapping[int, Address] = {}
        self._cluster_id: str | None = None
        self._dial, self._seconds = dial, seconds
        self._bootstrap, self._turns = bootstrap, AddressRotation(bootstrap)
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name} configurations")
        self._side_by_side = ThreadPoolExecutor(
            _BROKERS_AT_ONCE, thread_name_prefix=f"{name} configurations of brokers"
        )

    def at(self, view: ClusterView) -> DescribedConfigs:
        """Ask the brokers of a view from now on, and none of another cluster; return itself."""
        self._brokers = {broker: Address(*at) for broker, at in view.brokers.items()}
        self._cluster_id = view.cluster_id
        return self

    def describe(self, resources: Sequence[Described]) -> Responses:
        """Request the configuration of topics, or of one broker."""
        futures: Responses = {resource: Future() for resource in resources}
        is_broker = resources[0].kind is Resource.BROKER
        (self._side_by_side if is_broker else self._thread).submit(self._describe, futures)
        return futures

    def close(self) -> None:
        """End the threads and the connections; a request in flight ends by its own timeout, others are not sent."""
        self._side_by_side.shutdown(wait=False, cancel_futures=True)
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
            try:
                return _with_probe(connection, resources[0], answer) if connection.address == own else answer
            finally:
                connection.close()
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


def _with_probe(
    connection: Connection, broker: Described, answer: dict[str, ResourceConfig]
) -> dict[str, ResourceConfig]:
    """Read the minimum of a broker that may not be described itself from what it says of a topic without one."""
    described = answer.get(broker.name)
    if described is None or described.error not in _AUTHORIZATION_FAILED or not broker.probe:
        return answer
    shown = describe_configs(connection, Resource.TOPIC, [broker.probe], [MIN_ISR]).get(broker.probe)
    minimum = None if shown is None or shown.error else shown.values.get(MIN_ISR)
    values = {MIN_ISR: minimum} if minimum is not None and minimum.source in _OF_BROKER else {}
    return {broker.name: described._replace(values=values)}
