"""Random histories of days, folded by the job's own batches, with an exporter's reader beside them.

Topics are deleted and made again, under one id where a poller makes it up; tombstones are dropped day by day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from exporters.read_model.reader import TablesReader
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import TopicId
from streaming.contracts.observations import Channel, Observation, PartitionObserved, SnapshotEnd, SourceKind
from streaming.contracts.state import SourceLag
from streaming.delta.progress import ProgressTable
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.streams.bus_source import SCHEMA
from tests.changes.worlds import log_of, mixed, polls_of, seen_by_another, stretched
from tests.exporters.meaning import meaning

SLOWER = 6_000
"""Forty seconds become almost three days."""
LARGEST_BATCH = 8


def logs(world: int) -> list[Sequence[Observation]]:
    """Two collectors of the metadata log of one cluster, and one of another cluster's."""
    dice = Random(world)
    first = log_of(world)
    return [stretched(each, SLOWER) for each in (first, seen_by_another(first, dice), log_of(world + 20, "c2"))]


def polls(world: int) -> list[Sequence[Observation]]:
    """A poller that gives every topic of a name one id."""
    found = [stretched(polls_of(log_of(world), SourceKind.POLL), SLOWER)]
    names = {it.topic_id: it.topic for it in found[0] if isinstance(it, PartitionObserved)}
    return [[_renamed(it, names) for it in found[0]]]


def _renamed(it: Observation, names: dict[Any, str]) -> Observation:
    if isinstance(it, PartitionObserved):
        return replace(it, topic_id=TopicId(f"name:{it.topic}"))
    if isinstance(it, SnapshotEnd):
        return replace(it, topic_ids=tuple(TopicId(f"name:{names[each]}") for each in it.topic_ids))
    return it


@dataclass
class History:
    """What was true of a history while the job folded it."""

    tables: Path
    job: ReplicationBatch
    reader: TablesReader
    versions: dict[int, Any] = field(default_factory=dict)
    deleted: set[Any] = field(default_factory=set)

    def apply(self, batch: Sequence[Observation]) -> None:
        """Fold a batch, and look at what the exporter shows then."""
        rows = [{"source": it.source, "position": it.sequence, "payload": encode(it), "damage": None} for it in batch]
        self.job.apply(pa.Table.from_pylist(rows, schema=SCHEMA))
        snapshot = self.reader.refresh()
        self.versions[snapshot.version] = meaning(snapshot)
        self.deleted |= {key for cluster in snapshot.clusters.values() for key in cluster.tombstones}

    def project(self) -> None:
        """Write the state tables, and how far each source came."""
        self.job.project()
        states, version = self.job.sources()
        ProgressTable(self.tables, Channel.REPLICATION).replace([(state, SourceLag()) for state in states], version)


def play(tables: Path, sources: list[Sequence[Observation]], dice: Random, each: Callable[[History], None]) -> History:
    """Fold sources; now and then the state tables are written, and ``each`` looks at them."""
    made = History(tables, ReplicationBatch(tables), TablesReader(tables))
    for batch in batches(sources, dice):
        made.apply(batch)
        if dice.random() < 0.1:
            made.project()
            each(made)
    return made


def batches(sources: list[Sequence[Observation]], dice: Random) -> Iterator[Sequence[Observation]]:
    """Cut logs anywhere, and what a poller tells between its full reports: only there is a moment known as a whole."""
    if len(sources) > 1:
        for batch in mixed(sources, dice):
            yield from (batch[begin : begin + LARGEST_BATCH] for begin in range(0, len(batch), LARGEST_BATCH))
        return
    begin = 0
    for end, observed in enumerate(sources[0], start=1):
        if isinstance(observed, SnapshotEnd):
            yield sources[0][dice.choice((0, begin)) : end]
            begin = end
