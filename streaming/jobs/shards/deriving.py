"""Workers that fold replication and compute the derived tables: the driver behind its batches, executors with theirs.

The driver has the state of every cluster, so a thread behind the batches computes rounds from copies of it. Executors
compute a round with the rows of a batch, for only then a worker has the state at hand; clusters of which no row came
are read from the tables.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from streaming.delta.projections.clusters_state import ClustersState
from streaming.delta.projections.of_clusters import Derived, derived, recovered
from streaming.jobs.shards.task import Shard, ShardResult, ShardTask, fold_partitions, folded_partition
from streaming.jobs.shards.workers import InDriver, OnExecutors, packed, ran

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.identifiers import ClusterId
    from streaming.delta.projections.of_clusters import DerivedBefore
    from streaming.jobs.shards.decoded_batch import ReadLog

_OVERDUE: Final = 3
_GROUPS: Final = 4
"""Number of tasks for the clusters without rows in a batch."""


class FoldInDriver(InDriver[ShardTask, Shard, ShardResult]):
    """This process folds.

    Attributes:
        derive_in_batches: a round of the derived tables comes with a batch.
        rest_seconds: between two rounds after steps.
        patience: after so many times that long, a round without a batch is due.
    """

    derive_in_batches, rest_seconds, patience = False, 0.0, 1

    def __init__(self, read: ReadLog | None = None, published: Path | None = None) -> None:
        """Begin without any state.

        Args:
            read: reads blocks of a log that the workers left out.
            published: the file with the digests of these blocks; None if the workers read every block.
        """
        super().__init__(lambda task: Shard(task, read, published), folded_partition)

    def deriving(
        self, task: ShardTask, before: DerivedBefore, clusters: AbstractSet[ClusterId]
    ) -> Callable[[], list[Derived]]:
        """Return what computes the derived tables of clusters as of the version of a task, whatever is folded since.

        It copies the state of now, or reads it now: the tables have no older version of how far sources were applied.
        """
        states: list[tuple[ClustersState, AbstractSet[ClusterId]]] = []
        for (_, partition), shard in self.shards.items():
            own = shard.own(task, partition) & clusters if shard.token == task.token(partition) else frozenset()
            if own:
                states.append((shard.held.copied(task.base), own))
        if others := set(clusters).difference(*(own for _, own in states)):
            states.append((recovered(task.tables, task.base, others), others))
        return lambda: [derived(task.tables, state, own, before) for state, own in states]


class FoldOnExecutors(OnExecutors[ShardTask, ShardResult]):
    """Spark's executors fold. Attributes: as of :class:`FoldInDriver`."""

    derive_in_batches, patience = True, _OVERDUE

    def __init__(self, rest_seconds: float = 1.0, spark: SparkSession | None = None) -> None:
        """Begin.

        Args:
            rest_seconds: between two rounds of the derived tables after steps.
            spark: None: the running session.
        """
        super().__init__(fold_partitions)
        self.rest_seconds, self._spark = rest_seconds, spark

    def deriving(
        self, task: ShardTask, before: DerivedBefore, clusters: AbstractSet[ClusterId]
    ) -> Callable[[], list[Derived]]:
        """Compute the derived tables of clusters without rows at once; return a function that gives them."""
        others = sorted(clusters)
        groups = [others[number::_GROUPS] for number in range(min(_GROUPS, len(others)))]
        computed: list[Derived] = []
        if groups:
            spark = self._spark or SparkSession.builder.getOrCreate()
            numbers = spark.range(0, len(groups), 1, len(groups))
            computed = ran(numbers, partial(derive_groups, task, before, groups))
        return lambda: computed


FoldWorkers = FoldInDriver | FoldOnExecutors


def derive_groups(
    task: ShardTask, before: DerivedBefore, groups: Sequence[Collection[ClusterId]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the derived tables of clusters without rows in a batch; yield the result of each group.

    Args:
        task: where, and as of which version.
        before: what the derived tables have.
        groups: ids of clusters.
        batches: rows with the ``id`` of a group each.
    """
    for batch in batches:
        for number in batch["id"].to_pylist():
            clusters = groups[number]
            yield packed(derived(task.tables, recovered(task.tables, task.base, clusters), clusters, before))
