"""The reassignments in progress (KIP-455), which metadata does not distinguish from replicas that are missing.

Brokers forward the request to the active controller (in ZooKeeper mode they refuse it, and the next one is asked).
Without this a partition that is being moved looks under-replicated for as long as the move takes (KIP-352).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import DESCRIBE_CLUSTER, PermissionDenied
from streaming.sources.polling.view import Reassignment
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, ServiceRefused
from streaming.sources.protocol.identity import WrongNode, require_cluster
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.sources.polling.view import Reassignments
    from streaming.sources.protocol.addresses import Address
    from streaming.sources.protocol.connection import Connection, Dial

_NEWEST: Final = 0
_AWAITED_FOR: Final = Micros(1_000_000)  # then a view does without: a hung broker delays one view, not every one


class ReassignmentsRound:
    """Requests the reassignments, one request at a time on a thread of its own.

    Args:
        dial: opens a connection.
        name: prefix of the thread's name.
        seconds: timeout of each request.
    """

    def __init__(self, dial: Dial, *, name: str, seconds: float) -> None:
        self.refusal: ConnectionRefused | None = None
        self._dial, self._seconds = dial, seconds
        self._servers: list[Address] = []
        self._cluster_id: str | None = None
        self._next = 0
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name} reassignments")
        self._response: Future[Reassignments] | None = None
        self._asked_at = Micros(0)
        self._is_late = False
        self._last: Reassignments | None = None

    def ask(self, servers: Sequence[Address], cluster_id: str | None = None) -> None:
        """Send the request, unless one is outstanding; its answer is of a later time than what was read before.

        Args:
            servers: the brokers of the cluster, and others that lead to any of them.
            cluster_id: of the cluster; a broker of another one is not asked.
        """
        self._is_late = self._response is not None
        if self._response is None and servers:
            self._servers, self._cluster_id = list(servers), cluster_id
            self._asked_at = monotonic()
            self._response = self._thread.submit(self._ask)

    def pending(self) -> list[Future[Any]]:
        """Return the response that a view should wait for."""
        is_awaited = self._response is not None and monotonic() - self._asked_at < _AWAITED_FOR
        return [self._response] if is_awaited and self._response is not None and not self._response.done() else []

    def take(self) -> Reassignments | None:
        """Return what a view of the metadata that was read before :meth:`ask` can show; None if that is unknown.

        One that has ended since the view is in the last answer, so both answers count. Of brokers that follow the
        metadata log slowly a view shows one for as long; it is the next view that is right then.
        """
        response, before = self._response, self._last
        if response is None or not response.done():
            self._last = None
            return None
        self._response = None
        if self._is_late:  # it was asked for before the view was read
            self._last = None
            return None
        failure = response.exception()
        if failure is None:
            self._last, self.refusal = response.result(), None
            return {**(before or {}), **self._last}
        if isinstance(failure, ServiceRefused) and not isinstance(failure, WrongNode):  # which the samples report
            self.refusal = failure
        self._last = None
        if not isinstance(failure, ConnectionRefused):
            raise failure
        return None

    def close(self) -> None:
        """End the thread and the connection; a request in flight ends by its own timeout."""
        self._thread.submit(self._hang_up)
        self._thread.shutdown(wait=False)

    def _ask(self) -> Reassignments:
        """Ask on the connection that is open, else the next broker; the next round asks another one if that fails."""
        try:
            if self._connection is None:
                self._next += 1
                server = self._servers[self._next % len(self._servers)]
                self._connection = self._dial(server, response_seconds=self._seconds)
                require_cluster(self._connection, self._cluster_id)
            return listed(self._connection, self._seconds)
        except ConnectionRefused:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def listed(connection: Connection, seconds: float) -> Reassignments:
    """List what is being reassigned.

    Raises:
        ConnectionRefused: the broker does not answer, or cannot say; ``ServiceRefused`` if it never will.
    """
    version = connection.newest(ListPartitionReassignmentsRequest.API_KEY, _NEWEST, "ListPartitionReassignments")
    if version < 0:
        # No address: the next round asks another broker, and the same sentence is reported once.
        raise ServiceRefused(
            "brokers do not list reassignments before Kafka 2.4: a partition that is being moved looks under-replicated"
        )
    request: Any = ListPartitionReassignmentsRequest(version=version, timeout_ms=int(seconds * 1000), topics=None)
    error, reassignments = connection.call(request, ListPartitionReassignmentsResponse, _read)
    if error == CLUSTER_AUTHORIZATION_FAILED:
        raise PermissionDenied(DESCRIBE_CLUSTER)
    if error:
        raise ConnectionRefused(f"{connection.address} lists no reassignments (error {error})")
    return reassignments


def _read(response: Any) -> tuple[int, Reassignments]:  # noqa: ANN401 - kafka-python's messages ship no types
    return response.error_code, {
        (topic.name, part.partition_index): Reassignment(_ids(part.adding_replicas), _ids(part.removing_replicas))
        for topic in response.topics
        for part in topic.partitions
    }


def _ids(brokers: Sequence[int] | None) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers or ()))
