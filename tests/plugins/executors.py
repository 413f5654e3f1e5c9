"""Executors without Spark: the tasks of a batch run in this process, each in the memory of a worker of its own.

What Spark would do to tasks is drawn: which worker a partition comes to, tasks that fail and run again, tasks that run
twice, workers that end.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.jobs.shards import samples, task
from streaming.jobs.shards import workers as on_spark
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.shards.task import FoldOnExecutors

if TYPE_CHECKING:
    from streaming.bus.kafka.reader import KafkaReader
    from streaming.delta.store.place import Place

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Executors:
    """Some workers. ``chance``: None for one steady worker per partition, to which nothing happens."""

    def __init__(self, workers: int = 3, chance: random.Random | None = None) -> None:
        self._memories: list[list[dict[Any, Any]]] = [[{}, {}] for _ in range(workers)]
        self._chance = chance
        self.loaded = 0

    def run(self, work: Work, rows: pa.Table, partition: int) -> list[pa.RecordBatch]:
        """Run a task; give the result of the last try."""
        tries = 1 if self._chance is None else self._chance.choice((1, 1, 2, 3))
        return [self._tried(work, rows, partition) for _ in range(tries)][-1]

    def _tried(self, work: Work, rows: pa.Table, partition: int) -> list[pa.RecordBatch]:
        number = partition if self._chance is None else self._chance.randrange(len(self._memories))
        number %= len(self._memories)
        if self._chance is not None and self._chance.random() < 0.1:
            self._memories[number] = [{}, {}]
        # What a worker gets was pickled, and what it holds is another worker's for nobody.
        copied = pickle.loads(pickle.dumps(work))  # noqa: S301 - our own
        of_process = (task.EXECUTOR.shards, samples.EXECUTOR.shards)
        for shards, memory in zip(of_process, self._memories[number], strict=True):
            shards.clear()  # type: ignore[attr-defined]
            shards.update(memory)  # type: ignore[attr-defined]
        result = list(copied(iter(rows.combine_chunks().to_batches())))
        self._memories[number] = [dict(shards) for shards in of_process]  # type: ignore[call-overload]
        return result


class Frame:
    """What a batch asks of a frame of Spark. Some partitions are one after the other in the rows."""

    def __init__(self, rows: pa.Table, executors: Executors, by: str = "partition", work: Work | None = None) -> None:
        self._rows, self._executors, self._by, self._work = rows, executors, by, work
        self.sparkSession = self

    def range(self, _begin: int, end: int, _step: int, _partitions: int) -> Frame:
        """Give numbers, each in a partition of its own."""
        return Frame(pa.table({"id": pa.array(range(end), pa.int64())}), self._executors, "id")

    def mapInArrow(self, work: Work, _schema: str) -> Frame:  # noqa: N802 - as Spark names it
        """Give the same rows with something to be done."""
        return Frame(self._rows, self._executors, self._by, work)

    def toArrow(self) -> pa.Table:  # noqa: N802 - as Spark names it
        """Do it, partition by partition."""
        assert self._work is not None
        found: list[pa.RecordBatch] = []
        for number in pc.unique(self._rows[self._by]).to_pylist():
            own = self._rows.filter(pc.equal(self._rows[self._by], number))
            found += self._executors.run(self._work, own, number)
        return pa.Table.from_batches(found, schema=pa.schema([pa.field(on_spark.RESULT, pa.binary())]))


class OnExecutors:
    """A batch whose workers are executors, that is given rows as the batches of the driver are."""

    def __init__(self, batch: ReplicationBatch | SampleBatch, executors: Executors | None = None) -> None:
        self.batch, self.executors = batch, executors or Executors()

    def apply(self, rows: pa.Table) -> Any:
        """Apply rows."""
        return self.batch.apply(Frame(rows, self.executors))

    def project(self) -> None:
        """Write the derived tables, without a batch."""
        assert isinstance(self.batch, ReplicationBatch)
        self.batch.project()

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables."""
        self.batch.check_ours()


def replication_on(executors: Executors, tables: Place, bus: KafkaReader, **given: Any) -> OnExecutors:
    """Open replication, which executors fold."""
    rest = given.pop("rest_seconds", 1.0)
    workers = FoldOnExecutors(rest, Frame(pa.table({}), executors))  # type: ignore[arg-type]
    return OnExecutors(ReplicationBatch(tables, workers=workers, bus=bus, **given), executors)


def samples_on(executors: Executors, tables: Place, bus: KafkaReader) -> OnExecutors:
    """Open samples, which executors apply."""
    workers = on_spark.OnExecutors[samples.SampleTask, samples.SampleResult](samples.apply_partitions)
    return OnExecutors(SampleBatch(tables, workers=workers, bus=bus), executors)
