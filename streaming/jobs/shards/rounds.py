"""The rounds of a micro-batch: mostly one, and another one after each log that is left.

Knows which results the workers' states follow from, and where each partition is; no table.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streaming.bus.kafka.reader import offset_name
from streaming.bus.kafka.records import topic_of
from streaming.contracts.identifiers import NOWHERE, ClusterId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.changes.state import SourceKey
    from streaming.contracts.observations import Channel
    from streaming.contracts.state import SourceState
    from streaming.jobs.queries import BusProgress
    from streaming.jobs.shards.reading import LogRun, Task, TaskResult
    from streaming.jobs.shards.workers import Workers


R = TypeVar("R", bound="TaskResult")
T = TypeVar("T", bound="Task")


class Rounds(Generic[T, R]):
    """The rounds of the batches of one topic."""

    def __init__(self, workers: Workers[T, R], bus: KafkaReader | None, channel: Channel) -> None:
        """Begin with workers that have no state; the bus is a directory, unless its topics are given."""
        self._workers, self._bus, self._channel = workers, bus, channel
        self._begins: dict[int, int] = {}
        self._newest: dict[str, LogRun] = {}
        self._partition_of: dict[ClusterId, int] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Let workers read their state again: something else than their results has changed it."""
        self._tokens: dict[int, str] = {}
        self._opened = uuid.uuid4().hex

    def given(self, sources: Iterable[tuple[ClusterId, str]]) -> dict[str, Any]:
        """Return the common part of the input of all tasks; ``sources`` are with the clusters they report on."""
        clusters: defaultdict[str, set[ClusterId]] = defaultdict(set)
        for cluster_id, source in sources:
            clusters[source].add(cluster_id)
        shared = {"tokens": dict(self._tokens), "opened": self._opened, "clusters": dict(clusters)}
        if self._bus is None:
            return {**shared, "homes": dict.fromkeys(set().union(*clusters.values()), 0)}
        left = {source: set(ids) for (channel, source), ids in self._bus.left.items() if channel == self._channel}
        return {
            **shared,
            "topic": topic_of(self._bus.settings, self._channel),
            "begins": dict(self._begins),
            "left": left,
            "homes": dict(self._partition_of),
        }

    def of_batch(self, rows: Any, task: Callable[[], T], progress: BusProgress) -> Iterator[tuple[T, list[R]]]:  # noqa: ANN401 - as the workers take them
        """Yield task and results of each round, which must be committed before the next one.

        ``task`` returns the input of the next round; ``progress`` goes back in logs that were replaced.

        Raises:
            IsrwatchError: the topic was created again since its query began.
        """
        if self._bus is not None:
            self._bus.check_same(self._channel)
        self._begins = {}
        results, are_left = list[R](), True
        while are_left:
            given = task()
            kept, is_waiting = self._run(rows, given)
            yield given, kept
            self._commit(kept)
            results += kept
            are_left = self._leave(kept, progress) or is_waiting
        self._note(results)

    def _run(self, rows: Any, task: T) -> tuple[list[R], bool]:  # noqa: ANN401 - as above
        """Run a task on every partition; return the results that may be committed together, and whether others wait.

        A partition has whole clusters. Where a topic got more partitions, two may have records of one: the second one
        waits for the next round.
        """
        taken, kept = set[ClusterId](), list[R]()
        results = self._workers.run(rows, task)
        for each in results:
            if taken.isdisjoint(each.clusters):
                taken |= each.clusters
                kept.append(each)
        return kept, len(kept) < len(results)

    def _commit(self, results: Sequence[R]) -> None:
        """Note what was committed: which states are valid, and where each partition continues."""
        for each in results:
            partition = each.reading.partition
            self._partition_of |= dict.fromkeys(each.clusters, partition)
            self._tokens[partition] = each.token
            self._begins[partition] = each.reading.next_offset
            self._newest |= each.reading.newest
            if self._bus is not None:
                for run in each.reading.refused:
                    self._bus.report_two(self._channel, run.source, run.log_id)

    def _leave(self, results: Sequence[R], progress: BusProgress) -> bool:
        """Let the progress of a query go back in logs that were replaced; return whether there are any.

        The progress is not kept: a query and its rounds that hold each other would stay in memory once the query is
        opened again, with the state of all clusters, because frozen objects are never collected.
        """
        if self._bus is None:
            return False
        left = [each.reading.other for each in results if each.reading.other is not None]
        for run in left:
            before = self._newest.get(run.source)
            runs = () if before is None else before.runs
            self._bus.leave(self._channel, run.source, runs, progress.at(run.source), run.runs)
            progress.set_back({run.source: NOWHERE})
            self.begin_again()  # the state of the source is another one now
        return bool(left)

    def offsets(self, results: Iterable[R]) -> dict[str, int]:
        """Return where reading continues after some results, by the names under which the tables store it."""
        if self._bus is None:
            return {}
        topic, identity = topic_of(self._bus.settings, self._channel), self._bus.identity(self._channel)
        ends = {each.reading.partition: each.reading.next_offset for each in results}
        return {offset_name(topic, identity, partition): offset for partition, offset in ends.items()}

    def _note(self, results: Sequence[R]) -> None:
        """Note how far was read, for the lag."""
        if self._bus is None:
            return
        readings = [each.reading for each in results]
        self._bus.note(
            self._channel,
            {source: at for reading in readings for source, at in reading.consumed.items()},
            {reading.partition: reading.next_offset for reading in readings},
            sum(reading.records for reading in readings),
            sum(reading.size for reading in readings),
        )


def names_of(results: Iterable[TaskResult], states: Mapping[SourceKey, SourceState]) -> frozenset[str]:
    """Return the names of the clusters that some results are about, as their sources report them."""
    clusters = {cluster_id for each in results for cluster_id in each.clusters}
    return frozenset(state.cluster for (cluster_id, _), state in states.items() if cluster_id in clusters)


def merged(of_results: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Merge values by source; each source is in one result."""
    return {source: value for each in of_results for source, value in each.items()}
