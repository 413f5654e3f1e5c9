"""Moments of the past: how long a page of one cluster and of the fleet takes, and what bases take of the disk.

    python -m tests.benchmarks.past [--days 30] [--clusters 100] [--partitions 1000] [--moments 40] [--keep FOLDER]

The history is written by the job's own writers: per cluster a heartbeat each 5 s, an answer about the quorum each
minute, a partition that leaves and joins its ISR now and then, and a restart of a broker once a week. Scaled are the
commits: a day is 24 of them, compacted as the job does it. Printed are the sizes of the history and of its bases, then
p50, p99 and the slowest of moments at random, of the fleet and of one cluster, without anything in memory and walking
on, and of the previous and the next change. ``--store`` adds the same over S3 with 25 ms a request (versitygw). With
``--keep`` the tables stay, and are used again.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.past import ChangeScope, Past
from streaming.contracts.columns import OCCURRENCE
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    CONDITIONS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
)
from streaming.delta.changes.bases import PastStates, bases_of, bytes_of
from streaming.delta.changes.log import HEARTBEATS, UNCOMMITTED, ChangeLog
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import LARGE_BYTES, compact
from streaming.delta.log.storage import table_at
from streaming.delta.log.writer import OVERWRITE, Writer
from streaming.delta.store.place import place_of
from tests.benchmarks._running import options
from tests.stores.fault_proxy import fault_proxy
from tests.stores.s3 import versitygw
from tests.stores.store import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
BEGAN: Final = 1_790_000_000 * SECOND // DAY * DAY
BROKERS: Final = 6
PER_TOPIC: Final = 20
HEARTBEAT: Final = 5 * SECOND
QUORUM: Final = 60 * SECOND
FLAPS_PER_DAY: Final = 100
SOURCE: Final = "metadata_log:collector-1"
_MOMENT: Final = pa.timestamp("us", tz="UTC")


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def table_of(schema: pa.Schema, count: int, columns: dict[str, Any]) -> pa.Table:
    """Fill columns up: values are repeated, and what is not given is null."""
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if not isinstance(value, (pa.Array, pa.ChunkedArray)):
            value = repeated(value, field.type, count)
        arrays.append(value.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def struct_of(kind: pa.StructType, count: int, columns: dict[str, Any]) -> pa.StructArray:
    rows = table_of(pa.schema(list(kind)), count, columns)
    return pa.StructArray.from_arrays([rows[field.name].combine_chunks() for field in kind], fields=list(kind))


def lists(values: np.ndarray, width: int) -> pa.Array:
    offsets = np.arange(0, values.size + 1, width, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1).astype(np.int32)))


class Fleet:
    """The partitions of every cluster, as arrays; which of them lacks a replica in its ISR."""

    def __init__(self, clusters: int, partitions: int, seed: int = 1) -> None:
        self.dice = np.random.default_rng(seed)
        self.clusters, self.partitions = clusters, partitions
        self.ids = [f"cluster-id-{number:03}" for number in range(clusters)]
        count = clusters * partitions
        number = np.arange(count) % partitions
        self.of_cluster = np.arange(count) // partitions
        self.number = number % PER_TOPIC
        self.topic = number // PER_TOPIC
        first = self.dice.integers(0, BROKERS, count)
        self.replicas = np.stack([(first + step) % BROKERS for step in range(3)], axis=1)
        self.is_short = np.zeros(count, bool)
        self.changes = np.zeros(count, np.int64)
        self.changed_at = np.full(count, BEGAN, np.int64)

    def names(self, places: np.ndarray) -> dict[str, Any]:
        cluster = self.of_cluster[places]
        text = [f"{number:03}" for number in range(max(self.clusters, self.partitions // PER_TOPIC + 1))]
        numbers = pa.array(text)
        clusters, topics = (numbers.take(pa.array(each)) for each in (cluster, self.topic[places]))
        joined = pc.binary_join_element_wise
        topic = joined("topic", topics, "-")
        return {
            "cluster_id": joined("cluster-id", clusters, "-"),
            "cluster": joined("cluster", clusters, "-"),
            "topic_id": joined("id-of", clusters, topic, "-"),
            "topic": topic,
            "partition": pa.array(self.number[places], pa.int32()),
        }

    def states(self, kind: pa.StructType, places: np.ndarray) -> pa.StructArray:
        """Give the states of some partitions."""
        count, short = len(places), self.is_short[places]
        replicas = lists(self.replicas[places], 3)
        widths = np.where(short, 2, 3)
        offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
        mask = np.stack([np.ones(count, bool), np.ones(count, bool), ~short], axis=1)
        isr = pa.ListArray.from_arrays(pa.array(offsets), pa.array(self.replicas[places][mask].astype(np.int32)))
        since = pa.array(self.changed_at[places], pa.int64(), mask=~short).cast(_MOMENT)
        empty = lists(np.zeros(0), 1)
        nothing = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), empty.values)
        numbers = dict.fromkeys(
            (
                "isr_shrinks",
                "isr_expands",
                "leader_changes",
                "unclean_elections",
                "missed_changes",
                "metadata_index",
                "unobserved_micros",
            ),
            0,
        )
        seconds = {f"{name}_seconds": 0.0 for name in ("offline", "under_replicated", "under_min_isr", "unknown")}
        flags = dict.fromkeys(
            (
                "is_offline",
                "is_under_min_isr",
                "is_off_preferred_leader",
                "is_deleted",
                "leader_recovering",
                "is_diskless",
            ),
            False,
        )
        lacking = dict.fromkeys(("elr", "last_known_elr", "adding_replicas", "removing_replicas"), nothing)
        return struct_of(kind, count, {
            **numbers, **seconds, **flags, **lacking,
            "replicas": replicas, "isr": isr, "leader": pa.array(self.replicas[places, 0], pa.int32()),
            "leader_epoch": 3, "partition_epoch": pa.array(self.changes[places], pa.int32()),
            "min_isr_configured": 2, "min_isr_effective": 2,
            "is_under_replicated": pa.array(short), "is_at_min_isr": pa.array(short), "under_replicated_since": since,
            "isr_shrinks": pa.array(self.changes[places] // 2), "isr_expands": pa.array(self.changes[places] // 2),
            "last_cause": "lag", "last_evidence": "proven",
            "changed_at": pa.array(self.changed_at[places]).cast(_MOMENT),
            "change_number": pa.array(self.changes[places]),
            "metadata_offset": pa.array((self.changed_at[places] - BEGAN) // 500_000),
        })  # fmt: skip

    def cluster_states(self, kind: pa.StructType, moments: np.ndarray) -> pa.StructArray:
        at = pa.array(moments).cast(_MOMENT)
        voters = lists(np.tile([100, 101, 102], (len(moments), 1)), 3)
        numbers = dict.fromkeys((field.name for field in kind if field.name.startswith("expired_")), 0)
        numbers["expired_certificate"] = None
        return struct_of(kind, len(moments), {
            **numbers, "primary_source": "metadata_log", "controller": 100, "controller_epoch": 5,
            "controller_changes": 0, "has_baseline": True, "watermark": at, "primary_watermark": at,
            "quorum_voters": voters, "quorum_caught_up": voters, "quorum_observed_at": at, "unobserved_micros": 0,
            "is_quorum_led": True, "registered_controllers": voters,
        })  # fmt: skip


def occurred(moments: np.ndarray) -> dict[str, Any]:
    at = pa.array(moments).cast(_MOMENT)
    date = pa.array((moments // DAY).astype(np.int32)).cast(pa.date32())
    times = {column.name: at for column in OCCURRENCE if column.type == "timestamp"}
    return {
        **times, "date": date, "source": SOURCE, "source_kind": "metadata_log", "is_baseline": False, "missed": 0,
        "offset": pa.array(moments // 500_000), "sequence": pa.array((moments - BEGAN) // SECOND),
    }  # fmt: skip


def owners(fleet: Fleet, count: int) -> dict[str, Any]:
    """Give the columns of rows that every cluster has so many of, cluster by cluster."""
    first_of = np.repeat(np.arange(fleet.clusters) * fleet.partitions, count)
    return {name: values for name, values in fleet.names(first_of).items() if name in {"cluster_id", "cluster"}}


def changed(fleet: Fleet, begin: int, end: int, restarted: Sequence[int]) -> pa.Table:
    """Let partitions leave and join their ISRs, and brokers of some clusters restart; give the rows."""
    count = int(fleet.clusters * FLAPS_PER_DAY * (end - begin) / DAY / 2)
    places = fleet.dice.choice(len(fleet.is_short), count, replace=False)
    moments = np.sort(fleet.dice.integers(begin, end - 60 * SECOND, count)) // 1000 * 1000  # of records: milliseconds
    parts = [(places, moments), (places, moments + 30 * SECOND)]
    for cluster in restarted:
        own = np.flatnonzero(
            (fleet.of_cluster == cluster) & (fleet.replicas[:, 2] == int(fleet.dice.integers(BROKERS)))
        )
        own = np.setdiff1d(own, places)
        at = int(fleet.dice.integers(begin, end - 300 * SECOND))
        parts += [(own, np.full(len(own), at)), (own, np.full(len(own), at + 120 * SECOND))]
    return pa.concat_tables([_steps(fleet, *part) for part in parts if len(part[0])])


def _steps(fleet: Fleet, places: np.ndarray, moments: np.ndarray) -> pa.Table:
    count = len(places)
    kind = UNCOMMITTED.field("after").type
    before = fleet.states(kind, places)
    fleet.is_short[places] ^= True
    fleet.changes[places] += 1
    fleet.changed_at[places] = moments
    short = fleet.is_short[places]
    names = fleet.names(places)
    third = pa.array(fleet.replicas[places, 2].astype(np.int32))
    one = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), third)
    none = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), third.slice(0, 0))
    is_short = pa.array(short)
    ids = pc.binary_join_element_wise(
        names["topic_id"], names["partition"].cast(pa.string()), pa.array(fleet.changes[places]).cast(pa.string()), "/"
    )
    event = UNCOMMITTED.field("events").type.value_type
    events = struct_of(event, count, {
        "event_id": ids, "event": pc.if_else(is_short, "isr_shrink", "isr_expand"), "event_broker": third
    })  # fmt: skip
    return table_of(UNCOMMITTED, count, {
        **names, **occurred(moments), "subject": "partition", "cause": "lag", "evidence": "proven",
        "left_isr": pc.if_else(is_short, one, none), "joined_isr": pc.if_else(is_short, none, one),
        "events": pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), events),
        "before": before, "after": fleet.states(kind, places),
    })  # fmt: skip


def alive(fleet: Fleet, begin: int, end: int) -> pa.Table:
    """Give the rows of heartbeats, and of answers about the quorum."""
    beats = np.tile(np.arange(begin, end, HEARTBEAT), fleet.clusters)
    each = len(beats) // fleet.clusters
    source = struct_of(UNCOMMITTED.field("source_after").type, len(beats), {
        "source": SOURCE, "source_kind": "metadata_log", "position": pa.array((beats - BEGAN) // 5_000),
        "sequence": pa.array((beats - BEGAN) // SECOND), "offset": pa.array(beats // 500_000),
        "observed_until": pa.array(beats).cast(_MOMENT), "collected_at": pa.array(beats).cast(_MOMENT),
        "duplicates": 0, "quarantined": 0,
    })  # fmt: skip
    sources = table_of(UNCOMMITTED, len(beats), {
        **owners(fleet, each), **occurred(beats), "subject": "source", "source_after": source
    })  # fmt: skip
    answers = np.tile(np.arange(begin, end, QUORUM), fleet.clusters)
    clusters = table_of(UNCOMMITTED, len(answers), {
        **owners(fleet, len(answers) // fleet.clusters), **occurred(answers), "subject": "cluster",
        "cluster_after": fleet.cluster_states(UNCOMMITTED.field("cluster_after").type, answers),
    })  # fmt: skip
    return pa.concat_tables([sources, clusters])


def baseline(fleet: Fleet) -> pa.Table:
    every = np.arange(len(fleet.is_short))
    kind = UNCOMMITTED.field("after").type
    partitions = table_of(UNCOMMITTED, len(every), {
        **fleet.names(every), **occurred(fleet.changed_at), "subject": "partition", "is_baseline": True,
        "after": fleet.states(kind, every),
    })  # fmt: skip
    numbers = np.tile(np.arange(BROKERS), fleet.clusters)
    moments, kind = np.full(len(numbers), BEGAN), UNCOMMITTED.field("broker_after").type
    brokers = table_of(UNCOMMITTED, len(numbers), {
        **owners(fleet, BROKERS), **occurred(moments), "subject": "broker", "broker": pa.array(numbers, pa.int32()),
        "is_baseline": True, "broker_after": struct_of(kind, len(numbers), _broker(numbers)),
    })  # fmt: skip
    return pa.concat_tables([brokers, partitions])


def _broker(numbers: np.ndarray) -> dict[str, Any]:
    return {
        "broker": pa.array(numbers, pa.int32()), "broker_epoch": pa.array(numbers + 100), "is_registered": True,
        "is_fenced": False, "is_shutting_down": False, "rack": "a", "host": "broker.example", "port": 9092,
    }  # fmt: skip


class History:
    """The tables while they are written."""

    def __init__(self, tables: Path, fleet: Fleet) -> None:
        self.fleet, self._now = fleet, BEGAN
        self.log = ChangeLog(tables)
        self._compacted = Writer.opened(tables, PARTITION_CHANGES)
        self._tables = tables
        self._states = {table.name: Writer.opened(tables, table) for table in _STATES}
        self._past = PastStates(tables)

    def commit(self, rows: pa.Table) -> None:
        order = pc.sort_indices(rows["occurred_not_after"])
        self.log.commit(rows.take(order), {SOURCE: self.log.version})

    def day(self, number: int) -> None:
        """Write a day, compact it, and let the job look after the state tables at its end."""
        begin = BEGAN + number * DAY
        restarts = random.Random(number)
        for hour in range(24):
            at = begin + hour * HOUR
            own = [each for each in range(self.fleet.clusters) if restarts.random() < 1 / (7 * 24)]
            self.commit(pa.concat_tables([changed(self.fleet, at, at + HOUR, own), alive(self.fleet, at, at + HOUR)]))
            if hour == 0:
                self.round(at + HOUR - HEARTBEAT)
        self._compacted.look_again()
        compact(self._compacted, LARGE_BYTES, HEARTBEATS)
        compact(self._compacted, LARGE_BYTES, HEARTBEATS)
        self.log = ChangeLog(self._tables)

    def round(self, now: int) -> None:
        """Write the state tables, and a base if one is due."""
        fleet, version = self.fleet, {PARTITION_CHANGES.name: self.log.version}
        every = np.arange(len(fleet.is_short))
        schema = arrow_schema(PARTITION_STATE_TABLE)
        states = fleet.states(UNCOMMITTED.field("after").type, every)
        flat = {field.name: values for field, values in zip(states.type, states.flatten(), strict=True)}
        partitions = table_of(schema, len(every), {**fleet.names(every), **flat, "as_of_version": self.log.version})
        moments = np.full(fleet.clusters, now)
        state = fleet.cluster_states(UNCOMMITTED.field("cluster_after").type, moments)
        flat = {field.name: values for field, values in zip(state.type, state.flatten(), strict=True)}
        clusters = table_of(
            arrow_schema(CLUSTER_STATE_TABLE),
            fleet.clusters,
            {**owners(fleet, 1), **flat, "as_of_version": self.log.version},
        )
        numbers = np.tile(np.arange(BROKERS), fleet.clusters)
        brokers = table_of(
            arrow_schema(BROKER_STATE_TABLE),
            len(numbers),
            {**owners(fleet, BROKERS), **_broker(numbers), "as_of_version": self.log.version},
        )
        for table, rows in (
            (PARTITION_STATE_TABLE, partitions),
            (CLUSTER_STATE_TABLE, clusters),
            (BROKER_STATE_TABLE, brokers),
        ):
            self._states[table.name].write(rows, OVERWRITE, version)
        files = self._states[PARTITION_STATE_TABLE.name].files()
        self._past.after_round(self.log.version, clusters, brokers, files)

    def spells(self, days: int) -> None:
        """Write three spells of each cluster a day."""
        rows = []
        for number in range(3 * days * self.fleet.clusters):
            began = BEGAN + number * DAY // (3 * self.fleet.clusters)
            own = number % self.fleet.clusters
            rows.append({
                **dict.fromkeys(CONDITIONS.column_names()), "condition_id": str(number),
                "cluster_id": self.fleet.ids[own], "cluster": f"cluster-{own:03}",
                "condition": "under_replicated", "subject": "2", "since": began,
                "began_at": began, "ended_at": began + 900 * SECOND, "partitions": 20, "topics": [], "topic_count": 0,
                "began_version": 1, "ended_version": 2, "as_of_version": 2,
            })  # fmt: skip
        writer = Writer.opened(self._tables, CONDITIONS)
        writer.write(pa.Table.from_pylist(rows, schema=arrow_schema(CONDITIONS)), OVERWRITE, {})


_STATES: Final[tuple[Table, ...]] = (PARTITION_STATE_TABLE, CLUSTER_STATE_TABLE, BROKER_STATE_TABLE)


def build(tables: Path, days: int, clusters: int, partitions: int) -> None:
    """Write the history."""
    began = time.perf_counter()
    history = History(tables, Fleet(clusters, partitions))
    history.commit(baseline(history.fleet))
    for day in range(days):
        history.day(day)
        print(f"day {day + 1}: {time.perf_counter() - began:.0f} s, {size_of(tables)}", flush=True)
    history.round(BEGAN + days * DAY - HEARTBEAT)
    history.spells(days)


def size_of(tables: Path) -> str:
    history = bytes_of(table_at(tables / PARTITION_CHANGES.name))
    found = bases_of(table_at(tables / "past_states"))
    taken = sum(base.size for base in found)
    return f"history {history / 1e6:.1f} MB, {len(found)} bases {taken / 1e6:.1f} MB ({100 * taken / history:.1f} %)"


def measure(name: str, place: Place, days: int, moments: int, clusters: Sequence[str]) -> None:
    """Print how long moments at random take."""
    dice = random.Random(7)
    asked = [BEGAN + HOUR + dice.randrange(days * DAY - 2 * HOUR) for _ in range(moments)]
    fleet, one = Past(place), Past(place)
    began = time.perf_counter()
    fleet.snapshot(asked[0])
    print(f"{name}: the first moment of a process {1000 * (time.perf_counter() - began):.0f} ms")
    spread(f"{name}: fleet, at random", fleet.snapshot, asked)
    walk = [asked[0] + step * 60 * SECOND for step in range(moments)]
    spread(f"{name}: fleet, minute by minute", fleet.snapshot, walk)
    spread(f"{name}: a cluster, at random", lambda at: one.snapshot(at, (dice.choice(clusters),)), asked)
    own = clusters[len(clusters) // 2]
    spread(f"{name}: a cluster, minute by minute", lambda at: one.snapshot(at, (own,)), walk)
    spread(f"{name}: previous change of a cluster", lambda at: one.previous(at, ChangeScope(own)), asked)
    spread(f"{name}: next change of a cluster", lambda at: one.next(at, ChangeScope(own)), asked)
    spread(f"{name}: next change of the fleet", one.next, asked)
    spread(f"{name}: next change of a broker", lambda at: one.next(at, ChangeScope(own, broker=2)), asked)


def spread(name: str, work: Callable[[int], object], asked: Sequence[int]) -> None:
    """Print how long work takes, and for how long another thread of the process had to wait meanwhile."""
    taken, computed, waits, is_over = list[float](), list[float](), list[float](), threading.Event()

    def tick() -> None:
        while not is_over.is_set():
            before = time.perf_counter()
            time.sleep(0.001)
            waits.append(time.perf_counter() - before)

    watch = threading.Thread(target=tick)
    watch.start()
    for at in asked:
        began, cpu = time.perf_counter(), time.process_time()
        work(at)
        taken.append(1000 * (time.perf_counter() - began))
        computed.append(1000 * (time.process_time() - cpu))
    is_over.set()
    watch.join()
    p50, p99 = (sorted(taken)[min(len(taken) - 1, int(share * len(taken)))] for share in (0.5, 0.99))
    cpus = f"CPU p50 {sorted(computed)[len(computed) // 2]:.0f} ms, most {max(computed):.0f} ms"
    waited = f"another thread waited {1000 * max(waits):.0f} ms at most"
    print(f"{name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, slowest {max(taken):.0f} ms; {cpus}; {waited}", flush=True)


def main() -> None:
    given = options(__doc__, days=30, clusters=100, partitions=1000, moments=40, keep="", store=False)
    with tempfile.TemporaryDirectory() as temporary:
        tables = Path(given.keep or temporary) / "tables"
        if not tables.is_dir():
            build(tables, given.days, given.clusters, given.partitions)
        print(size_of(tables), flush=True)
        names = [f"cluster-id-{number:03}" for number in range(given.clusters)]
        measure("local", tables, given.days, given.moments, names)
        if given.store:
            with versitygw(Path(temporary)) as store, fault_proxy(store) as proxy:
                bucket = Path(temporary) / "versitygw" / "buckets" / BUCKET
                shutil.copytree(tables, bucket / "tables")
                proxy.round_trip_seconds = 0.025
                measure(
                    "S3, 25 ms",
                    place_of(f"{proxy.store.url}/tables", proxy.store.options),
                    given.days,
                    given.moments // 4,
                    names,
                )


if __name__ == "__main__":
    main()
