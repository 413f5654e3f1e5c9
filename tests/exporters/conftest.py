"""Hand-made tables: rows are written as the job writes them, a version a call."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from streaming.contracts import health
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
    TABLES,
)
from streaming.delta.definitions import arrow_schema, create_or_check

if TYPE_CHECKING:
    from pathlib import Path

START = 1_790_000_000_000_000
SECOND = 1_000_000
SOURCE = "metadata_log:collector-1"
ZEROS = dict.fromkeys(
    (
        "offline_seconds",
        "under_replicated_seconds",
        "under_min_isr_seconds",
        "unknown_seconds",
        "isr_shrinks",
        "isr_expands",
        "leader_changes",
        "unclean_elections",
        "missed_changes",
        "change_number",
        "metadata_index",
    ),
    0,
)


@dataclass
class Rows:
    """Spells the rows of one cluster."""

    cluster_id: str = "id-of-main"
    cluster: str = "main"
    authority: str = "metadata_log"
    start: int = START

    @staticmethod
    def state(
        replicas: list[int], isr: list[int], leader: int, *, min_isr: int | None = 2, **more: Any
    ) -> dict[str, Any]:
        """Spell the state of a partition; health follows from the definitions."""
        effective = health.effective_min_isr(min_isr, replicas)
        return {
            **dict.fromkeys(column.name for column in PARTITION_STATE),
            **ZEROS,
            "replicas": replicas,
            "isr": isr,
            "elr": [],
            "last_known_elr": [],
            "adding_replicas": [],
            "removing_replicas": [],
            "leader": leader,
            "leader_epoch": 1,
            "partition_epoch": 1,
            "leader_recovering": False,
            "min_isr_configured": min_isr,
            "min_isr_effective": effective,
            "is_offline": health.is_offline(leader),
            "is_under_replicated": health.is_under_replicated(replicas, isr, []),
            "is_under_min_isr": health.is_under_min_isr(effective, isr),
            "is_at_min_isr": health.is_at_min_isr(effective, isr),
            "is_off_preferred_leader": health.is_off_preferred_leader(tuple(replicas), leader),
            "is_deleted": False,
            "changed_at": START,
            **more,
        }

    @property
    def owner(self) -> dict[str, Any]:
        return {"cluster_id": self.cluster_id, "cluster": self.cluster}

    def change(self, subject: str, at: int, **columns: Any) -> dict[str, Any]:
        return {
            **self.owner,
            "date": dt.datetime.fromtimestamp(at / SECOND, dt.UTC).date(),
            "subject": subject,
            "is_baseline": False,
            "occurred_not_before": at,
            "occurred_not_after": at,
            "collected_at": at,
            "source": SOURCE,
            "authority": self.authority,
            **columns,
        }

    def partition(self, topic: str, partition: int, after: dict[str, Any], at: int = START, **more: Any) -> Any:
        identity = {"topic_id": f"id-of-{topic}", "topic": topic, "partition": partition}
        return self.change("partition", at, **{**identity, "after": after, **more})

    def broker(self, number: int, at: int = START, **after: Any) -> dict[str, Any]:
        known = {"is_registered": True, "is_fenced": False, "rack": f"r{number}", "host": "127.0.0.1", "port": 9091}
        return self.change("broker", at, broker=number, broker_after={**known, "port": 9090 + number, **after})

    def cluster_row(self, at: int = START, **after: Any) -> dict[str, Any]:
        known = {
            "authority": self.authority,
            "controller": 100,
            "controller_epoch": 3,
            "controller_changes": 0,
            "has_baseline": True,
            "watermark": at,
            "authority_watermark": at,
        }
        return self.change("cluster", at, cluster_after={**known, **after})

    def source(self, at: int, **more: Any) -> dict[str, Any]:
        told = {"position": 1, "sequence": 1, "observed_until": at, "collected_at": at, "duplicates": 0}
        after = {**told, "quarantined": 0, **more.pop("source_after", {})}
        return self.change("source", at, **{**more, "source_after": after})


@dataclass
class Tables:
    """Writes tables below a folder."""

    directory: Path
    opened: dict[str, Any] = field(default_factory=dict)

    def commit(self, *rows: dict[str, Any]) -> int:
        """Append changes as one version."""
        return self._write(PARTITION_CHANGES.name, rows, "append", None)

    def put(self, name: str, *rows: dict[str, Any], as_of: int | None = None) -> int:
        """Overwrite a table, true of a version of the changes."""
        stamped = rows if as_of is None else [{**row, "as_of_version": as_of} for row in rows]
        return self._write(name, stamped, "overwrite", as_of)

    def project(self, changes: list[dict[str, Any]], as_of: int, **tables: list[dict[str, Any]]) -> None:
        """Write the state tables from the newest row of each key, as the job's projection does."""
        flat = {name: [] for name in (PARTITION_STATE_TABLE.name, BROKER_STATE_TABLE.name, CLUSTER_STATE_TABLE.name)}
        for row in changes:
            for name, part in zip(flat, ("after", "broker_after", "cluster_after"), strict=True):
                if row.get(part) is not None:
                    flat[name].append({**row, **row[part]})
            if row.get("source_after") is not None:
                told = {**row, **row["source_after"], "channel": "replication"}
                flat.setdefault(SOURCE_PROGRESS.name, []).append(told)
        for name, rows in {**flat, **tables}.items():
            newest = {tuple(row[key] for key in TABLES[name].key): row for row in rows}
            self.put(name, *newest.values(), as_of=as_of)

    def compact(self) -> None:
        self._open(PARTITION_CHANGES.name).optimize.compact()

    def _open(self, name: str) -> Any:
        if name not in self.opened:
            self.opened[name] = create_or_check(self.directory, TABLES[name])
        return self.opened[name]

    def _write(self, name: str, rows: Any, mode: Any, as_of: int | None) -> int:
        table = self._open(name)
        schema = arrow_schema(TABLES[name])
        known = [{column: row.get(column) for column in schema.names} for row in rows]
        told = [] if as_of is None else [Transaction(PARTITION_CHANGES.name, as_of)]
        write_deltalake(
            table,
            pa.Table.from_pylist(known, schema=schema),
            mode=mode,
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=told),
        )
        version: int = table.version()
        return version


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "tables")


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def other_rows() -> Rows:
    return Rows(cluster_id="id-of-other", cluster="other", authority="poll")
