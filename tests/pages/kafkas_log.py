"""The state of a cluster at any moment, from Kafka's own log as Kafka's tool decodes it. Pure.

Moments are UTC microseconds. A record happens at the time of its batch; the log's order is the order of times, so the
time of a record is the newest until then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from deploy.sandbox.dump import DumpedRecord
from tests.chaos_kafka.compare import Facts, Truth, truth_of

NO_LEADER: Final = -1
_FENCES: Final = 1
_UNFENCES: Final = -1


class Counts(NamedTuple):
    """Numbers that the page of all clusters has of one."""

    offline: int
    under_min_isr: int
    at_min_isr: int
    fenced: int


class Moment(NamedTuple):
    """A cluster at a moment: partitions by topic and number, min ISR by topic, and whether each broker is fenced."""

    partitions: dict[tuple[str, int], Facts]
    min_isr: dict[str, int]
    brokers: dict[int, bool]

    def counts(self) -> Counts:
        """Count what is wrong, by Kafka's definitions of a partition that has or lacks enough replicas in sync."""
        states = [
            (facts, min(self.min_isr[topic], len(facts.replicas))) for (topic, _), facts in self.partitions.items()
        ]
        return Counts(
            offline=sum(facts.leader == NO_LEADER for facts, _ in states),
            under_min_isr=sum(len(facts.isr) < least for facts, least in states),
            at_min_isr=sum(len(facts.isr) == least for facts, least in states),
            fenced=sum(self.brokers.values()),
        )

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    def of_topic(self, topic: str) -> dict[int, Facts]:
        return {number: facts for (name, number), facts in self.partitions.items() if name == topic}


class KafkasLog:
    """A decoded log, by moments."""

    def __init__(self, records: Iterable[DumpedRecord]) -> None:
        """Take the records in their order."""
        self._records = sorted(records, key=lambda record: record.offset)
        self._times: list[int] = []
        for record in self._records:
            self._times.append(max(record.timestamp, self._times[-1] if self._times else 0))

    @property
    def end(self) -> int:
        """The time of the last record."""
        return self._times[-1]

    def at(self, moment: int) -> Moment:
        """Return the state at a moment, whose own records have happened."""
        records = self._records[: bisect_right(self._times, moment)]
        truth = truth_of(records)
        return Moment(_by_name(truth), dict(truth.min_isr), brokers_of(records))

    def changes(self, topic: str | None = None) -> list[int]:
        """Return every moment at which a partition or a broker changed, or a partition of one topic, oldest first."""
        truth = truth_of(self._records)
        times = {record.offset: time for record, time in zip(self._records, self._times, strict=True)}
        moments = {
            times[step.offset]
            for (topic_id, _), steps in truth.history.items()
            if topic in (None, truth.names.get(topic_id))
            for before, step in zip([None, *steps], steps, strict=False)
            if before is None or before.facts != step.facts
        }
        if topic is None:
            moments |= set(self._changes_of_brokers())
        return sorted(moments)

    def _changes_of_brokers(self) -> Iterator[int]:
        brokers: dict[int, bool] = {}
        for record, time in zip(self._records, self._times, strict=True):
            before = dict(brokers)
            apply_to_brokers(brokers, record)
            if brokers != before:
                yield time


def _by_name(truth: Truth) -> dict[tuple[str, int], Facts]:
    return {(truth.names[topic_id], number): facts for (topic_id, number), facts in truth.at_end().items()}


def brokers_of(records: Iterable[DumpedRecord]) -> dict[int, bool]:
    """Return the registered brokers, each with whether it is fenced."""
    brokers: dict[int, bool] = {}
    for record in records:
        apply_to_brokers(brokers, record)
    return brokers


def apply_to_brokers(brokers: dict[int, bool], record: DumpedRecord) -> None:
    """Apply a record to the registered brokers."""
    data = record.data
    match record.kind:
        case "REGISTER_BROKER_RECORD":
            brokers[data["brokerId"]] = data.get("fenced", True)
        case "UNREGISTER_BROKER_RECORD":
            brokers.pop(data["brokerId"], None)
        case "FENCE_BROKER_RECORD":
            brokers[data["id"]] = True
        case "UNFENCE_BROKER_RECORD":
            brokers[data["id"]] = False
        case "BROKER_REGISTRATION_CHANGE_RECORD" if data.get("fenced", 0) in (_FENCES, _UNFENCES):
            brokers[data["brokerId"]] = data["fenced"] == _FENCES
