"""Clusters that executors fold: every table equals that of one driver, whatever happens to workers and driver."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.bus.kafka.reader import TopicOffsets
from streaming.bus.kafka.records import partition_of
from streaming.bus.segments import new_log_id
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.codec import decode, encode
from streaming.contracts.observations import Channel, Observation
from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import by_version, rows_between
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.of_clusters import recovered_sources
from streaming.delta.store.place import Place
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.streams.bus_source import SCHEMA
from tests.chaos.comparison import all_differences
from tests.end_to_end.stories import long_story
from tests.examples import examples
from tests.jobs.shards.test_kafka_batch import Reader, Sent, as_directory, rows, sent
from tests.plays import observations
from tests.plugins.executors import Executors, OnExecutors, replication_on

PARTITIONS = 3
GAPS = IncidentGaps()


class Bus(Reader):
    """A topic with more partitions than one."""

    def look(self, channel: Channel) -> TopicOffsets:  # noqa: ARG002 - of every channel
        numbers = range(PARTITIONS)
        return TopicOffsets("id-1", dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 1 << 30))


def of_cluster(told: Iterable[Observation], number: int) -> list[Observation]:
    """Give what was observed as if it was of another cluster, by a collector of its own."""
    first = next(iter(told))
    names = {
        f'"cluster_id":"{first.cluster_id}"'.encode(): f'"cluster_id":"cluster/{number}"'.encode(),
        f'"cluster":"{first.cluster}"'.encode(): f'"cluster":"prod-{number}"'.encode(),
        f'"source":"{first.source}"'.encode(): f'"source":"metadata_log:{number}"'.encode(),
    }
    return [decode(renamed(encode(each), names)) for each in told]


def renamed(payload: bytes, names: Mapping[bytes, bytes]) -> bytes:
    for old, new in names.items():
        payload = payload.replace(old, new)
    return payload


def shipped(clusters: Sequence[Sequence[Observation]]) -> list[list[Sent]]:
    """Give the records of each cluster's log, in the partition of its key."""
    found = []
    for told in clusters:
        run, at, records = new_log_id(None), 0, []
        for each in told:
            payload = encode(each)
            end = at + 12 + len(payload)
            partition = partition_of(each.cluster_id, PARTITIONS)
            records.append(Sent(each.source, at, end, run, str(run), None, payload, partition, 0))
            at = end
        found.append(records)
    return found


def batches(logs: list[list[Sent]], chance: random.Random) -> list[list[Sent]]:
    """Mix the logs, each in its order, number the rows of each partition, and cut them."""
    waiting = [list(reversed(records)) for records in logs]
    mixed = []
    while any(waiting):
        records = chance.choice([each for each in waiting if each])
        mixed += [records.pop() for _ in range(min(len(records), chance.randint(1, 30)))]
    numbered = [
        record
        for partition in range(PARTITIONS)
        for record in sent([each for each in mixed if each.partition == partition])
    ]
    offset_of = {(each.source, each.position): each.offset for each in numbered}
    mixed = [each._replace(offset=offset_of[each.source, each.position]) for each in mixed]
    cuts = sorted({0, len(mixed), *(chance.randrange(len(mixed)) for _ in range(8))})
    return [mixed[begin:end] for begin, end in pairwise(cuts)]


def report(tables: Place, states: list[SourceState], version: int) -> None:
    ProgressTable(tables, Channel.REPLICATION).replace([(state, SourceLag()) for state in states], version)


def by_one_driver(tables: Path, logs: list[list[Sent]]) -> None:
    batch = ReplicationBatch(tables)
    batch.apply(as_directory([record for records in logs for record in records]))
    batch.project()
    report(tables, *batch.sources())
    IncidentsTable(tables, GAPS).apply(by_version(rows_between(tables / PARTITION_CHANGES.name, -1, batch.version)))


def compared(tables: Path, expected: Path) -> list[str]:
    return [*all_differences(tables, expected)]


def open_sharded(tables: Path, executors: Executors, project_seconds: float = 0) -> OnExecutors:
    bus = Bus()
    batch = replication_on(executors, tables, bus, rest_seconds=project_seconds, gaps=GAPS)
    bus.start(Channel.REPLICATION, batch.batch.offset)
    return batch


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.bus.kafka.reader.ensure", lambda *_: {})


def run(tables: Path, pieces: list[list[Sent]], chance: random.Random) -> None:
    """Apply batches on executors; now and then the job is killed, and a batch comes again."""
    executors = Executors(chance=chance)
    batch = open_sharded(tables, executors)
    for piece in pieces:
        if chance.random() < 0.3:
            batch = open_sharded(tables, executors)
        batch.apply(rows(piece))
        if chance.random() < 0.2:
            batch.apply(rows(piece))
    batch.project()
    report(tables, *batch.batch.sources())


@settings(max_examples=examples(2))
@given(seed=st.integers(0, 1 << 32))
def test_every_table_is_that_of_one_driver_whatever_happens_to_workers(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    logs = shipped([of_cluster(long_story(seed + number, steps=20), number) for number in range(3)])
    folder = tmp_path_factory.mktemp("tables")
    run(folder / "sharded", batches(logs, chance), chance)
    by_one_driver(folder / "driver", logs)
    assert compared(folder / "sharded", folder / "driver") == []


SCENARIOS = ("unclean_election", "topic_recreated", "broker_loss", "rolling_restart")


def replicated(name: str) -> list[Observation]:
    return [each for each in observations(name) if each.channel is Channel.REPLICATION]


@pytest.mark.parametrize("scenarios", [SCENARIOS[:2], pytest.param(SCENARIOS, marks=pytest.mark.long)], ids=len)
def test_scenarios_of_the_model_give_the_tables_of_one_driver_and_may_go_on_there_and_back(
    scenarios: tuple[str, ...], tmp_path: Path
) -> None:
    chance = random.Random(7)
    logs = shipped([of_cluster(replicated(name), number) for number, name in enumerate(scenarios)])
    pieces = batches(logs, chance)
    third = len(pieces) // 3
    tables, executors = tmp_path / "tables", Executors(chance=chance)
    batch = open_sharded(tables, executors)
    for piece in pieces[:third]:
        batch.apply(rows(piece))
    # The second third by one driver, which begins with tables whose last round is missing.
    one = ReplicationBatch(tables)
    one.apply(as_directory([record for piece in pieces[third : 2 * third] for record in piece]))
    one.project()
    batch = open_sharded(tables, executors)
    for piece in pieces[2 * third :]:
        batch.apply(rows(piece))
    batch.project()
    report(tables, *batch.batch.sources())
    by_one_driver(tmp_path / "driver", logs)
    assert compared(tables, tmp_path / "driver") == []


def test_a_worker_keeps_the_state_of_its_clusters_and_reads_it_when_it_was_not_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.jobs.shards import task  # noqa: PLC0415

    loaded: list[set[str]] = []
    recovered = task.recovered
    monkeypatch.setattr(task, "recovered", lambda *given: (loaded.append(set(given[2])), recovered(*given))[1])
    logs = shipped([of_cluster(long_story(number, steps=40), number) for number in range(2)])
    pieces = [records[begin : begin + 20] for records in logs for begin in range(0, 60, 20)]
    batch = open_sharded(tmp_path, Executors(), project_seconds=1000)
    for piece in pieces:
        batch.apply(rows(piece))
    assert loaded == [{"cluster/0"}, {"cluster/1"}]


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_a_worker_that_has_several_partitions_keeps_the_state_of_each(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.jobs.shards import task  # noqa: PLC0415

    loaded: list[set[str]] = []
    recovered = task.recovered
    monkeypatch.setattr(task, "recovered", lambda *given: (loaded.append(set(given[2])), recovered(*given))[1])
    logs = [of_partition(number, of_cluster(long_story(number, steps=40), number)) for number in range(2)]
    batch = open_in(place, tmp_path / "tables")
    for begin in range(0, 60, 20):
        batch.apply(rows([each for records in logs for each in records[begin : begin + 20]]))
    assert loaded == [{"cluster/0"}, {"cluster/1"}]
    batch.project()
    assert derived_differ(tmp_path, [each for records in logs for each in records[:60]]) == []


def test_a_start_reads_the_state_of_a_cluster_once_also_if_its_partition_is_not_known_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.jobs.shards import task  # noqa: PLC0415

    records = of_partition(2, of_cluster(long_story(1, steps=40), 0))
    open_in("driver", tmp_path / "tables").apply(rows(records[:20]))
    loaded: list[set[str]] = []
    recovered = task.recovered
    monkeypatch.setattr(task, "recovered", lambda *given: (loaded.append(set(given[2])), recovered(*given))[1])
    batch = open_in("driver", tmp_path / "tables")
    for begin in (20, 40):
        batch.apply(rows(records[begin : begin + 20]))
    batch.project()
    assert loaded == [{"cluster/0"}]
    assert derived_differ(tmp_path, records[:60]) == []


def of_partition(partition: int, told: Sequence[Observation]) -> list[Sent]:
    """Give the records of a log that has a partition of its own."""
    (records,) = shipped([told])
    return sent(each._replace(partition=partition) for each in records)


def open_in(place: str, tables: Path) -> ReplicationBatch | OnExecutors:
    """Open replication in the driver, or on one executor that has all partitions."""
    if place == "executors":
        return open_sharded(tables, Executors(workers=1), project_seconds=1000)
    bus = Bus()
    batch = ReplicationBatch(tables, bus=bus)
    bus.start(Channel.REPLICATION, batch.offset)
    return batch


def test_a_commit_that_another_job_has_come_before_is_refused_and_leaves_no_state_behind(tmp_path: Path) -> None:
    from streaming.errors import TableRefused  # noqa: PLC0415

    (records,) = shipped([of_cluster(long_story(1, steps=40), 0)])
    executors = Executors()
    first = open_sharded(tmp_path, executors)
    first.apply(rows(records[:20]))
    second = open_sharded(tmp_path, executors)
    second.apply(rows(records[20:30]))
    with pytest.raises(TableRefused, match="another job writes"):
        first.apply(rows(records[20:]))
    second.apply(rows(records[30:]))
    second.project()
    report(tmp_path, *second.batch.sources())
    by_one_driver(tmp_path / "driver", [records])
    assert compared(tmp_path, tmp_path / "driver") == []


def test_sources_are_known_after_a_start_before_anything_comes(tmp_path: Path) -> None:
    logs = shipped([of_cluster(long_story(number, steps=10), number) for number in range(2)])
    batch = open_sharded(tmp_path, Executors())
    batch.apply(rows([*logs[0], *logs[1]]))
    states, version = batch.batch.sources()
    assert recovered_sources(tmp_path, version) == states
    report(tmp_path, states, version)
    again = open_sharded(tmp_path, Executors()).batch
    assert again.sources()[0] == states
    assert {source: at.position for source, at in again.applied.items() if at.position >= 0} == {
        cast("str", records[-1].source): records[-1].position for records in logs
    }


def test_rows_in_arrow_are_those_of_the_bus() -> None:
    (records,) = shipped([of_cluster(long_story(1, steps=1), 0)])
    assert as_directory(records).schema == pa.schema(SCHEMA)


def test_a_cluster_that_moves_to_another_partition_is_in_each_derived_table_once(tmp_path: Path) -> None:
    """The shard of its old partition still holds it, and has records of another cluster in the same batch."""
    moving, staying = shipped([of_cluster(long_story(number, steps=40), number) for number in (0, 1)])
    staying = [each._replace(partition=0) for each in staying]
    moving = [each._replace(partition=0 if place < 30 else 1) for place, each in enumerate(moving)]
    batch = open_sharded(tmp_path / "tables", Executors())
    numbers = {partition: count() for partition in (0, 1)}
    for begin in (0, 10, 20, 30, 40):
        mixed = [*staying[begin : begin + 10], *moving[begin : begin + 10]]
        batch.apply(rows([each._replace(offset=next(numbers[each.partition])) for each in mixed]))
    batch.project()
    report(tmp_path / "tables", *batch.batch.sources())
    by_one_driver(tmp_path / "driver", [staying[:50], moving[:50]])
    assert compared(tmp_path / "tables", tmp_path / "driver") == []


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_a_cluster_that_is_in_another_partition_and_back_is_folded_from_its_state_there(
    place: str, tmp_path: Path
) -> None:
    """Of its two collectors one has begun to ship before the topic got more partitions."""
    moving, staying = shipped([of_cluster(long_story(number, steps=40), number) for number in (0, 1)])
    batch = open_in(place, tmp_path / "tables")
    numbers = {partition: count() for partition in (0, 1)}
    for begin, partition in ((0, 0), (10, 1), (20, 0), (30, 1)):
        own = [each._replace(partition=partition) for each in moving[begin : begin + 10]]
        mixed = [*own, *(each._replace(partition=0) for each in staying[begin : begin + 10])]
        batch.apply(rows([each._replace(offset=next(numbers[each.partition])) for each in mixed]))
    batch.project()
    assert derived_differ(tmp_path, [*moving[:40], *staying[:40]]) == []


def derived_differ(folder: Path, records: list[Sent]) -> list[str]:
    """Compare what follows from records with what one driver makes of them."""
    one = ReplicationBatch(folder / "driver")
    one.apply(as_directory(records))
    one.project()
    derived = {"partition_changes", "replication_events", "partition_state", "broker_state", "cluster_state"}
    found = compared(folder / "tables", folder / "driver")
    return [each for each in found if each.partition(":")[0] in derived]


@pytest.mark.long
def test_a_cluster_with_records_in_two_partitions_is_folded_one_after_the_other(tmp_path: Path) -> None:
    """As where a topic got more partitions, or a log began before its cluster was known."""
    told = of_cluster(long_story(3, steps=25), 0)
    (whole,) = shipped([told])
    names = {b'"source":"metadata_log:0"': b'"source":"metadata_log:1"'}
    (other,) = shipped([[decode(renamed(encode(each), names)) for each in told]])
    other = [each._replace(partition=(each.partition + 1) % PARTITIONS) for each in other]
    executors = Executors(chance=random.Random(2))
    batch = open_sharded(tmp_path / "tables", executors)
    for begin in range(0, len(whole), 12):
        batch.apply(rows([*sent(whole[begin : begin + 12], begin), *sent(other[begin : begin + 12], begin)]))
    batch.project()
    report(tmp_path / "tables", *batch.batch.sources())
    by_one_driver(tmp_path / "driver", [whole, other])
    assert compared(tmp_path / "tables", tmp_path / "driver") == []
