"""Workers run the tasks of a batch, each on the rows of one partition of the bus: in the driver, or on executors.

A worker keeps the state of its partitions between the batches. Results are few and small, whatever the clusters.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from streaming.jobs.shards.reading import OPENED, by_partition
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from streaming.jobs.shards.reading import Task


T = TypeVar("T", bound="Task")
R = TypeVar("R")
T_contra = TypeVar("T_contra", bound="Task", contravariant=True)


class Keeper(Protocol[T_contra]):
    """State of some clusters in a worker.

    Attributes:
        token: of the result that it follows from; empty while there is none.
        before: that of the result before.
    """

    token: str
    before: str | None

    def open(self, task: T_contra) -> None:
        """Read the state of every cluster of which a source has reported."""


K = TypeVar("K", bound=Keeper[Any])


class Workers(Protocol[T_contra, R]):
    """Run the tasks of each batch."""

    def open(self, task: T_contra) -> None:
        """Begin with the state of every cluster, where this process has it: a start shows what cannot be read."""

    def run(self, rows: Any, task: T_contra) -> list[R]:  # noqa: ANN401 - a frame of Spark, or its rows
        """Run a task on every partition that has rows; return the results."""

    def stages(self, of_tasks: Mapping[str, float], of_driver: Mapping[str, float]) -> Mapping[str, float]:
        """Return the seconds of a batch by stage, from those of its tasks and those that the driver saw."""


class InDriver(Generic[T, K, R]):
    """This process: it has the rows, and the state of every partition."""

    def __init__(self, begin: Callable[[T], K], work: Callable[[T, int, pa.Table, K], R]) -> None:
        """Begin without any state.

        Args:
            begin: returns a state without any cluster.
            work: on the rows of one partition.
        """
        self._begin, self._work = begin, work
        self.shards: dict[tuple[str, int], K] = {}

    def open(self, task: T) -> None:
        """Begin with the state of every cluster; with Kafka a partition reads its own later, so this is a trial."""
        shard = self._begin(task)
        shard.open(task)
        if task.topic is None:
            shard.token = OPENED
            self.shards[str(task.tables), 0] = shard

    def run(self, rows: pa.Table, task: T) -> list[R]:
        """Run a task on every partition that has rows; return the results."""
        with collected_after():
            return list(done(task, rows, self.shards, self._begin, self._work))

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


def done(
    task: T,
    rows: pa.Table,
    shards: dict[tuple[str, int], K],
    begin: Callable[[T], K],
    work: Callable[[T, int, pa.Table, K], R],
) -> Iterator[R]:
    """Do the work of a task on the rows of each partition; yield the results.

    Args:
        task: its input.
        rows: of a batch, or of some of its partitions.
        shards: held by this worker, by tables and partition.
        begin: returns a state without any cluster.
        work: on the rows of one partition.
    """
    for partition, own in by_partition(task, rows):
        yield work(task, partition, own, _held(shards, task, partition, begin))


def done_on_executor(
    task: T,
    batches: Iterator[pa.RecordBatch],
    shards: dict[tuple[str, int], K],
    begin: Callable[[T], K],
    work: Callable[[T, int, pa.Table, K], R],
) -> Iterator[pa.RecordBatch]:
    """Do the same on the rows of a task of Spark; yield the results, packed."""
    if pieces := list(batches):
        with collected_after():
            yield from map(packed, done(task, pa.Table.from_batches(pieces), shards, begin, work))


def _held(shards: dict[tuple[str, int], K], task: T, partition: int, begin: Callable[[T], K]) -> K:
    """Return the state of a partition that a worker holds, or a new one; drop what other workers have applied since.

    A state stays that was applied for the same batch, of another partition: whether it is committed, the next one says.
    """
    tables, newest = str(task.tables), task.tokens
    for key, shard in list(shards.items()):
        if key[0] == tables and newest.get(key[1]) not in {shard.token, shard.before}:
            del shards[key]
    held = shards.get((tables, partition))
    if held is None or held.token != newest.get(partition):
        held = shards[tables, partition] = begin(task)
    held.token, held.before = "", newest.get(partition)  # until the task has ended: the state is half done if it fails
    return held


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
