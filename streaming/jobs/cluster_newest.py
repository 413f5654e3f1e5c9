"""One micro-batch of samples in the cluster form: read, compared key by key and written by executors.

Of each key the newest sample stays, so a batch that comes again changes nothing, and no position is needed.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark
from pyspark.sql.types import StructField, StructType

from streaming.changes.reconciliation import METRIC_OF
from streaming.contracts.samples import BrokerMetricObserved
from streaming.contracts.tables import QUARANTINE
from streaming.delta.definitions import arrow_schema, arrow_type
from streaming.delta.newest import FORGOTTEN_AFTER, all_columns, newest
from streaming.delta.reconciled import Reconciled
from streaming.delta.rows import plain, plain_type
from streaming.jobs.batch import MICROS, Applied
from streaming.jobs.cluster_batch import quarantine
from streaming.jobs.cluster_tables import ClusterTable
from streaming.jobs.newest import TABLE_OF
from streaming.jobs.sample_sources import SampleSources
from streaming.jobs.samples import read_samples
from streaming.jobs.understood import newest_positions
from streaming.schemas import PLAIN, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from streaming.changes.state import SourceState
    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Channel, Observation

# A sample as columns of whichever table is its; a refused row with its place; and of each piece the last positions.
_EXTRA: Final = {"kind": "string", "position": "long", "payload": "binary", "reason": "string"}
_CUT: Final = "cut"
_ORDER: Final = "order"


class ClusterNewestBatch:
    """Writes the newest row of each key to the tables of a channel. Their one writer."""

    def __init__(self, directory: Path, channel: Channel, buckets: int) -> None:
        """Open the tables.

        Args:
            directory: of the tables, shared by driver and executors.
            channel: whose samples.
            buckets: into how many parts a table is cut.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._channel, self._buckets = channel, buckets
        self._tables = {
            kind: ClusterTable(directory, table) for kind, table in TABLE_OF.items() if kind.channel is channel
        }
        self._quarantine = ClusterTable(directory, QUARANTINE)
        self._sources = SampleSources(directory, channel)
        self._positions: dict[str, int] = {}
        self._reconciled = Reconciled(directory) if BrokerMetricObserved in self._tables else None
        self._holds_meters = False

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied since the start."""
        return dict(self._positions)

    def position(self, source: str) -> int:
        """Give the position of the last applied sample of a source since the start, -1 for none."""
        return self._positions.get(source, -1)

    def sources(self) -> tuple[list[SourceState], None]:
        """Give how far every source came; samples follow from no version of the truth."""
        return self._sources.states(), None

    def check_ours(self) -> None:
        """Look whether somebody else reconciles; whoever writes the other tables leaves the newest samples there.

        Raises:
            TableRefused: somebody does.
        """
        if self._reconciled is not None:
            self._reconciled.check_ours()

    def apply_frame(self, frame: DataFrame) -> Applied:
        """Apply one batch; samples that are older than what the tables hold change nothing."""
        began = time.perf_counter()
        read = frame.mapInArrow(read_pieces(tuple(self._tables), self._channel), _spark_schema(self._tables)).persist()
        try:
            by_kind = read.groupBy("kind").agg(F.count("*").alias("rows"), F.count("reason").alias("refused")).collect()
            if refused := sum(row["refused"] for row in by_kind):
                quarantine(read, self._channel, self._quarantine)
            told = {row["kind"]: row["rows"] for row in by_kind if row["kind"] is not None}
            for kind, table in self._tables.items():
                if kind.kind in told:
                    self._put(read.where(F.col("kind") == kind.kind), table)
            self._take_over(read)
            if self._reconciled is not None:
                self._reconcile(read, self._reconciled)
        finally:
            read.unpersist()
        seconds, count = time.perf_counter() - began, sum(told.values())
        return Applied(observations=count, changes=count, refused=refused, version=-1, seconds=seconds)

    def _take_over(self, read: DataFrame) -> None:
        """Collect how far every source came, a row a source."""
        places = read.groupBy("source").agg(F.max("position").alias("position"), F.count("reason").alias("refused"))
        found = places.collect()
        moments = F.unix_micros(F.max("collected_at")).alias("collected_at")
        samples = read.where("kind IS NOT NULL").groupBy("cluster_id", "cluster", "source").agg(moments)
        self._positions |= {row["source"]: row["position"] for row in found if row["position"] is not None}
        self._sources.told([samples.toArrow()], {row["source"]: row["refused"] for row in found}, self._positions)

    def _reconcile(self, read: DataFrame, reconciled: Reconciled) -> None:
        """Compare what brokers counted with the truth, on the driver: two rows a broker."""
        is_meter = F.col("metric").isin(*METRIC_OF.values())
        if not self._holds_meters:
            known = self._tables[BrokerMetricObserved]
            rows = known.rows(read.sparkSession, known.version())
            reconciled.hold(plain(rows.where(is_meter).toArrow()))
            self._holds_meters = True
        reconciled.put(plain(read.where(is_meter).toArrow()))

    def _put(self, told: DataFrame, table: ClusterTable) -> None:
        """Lay samples over a table, and forget what its source has left out since."""
        definition, schema = table.definition, table_schema(table.definition.name)
        cut = F.pmod(F.xxhash64(*definition.key), F.lit(self._buckets)).alias(_CUT)
        known = table.rows(told.sparkSession, table.version()).select("*", cut)
        fresh = told.select(*schema.names, cut, F.monotonically_increasing_id().alias(_ORDER))
        both = known.groupBy(_CUT).cogroup(fresh.groupBy(_CUT))
        rows = both.applyInArrow(lay_over(definition), schema).persist()
        try:
            last = F.max("collected_at").alias("last")
            limit = F.col("last") - F.expr(f"INTERVAL {FORGOTTEN_AFTER // MICROS} SECONDS")
            newest_moments = F.broadcast(rows.groupBy("cluster_id").agg(last))
            table.write(rows.join(newest_moments, "cluster_id").where(F.col("collected_at") >= limit), "overwrite")
        finally:
            rows.unpersist()


def read_pieces(
    kinds: tuple[type[Observation], ...], channel: Channel
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what reads payloads of samples, on executors, each once."""
    schema = _arrow_schema(TABLE_OF[kind] for kind in kinds)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            samples = read_samples(rows, kinds, channel)
            for kind, columns in samples.columns.items():
                table = arrow_schema(TABLE_OF[kind])
                plain_schema = pa.schema([pa.field(item.name, plain_type(item.type)) for item in table])
                told = pa.table(all_columns(columns, TABLE_OF[kind].name, plain_schema), schema=plain_schema)
                yield from _widened(told.cast(table), kind.kind, schema).to_batches()
            refused = [{**asdict(one), "payload": one.raw} for one in samples.refused]
            last = [{"source": source, "position": at} for source, at in newest_positions(rows).items()]
            yield pa.RecordBatch.from_pylist([*refused, *last], schema=schema)

    return read


def lay_over(definition: Table) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """Make what keeps the newest row of each key of one part of a table."""
    schema = arrow_schema(definition)

    def lay(known: pa.Table, told: pa.Table) -> pa.Table:
        before, after = (plain(side.select(schema.names)) for side in (known, told.sort_by(_ORDER)))
        return newest(before, after, definition.key).cast(schema)

    return lay


def _widened(rows: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    told = dict(zip(rows.column_names, rows.columns, strict=True)) | {"kind": pa.repeat(kind, rows.num_rows)}
    nothing = {item.name: pa.nulls(rows.num_rows, item.type) for item in schema if item.name not in told}
    return pa.table({**nothing, **told}).select(schema.names).cast(schema)


def _arrow_schema(definitions: Iterable[Table]) -> pa.Schema:
    found = {item.name: item.type for table in definitions for item in arrow_schema(table)}
    return pa.schema([*found.items(), *((name, arrow_type(kind)) for name, kind in _EXTRA.items())])


def _spark_schema(tables: Mapping[type[Observation], ClusterTable]) -> StructType:
    found = {
        field.name: field.dataType for table in tables.values() for field in table_schema(table.definition.name)
    } | {name: PLAIN[kind] for name, kind in _EXTRA.items()}
    return StructType([StructField(name, kind) for name, kind in found.items()])
