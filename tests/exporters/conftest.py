"""Hand-made tables: rows are written as the job writes them, a version a call."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exporters.read_model.reader import TablesReader, micros_now
from streaming.contracts import health
from streaming.contracts.state import PARTITION_STATE
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade
from tests.plugins.played import expire_log
from tests.plugins.table_writes import merge_files, write

START = 1_790_000_000_000_000
SECOND = 1_000_000
SOURCE = "metadata_log:collector-1"
TOTALS = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes")
SECONDS = ("offline_seconds", "under_replicated_seconds", "under_min_isr_seconds", "unknown_seconds")
ZEROS = dict.fromkeys((*TOTALS, *SECONDS, "change_number", "metadata_index"), 0)


@dataclass
class Stopwatch:
    """A monotonic clock that a test moves: readings take no time, so no table rests after one that went well."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def restless(tables: Path) -> TablesReader:
    """Give a reader that looks at every table at each refresh; one that is busy reads slowly, and rests for longer."""
    return TablesReader(tables, monotonic=Stopwatch())


@dataclass
class Rows:
    """Spells the rows of one cluster."""

    cluster_id: str = "id-of-main"
    cluster: str = "main"
    source_kind: str = "metadata_log"
    start: int = START

    @staticmethod
    def state(
        replicas: list[int], isr: list[int], leader: int, *, min_isr: int | None = 2, **more: Any
    ) -> dict[str, Any]:
        """Spell the state of a partition; health follows from the definitions."""
        effective = health.effective_min_isr(min_isr, replicas)
        is_lacking = health.is_under_replicated(replicas, isr, [])
        return {
            **dict.fromkeys(column.name for column in PARTITION_STATE),
            **ZEROS, **dict.fromkeys(("elr", "last_known_elr", "adding_replicas", "removing_replicas"), ()),
            "replicas": replicas, "isr": isr, "leader": leader,
            "leader_epoch": 1, "partition_epoch": 1, "leader_recovering": False,
            "min_isr_configured": min_isr, "min_isr_effective": effective,
            "is_offline": health.is_offline(leader),
            "is_under_replicated": is_lacking,
            "is_under_min_isr": health.is_under_min_isr(effective, isr),
            "is_at_min_isr": health.is_at_min_isr(effective, isr, is_lacking=is_lacking),
            "is_off_preferred_leader": health.is_off_preferred_leader(tuple(replicas), leader),
            "is_deleted": False, "changed_at": START, **more,
        }  # fmt: skip

    @property
    def owner(self) -> dict[str, Any]:
        return {"cluster_id": self.cluster_id, "cluster": self.cluster}

    def change(self, subject: str, at: int, **columns: Any) -> dict[str, Any]:
        return {
            **self.owner,
            "date": dt.datetime.fromtimestamp(at / SECOND, dt.UTC).date(),
            **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), at),
            "subject": subject, "is_baseline": False, "source": SOURCE, "source_kind": self.source_kind, **columns,
        }  # fmt: skip

    def partition(self, topic: str, partition: int, after: dict[str, Any], at: int = START, **more: Any) -> Any:
        identity = {"topic_id": f"id-of-{topic}", "topic": topic, "partition": partition}
        return self.change("partition", at, **{**identity, "after": after, **more})

    def broker(self, number: int, at: int = START, **after: Any) -> dict[str, Any]:
        flags = {"is_registered": True, "is_fenced": False, "is_shutting_down": number == 3, "log_dirs": ["dir-1"]}
        known = {**flags, "rack": f"r{number}", "host": "127.0.0.1", "port": 9091}
        planned = {"maintenance_since": self.start, "maintenance_until": self.start + 600 * SECOND}
        planned |= {"maintenance_why": "new disk"}
        known["broker_epoch"] = 100 + number if number <= 3 else None  # the others are of clusters that are polled
        known |= {2: planned, 3: {"maintenance_overran_at": self.start}}.get(number, {})
        return self.change("broker", at, broker=number, broker_after={**known, "port": 9090 + number, **after})

    def cluster_row(self, at: int = START, **after: Any) -> dict[str, Any]:
        known = {"primary_source": self.source_kind, "controller": 100, "controller_epoch": 3, "controller_changes": 0}
        known |= {"has_baseline": True, "watermark": at, "primary_watermark": at}
        return self.change("cluster", at, cluster_after={**known, **after})

    def incident(self, incident_id: str, kind: str, opened_at: int, **more: Any) -> dict[str, Any]:
        """Spell an incident that may still change, unless ``carried`` is None."""
        told = {"incident_id": incident_id, "incident_class": kind, "summary": f"{kind} in a test"}
        return {**self.owner, **told, "opened_at": opened_at, "updated_at": opened_at, "carried": "{}", **more}

    def spell(self, condition: str, began_at: int, subject: str = "", **more: Any) -> dict[str, Any]:
        """Spell a spell that lasts."""
        told = {"condition_id": f"{condition}:{subject}:{began_at}", "condition": condition, "subject": subject}
        times = {"since": began_at, "began_at": began_at, "began_version": 1}
        return {**self.owner, **told, **times, "partitions": 1, "topics": ["orders"], "topic_count": 1, **more}

    def sampled_spell(self, condition: str, subject: str, began_at: int, **more: Any) -> dict[str, Any]:
        """Spell a spell of what samples show that lasts."""
        told = {"spell_id": f"{condition}/{subject}/{began_at}", "condition": condition, "subject": subject, "part": ""}
        times = {"since": began_at, "began_at": began_at, "shown_at": began_at}
        return {**self.owner, **told, **times, "reporter": subject.partition(":")[0], **more}

    def source(self, at: int, **more: Any) -> dict[str, Any]:
        told = {"position": at - self.start, "sequence": 1, "observed_until": at, "collected_at": at, "duplicates": 0}
        after = {**told, "quarantined": 0, **more.pop("source_after", {})}
        return self.change("source", at, **{**more, "source_after": after})


@dataclass
class Tables:
    """Writes tables below a folder."""

    directory: Path
    opened: dict[str, Any] = field(default_factory=dict)

    def commit(self, *rows: dict[str, Any]) -> int:
        """Append changes as one version."""
        version = self.open("partition_changes").version() + 1
        known = {"version": version, "committed_at": time.time_ns() // 1000}
        stamped = [{**row, **known, "ordinal": ordinal} for ordinal, row in enumerate(rows)]
        return self._write("partition_changes", stamped, "append", None)

    def observe(self, rows: Rows, *more: dict[str, Any]) -> int:
        """Append changes of a cluster that is observed just now, and give the moment."""
        now = micros_now()
        self.commit(rows.cluster_row(now), rows.source(now), *more)
        return now

    def put(self, name: str, *rows: dict[str, Any], as_of: int | None = None) -> int:
        """Overwrite a table, true of a version of the changes."""
        stamped = rows if as_of is None else [{**row, "as_of_version": as_of} for row in rows]
        return self._write(name, stamped, "overwrite", as_of)

    def project(self, changes: list[dict[str, Any]], as_of: int, **tables: list[dict[str, Any]]) -> None:
        """Write the state tables from the newest row of each key, as the job's projection does."""
        parts = {"partition_state": "after", "broker_state": "broker_after", "cluster_state": "cluster_after",
                 "source_progress": "source_after"}  # fmt: skip
        flat = {
            name: [{**row, **row[part], "channel": "replication"} for row in changes if row.get(part) is not None]
            for name, part in parts.items()
        }
        for name, rows in {**flat, **tables}.items():
            newest = {tuple(row[key] for key in TABLES[name].key): row for row in rows}
            self.put(name, *newest.values(), as_of=as_of)

    def derive(self, rows: Rows, until: int, as_of: int) -> None:
        """Write what the job derives of the busy cluster: it adds up, advises, and tells of incidents."""
        cluster = {**rows.cluster_row(controller_changes=2)["cluster_after"], "primary_watermark": until}
        times = {"offline_seconds": 4.0, "under_replicated_seconds": 20.5, "under_min_isr_seconds": 9.0}
        totals = {"isr_shrinks": 2, "isr_expands": 1, **times, "unknown_seconds": 0.25}
        self.put("cluster_state", {**rows.owner, **cluster, **totals}, as_of=as_of)
        known = {number: rows.broker(number, is_fenced=number == 3)["broker_after"] for number in (1, 2, 3)}
        advice = {
            1: {"in_sync_partitions": 1, "would_go_under_min_isr": 0, "is_safe_to_stop": True, "restart_order": 1,
                "unavoidable_offline": 0, "unavoidable_under_min_isr": 2},
            2: {"in_sync_partitions": 2, "would_go_under_min_isr": 0, "would_go_offline": 1, "is_safe_to_stop": False},
            3: {"in_sync_partitions": 1, "unknown_min_isr_partitions": 1, "would_go_under_min_isr": None},
        }  # fmt: skip
        counts = {"would_go_offline": 0, "unknown_min_isr_partitions": 0}
        of_suspects = {"isr_departures": [{"cause": "fenced", "departures": 1}], "suspect_score": 0.25}
        of_others = {"isr_departures": [], "suspect_score": 0.0}
        self.put(
            "broker_state",
            *(
                {**rows.owner, **state, "broker": number, **counts, **advice[number],
                 **(of_others if number == 2 else of_suspects)}
                for number, state in known.items()
            ),
            as_of=as_of,
        )  # fmt: skip
        moment = rows.start + 2 * SECOND
        self.put(
            "conditions",
            rows.spell("broker_down", rows.start - 1000 * SECOND, "3", short_id=f"{rows.cluster}-4"),
            rows.spell("unclean_election", moment, ended_at=moment, incident_id="unclean:e9"),
            rows.spell("offline_partitions", rows.start + 25 * SECOND),
            as_of=as_of,
        )
        over = {"opened_at": rows.start, "closed_at": rows.start + SECOND}
        self.put(
            "incidents",
            rows.incident(
                "loss:e1", "broker_loss", rows.start + 20 * SECOND,
                short_id=f"{rows.cluster}-4",
                suspects=[{"broker": 3, "score": 0.25}],
                consequence="acks=all writers of topic orders fail",
                next_step="start broker 3 again, and stop no other broker meanwhile",
            ),
            rows.incident("lag:e0", "slow_follower", **over, short_id=f"{rows.cluster}-1"),
            rows.incident("lag:e2", "slow_follower", **over, short_id=f"{rows.cluster}-2", carried=None),
            rows.incident(
                "lag:e3", "slow_follower", **over, short_id=f"{rows.cluster}-3", merged_into="loss:e1", carried=None
            ),
            as_of=as_of,
        )  # fmt: skip

    def compact(self) -> None:
        merge_files(self.open("partition_changes"))

    def expire_log(self) -> None:
        """Leave of the changes only the newest version, as maintenance does in time."""
        expire_log(self.directory / "partition_changes")
        self.opened.pop("partition_changes", None)

    def open(self, name: str) -> Any:
        """Give a table at the version that was written or opened last."""
        if name not in self.opened:
            self.opened[name] = create_or_upgrade(self.directory, TABLES[name])
        return self.opened[name]

    def _write(self, name: str, rows: Any, mode: Any, as_of: int | None) -> int:
        table = self.open(name)
        schema = arrow_schema(TABLES[name])
        known = [{column: row.get(column) for column in schema.names} for row in rows]
        told = {} if as_of is None else {"partition_changes": as_of}
        return write(table, pa.Table.from_pylist(known, schema=schema), mode, **told)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "tables")


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def other_rows() -> Rows:
    return Rows(cluster_id="id-of-other", cluster="other", source_kind="poll")


@pytest.fixture(scope="session")
def written_busy_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the busy cluster, to be copied and not to be changed."""
    directory = tmp_path_factory.mktemp("busy") / "tables"
    write_busy_cluster(Tables(directory), Rows())
    return directory


@pytest.fixture
def busy_cluster(tables: Tables, written_busy_cluster: Path) -> Tables:
    """One cluster with something of everything, its newest moment 30 s after START."""
    shutil.copytree(written_busy_cluster, tables.directory)
    return tables


def write_busy_cluster(tables: Tables, rows: Rows) -> None:
    """Write a cluster with something of everything, as far as 30 s after START."""
    healthy = rows.state([1, 2, 3], [1, 2, 3], 1)
    since = {"under_replicated_since": START + 10 * SECOND, "under_min_isr_since": START + 20 * SECOND}
    counts = {"under_replicated_seconds": 1.5, "isr_shrinks": 2, "isr_expands": 1}
    out = rows.state([2, 3, 1], [2], 2, **since, **counts, elr=[1])
    unled = {"offline_since": START + 25 * SECOND, "leader_epoch": None, "last_known_elr": [1]}
    offline = rows.state([1, 3], [3], -1, min_isr=None, **unled)
    tables.commit(
        rows.cluster_row(controller_changes=2),
        *(rows.broker(number, is_fenced=number == 3) for number in (1, 2, 3)),
        rows.partition("orders", 0, healthy, is_baseline=True),
        rows.partition("orders", 1, rows.state([2, 3, 1], [2, 3, 1], 2), is_baseline=True),
        rows.partition('odd "topic"\\', 0, offline, is_baseline=True),
    )
    before = rows.state([2, 3, 1], [2, 3, 1], 2)
    told = {"before": before, "left_isr": [3, 1], "cause": "fenced", "evidence": "proven"}
    tables.commit(rows.partition("orders", 1, out, START + 20 * SECOND, **told))
    tables.commit(rows.source(START + 30 * SECOND, source_after={"quarantined": 4}))
    sampled = {**rows.owner, "collected_at": START + 28 * SECOND}
    offsets = {**sampled, "topic_id": "id-of-orders", "topic": "orders", "source": "offsets:collector-1"}
    lagging = {"lag": 40, "behind_since": START + 18 * SECOND, "seconds_until_caught_up": 7.5}
    # Of a follower that never has the newest record, the lag began with this sample.
    busy = {"lag": 2, "behind_since": START + 28 * SECOND}
    tables.put(
        "replica_offsets",
        {**offsets, "partition": 0, "broker": 1, "log_start_offset": 5, "high_watermark": 70, "size_bytes": 4000},
        {**offsets, "partition": 0, "broker": 2, "log_start_offset": 6, "high_watermark": 71, "size_bytes": 96, **busy},
        {**offsets, "partition": 1, "broker": 3, "log_start_offset": 0, "high_watermark": 8, **lagging},
        {**offsets, "topic_id": "gone", "topic": "gone", "partition": 0, "broker": 3, "size_bytes": 7, **lagging},
    )
    tables.derive(rows, START + 29 * SECOND, as_of=3)
    put_metrics_and_progress(tables, rows)
    put_samples(tables, rows)


def write_live_cluster(tables: Tables, now: int) -> None:
    """Write something of a cluster into every table, its newest moment ``now``; a broker has left an ISR."""
    rows = Rows(start=now - 30 * SECOND)
    baseline = [
        rows.cluster_row(now),
        *(rows.broker(number) for number in (1, 2, 3)),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2], 1), left_isr=[3], cause="fenced"),
    ]
    tables.commit(*baseline, rows.source(now))
    tables.project(baseline, 1)
    tables.derive(rows, now, as_of=1)
    offsets = {**rows.owner, "collected_at": now, "topic_id": "id-of-orders", "topic": "orders", "source": "offsets:1"}
    replica = {"partition": 0, "broker": 1, "log_start_offset": 5, "high_watermark": 70}
    tables.put("replica_offsets", {**offsets, **replica})
    put_metrics_and_progress(tables, rows)
    put_samples(tables, rows)


def put_samples(tables: Tables, rows: Rows) -> None:
    """Write the samples of a cluster in which something of each kind is wrong."""
    common = {**rows.owner, "collected_at": rows.start + 28 * SECOND, "source": "samples:collector-1"}
    _put_groups(tables, rows, common)
    fills = {"bytes_per_second": 2.5, "seconds_until_full": 8000.0}
    directory = {**common, "broker": 1, "is_online": True, "hosted_replicas": 2, "replica_bytes": 4096}
    tables.put(
        "log_directories",
        {
            **directory,
            "log_dir": "/data-0",
            "total_bytes": 100_000,
            "usable_bytes": 20_000,
            "is_cordoned": False,
            **fills,
        },
        {**directory, "log_dir": "/data-1", "is_online": False, "replica_bytes": None},
    )
    member = {**common, "is_voter": True, "controller": 100, "controller_epoch": 3}
    caught_up = rows.start + 28 * SECOND
    tables.put(
        "quorum_members",
        {**member, "node": 100, "log_end_offset": 500, "last_caught_up_at": caught_up},
        {**member, "node": 101, "log_end_offset": 480, "last_caught_up_at": caught_up - 3 * SECOND},
        {**member, "node": 1, "is_voter": False},
    )
    transaction = {**common, "producer_epoch": 0, "transaction_state": "Ongoing", "is_hanging": False}
    known = {"transactional_id": "pay", "timeout_ms": 5000, "transaction_partitions": ["orders-0"]}
    tables.put(
        "transactions",
        {**transaction, **known, "producer_id": 7, "started_at": rows.start + 27 * SECOND},
        {**transaction, **known, "producer_id": 8, "started_at": rows.start + 8 * SECOND},
        {**transaction, "producer_id": 9, "is_hanging": True, "transaction_partitions": [f"t-{n}" for n in range(5)]},
    )
    at = common["collected_at"]
    tables.put(
        "sampled_conditions",
        {**rows.sampled_spell("disk_nearly_full", "1:/data-0", at), "part": "pace"},
        rows.sampled_spell("log_directory_offline", "1:/data-1", at),
        {**rows.sampled_spell("hanging_transaction", "t", at), "part": "9/0"},
        rows.sampled_spell("disk_fills_up", "1:/data-0", at - 600 * SECOND, ended_at=at),
    )
    put_speeds(tables, common)
    put_settings(tables, {**common, "collected_at": rows.start - 60 * SECOND})


def _put_groups(tables: Tables, rows: Rows, common: dict[str, Any]) -> None:
    """Write groups of several protocols: behind, losing, beyond the end, unread."""
    group = {**common, "group": "payments", "group_protocol": "classic", "group_state": "Stable", "coordinator": 1}
    spark = {"group": "etl", "group_protocol": "spark", "group_state": "Active", "coordinator": -1}
    tables.put(
        "groups",
        {**group, "members": 2, "assignor": "range"},
        {**group, "group": "idle", "group_protocol": "consumer", "group_state": "Empty", "members": 0},
        {**group, "group": "undescribed", "coordinator": 2, "is_unread": True},
        {**group, **spark, "last_progress_at": rows.start + 20 * SECOND},
    )
    committed = {**common, "group": "payments", "topic_id": "id-of-orders", "topic": "orders", "records_lost": 0}
    kept = {"log_start_offset": 50, "high_watermark": 70, "last_stable_offset": 70, "stable_lag": 10, "member": "app-7",
            "committed_at": rows.start - 960 * SECOND, "standing_since": rows.start - 950 * SECOND,
            "standing_end": 65, "owned_at": common["collected_at"], "readable_at": common["collected_at"],
            "beyond": 0}  # fmt: skip
    lost = {
        "records_lost": 4,
        "lost_at": rows.start + 9 * SECOND,
        "log_start_offset": 9,
        "member": "app-8",
        "beyond": 0,
    }
    other = {**committed, "group": "other", "partition": 0}
    tables.put(
        "group_offsets",
        {**committed, "partition": 0, "committed_offset": 60, "lag": 10, "lag_seconds": 2.5, **kept},
        {**committed, "partition": 1, "committed_offset": 3, "lag": 5, "lag_seconds": 61.0, **lost},
        {**committed, "partition": 2, "records_lost": None},
        {**other, "committed_offset": 50, "lag": 20, "beyond": 7},
        {**other, "partition": 1, "committed_offset": 8},
    )


def put_speeds(tables: Tables, common: dict[str, Any]) -> None:
    """Write a broker that is slow, and one of which that is unknown."""
    measured = dict.fromkeys(("followed_leaders", "followed_leaders_behind", "followers", "followers_behind"), 3)
    counts = dict.fromkeys(("replicas_behind", "replicas_out_of_isr", "slow_score"), 0)
    speed = {**common, **measured, **counts, "response_micros": 4_000, "slowest_response_micros": 5_000}
    slow = {"is_slow": True, "is_overloaded": False, "response_micros": 900_000, "append_micros": 2_500}
    tables.put("broker_speed", {**speed, "broker": 1, **slow}, {**speed, "broker": 2})


def put_settings(tables: Tables, common: dict[str, Any]) -> None:
    """Write the settings, which are sampled more seldom."""
    topic = {**common, "topic_id": "id-of-orders", "topic": "orders", "partition_count": 2, "replication_factor": 3}
    odd = {"topic_id": 'id-of-odd "topic"\\', "topic": 'odd "topic"\\', "role": "streams_repartition"}
    tables.put(
        "topic_settings",
        {**topic, "leader_throttled_replicas": "0:1", "weaknesses": ["unclean_election", "min_isr_one"]},
        {**topic, **odd, "weaknesses": ["min_isr_one"]},
        {**topic, "topic_id": "gone", "topic": "gone", "weaknesses": ["one_replica"], "leader_throttled_replicas": "*"},
    )
    tables.put("broker_settings", {**common, "broker": 1, "leader_throttled_rate": 1000}, {**common, "broker": 2})
    level = {**common, "feature": "metadata.version", "finalized_level": 25}
    tables.put(
        "broker_features",
        {**level, "broker": 1, "supported_level": 25},
        {**level, "broker": 2, "supported_level": 29},
        {**level, "broker": 2, "feature": "transaction.version", "supported_level": 2, "finalized_level": 0},
    )


def put_metrics_and_progress(tables: Tables, rows: Rows) -> None:
    """Write what brokers measured, old and odd samples among it, and how far the job has applied the offsets."""
    metric = {**rows.owner, "collected_at": rows.start + 28 * SECOND, "source": "broker_metrics:collector-1"}
    leaders, shrinks = "kafka_server_replicamanager_leadercount", "kafka_server_replicamanager_isrshrinks_total"
    tables.put(
        "broker_metrics",
        {**metric, "broker": 1, "metric": leaders, "metric_value": 1.0},
        {**metric, "broker": 2, "metric": leaders, "metric_value": 2.0},
        {**metric, "broker": 3, "metric": leaders, "metric_value": 3.0, "collected_at": rows.start - 60 * SECOND},
        {**metric, "broker": 1, "metric": shrinks, "metric_value": 1e20},
        {**metric, "broker": 1, "metric": "not a name", "metric_value": 1.0},
        {**metric, "broker": 1, "metric": "kafka_brokers", "metric_value": 99.0},
    )
    counted = {"counted": 9, "recorded": 6, "missed": 3, "resets": 0, "meter_value": 9, "as_of_version": 2}
    window = {"since": rows.start, "until": rows.start + 28 * SECOND}
    tables.put("isr_reconciliation", {**rows.owner, "broker": 1, "meter": "isr_shrinks", **counted, **window})
    progress = {**rows.owner, "reported_at": rows.start + 29 * SECOND, "is_query_up": True, "restarts": 2}
    progress |= {"channel": "samples", "source": "offsets:collector-1", "source_kind": "none"}
    progress |= {"observed_until": rows.start + 28 * SECOND, "bus_end": 900, "behind_bytes": 300, "quarantined": 1}
    tables.put("source_progress", progress)
