"""The log positions that leaders tell, asked of each leader on its own, so that a hung one delays nobody.

Knows confluent-kafka's admin client and the contracts. ListOffsets: earliest = log start, latest with
``read_uncommitted`` = high watermark, with ``read_committed`` = last stable offset (KIP-98). A leader's log end is not
told to clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streaming.contracts.identifiers import BrokerId, Micros, Offset
from streaming.contracts.observations import Observation
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.sources.admin_refusals import forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

    from streaming.errors import ConnectionRefused
    from streaming.sources.admin_view import ClusterView

_QUESTIONS: Final[dict[str, tuple[OffsetSpec, IsolationLevel]]] = {
    "log_start_offset": (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
    "high_watermark": (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    "last_stable_offset": (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one leader was asked, and when. The client is held: one that is let go of may never give its answers."""

    client: AdminClient
    view: ClusterView
    at: Micros
    answers: dict[str, dict[TopicPartition, Future[ListOffsetsResultInfo]]]

    def futures(self) -> Iterator[Future[ListOffsetsResultInfo]]:
        for answers in self.answers.values():
            yield from answers.values()


@dataclass(slots=True)
class OffsetsRound:
    """Questions that are under way, one set a leader; a leader that still owes an answer is not asked again."""

    seconds: float
    refusal: ConnectionRefused | None = None
    _asked: dict[BrokerId, _Asked] = field(default_factory=dict)

    def ask(self, client: AdminClient, view: ClusterView, now: Micros) -> None:
        """Ask every leader that owes nothing for the positions of the partitions it leads."""
        for broker, partitions in view.led_by().items():
            if broker not in self._asked:
                self._asked[broker] = _Asked(client, view, now, self._questions(client, partitions))

    def _questions(self, client: AdminClient, partitions: list[tuple[str, int]]) -> dict[str, Any]:
        return {
            name: client.list_offsets(
                {TopicPartition(topic, partition): spec for topic, partition in partitions},
                isolation_level=isolation,
                request_timeout=self.seconds,
            )
            for name, (spec, isolation) in _QUESTIONS.items()
        }

    def pending(self) -> list[Future[ListOffsetsResultInfo]]:
        """Give what to wait for: one open answer a request is enough, they come together."""
        open_ones = (
            next((future for future in answers.values() if not future.done()), None)
            for asked in self._asked.values()
            for answers in asked.answers.values()
        )
        return [future for future in open_ones if future is not None]

    def take(self, envelope: dict[str, Any], now: Micros) -> list[Observation]:
        """Tell what leaders answered since the last call; partitions without an answer are absent."""
        ready = {
            broker: asked for broker, asked in self._asked.items() if all(future.done() for future in asked.futures())
        }
        for broker in ready:
            del self._asked[broker]
        return [item for broker, asked in ready.items() for item in self._told(broker, asked, envelope, now)]

    def _told(self, broker: BrokerId, asked: _Asked, envelope: dict[str, Any], now: Micros) -> Iterator[Observation]:
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for name, answers in asked.answers.items():
            for partition, offset in self._answered(answers.items()):
                found.setdefault((partition.topic, partition.partition), {})[name] = offset
        for (topic, number), offsets in found.items():
            yield ReplicaOffsetsObserved(
                **{**envelope, "occurred_not_before": asked.at, "occurred_not_after": max(asked.at, now)},
                topic_id=asked.view.topic_ids[topic],
                topic=topic,
                partition=number,
                broker=broker,
                **offsets,
            )

    def _answered(
        self, answers: Iterable[tuple[TopicPartition, Future[ListOffsetsResultInfo]]]
    ) -> Iterator[tuple[TopicPartition, Offset]]:
        for partition, future in answers:
            failure = future.exception()
            if failure is None:
                offset = future.result().offset  # type: ignore[attr-defined]
                if offset >= 0:  # librdkafka spells "no answer" as a negative offset, without an error
                    yield partition, Offset(offset)
            else:
                self.refusal = forbidden(failure, "DESCRIBE", f"topic {partition.topic}") or self.refusal
