"""The cluster's metadata, read in threads and verified with a second broker where a response may be stale.

Depends on what asks one broker (:mod:`broker`) and the monotonic clock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros, synthetic_topic_id
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import DESCRIBE_TOPICS, PROBE_PREFIX, PermissionDenied, Probe
from streaming.sources.polling.view import (
    LONGEST_DOUBT,
    RECHECK_AFTER,
    ClusterView,
    Uncertainty,
    goes_back,
    may_be_stale,
    with_leaders,
)
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.protocol.identity import NodeIdentity, Responder, Role, WrongNode
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import ClusterId
    from streaming.sources.polling.broker import Broker, BrokerOpener, BrokerReply
    from streaming.sources.polling.reassignments import ReassignmentsRound

_SLOW_AFTER: Final = Micros(1_000_000)  # then another broker is asked, too
_MAX_IN_FLIGHT: Final = 4
_THREADS: Final = 4 * _MAX_IN_FLIGHT  # a request that was given up ends by its own timeout, which includes connecting
ELSEWHERE_EVERY: Final = Micros(30_000_000)  # then another broker is asked: one without controllers sees no change
NO_TOPIC: Final = f"{PROBE_PREFIX}topic"
"""Asked for by name: brokers leave topics that may not be described out of a list, but deny a name, existing or not."""


@dataclass(frozen=True, slots=True)
class TimedView:
    """A view with the monotonic times of its request and its response."""

    view: ClusterView
    began: Micros
    ended: Micros


class _Response(NamedTuple):
    """Response of a broker, its time, and the address for the next question."""

    answer: BrokerReply
    began: Micros
    ended: Micros
    broker: Broker


class MetadataRound:
    """Reads the metadata from one broker at a time, and from further brokers while none responds.

    The broker that responded is asked again on the same connection, for ``ELSEWHERE_EVERY``; a recheck, and a retry,
    are sent to another one on a connection of its own, and who responds first is asked from then on. So there is one
    connection, and while one of them is slow or in doubt, at most ``_MAX_IN_FLIGHT`` more.

    Invariant: no view that is in doubt was returned by :meth:`take`.

    Args:
        connect: opens a way to a broker.
        bootstrap: the first brokers to ask, and those to ask where what brokers advertise is not reached.
        reassignments: requested after each response.
        name: prefix of the thread names.
        seconds: time limit of a round: whatever is slow, it has a view by then, or fails.
        probe: the topic that does not exist.
    """

    def __init__(  # noqa: PLR0913 - what a poller configures
        self,
        connect: BrokerOpener,
        bootstrap: Sequence[Address],
        reassignments: ReassignmentsRound,
        *,
        name: str,
        seconds: float,
        probe: Probe | None = None,
    ) -> None:
        self._connect = connect
        self._probe = probe or Probe(NO_TOPIC)
        self._denied: dict[str, Probe] = {}
        self._unasked: frozenset[str] = frozenset()
        self._bootstrap, self._turns = bootstrap, AddressRotation(bootstrap)
        self._clusters: Future[dict[Address, ClusterId]] | None = None
        self._micros = int(seconds * 1_000_000)
        self._reassignments = reassignments
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix=name)
        self._broker: Broker | None = None
        self._in_flight: list[Future[_Response]] = []
        self._untried: list[Address] = []
        self._failures: list[BaseException] = []
        self._listed_before: Collection[str] = ()
        self._requested_at = Micros(0)
        self._deadline = Micros(0)
        self._held: TimedView | None = None
        self._returned: ClusterView | None = None
        self._compared: ClusterView | None = None
        self._doubt = Uncertainty()
        self._refusal: ConnectionRefused | None = None
        self._others_refusal: ConnectionRefused | None = None
        self.elsewhere_due, self._is_elsewhere = Timer(ELSEWHERE_EVERY), False
        self._cluster = OwnCluster()

    def ask(self, before: ClusterView | None) -> None:
        """Send the request, unless one is in flight; to another broker while the last response may be stale.

        A view that is held for the reassignments is not replaced: they would have been asked for before the new one.

        Args:
            before: the last view that :meth:`take` returned; if there is none, what an earlier collector polled.
        """
        if self._in_flight or self._held is not None:
            return
        names, now = frozenset(() if before is None else before.topics), monotonic()
        self._is_elsewhere = self.elsewhere_due.take_due(now)
        self._unasked = frozenset(
            name for name, each in self._denied.items() if name in names and not each.take_due(now)
        )
        is_probed = self._is_elsewhere and self._probe.take_due(now)
        self._listed_before = names - self._unasked | ({self._probe.name} if is_probed else frozenset())
        self._cluster.expect(None if before is None else before.cluster_id)
        self._deadline = Micros(monotonic() + self._micros)
        is_other = self._broker is None or self._doubt.needs_recheck or self._is_elsewhere
        connected = None if self._broker is None else self._broker.address
        self._untried, self._failures = self._turns.next(connected, is_asked=is_other), []
        if is_other and self._untried:
            self._submit(self._untried.pop(0))
        else:
            self._submit_connected()

    def recheck_after(self) -> Micros | None:
        """Return how soon to ask again because the last response may be stale, None when it is not."""
        return RECHECK_AFTER if self._doubt.is_open else None

    @property
    def refusals(self) -> tuple[ConnectionRefused | None, ...]:
        """Permissions missing to see a topic, topics of other names, and reassignments."""
        return self._refusal, self._others_refusal, self._reassignments.refusal

    def pending(self) -> list[Future[Any]]:
        """Return the futures to wait for."""
        return [*self._reassignments.pending(), *(each for each in self._in_flight if not each.done())]

    def take(self, before: ClusterView | None, remembered: ClusterView | None = None) -> TimedView | None:
        """Return the newest view, once it is not suspected to be stale.

        Args:
            before: the cluster as it is known.
            remembered: if there is none, the topics and leader epochs that an earlier collector polled.

        Raises:
            ConnectionRefused: no broker responded in time.
            ServiceRefused: none of them may be asked, or the bootstrap servers are of several clusters.
        """
        self._require_one_cluster()
        self._take_response(before, remembered)
        if self._held is None or self._reassignments.pending():
            return None
        read, self._held = self._held, None
        reassignments = self._reassignments.take()
        if before is not None and self._became_late(before, read.view):
            return None
        self._returned = read.view
        return read if reassignments is None else replace(read, view=read.view.with_reassignments(reassignments))

    def close(self) -> None:
        """Stop the threads and hang up; a request in flight ends by its own timeout."""
        self._abandon()
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._reassignments.close()

    def _submit_next(self) -> None:
        """Ask the next broker that was not tried, or who responded before: as the last one, or as the second."""
        if self._untried and not (self._is_elsewhere and self._broker is not None):
            self._submit(self._untried.pop(0))
        else:
            self._submit_connected()

    def _submit_connected(self) -> None:
        """Ask who responded before; the connection is of this request from now on."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            self._submit(broker)

    def _submit(self, asked: Broker | Address) -> None:
        self._requested_at = monotonic()
        self._in_flight.append(self._threads.submit(self._respond, asked, self._listed_before, self._deadline))

    def _respond(self, asked: Broker | Address, listed_before: Collection[str], deadline: Micros) -> _Response:
        broker = self._connect(asked) if isinstance(asked, Address) else asked
        began = monotonic()
        try:
            answer = broker.answer(listed_before, deadline)
        except BaseException:
            broker.close()
            raise
        return _Response(answer, began, monotonic(), broker)

    def _take_response(self, before: ClusterView | None, remembered: ClusterView | None) -> None:
        response = self._first_response()
        if response is None:
            return
        (view, hidden, denied), began, ended, broker = response
        if self._clusters is None:
            self._clusters = self._threads.submit(self._clusters_beside, broker.address, view)
        self._note_denied(denied, view)
        hidden = hidden - {self._probe.name} | self._unasked.difference(view.topics)
        last = before or remembered
        seen = None if last is None else last.without(hidden)
        is_doubtful = goes_back if before is None else self._is_doubtful
        if seen is not None and is_doubtful(seen, view) and not self._doubt.ends_with(seen, view):
            return
        view = replace(_completed(view, last, hidden), is_partial=self._others_refusal is not None)
        self._doubt, self._held, self._compared = Uncertainty(), TimedView(view, began, ended), seen
        self._reassignments.ask(self._turns.next(None, is_asked=False), view.cluster_id)

    def _clusters_beside(self, address: Address, view: ClusterView) -> dict[Address, ClusterId]:
        """Ask the bootstrap servers that are none of the brokers that a view lists of which cluster they are."""
        listed = {address, *(Address(*at) for at in view.brokers.values())}
        others = [server for server in self._bootstrap if server not in listed]
        return {address: view.cluster_id, **clusters_of(self._connect, others, Micros(monotonic() + self._micros))}

    def _require_one_cluster(self) -> None:
        if self._clusters is not None and self._clusters.done():
            refusal = several_clusters(self._clusters.result())
            if refusal is not None:
                raise refusal

    def _note_denied(self, denied: frozenset[str], view: ClusterView) -> None:
        now, own = monotonic(), self._probe.name
        if own in self._listed_before:
            self._probe.note(now, is_denied=own in denied)
            self._others_refusal = others_denied(view) if own in denied else None
        before, asked = self._denied, denied - {own}
        still = asked | self._unasked.difference(view.topics)
        self._denied = {name: before.get(name) or Probe(name) for name in still}
        for name in asked:
            self._denied[name].note(now, is_denied=True)
        if before.keys() - still:  # one of them is visible now, or gone: so may others be
            self.permissions_changed()
        self._refusal = PermissionDenied(DESCRIBE_TOPICS, on=f"topic {min(still)}") if still else None

    def permissions_changed(self) -> None:
        """Ask again, at the next opportunity, for what was denied."""
        for each in (self._probe, *self._denied.values()):
            each.expire()

    def _is_doubtful(self, before: ClusterView, view: ClusterView) -> bool:
        """Return whether a view may be stale, or is of a broker that is asked now and then, and shows any change.

        A broker answers in order, but it may lag behind what others have shown of single partitions since. Epochs below
        those that it has shown itself are of controllers that were restored.
        """
        is_of_other = self._is_elsewhere and view.answered_by != before.answered_by
        own = self._returned
        lags = own is not None and goes_back(before, view) and not goes_back(own, view)
        return may_be_stale(before, view) or lags or (is_of_other and view.topics != before.topics)

    def _became_late(self, before: ClusterView, view: ClusterView) -> bool:
        """Return whether single partitions have shown higher epochs while a view was held for the reassignments."""
        return goes_back(before, view) and not (self._compared is not None and goes_back(self._compared, view))

    def _first_response(self) -> _Response | None:
        """Return the first response that arrived; raise the failure of a round in which none did."""
        ended = [request for request in self._in_flight if request.done()]
        self._in_flight = [request for request in self._in_flight if request not in ended]
        for request in ended:
            failure = request.exception() or self._cluster.refusal_of(request.result(), self._turns.advertised)
            if failure is None:
                self._in_flight += ended[ended.index(request) + 1 :]
                return self._accepted(request.result())
            self._failures.append(failure)
        if self._in_flight or ended:
            self._retry(is_failed=bool(ended))
        return None

    def _accepted(self, response: _Response) -> _Response:
        """Ask who responded from now on; requests still in flight were sent earlier and may return older metadata."""
        self._abandon()
        if self._broker is not None:
            self._broker.close()
        self._broker = response.broker
        brokers = [Address(host, port) for host, port in response.answer.view.brokers.values()]
        self._turns.advertised = brokers or self._turns.advertised
        return response

    def _retry(self, *, is_failed: bool) -> None:
        """Ask another broker where one has failed or is slow; end the round where there is none, or no time."""
        now = monotonic()
        if now > self._deadline:
            self._abandon()
        elif len(self._in_flight) < _MAX_IN_FLIGHT and (is_failed or now - self._requested_at > _SLOW_AFTER):
            self._submit_next()
        if not self._in_flight and not self._doubt.needs_recheck:
            if self._cluster.is_another_after(self._failures):
                return
            raise next((each for each in self._failures if isinstance(each, ServiceRefused)), None) or (
                self._failures[0] if self._failures else ConnectionRefused("no broker responds in time")
            )

    def _abandon(self) -> None:
        """Close the pending connection after its response."""
        for request in self._in_flight:
            request.add_done_callback(_hang_up)
        self._in_flight = []


class OwnCluster:
    """The cluster that is polled: an address may lead to another one, but all do only where it was rebuilt."""

    def __init__(self) -> None:
        self._id: ClusterId | None = None
        self._answered: dict[Address, ClusterId] = {}
        self._is_any, self._others = False, 0
        self._missed_since: Micros | None = None

    def expect(self, cluster_id: ClusterId | None) -> None:
        """Expect answers of this cluster in the next round, None for any."""
        self._id, self._others = cluster_id, 0

    def refusal_of(self, response: _Response, advertised: Collection[Address]) -> ServiceRefused | None:
        """Hang up on a broker of another cluster, and return its refusal; None for one of this cluster."""
        view, address = response.answer.view, response.broker.address
        if self._is_any or self._id in {None, view.cluster_id}:
            self._answered, self._is_any, self._missed_since = {address: view.cluster_id}, False, None
            return None
        response.broker.close()
        self._others += 1
        if address not in advertised and self._answered:
            return several_clusters({**self._answered, address: view.cluster_id})
        meant, answered_by = NodeIdentity(Role.BROKER, None, str(self._id)), view.answered_by
        by = Responder(meant, False, answered_by if answered_by >= 0 else None, view.cluster_id, Role.BROKER)
        return WrongNode(address, by)

    def is_another_after(self, failures: Sequence[BaseException]) -> bool:
        """Return whether any cluster is taken next: all who answer are of another one, and have been for a while.

        They have to be for so long only while there are some who do not answer.
        """
        if self._others:
            now = monotonic()
            self._missed_since = self._missed_since or now
            self._is_any = len(failures) <= self._others or now - self._missed_since > LONGEST_DOUBT
        return self._is_any


def others_denied(view: ClusterView) -> PermissionDenied:
    """Return the refusal of topics that a view may leave out, where one that does not exist is denied."""
    return PermissionDenied(DESCRIBE_TOPICS, on="topics of other names" if view.topics else "")


def _hang_up(request: Future[_Response]) -> None:
    if not request.cancelled() and request.exception() is None:
        request.result().broker.close()


def _completed(view: ClusterView, before: ClusterView | None, hidden: frozenset[str]) -> ClusterView:
    """Leave what is hidden as it was before, and the id of a topic where this broker is too old to have ids."""
    if before is None or before.cluster_id != view.cluster_id:
        return view
    ids = {
        name: before.topic_ids.get(name, topic_id)
        if topic_id == synthetic_topic_id(view.cluster_id, name)
        else topic_id
        for name, topic_id in view.topic_ids.items()
    }
    return replace(
        with_leaders(view, before) if view.unseen else view,
        hidden=hidden,
        topics={**view.topics, **{name: before.topics[name] for name in hidden}},
        topic_ids={**ids, **{name: before.topic_ids[name] for name in hidden}},
        partition_counts={**view.partition_counts, **{name: before.partition_count(name) for name in hidden}},
    )


# The order in which the addresses of a cluster's brokers are asked. Pure.


class AddressRotation:
    """Begins with another address each time that the first one is asked.

    Attributes:
        advertised: the brokers of the cluster, which may not be reached.

    Args:
        bootstrap: the first ones to ask, and those to ask where what brokers advertise is not reached.
    """

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self.advertised: list[Address] = []
        self._bootstrap = list(bootstrap)
        self._turn = 0

    def next(self, connected: Address | None, *, is_asked: bool) -> list[Address]:
        """Return each address once, but not the one that is connected.

        Args:
            connected: a broker.
            is_asked: the first one is; otherwise they are in reserve.
        """
        self._turn += is_asked
        of_both = (_rotated(addresses, self._turn) for addresses in (self.advertised, self._bootstrap))
        alternating = filter(None, chain.from_iterable(zip_longest(*of_both)))
        return [address for address in dict.fromkeys(alternating) if address != connected]


def _rotated(addresses: list[Address], by: int) -> list[Address]:
    start = by % len(addresses) if addresses else 0
    return addresses[start:] + addresses[:start]


# The check that bootstrap servers are of one cluster: otherwise the one that answers first would decide what is read.


def clusters_of(connect: BrokerOpener, servers: Iterable[Address], deadline: Micros) -> dict[Address, ClusterId]:
    """Ask servers, one after the other, which cluster each is of; those that do not answer are left out."""
    clusters: dict[Address, ClusterId] = {}
    for server in servers:
        with suppress(ConnectionRefused), closing(connect(server)) as broker:
            clusters[server] = broker.answer((), deadline).view.cluster_id
    return clusters


def several_clusters(clusters: Mapping[Address, ClusterId]) -> ServiceRefused | None:
    """Return the refusal of servers that are of several clusters, None if they are of one."""
    if len(set(clusters.values())) < 2:  # noqa: PLR2004 - several
        return None
    of_each = ", ".join(f"{server} is of {cluster}" for server, cluster in clusters.items())
    return ServiceRefused(f"cluster.bootstrap_servers names brokers of several clusters: {of_each}; name those of one")
