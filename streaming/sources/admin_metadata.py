"""The cluster's metadata, read in a thread and verified with a second broker where a response may be stale.

Depends on confluent-kafka's admin client and the monotonic clock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import Micros
from streaming.sources.address import Address
from streaming.sources.admin_clients import AdminClients
from streaming.sources.admin_topic_ids import TopicIds
from streaming.sources.admin_view import ClusterView, may_be_stale, read_view
from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.admin import AdminClient

    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_reassignments import ReassignmentsRound

_RECHECKS: Final = 3  # a response that may be stale is accepted when two brokers agree, or after so many rechecks
_RECHECK_AFTER: Final = Micros(300_000)  # longer than a healthy broker lags behind the metadata log
_LONGEST_DOUBT: Final = Micros(15_000_000)  # then what a broker says is accepted: no other one may ever be reached
_MAX_HOLD: Final = Micros(1_000_000)  # how long a view waits for the id of a new topic
_SLOW_AFTER: Final = Micros(1_000_000)  # then another broker is asked, too
_MAX_IN_FLIGHT: Final = 4
_TIMEOUTS_KEPT: Final = 3  # a request waits for a thread for one of them at most, and takes as long


@dataclass(frozen=True, slots=True)
class Read:
    """A view with the monotonic times of its request and its response."""

    view: ClusterView
    began: Micros
    ended: Micros


class MetadataRound:
    """Reads the metadata from one broker at a time, and from further brokers while none responds.

    librdkafka sends a metadata request to the broker it used last, even when that hangs, and a client stays with the
    broker it was created with. So every retry has a client of its own; the client with the first response is used from
    then on, for all other requests too, because it has the current leaders.

    Invariant: while ``_suspects`` is not empty, the last accepted view was received before all of them, and none of
    them was returned by :meth:`take`.

    Args:
        connect: creates a client for a list of addresses.
        bootstrap_servers: ``host:port``, comma-separated.
        reassignments: requested after each response.
        cluster: replaces the cluster id where the Kafka version has none.
        name: prefix of the thread names.
        seconds: timeout of each request.
    """

    def __init__(  # noqa: PLR0913 - what it asks with, and for
        self,
        connect: Callable[[str], AdminClient],
        bootstrap_servers: str,
        reassignments: ReassignmentsRound,
        *,
        cluster: str,
        name: str,
        seconds: float,
    ) -> None:
        self._clients = AdminClients(connect)
        self.client = self._clients.made(bootstrap_servers)
        self._bootstrap = [address.strip() for address in bootstrap_servers.split(",")]
        self._addresses = self._bootstrap
        self._next_address = 0
        self._cluster = cluster
        self._seconds = seconds
        self._ids = TopicIds(seconds)
        self._reassignments = reassignments
        self._threads = ThreadPoolExecutor(max_workers=_MAX_IN_FLIGHT, thread_name_prefix=name)
        self._in_flight: dict[Future[Read], AdminClient] = {}
        self._requested_at = Micros(0)
        self._deadline = Micros(0)
        self._held: Read | None = None
        self._suspects: list[ClusterView] = []
        self._doubted_at = Micros(0)

    def ask(self) -> None:
        """Send the request, unless one is in flight; to another broker while the last response may be stale."""
        used = {self.client, *self._in_flight.values()}
        self._clients.close_unused(used, monotonic(), int(_TIMEOUTS_KEPT * self._seconds * 1_000_000))
        if not self._in_flight:
            self._deadline = Micros(monotonic() + int(self._seconds * 1_000_000))
            self._submit(self._another() if self._suspects and not self._has_doubted_for_long() else self.client)

    def ask_ids(self, view: ClusterView) -> None:
        """Request every topic id again: a topic that was recreated may have the same placement as before."""
        self._ids.ask(self.client, view.topics, everything=True)

    def recheck_after(self) -> Micros | None:
        """Return how soon to ask again because the last response may be stale, None when it is not."""
        return _RECHECK_AFTER if self._suspects else None

    @property
    def refusals(self) -> tuple[ConnectionRefused | None, ...]:
        """What is missing to see a topic, and to see what is being reassigned."""
        return self._ids.refusal, self._ids.others_refusal, self._reassignments.refusal

    def pending(self) -> list[Future[Any]]:
        """Return the futures to wait for."""
        separate = (*self._ids.pending(), *self._reassignments.pending())
        return [*separate, *(reading for reading in self._in_flight if not reading.done())]

    def take(self, before: ClusterView | None) -> Read | None:
        """Return the newest view once it has its topic ids and is not suspected to be stale.

        Raises:
            KafkaException: no broker responded in time.
        """
        self._take_response(before)
        if self._held is None:
            return None
        view = self._held.view
        self._ids.take(view.cluster_id)
        if self._ids.pending() and (before is None or monotonic() - self._held.ended < _MAX_HOLD):
            return None
        if self._reassignments.pending():
            return None
        read, self._held = self._held, None
        self._ids.forget_others(view.topics)
        unsettled = self._ids.unsettled(view.topics)
        kept = self._ids.hidden.union(unsettled)
        if before is None and unsettled:
            if self._ids.failure is not None:
                raise self._ids.failure
            return None
        completed = self._completed(view, before, kept)
        reassignments = self._reassignments.take()
        return replace(read, view=completed if reassignments is None else completed.with_reassignments(reassignments))

    def close(self) -> None:
        """Stop the threads and close the clients; a request in flight ends by its own timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._clients.close()
        self._reassignments.close()

    def _submit(self, client: AdminClient) -> None:
        self._requested_at = monotonic()
        seconds = (self._deadline - self._requested_at) / 1_000_000
        reading = self._threads.submit(self._read, client, seconds)
        self._in_flight[reading] = client
        self._clients.is_read_by(client, reading)

    def _read(self, client: AdminClient, seconds: float) -> Read:
        began = monotonic()
        view = read_view(client, cluster=self._cluster, seconds=seconds)
        return Read(view, began, monotonic())

    def _take_response(self, before: ClusterView | None) -> None:
        read = self._first_response()
        if read is None:
            return
        is_doubtful = before is not None and may_be_stale(before.without(self._ids.hidden), read.view)
        if is_doubtful and not (self._is_corroborated(read.view) or self._has_doubted_for_long()):
            self._doubted_at = self._doubted_at if self._suspects else monotonic()
            self._suspects.append(read.view)
            return
        self._suspects, self._held = [], read
        vanished = () if before is None else before.topics.keys() - read.view.topics.keys()
        self._ids.ask(self.client, read.view.topics, vanished=vanished)
        self._reassignments.ask([Address(host, port) for host, port in read.view.brokers.values()])

    def _has_doubted_for_long(self) -> bool:
        return bool(self._suspects) and monotonic() - self._doubted_at > _LONGEST_DOUBT

    def _is_corroborated(self, view: ClusterView) -> bool:
        """Return whether another broker agrees, or there were enough rechecks: more of them where brokers disagree."""
        is_alone = {view.answered_by} == {other.answered_by for other in self._suspects}
        return len(self._suspects) >= (_RECHECKS if is_alone else 2 * _RECHECKS) or any(
            view.answered_by != other.answered_by and (view.brokers, view.topics) == (other.brokers, other.topics)
            for other in self._suspects
        )

    def _first_response(self) -> Read | None:
        """Return the first response that arrived; raise a failure when no other request is in flight."""
        for reading in [reading for reading in self._in_flight if reading.done()]:
            client = self._in_flight.pop(reading)
            failure = reading.exception()
            if failure is None:
                # Requests still in flight were sent earlier and may return older metadata later.
                self._in_flight.clear()
                self.client = client
                read = reading.result()
                brokers = [str(Address(host, port)) for host, port in read.view.brokers.values()]
                self._addresses = brokers or self._addresses
                return read
            if not self._in_flight and self._suspects and not self._has_doubted_for_long():
                # Only the second opinion is missing. What brokers advertise may not be reached from here.
                self._addresses = self._bootstrap
                return None
            if not self._in_flight:
                raise failure
        self._ask_another()
        return None

    def _ask_another(self) -> None:
        is_slow = bool(self._in_flight) and monotonic() - self._requested_at > _SLOW_AFTER
        if is_slow and self._deadline - monotonic() > _SLOW_AFTER and len(self._in_flight) < _MAX_IN_FLIGHT:
            self._submit(self._another())

    def _another(self) -> AdminClient:
        """Create a client for the next broker."""
        self._next_address += 1
        return self._clients.made(self._addresses[self._next_address % len(self._addresses)])

    def _completed(self, view: ClusterView, before: ClusterView | None, kept: frozenset[str]) -> ClusterView:
        """Add the topic ids; a topic whose id is not settled, or that is hidden, stays as it was before."""
        old = {} if before is None else {name: parts for name, parts in before.topics.items() if name in kept}
        now = {name: parts for name, parts in view.topics.items() if name in self._ids.by_name and name not in kept}
        ids = {name: self._ids.by_name[name] for name in now}
        old_ids = {} if before is None else {name: before.topic_ids[name] for name in old}
        return replace(view, topics={**now, **old}, topic_ids={**ids, **old_ids})
