"""The Delta tables as the cluster form sees them: definitions and logs on the driver, rows on the executors.

The driver reads names, versions and transactions (the log of a table, by delta-rs); whatever grows with the data is
read and written by Spark. The folder of the tables is one that driver and executors share.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import create_or_check
from streaming.delta.derived import oldest_needed
from streaming.delta.projections import SOURCE_VERSION
from streaming.delta.tail import files_between
from streaming.delta.upkeep import EVERYTHING, Upkeep
from streaming.delta.writer import GENERATION, lost_race, next_generation
from streaming.schemas import table_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.columns import Table

ORDER: Final = "order"
APPENDS_BETWEEN_COMPACTIONS: Final = 500
_ROWS_A_FILE: Final = 2**32


class ClusterTable:
    """One table: where it is, how far it is, and its rows as a DataFrame."""

    def __init__(self, directory: Path, table: Table) -> None:
        """Open or create it.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self.definition, self.path = table, directory / table.name
        self._table = create_or_check(directory, table)
        versions = EVERYTHING.versions if table.append_only else None
        is_truth = table is PARTITION_CHANGES
        needed = partial(oldest_needed, directory) if is_truth else (lambda: None)
        self._upkeep = Upkeep(self._table, self.path, versions, needed)
        self._appended = 0

    def version(self) -> int:
        """Look up the newest version."""
        self._table.update_incremental()
        return int(self._table.version())

    def as_of(self) -> tuple[int, int]:
        """Look up the newest version of a derived table, and that of the truth that it is true of; -1 for none."""
        version = self.version()
        known = self._table.transaction_version(SOURCE_VERSION)
        return version, -1 if known is None else int(known)

    def rows(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the table at a version."""
        return spark.read.format("delta").option("versionAsOf", version).load(str(self.path))

    def write(self, rows: DataFrame, mode: str, as_of: int | None = None) -> None:
        """Append rows, or overwrite all; ``as_of`` is the version of the truth that the table is true of then."""
        writer = rows.select(*self.definition.column_names()).write.format("delta").mode(mode)
        if as_of is not None:
            writer = writer.option("txnAppId", SOURCE_VERSION).option("txnVersion", as_of)
        writer.save(str(self.path))
        if self.definition.append_only:
            self.compact(rows.sparkSession)
        self._tidy()

    def _tidy(self) -> None:
        self._table.update_incremental()
        self._upkeep.after_commit()  # old files are deleted by their names: no row is read for it

    def compact(self, spark: SparkSession) -> None:
        """Count one append; lay small files together when it is due, which moves the version."""
        self._appended += 1
        if self._appended >= APPENDS_BETWEEN_COMPACTIONS:
            self._appended = 0
            spark.sql(f"OPTIMIZE delta.`{self.path}`")


class ClusterTruth(ClusterTable):
    """The one writer of ``partition_changes`` in the cluster form.

    It claims the table for its generation; the claim and each later commit carry the next number from there as a
    transaction that Delta lets only grow. So an older writer's commit is skipped or refused, and whatever stands in the
    log where ours should be tells us that we are the older one.
    """

    def __init__(self, directory: Path, token: str) -> None:
        super().__init__(directory, PARTITION_CHANGES)
        self._token = token
        self._number = 0

    def claim(self, spark: SparkSession) -> int:
        """Fence every older writer off; give the version of the claim, on which to build.

        Raises:
            TableRefused: another writer started at the same moment.
        """
        self.version()
        self._number = next_generation(self._table)
        nothing = spark.createDataFrame([], table_schema(PARTITION_CHANGES.name))
        return self.commit(nothing, self.version())

    def check_ours(self) -> None:
        """Look whether somebody else has begun to write since.

        Raises:
            TableRefused: somebody has.
        """
        self.version()
        if self._number and int(self._table.transaction_version(GENERATION) or 0) >= self._number:
            raise lost_race(str(self.path), "it began later")

    def commit(self, rows: DataFrame, on: int) -> int:
        """Append rows at exactly the version after ``on``; give the version on which the next commit builds.

        Raises:
            TableRefused: somebody else writes this table.
        """
        number, self._number = self._number, self._number + 1
        writer = rows.write.format("delta").mode("append").option("userMetadata", self._token)
        writer.option("txnAppId", GENERATION).option("txnVersion", number).save(str(self.path))
        if not self._is_ours(on + 1, number):
            raise lost_race(str(self.path), f"version {on + 1} is not ours")
        self.compact(rows.sparkSession)
        self._tidy()
        return self.version()

    def _is_ours(self, version: int, number: int) -> bool:
        try:
            entry = (self.path / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        actions: list[dict[str, Any]] = [json.loads(line) for line in entry.splitlines() if line]
        numbers = {action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == GENERATION}
        tokens = {action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action}
        return numbers == {number} and tokens == {self._token}


def changes_between(spark: SparkSession, path: Path, after: int, upto: int) -> DataFrame:
    """Read the changes that the versions after one, up to another, added; ``order`` tells which came first.

    Raises:
        TailGap: some of these versions are gone.
    """
    schema = table_schema(PARTITION_CHANGES.name)
    files = files_between(path, after, upto)
    if not files:
        return spark.createDataFrame([], schema).withColumn(ORDER, F.lit(0).cast("long"))
    places = spark.createDataFrame([(file.name, place) for place, file in enumerate(files)], "name string, place long")
    rows = spark.read.schema(schema).option("basePath", str(path)).parquet(*(str(file) for file in files))
    name = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    order = F.col("place") * _ROWS_A_FILE + F.col("row_index")
    numbered = rows.select("*", name.alias("name"), F.col("_metadata.row_index").alias("row_index"))
    return numbered.join(F.broadcast(places), "name").select(*schema.names, order.alias(ORDER))
