"""The versions of ``partition_changes`` as a Spark source, for queries that follow the truth.

    spark.readStream.format("isrwatch_changes").option("path", …).load()

Rows are those of the table, with the ``version`` that added them, in order. The offset is the newest version that was
read. Compaction adds no rows and is skipped. What the log of the table does not tell any more is an error, never a
silent gap.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.tail import BEFORE_FIRST, ChangeTail, TailGap, has_version, oldest_version
from streaming.errors import ConfigurationError
from streaming.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT: Final = "isrwatch_changes"
PATH: Final = "path"
VERSION: Final = "version"
VERSIONS_A_BATCH: Final = 1000


class Versions(InputPartition):
    """What one task reads: the versions after one, up to another. One task a batch, so that their order stays."""

    def __init__(self, after: int, last: int) -> None:
        super().__init__(None)
        self.after, self.last = after, last


class ChangesDataSource(DataSource):
    """Spark's view of the truth. Option: ``path``, the folder of the table; it need not exist yet."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns."""
        version = StructField(VERSION, LongType(), nullable=False)
        return StructType([version, *table_schema(PARTITION_CHANGES.name).fields])

    def streamReader(self, schema: StructType) -> ChangesStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Make a reader.

        Raises:
            ConfigurationError: the path is missing.
        """
        if PATH not in self.options:
            raise ConfigurationError(f"the changes need the option {PATH!r}: add .option({PATH!r}, ...)")
        return ChangesStreamReader(Path(self.options[PATH]))


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(ChangesDataSource)


class ChangesStreamReader(DataSourceStreamReader):
    """Plans and reads versions. Planning and reading happen in different processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Begin before the oldest version that can still be read."""
        oldest = oldest_version(self._path)
        return {VERSION: BEFORE_FIRST if oldest is None else oldest - 1}

    def latestOffset(self, start: dict[str, int], limit: object = None) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's
        """Give the end of the next batch; idle, it costs a look-up of a name."""
        version = start[VERSION]
        while version - start[VERSION] < VERSIONS_A_BATCH and has_version(self._path, version + 1):
            version += 1
        return {VERSION: version}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Give the one task of a batch."""
        return [Versions(start[VERSION], end[VERSION])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what the versions added, as Arrow batches, the oldest first.

        Raises:
            TailGap: some of it is gone.
        """
        import pyarrow as pa  # noqa: PLC0415 - the planner does without it

        wanted = cast("Versions", partition)
        tail = ChangeTail(self._path, wanted.after)
        for version, rows in tail.poll(wanted.last):
            numbered = rows.add_column(0, pa.field(VERSION, pa.int64(), nullable=False), [[version] * rows.num_rows])
            yield from numbered.to_batches()
        if tail.version < wanted.last:
            raise TailGap(
                f"version {tail.version + 1} of {self._path} is gone from its log; delete the checkpoint of this "
                "query, and it goes on with the oldest version that is left"
            )

    def commit(self, end: dict[str, int]) -> None:
        """Keep everything: the truth is not this reader's."""
