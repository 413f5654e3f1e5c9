"""DescribeConfigs on direct connections, in the place of a client of librdkafka: only the keys that matter.

Topics are asked for at any broker, the next one where one fails; the configuration of a broker at that broker. Where
what brokers advertise is not reached, bootstrap servers are asked: one of them may be that broker.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from streaming.contracts.observations import CLUSTER_TIMES, DISKLESS_KEYS, MIN_ISR
from streaming.errors import ConnectionRefused
from streaming.sources.admin_turns import Turns
from streaming.sources.protocol.configs import Described, Resource, describe_configs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.sources.address import Address
    from streaming.sources.protocol.connection import Connection, Dial

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
        self._bootstrap, self._turns = bootstrap, Turns(bootstrap)
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
        except Exception as failure:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            for future in futures.values():
                future.set_exception(failure)
            return
        for resource, future in futures.items():
            error, entries = by_name.get(resource.name, Described(KafkaError.UNKNOWN, {}))
            if error:
                future.set_exception(KafkaException(KafkaError(error)))
            else:
                future.set_result(entries)

    def _answered(self, resources: Sequence[ConfigResource]) -> dict[str, Described]:
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
    ) -> tuple[Connection, dict[str, Described]]:
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


def _described(connection: Connection, resources: Sequence[ConfigResource]) -> dict[str, Described]:
    kind = resources[0].restype
    return describe_configs(connection, _KINDS[kind], [each.name for each in resources], _KEYS[kind])
