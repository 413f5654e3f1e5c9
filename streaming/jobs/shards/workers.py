"""Workers run the tasks of a batch, each on the rows of one partition of the bus: in the driver, or on executors.

A worker keeps the state of its partitions between the batches. Results are few and small, whatever the clusters.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa

from streaming.jobs.shards.reading import by_partition
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from streaming.contracts.identifiers import ClusterId
    from streaming.jobs.shards.reading import Task

T = TypeVar("T", bound="Task")
R = TypeVar("R")


class Keeper(ABC, Generic[T]):
    """State of some clusters in a worker.

    Attributes:
        token: of the result that it follows from; empty while there is none.
        before: that of the result before.
        clusters: those whose state is here.
    """

    def __init__(self) -> None:
        self.token = ""
        self.before = ""
        self.clusters: set[ClusterId] = set()

    @abstractmethod
    def prepare(self, task: T, clusters: AbstractSet[ClusterId]) -> None:
        """Read the state of all clusters again if one is missing here (``Task.must_read``)."""

    def own(self, task: T, partition: int) -> set[ClusterId]:
        """Return the clusters that are at home in a partition: another shard may hold one of them, too."""
        return {each for each in self.clusters if task.homes.get(each, partition) == partition}


K = TypeVar("K", bound=Keeper[Any])


class Worker(Generic[T, K, R]):
    """Does tasks, and holds the state of the partitions that it has worked on, by tables and partition."""

    def __init__(self, begin: Callable[[T], K], work: Callable[[T, int, pa.Table, K], R]) -> None:
        """Begin without any state; ``begin`` returns one without any cluster, ``work`` does the rows of a partition."""
        self._begin, self._work = begin, work
        self.shards: dict[tuple[str, int], K] = {}

    def done(self, task: T, rows: pa.Table) -> Iterator[R]:
        """Do the work of a task on the rows of each partition; yield the results."""
        with collected_after():
            for partition, own in by_partition(task, rows):
                yield self._work(task, partition, own, self._held(task, partition))

    def done_on_executor(self, task: T, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the same on the rows of a task of Spark; yield the results, packed."""
        if pieces := list(batches):
            yield from map(packed, self.done(task, pa.Table.from_batches(pieces)))

    def _held(self, task: T, partition: int) -> K:
        """Return the state of a partition, or a new one; drop what other workers have applied since.

        A state stays that was applied for the same batch, of another partition: whether it is committed, the next one
        says. One with a cluster that another partition has moved on is dropped as well.
        """
        tables, newest = str(task.tables), task.token(partition)
        for key, shard in list(self.shards.items()):
            if key[0] == tables and task.token(key[1]) not in {shard.token, shard.before}:
                del self.shards[key]
        held = self.shards.get((tables, partition))
        if held is None or held.token != newest or held.own(task, partition) != held.clusters:
            held = self.shards[tables, partition] = self._begin(task)
        held.token, held.before = "", newest  # until the task has ended: the state is half done if it fails
        return held


class InDriver(Worker[T, K, R]):
    """This process: it has the rows, and the state of every partition."""

    _opened: K | None = None

    def open(self, task: T) -> None:
        """Begin with the state of every cluster: a start shows what cannot be read.

        A directory has one partition. With Kafka the first partition that has rows takes the state over.
        """
        opened = self._begin(task)
        opened.prepare(task, task.reported)
        opened.token = task.opened
        if task.topic is None:
            self.shards[str(task.tables), 0] = opened
        else:
            self._opened = opened

    def run(self, rows: pa.Table, task: T) -> list[R]:
        """Run a task on every partition that has rows; return the results."""
        if self._opened is not None and len(rows):
            first, _ = next(by_partition(task, rows))
            self.shards[str(task.tables), first], self._opened = self._opened, None
        return list(self.done(task, rows))

    def stages(self, of_tasks: Mapping[str, float], of_driver: Mapping[str, float]) -> Mapping[str, float]:
        """Return the seconds of a batch by stage: those of the tasks, and of the commit."""
        return {**of_tasks, "commit": of_driver["commit"]}


class OnExecutors(Generic[T, R]):
    """Spark's executors: one job of Spark for each batch, and no shuffle."""

    def __init__(self, work: Callable[[T, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        """Begin; ``work`` yields the result for the rows of a task of Spark, packed."""
        self._work = work

    def open(self, task: T) -> None:
        """Do nothing: a worker reads the state of its partitions when their rows come."""

    def run(self, rows: DataFrame, task: T) -> list[R]:
        """Run a task on every partition that has rows; return the results."""
        return ran(rows, partial(self._work, task))

    def stages(self, of_tasks: Mapping[str, float], of_driver: Mapping[str, float]) -> Mapping[str, float]:  # noqa: ARG002 - tasks run side by side
        """Return the seconds of a batch by stage, as the driver saw them."""
        return of_driver


Workers = InDriver[T, Any, R] | OnExecutors[T, R]
"""Run the tasks of each batch."""


# Results on their way from executors to the driver.


RESULT: Final = "result"
RESULT_SCHEMA: Final = f"{RESULT} binary"


def packed(result: object) -> pa.RecordBatch:
    """Return a result as a row of its own, which only :func:`ran` of the same program reads."""
    return pa.RecordBatch.from_pydict({RESULT: pa.array([pickle.dumps(result)], pa.binary())})


def ran(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[Any]:
    """Run a Spark job, and return the results of its tasks."""
    rows = frame.mapInArrow(work, RESULT_SCHEMA).toArrow()
    return [pickle.loads(content) for content in rows[RESULT].to_pylist()]  # noqa: S301 - from our own workers
