"""One history, applied by the driver or by executors, from a directory or Kafka, in a folder or a store: equal tables.

The job is stopped now and then, and goes on with another place and another bus.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.store.place import Place, place_of
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from tests.chaos.comparison import all_differences
from tests.jobs.shards.test_kafka_batch import Sent, as_directory, rows
from tests.jobs.shards.test_shards import GAPS, Bus, batches, of_cluster, report, shipped, topics
from tests.plays import SCENARIOS, observations
from tests.plugins.batches import store_progress
from tests.plugins.executors import Executors, replication_on, samples_on
from tests.stores.azure import azurite
from tests.stores.hdfs import hdfs
from tests.stores.s3 import versitygw
from tests.stores.store import Store

__all__ = ["topics"]


class How(NamedTuple):
    """How a piece of the history is applied."""

    by: str
    bus: str


EVERY = (How("driver", "directory"), How("driver", "kafka"), How("executors", "kafka"))
Piece = dict[Channel, list[Sent]]
STORES = {"versitygw": versitygw, "azurite": azurite, "hdfs": hdfs}


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.jobs.shards.samples.LONGEST_REST_SECONDS", 0.0)


def pieces(chance: random.Random) -> list[Piece]:
    """Give what collectors of some clusters tell, in pieces; a log is in its order."""
    found: dict[Channel, list[list[Sent]]] = {}
    told = [of_cluster(observations(name), number) for number, name in enumerate(chance.sample(SCENARIOS, 2))]
    for channel in Channel:
        logs = [[each for each in of_one if each.channel is channel] for of_one in told]
        found[channel] = batches(shipped([log for log in logs if log]), chance)
    return [
        {channel: cut[number] for channel, cut in found.items() if number < len(cut)}
        for number in range(max(map(len, found.values())))
    ]


def apply(tables: Place, how: How, piece: Piece, executors: Executors) -> None:
    """Start the job in one way, apply a piece, and stop it."""
    batch: ReplicationBatch | SampleBatch
    for channel, records in piece.items():
        bus = Bus() if how.bus == "kafka" else None
        given = rows(records) if bus is not None else as_directory(records)
        is_replication = channel is Channel.REPLICATION
        if how.by == "executors" and bus is not None:
            open_on = replication_on if is_replication else samples_on
            sharded = open_on(executors, tables, bus)
            batch = sharded.batch
            bus.start(channel, batch.offset)
            sharded.apply(given)
        else:
            batch = ReplicationBatch(tables, bus=bus) if is_replication else SampleBatch(tables, bus=bus)
            if bus is not None:
                bus.start(channel, batch.offset)
            batch.apply(given)
        if isinstance(batch, SampleBatch):
            store_progress(tables, batch)
        else:
            batch.project()
            report(tables, *batch.sources())
    follow_incidents(tables)


def follow_incidents(tables: Place) -> None:
    incidents = IncidentsTable(tables, GAPS)
    incidents.apply(ChangeReader(tables / PARTITION_CHANGES.name, incidents.version).poll())


def tables_differ(tables: Place, expected: Path, chance: random.Random) -> list[str]:
    """Apply a history in every way, and at once by one driver from a directory; return what differs."""
    cut, executors = pieces(chance), Executors(chance=chance)
    ways = [chance.choice(EVERY) for _ in cut]
    for how, piece in zip(ways, cut, strict=True):
        apply(tables, how, piece, executors)
    whole = {channel: [each for piece in cut for each in piece.get(channel, ())] for channel in Channel}
    apply(expected, EVERY[0], whole, executors)
    return [*all_differences(tables, expected)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_every_table_is_the_same_in_a_folder(seed: int, tmp_path: Path) -> None:
    assert tables_differ(tmp_path / "tables", tmp_path / "expected", random.Random(seed)) == []


@pytest.mark.store
@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", STORES)
def test_every_table_is_the_same_in_a_store(name: str, tmp_path: Path) -> None:
    start: AbstractContextManager[Store] = STORES[name](tmp_path / name)
    with start as store:
        tables = place_of(f"{store.url}/tables", store.options)
        assert tables_differ(tables, tmp_path / "expected", random.Random(1)) == []
