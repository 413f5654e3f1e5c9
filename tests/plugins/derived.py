"""Tables written from what a test holds: those derived from the change log, and the newest rows of samples."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streaming.contracts.columns import Table
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.queries import read_all
from streaming.delta.log.table_log import newest_version
from streaming.delta.log.writer import OVERWRITE, Writer
from streaming.delta.projections.clusters_state import ClustersState
from streaming.delta.projections.of_clusters import derived, recovered
from streaming.delta.projections.tables import DerivedTables
from streaming.delta.samples.newest import Newest
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.task import FoldInDriver, Shard

DERIVED = ("replication_events", "cluster_state", "broker_state", "partition_state")


class Projections:
    """The derived tables, of all clusters."""

    def __init__(self, directory: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        self._directory, self._tables = directory, DerivedTables(directory, policy)

    def recover(self, version: int) -> ClustersState:
        """Give the state at a version of the change log."""
        return recovered(self._directory, version)

    def project(self, held: ClustersState) -> bool:
        """Write what lags behind a state; return whether anything did."""
        before = [newest_version(self._directory / name) for name in DERIVED]
        held.removals = recovered(self._directory, held.version).removals
        pieces = [derived(self._directory, held, {*held.state.clusters}, self._tables.before)]
        self._tables.commit(pieces, held.version)
        return before != [newest_version(self._directory / name) for name in DERIVED]


class StoredNewest(Newest):
    """The newest rows of one table, read from it and written to it."""

    def __init__(self, directory: Path, table: Table) -> None:
        self._writer = Writer.opened(directory, table)
        super().__init__(table, read_all(self._writer.table))

    def put(self, samples: pa.Table) -> None:
        """Apply samples and write the table."""
        self.take(samples)
        self._writer.write(self.on_disk, OVERWRITE, {})


def shard_of(batch: ReplicationBatch) -> Shard:
    """Give what the driver holds of all clusters of a directory, after its first batch."""
    assert isinstance(batch.workers, FoldInDriver)
    (shard,) = batch.workers.shards.values()
    return shard
