"""Tables that a scenario made, through the bus's own form and the job's own batches; without Spark, in a second or two.

Fixture ``played_tables``: ``played_tables(name, ...)`` plays scenarios into one folder, a commit a second of the
scenario, and gives the folder; made once a run for each choice.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.contracts.codec import encode
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.delta.log.table_log import delete_log_before, log_entries
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.bus_source import SCHEMA
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.plugins.table_writes import delete_old_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from streaming.changes.state import ReplicationState

SECOND = 1_000_000


def decoded(state: ReplicationState) -> ReplicationState:
    """A state that a start has read, every topic of it as objects."""
    state.load(tuple(state.topic_keys()))
    return state


START = 1_700_000_000 * SECOND


class PlayedJob:
    """The batches of the job over the tables of a folder, given what sources observe."""

    def __init__(self, tables: Path, channels: Collection[Channel] = frozenset(Channel)) -> None:
        self.replication = ReplicationBatch(tables)
        self.batches: dict[Channel, Any] = {Channel.REPLICATION: self.replication}
        if Channel.SAMPLES in channels:
            self.batches[Channel.SAMPLES] = SampleBatch(tables)
        self.position = 0

    def apply(self, now: int, *sources: SimulatedSource) -> None:
        """Apply what sources observed up to a moment, in microseconds."""
        rows: dict[Channel, list[dict[str, Any]]] = defaultdict(list)
        seen = (each for source in sources for each in source.poll(Micros(now)) if each.channel in self.batches)
        for observed in seen:
            self.position += 1
            told = {"source": observed.source, "position": self.position, "payload": encode(observed), "damage": None}
            rows[observed.channel].append(told)
        for channel, told_there in rows.items():
            self.batches[channel].apply(pa.Table.from_pylist(told_there, schema=SCHEMA))

    def project(self) -> None:
        self.replication.project()


def play(
    directory: Path,
    *scenarios: str,
    seconds: int,
    project_every: int = 20,
    channels: Collection[Channel] = frozenset(Channel),
) -> None:
    """Play scenarios as clusters of their names; the projections lag behind the last commits, as they do live.

    Args:
        directory: of the tables.
        scenarios: by name.
        seconds: how long.
        project_every: so many seconds apart.
        channels: which are applied.
    """
    sources = [
        SimulatedSource(
            load_scenario(name), seed=7 + number, cluster_id=ClusterId(f"id-of-{name}"), cluster=name,
            name=f"metadata_log:{name}", epoch=Micros(START),
        )
        for number, name in enumerate(scenarios)
    ]  # fmt: skip
    job = PlayedJob(directory, channels)
    for second in range(seconds):
        job.apply(START + second * SECOND, *sources)
        if second % project_every == project_every - 1:
            job.project()


def expire_log(path: Path) -> None:
    """Delete all of a table's log before its newest version, and the files that only older versions need."""
    table = DeltaTable(str(path))
    delete_old_files(table)
    table.update_incremental()
    table.create_checkpoint()
    delete_log_before(path, table.version())
    assert [version for _, version in log_entries(path) if version is not None] == [table.version()]


@pytest.fixture(scope="session")
def played_tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Give the folder of the tables that scenarios made."""

    @cache
    def made(*scenarios: str, seconds: int = 75, channels: Collection[Channel] = frozenset(Channel)) -> Path:
        directory = tmp_path_factory.mktemp("played")
        play(directory, *scenarios, seconds=seconds, channels=channels)
        return directory

    return made
