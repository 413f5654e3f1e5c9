"""One micro-batch of samples in the distributed mode: read, compared by key and written by executors.

The newest sample per key is kept, and refused records have positions in ``quarantine``: a batch that comes again
changes nothing. So each start reads the logs from their beginning, and no table needs to hold a position.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark
from pyspark.sql.types import StructField, StructType

from streaming.changes.reconciliation import METRIC_OF
from streaming.contracts.log_position import NOWHERE, LogPosition
from streaming.contracts.sample_tables import BROKER_SPEED
from streaming.contracts.samples import BrokerMetricObserved
from streaming.contracts.tables import QUARANTINE
from streaming.delta.arrow_types import arrow_type
from streaming.delta.arrow_values import plain, plain_type
from streaming.delta.definitions import arrow_schema
from streaming.delta.isr_reconciliation_table import ReconciliationTable
from streaming.delta.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.newest import all_columns, merged
from streaming.delta.positions import changed_logs
from streaming.jobs.applied import Applied
from streaming.jobs.distributed.quarantine import append_refused, refused_counts
from streaming.jobs.distributed.tables import DistributedTable
from streaming.jobs.driver.decoded_batch import newest_log_ids, newest_positions
from streaming.jobs.driver.newest import TABLE_OF
from streaming.jobs.driver.sample_sources import SampleSources
from streaming.jobs.driver.samples import read_samples
from streaming.jobs.schemas import PLAIN, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Channel, Observation
    from streaming.contracts.state import SourceState
    from streaming.delta.positions import LastCommon

# Beside the columns of every table of samples. A row is a sample, a refused record, or the last position of a source.
_EXTRA: Final = {"kind": "string", "position": "long", "log_id": "long", "payload": "binary", "reason": "string"}
_CUT: Final = "cut"
_ORDER: Final = "order"
_MOMENT: Final = ("cluster_id", "collected_at")


class DistributedNewestBatch:
    """Writes the newest row per key to the tables of a channel. Their one writer."""

    def __init__(self, directory: Path, channel: Channel, buckets: int, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables.

        Args:
            directory: of the tables, shared by driver and executors.
            channel: of the samples.
            buckets: into how many parts a table is cut.
            policy: what stays of the past.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._channel, self._buckets = channel, buckets
        self._tables = {
            kind: DistributedTable(directory, table, policy)
            for kind, table in TABLE_OF.items()
            if kind.channel is channel
        }
        self._quarantine = DistributedTable(directory, QUARANTINE, policy)
        self._sources = SampleSources(directory, channel)
        self._has_counted = False
        self._applied: dict[str, LogPosition] = {}
        self._reconciled = ReconciliationTable(directory, policy) if BrokerMetricObserved in self._tables else None
        self._has_loaded_meters = False

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last applied record of each source, since the start."""
        return {source: at.position for source, at in self._applied.items()}

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source since the start, -1 for none."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the last record of a source stands that was applied since the start."""
        return self._applied.get(source, NOWHERE)

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Return which logs are other ones now; each start reads all of them from their beginning in any case."""
        states = {state.source: LogPosition(state.position, state.log_id) for state in self._sources.states()}
        before = {source: states[source] for source in sources if source in states}
        changed = changed_logs(before, last_common)
        self._quarantine.go_back_refused(self._channel, {source: at.position for source, at in changed.items()})
        self._sources.go_back(changed)
        return {source: before[source] for source in changed}

    def sources(self) -> tuple[list[SourceState], None]:
        """Return the state of every source, and None: samples follow from no version of the change log."""
        return self._sources.states(), None

    def check_ours(self) -> None:
        """Check that no other writer has claimed ``isr_reconciliation``; two writers of samples do no harm.

        Raises:
            TableRefused: another one has.
        """
        if self._reconciled is not None:
            self._reconciled.check_ours()

    def apply_frame(self, frame: DataFrame) -> Applied:
        """Apply one batch; samples that are older than what the tables hold change nothing."""
        began = time.perf_counter()
        read = frame.mapInArrow(
            decode_samples(tuple(self._tables), self._channel), _spark_schema(self._tables)
        ).persist()
        try:
            by_kind = read.groupBy("kind").agg(F.count("*").alias("rows"), F.count("reason").alias("refused")).collect()
            self._count_quarantined_before(frame.sparkSession)
            appended = dict[str, int]()
            if refused := sum(row["refused"] for row in by_kind):
                appended = append_refused(read, self._channel, self._quarantine)
            counts = {row["kind"]: row["rows"] for row in by_kind if row["kind"] is not None}
            for kind, table in self._tables.items():
                if kind.kind in counts:
                    self._put(read.where(F.col("kind") == kind.kind), table)
            self._advance_sources(read, appended)
            if self._reconciled is not None:
                self._reconcile(read, self._reconciled)
        finally:
            read.unpersist()
        seconds, count = time.perf_counter() - began, sum(counts.values())
        return Applied(observations=count, changes=count, refused=refused, version=-1, seconds=seconds)

    def _count_quarantined_before(self, spark: SparkSession) -> None:
        """Count what is in ``quarantine`` since before this start; a job that was killed may not have reported it."""
        if not self._has_counted:
            self._sources.count_at_least(refused_counts(spark, self._channel, self._quarantine))
            self._has_counted = True

    def _advance_sources(self, read: DataFrame, refused: Mapping[str, int]) -> None:
        """Collect one row per source, and move its state forward."""
        per_source = read.groupBy("source").agg(
            F.max("position").alias("position"), F.max_by("log_id", "position").alias("log_id")
        )
        collected = per_source.collect()
        moments = F.unix_micros(F.max("collected_at")).alias("collected_at")
        samples = read.where("kind IS NOT NULL").groupBy("cluster_id", "cluster", "source").agg(moments)
        last = [row for row in collected if row["position"] is not None]
        self._applied |= {row["source"]: LogPosition(row["position"], row["log_id"]) for row in last}
        log_ids = {source: at.log_id for source, at in self._applied.items() if at.log_id is not None}
        self._sources.advance([samples.toArrow()], refused, self.positions, log_ids)

    def _reconcile(self, read: DataFrame, reconciled: ReconciliationTable) -> None:
        """Compare what brokers counted with the change log, on the driver: two rows per broker."""
        is_meter = F.col("metric").isin(*METRIC_OF.values())
        if not self._has_loaded_meters:
            metrics = self._tables[BrokerMetricObserved]
            rows = metrics.rows(read.sparkSession, metrics.version())
            reconciled.hold(plain(rows.where(is_meter).toArrow()))
            self._has_loaded_meters = True
        reconciled.put(plain(read.where(is_meter).toArrow()))

    def _put(self, samples: DataFrame, table: DistributedTable) -> None:
        """Merge samples into a table; delete what is gone, and rows that have had no sample for ``forgotten_after``."""
        definition, schema = table.definition, table_schema(table.definition.name)
        whole = ("cluster_id",) if definition is BROKER_SPEED else definition.key  # brokers are compared
        cut = F.pmod(F.xxhash64(*whole), F.lit(self._buckets)).alias(_CUT)
        before = table.rows(samples.sparkSession, table.version()).select("*", cut)
        fresh = samples.select(*schema.names, cut, F.monotonically_increasing_id().alias(_ORDER))
        fresh = fresh.where(F.col(definition.key[-1]).isNotNull())  # one without a key says that there is nothing
        both = before.groupBy(_CUT).cogroup(fresh.groupBy(_CUT))
        rows = both.applyInArrow(newest_in_part(definition), schema).persist()
        try:
            last = F.max("collected_at").alias("last")
            limit = F.col("last") - F.expr(f"INTERVAL {definition.forgotten_after} SECONDS")
            there = without_gone(rows, samples, definition.reporter) if definition.reporter else rows
            moments = there.select(*_MOMENT).union(samples.select(*_MOMENT))  # of answers without samples, too
            newest_moments = F.broadcast(moments.groupBy("cluster_id").agg(last))
            table.write(there.join(newest_moments, "cluster_id").where(F.col("collected_at") >= limit), "overwrite")
        finally:
            rows.unpersist()


def without_gone(rows: DataFrame, reported: DataFrame, reporter: str) -> DataFrame:
    """Twin of ``streaming.delta.newest.without_gone``."""
    by = ["cluster_id", "source", reporter]
    answers = rows.select(*by, "collected_at").union(reported.select(*by, "collected_at"))
    last = F.broadcast(answers.groupBy(*by).agg(F.max("collected_at").alias("answered_at")))
    stays = F.col(reporter).isNull() | (F.col("collected_at") >= F.col("answered_at"))
    return rows.join(last, by, "left").where(stays).select(*rows.columns)


def decode_samples(
    kinds: tuple[type[Observation], ...], channel: Channel
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that decodes payloads of samples on executors, each once."""
    schema = _arrow_schema(TABLE_OF[kind] for kind in kinds)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            samples = read_samples(rows, kinds, channel)
            for kind, columns in samples.columns.items():
                table = pa.schema([(item.name, item.type) for item in arrow_schema(TABLE_OF[kind])])  # all may be null
                plain_schema = pa.schema([pa.field(item.name, plain_type(item.type)) for item in table])
                rows_of_kind = pa.table(all_columns(columns, TABLE_OF[kind].name, plain_schema), schema=plain_schema)
                yield from _widened(rows_of_kind.cast(table), kind.kind, schema).to_batches()
            refused = [{**asdict(one), "payload": one.raw} for one in samples.refused]
            log_ids = newest_log_ids(rows)
            last = [
                {"source": source, "position": at, "log_id": log_ids.get(source)}
                for source, at in newest_positions(rows).items()
            ]
            yield pa.RecordBatch.from_pylist([*refused, *last], schema=schema)

    return read


def newest_in_part(definition: Table) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Return the function that keeps the newest row per key in one part of a table."""
    schema = arrow_schema(definition)

    def merge(rows: pa.Table, samples: pa.Table) -> pa.Table:
        before, after = (plain(side.select(schema.names)) for side in (rows, samples.sort_by(_ORDER)))
        return merged(before, after, definition).cast(schema)

    return merge


def _widened(rows: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    columns = dict(zip(rows.column_names, rows.columns, strict=True)) | {"kind": pa.repeat(kind, rows.num_rows)}
    nulls = {item.name: pa.nulls(rows.num_rows, item.type) for item in schema if item.name not in columns}
    return pa.table({**nulls, **columns}).select(schema.names).cast(schema)


def _arrow_schema(definitions: Iterable[Table]) -> pa.Schema:
    columns = {item.name: item.type for table in definitions for item in arrow_schema(table)}
    return pa.schema([*columns.items(), *((name, arrow_type(kind)) for name, kind in _EXTRA.items())])


def _spark_schema(tables: Mapping[type[Observation], DistributedTable]) -> StructType:
    columns = {
        field.name: field.dataType for table in tables.values() for field in table_schema(table.definition.name)
    } | {name: PLAIN[kind] for name, kind in _EXTRA.items()}
    return StructType([StructField(name, kind) for name, kind in columns.items()])
