"""The offsets that leaders return to ListOffsets, requested from each leader separately: a hung one delays no other.

Depends on confluent-kafka's admin client and the contracts. ListOffsets: earliest = log start, latest with
``read_uncommitted`` = high watermark, with ``read_committed`` = last stable offset (KIP-98). Clients cannot read a
leader's log end offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.contracts.identifiers import BrokerId, Micros, Offset
from streaming.contracts.observations import Observation
from streaming.contracts.sample_blocks import offsets_in_blocks
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.sources.admin_refusals import missing_permission
from streaming.sources.permissions import DESCRIBE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_view import ClusterView

_REQUESTS: Final[dict[str, tuple[OffsetSpec, IsolationLevel]]] = {
    "log_start_offset": (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
    "high_watermark": (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    "last_stable_offset": (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
}


@dataclass(frozen=True, slots=True)
class _Request:
    """The requests to one leader, and their client: one that is garbage-collected may never complete its futures."""

    client: AdminClient
    view: ClusterView
    at: Micros
    responses: dict[str, dict[TopicPartition, Future[ListOffsetsResultInfo]]]

    def futures(self) -> Iterator[Future[ListOffsetsResultInfo]]:
        for responses in self.responses.values():
            yield from responses.values()


@dataclass(slots=True)
class OffsetsRound:
    """The requests in flight, one set per leader.

    Invariant: a leader gets no new request while one of its responses is outstanding.
    """

    seconds: float
    refusal: ConnectionRefused | None = None
    _in_flight: dict[BrokerId, _Request] = field(default_factory=dict)

    def ask(self, client: AdminClient, view: ClusterView, now: Micros) -> None:
        """Request the offsets of its partitions from every leader without outstanding responses."""
        for broker, partitions in view.led_by().items():
            if broker not in self._in_flight:
                self._in_flight[broker] = _Request(client, view, now, self._requests(client, partitions))

    def _requests(self, client: AdminClient, partitions: list[tuple[str, int]]) -> dict[str, Any]:
        return {
            name: client.list_offsets(
                {TopicPartition(topic, partition): spec for topic, partition in partitions},
                isolation_level=isolation,
                request_timeout=self.seconds,
            )
            for name, (spec, isolation) in _REQUESTS.items()
        }

    def pending(self) -> list[Future[ListOffsetsResultInfo]]:
        """Return the futures to wait for: one per request is enough, because they complete together."""
        open_ones = (
            next((future for future in responses.values() if not future.done()), None)
            for request in self._in_flight.values()
            for responses in request.responses.values()
        )
        return [future for future in open_ones if future is not None]

    def take(self, view: ClusterView, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Return the offsets of leaders that responded since the last call, without partitions that failed.

        Partitions whose leader or topic id has changed since the request are left out, too: librdkafka asks the leader
        that it knows at that moment, so it is not certain who responded, and for which topic of that name.
        """
        ready = {
            broker: request
            for broker, request in self._in_flight.items()
            if all(future.done() for future in request.futures())
        }
        for broker in ready:
            del self._in_flight[broker]
        return [
            block
            for broker, request in ready.items()
            for block in offsets_in_blocks(
                sample for sample in self._samples(broker, request, envelope, now) if _is_current(sample, view)
            )
        ]

    def _samples(
        self, broker: BrokerId, request: _Request, envelope: dict[str, Any], now: Micros
    ) -> Iterator[ReplicaOffsetsObserved]:
        by_partition: dict[tuple[str, int], dict[str, Any]] = {}
        for name, responses in request.responses.items():
            for partition, offset in self._offsets(responses.items()):
                by_partition.setdefault((partition.topic, partition.partition), {})[name] = offset
        for (topic, number), offsets in by_partition.items():
            yield ReplicaOffsetsObserved(
                **{**envelope, "occurred_not_before": request.at, "occurred_not_after": max(request.at, now)},
                topic_id=request.view.topic_ids[topic],
                topic=topic,
                partition=number,
                broker=broker,
                **offsets,
            )

    def _offsets(
        self, responses: Iterable[tuple[TopicPartition, Future[ListOffsetsResultInfo]]]
    ) -> Iterator[tuple[TopicPartition, Offset]]:
        for partition, future in responses:
            failure = future.exception()
            if failure is None:
                offset = future.result().offset  # type: ignore[attr-defined]
                if offset >= 0:  # librdkafka returns a negative offset, without an error, where there was no response
                    yield partition, Offset(offset)
            else:
                self.refusal = (
                    missing_permission(failure, DESCRIBE_TOPICS, on=f"topic {partition.topic}") or self.refusal
                )


def _is_current(sample: ReplicaOffsetsObserved, view: ClusterView) -> bool:
    """Return whether the partition of a sample is still the one that its broker leads."""
    partition = view.topics.get(sample.topic, {}).get(sample.partition)
    return (
        partition is not None
        and partition.leader == sample.broker
        and view.topic_ids.get(sample.topic) == sample.topic_id
    )
