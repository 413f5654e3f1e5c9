"""The offsets of leaders, for logins that only librdkafka has: each is asked separately, so a hung one delays no other.

Depends on the contracts. ListOffsets: earliest = log start, latest with isolation ``read_uncommitted``
= high watermark, with ``read_committed`` = last stable offset (KIP-98). Clients cannot read a leader's log end offset.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streaming.contracts.identifiers import BrokerId, Micros, Offset
from streaming.contracts.sample_blocks import offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.errors import ConnectionRefused
from streaming.sources.address import Address
from streaming.sources.permissions import DESCRIBE_TOPICS, Denied
from streaming.sources.protocol.connection import CannotServe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming.contracts.observations import Observation
    from streaming.sources.admin_view import ClusterView

    Partition = tuple[str, int]

REQUESTS: Final = {  # timestamp and isolation level, as Kafka numbers them
    "log_start_offset": (-2, 0),
    "high_watermark": (-1, 0),
    "last_stable_offset": (-1, 1),
}
_NEWEST: Final = 7
_TOPIC_AUTHORIZATION_FAILED: Final = 29
_AT_ONCE: Final = 32  # leaders; more than that only wait where so many hang


class LeaderOffsets(NamedTuple):
    """What a leader answered.

    Attributes:
        by_partition: the offsets by field of a sample, without those of partitions that failed.
        denied: a topic that may not be described.
    """

    by_partition: dict[Partition, dict[str, Offset]]
    denied: str | None = None


class PartitionLeader(Protocol):
    """A broker that can be asked for the offsets of partitions that it leads.

    Attributes:
        address: where it was reached.
    """

    address: Address

    def offsets(self, partitions: Sequence[Partition]) -> LeaderOffsets:
        """Ask.

        Raises:
            ConnectionRefused: it does not respond.
        """

    def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to a leader, and the view that names its partitions."""

    view: ClusterView
    at: Micros
    response: Future[tuple[PartitionLeader, LeaderOffsets]]


class OffsetsRound:
    """The requests in flight, one per leader, and a connection to each.

    Invariant: a leader gets no new request while its response is outstanding.

    Args:
        connect: reaches a leader; None: nobody is asked.
        name: prefix of the threads' names.
    """

    def __init__(self, connect: Callable[[Address], PartitionLeader] | None, *, name: str) -> None:
        self.refusal: ConnectionRefused | None = None
        self._connect = connect
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix=f"{name} offsets")
        self._leaders: dict[BrokerId, PartitionLeader] = {}
        self._in_flight: dict[BrokerId, _Request] = {}

    def ask(self, view: ClusterView, now: Micros) -> None:
        """Request the offsets of its partitions from every leader without an outstanding response."""
        connect = self._connect
        if connect is None:
            return
        led = view.led_by()
        for broker in self._leaders.keys() - led.keys():
            self._leaders.pop(broker).close()
        for broker, partitions in led.items():
            if broker in view.brokers and broker not in self._in_flight:
                leader, address = self._leaders.pop(broker, None), Address(*view.brokers[broker])
                response = self._threads.submit(_respond, connect, leader, address, partitions)
                self._in_flight[broker] = _Request(view, now, response)

    def pending(self) -> list[Future[Any]]:
        """Return the futures to wait for."""
        return [request.response for request in self._in_flight.values() if not request.response.done()]

    def take(self, view: ClusterView, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Return the offsets of leaders that responded since the last call, without partitions that failed.

        Partitions whose leader or topic id has changed since the request are left out, too: it is not certain for which
        topic of that name who responded.
        """
        ready = {broker: request for broker, request in self._in_flight.items() if request.response.done()}
        for broker in ready:
            del self._in_flight[broker]
        return [
            block
            for broker, request in ready.items()
            for block in offsets_in_blocks(
                sample for sample in self._samples(broker, request, envelope, now) if _is_current(sample, view)
            )
        ]

    def close(self) -> None:
        """Hang up; a request in flight ends by its own timeout."""
        for request in self._in_flight.values():
            request.response.add_done_callback(_hang_up)
        for leader in self._leaders.values():
            leader.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _samples(
        self, broker: BrokerId, request: _Request, envelope: dict[str, Any], now: Micros
    ) -> Iterator[ReplicaOffsetsObserved]:
        failure = request.response.exception()
        if failure is not None:
            self.refusal = failure if isinstance(failure, CannotServe) else self.refusal
            if not isinstance(failure, ConnectionRefused):
                raise failure
            return
        self._leaders[broker], answer = request.response.result()
        if answer.denied is not None:
            self.refusal = Denied(DESCRIBE_TOPICS, on=f"topic {answer.denied}")
        for (topic, number), offsets in answer.by_partition.items():
            if topic not in request.view.topic_ids:
                continue
            window = {"occurred_not_before": request.at, "occurred_not_after": max(request.at, now)}
            yield ReplicaOffsetsObserved(
                **{**envelope, **window, **offsets},
                topic_id=request.view.topic_ids[topic],
                topic=topic,
                partition=number,
                broker=broker,
            )


def _respond(
    connect: Callable[[Address], PartitionLeader],
    leader: PartitionLeader | None,
    address: Address,
    partitions: Sequence[Partition],
) -> tuple[PartitionLeader, LeaderOffsets]:
    if leader is not None:
        with suppress(ConnectionRefused):  # a broker may end a connection, for instance with its login (KIP-368)
            if leader.address == address:
                return leader, leader.offsets(partitions)
        leader.close()
    leader = connect(address)
    try:
        return leader, leader.offsets(partitions)
    except BaseException:
        leader.close()
        raise


def _hang_up(response: Future[tuple[PartitionLeader, LeaderOffsets]]) -> None:
    if not response.cancelled() and response.exception() is None:
        response.result()[0].close()


def _is_current(sample: ReplicaOffsetsObserved, view: ClusterView) -> bool:
    """Return whether the partition of a sample is still the one that its broker leads."""
    partition = view.topics.get(sample.topic, {}).get(sample.partition)
    return (
        partition is not None
        and partition.leader == sample.broker
        and view.topic_ids.get(sample.topic) == sample.topic_id
    )
