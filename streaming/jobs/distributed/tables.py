"""The Delta tables in the distributed mode: definitions and logs on the driver, rows on the executors.

The driver reads names, versions and transactions (the log of a table, by delta-rs); whatever grows with the data is
read and written by Spark. The folder of the tables is one that driver and executors share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.change_reader import files_between
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.projections import SOURCE_VERSION
from streaming.delta.quarantine import condense, go_back
from streaming.delta.state_reader import as_of_version
from streaming.delta.storage import files_of_version
from streaming.delta.table_log import actions_of
from streaming.delta.writer import GENERATION, Writer, lost_race, next_generation
from streaming.jobs.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.columns import Table

APPENDS_BETWEEN_COMPACTIONS: Final = 500


class DistributedTable:
    """One table: where it is, how far it is, and its rows as a DataFrame."""

    def __init__(self, directory: Path, table: Table, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create it.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self.definition, self.path = table, directory / table.name
        self._table = create_or_upgrade(directory, table)
        self._maintenance = Maintenance(self._table, self.path, policy)
        self._policy = policy
        self._appended = 0

    def version(self) -> int:
        """Return the newest version."""
        self._table.update_incremental()
        return int(self._table.version())

    def as_of(self) -> tuple[int, int]:
        """Return the newest version of a derived table, and the change log version it is true of; -1 for none."""
        version = self.version()
        return version, as_of_version(self._table)

    def rows(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the table at a version that was asked for just now.

        The files are named by delta-rs: Spark would first run jobs over the log of the table, for each scan of it.
        """
        table = self._table if self._table.version() == version else DeltaTable(str(self.path), version=version)
        return rows_of_files(spark, self.path, self.definition, files_of_version(table))

    def write(self, rows: DataFrame, mode: str, as_of: int | None = None) -> None:
        """Append rows, or overwrite all; ``as_of`` is the change log version that it is true of afterwards."""
        writer = rows.select(*self.definition.column_names()).write.format("delta").mode(mode)
        if as_of is not None:
            writer = writer.option("txnAppId", SOURCE_VERSION).option("txnVersion", as_of)
        writer.save(str(self.path))
        if self.definition.append_only:
            self.compact(rows.sparkSession)
        self._tidy()

    def _tidy(self) -> None:
        self._table.update_incremental()
        self._maintenance.after_commit()  # old files are deleted by their names: no row is read for it

    def go_back_refused(self, channel: str, positions: Mapping[str, int]) -> None:
        """Let no row of these sources in ``quarantine`` have a later position: their logs are other ones now."""
        if positions:
            self.version()
            go_back(self._table, Writer(self._table), channel, positions)

    def condense_refused(self) -> None:
        """Merge the rows of ``quarantine`` into few, when it is due. They are few, so the driver does."""
        condense(self._table, Writer(self._table), self._policy.days, self._policy.clock())

    def compact(self, spark: SparkSession) -> None:
        """Count one append; compact small files when it is due, which adds a version."""
        self._appended += 1
        if self._appended >= APPENDS_BETWEEN_COMPACTIONS:
            self._appended = 0
            spark.sql(f"OPTIMIZE delta.`{self.path}`")


class DistributedChangeLog(DistributedTable):
    """The one writer of ``partition_changes`` in the distributed mode.

    It claims the table for its generation; the claim and each later commit carry the next number from there as a
    transaction that Delta lets only grow. So a commit of an older writer is skipped or refused; and a writer that finds
    another commit where its own should be in the log is the older one.
    """

    def __init__(self, directory: Path, token: str, policy: RetentionPolicy = KEEP_ALL) -> None:
        super().__init__(directory, PARTITION_CHANGES, policy)
        self._token = token
        self._number = 0

    def claim(self, spark: SparkSession) -> int:
        """Fence every older writer off; return the version of the claim, on which the next commit builds.

        Raises:
            TableRefused: another writer started at the same moment.
        """
        self.version()
        self._number = next_generation(self._table)
        nothing = spark.createDataFrame([], table_schema(PARTITION_CHANGES.name))
        return self.commit(nothing, self.version())

    def check_ours(self) -> None:
        """Check that no other writer has claimed the table.

        Raises:
            TableRefused: another one has.
        """
        self.version()
        if self._number and int(self._table.transaction_version(GENERATION) or 0) >= self._number:
            raise lost_race(str(self.path), "it began later")

    def commit(self, rows: DataFrame, on: int) -> int:
        """Append rows at exactly the version after ``on``; return the version on which the next commit builds.

        Raises:
            TableRefused: another writer has claimed this table.
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
        actions = actions_of(self.path, version)
        numbers = {action["txn"]["version"] for action in actions if action.get("txn", {}).get("appId") == GENERATION}
        tokens = {action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action}
        return numbers == {number} and tokens == {self._token}


def changes_between(spark: SparkSession, path: Path, after: int, upto: int) -> DataFrame:
    """Read the changes that the versions after one, up to another, added; ``version``, ``ordinal`` are their order.

    The files are named by delta-rs, by their statistics: Spark would first run a job over the whole log of the table.
    """
    rows = rows_of_files(spark, path, PARTITION_CHANGES, files_between(path, after, upto))
    return rows.where((F.col("version") > after) & (F.col("version") <= upto))


def rows_of_files(spark: SparkSession, path: Path, table: Table, files: Sequence[str]) -> DataFrame:
    """Read data files of a table; a column that an older program did not write is null."""
    schema = table_schema(table.name)
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(path)).parquet(*files)
