"""The rounds of a micro-batch whose rows executors apply: mostly one; one more behind each log that is left.

Knows which results the workers' states follow from, and where each partition is; no table.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from streaming.bus.kafka.reader import offset_name
from streaming.bus.kafka.records import topic_of
from streaming.contracts.identifiers import ClusterId
from streaming.jobs.shards.reading import RESULT_SCHEMA, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.observations import Channel
    from streaming.jobs.shards.kafka_rows import LogRun
    from streaming.jobs.shards.reading import Reading, Task


class Result(Protocol):
    """The result of a task."""

    @property
    def reading(self) -> Reading:
        """The account of the rows that were read."""

    @property
    def token(self) -> str:
        """Name of the result, and so of the state that it leaves in the worker."""

    @property
    def clusters(self) -> frozenset[ClusterId]:
        """The clusters whose state it follows from."""


R = TypeVar("R", bound=Result)
T = TypeVar("T", bound="Task")


class Rounds(Generic[R]):
    """The rounds of the batches of one topic.

    Attributes:
        is_waiting: a partition was not applied in the last round, because another one has records of its cluster.
    """

    def __init__(
        self, bus: KafkaReader, channel: Channel, at: Callable[[str], LogPosition], go_back: Callable[[str], object]
    ) -> None:
        """Begin with workers that have no state.

        Args:
            bus: what is known of its topics.
            channel: that is read.
            at: where the last applied record of a source stands.
            go_back: lets the log of a source begin again.
        """
        self._bus, self._channel, self._at, self._go_back = bus, channel, at, go_back
        self.topic = topic_of(bus.settings, channel)
        self._tokens: dict[int, str] = {}
        self._begins: dict[int, int] = {}
        self._newest: dict[str, LogRun] = {}
        self._partition_of: dict[ClusterId, int] = {}
        self.is_waiting = False

    def check_same(self) -> None:
        """Refuse to continue with a topic that was created again.

        Raises:
            IsrwatchError: it was.
        """
        self._bus.check_same(self._channel)
        self._begins = {}

    def given(self, sources: Iterable[tuple[ClusterId, str]]) -> dict[str, Any]:
        """Return what every task is given, whatever its query adds; ``sources``: with the clusters they report of."""
        clusters: defaultdict[str, set[ClusterId]] = defaultdict(set)
        for cluster_id, source in sources:
            clusters[source].add(cluster_id)
        left = {source: set(ids) for (channel, source), ids in self._bus.left.items() if channel == self._channel}
        return {
            "topic": self.topic,
            "tokens": dict(self._tokens),
            "begins": dict(self._begins),
            "left": left,
            "clusters": dict(clusters),
            "homes": dict(self._partition_of),
        }

    def run(
        self, frame: DataFrame, work: Callable[[T, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], task: T
    ) -> list[R]:
        """Run a task on every partition; return the results that may be committed together.

        A partition has whole clusters. Where a topic got more partitions, two may have records of one: the second one
        waits for the next round.
        """
        taken, kept = set[ClusterId](), list[R]()
        results = cast("list[R]", ran(frame, partial(work, task)))
        for each in results:
            if taken.isdisjoint(each.clusters):
                taken |= each.clusters
                kept.append(each)
        self.is_waiting = len(kept) < len(results)
        return kept

    def commit(self, results: Sequence[R]) -> None:
        """Take over what was committed: whose states are valid, and where each partition is."""
        for each in results:
            partition = each.reading.partition
            for cluster_id in each.clusters:
                if (other := self._partition_of.get(cluster_id, partition)) != partition:
                    self._tokens.pop(other, None)
                self._partition_of[cluster_id] = partition
            self._tokens[partition] = each.token
            self._begins[partition] = each.reading.next_offset
            self._newest |= each.reading.newest
            for run in each.reading.refused:
                self._bus.report_two(self._channel, run.source, run.log_id)

    def leave(self, results: Sequence[R]) -> set[str]:
        """Go back for the logs that are other ones now; return their sources."""
        left = set[str]()
        for each in results:
            if (run := each.reading.other) is None:
                continue
            before = self._newest.get(run.source)
            runs = () if before is None else before.runs
            self._bus.leave(self._channel, run.source, runs, self._at(run.source), run.runs)
            self._go_back(run.source)
            self._tokens.pop(each.reading.partition, None)  # its state of the source is another one now
            left.add(run.source)
        return left

    def offsets(self, results: Iterable[R]) -> dict[str, int]:
        """Return where reading continues behind some results, by the names under which tables hold it."""
        identity = self._bus.identity(self._channel)
        ends = {each.reading.partition: each.reading.next_offset for each in results}
        return {offset_name(self.topic, identity, partition): offset for partition, offset in ends.items()}

    def note(self, results: Sequence[R]) -> None:
        """Note how far was read, for the lag."""
        readings = [each.reading for each in results]
        self._bus.note(
            self._channel,
            {source: at for reading in readings for source, at in reading.consumed.items()},
            {reading.partition: reading.next_offset for reading in readings},
            sum(reading.records for reading in readings),
            sum(reading.size for reading in readings),
        )


def ran(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[object]:
    """Run a Spark job, and return the results of its tasks."""
    return list(unpacked(frame.mapInArrow(work, RESULT_SCHEMA).toArrow()))


def merged(of_results: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return what results say of sources, each of which is in one of them."""
    return {source: value for each in of_results for source, value in each.items()}
