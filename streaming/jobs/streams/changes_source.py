"""``partition_changes`` as a Spark source, for queries that follow the change log.

    spark.readStream.format("isrwatch_changes").option("path", …).option("after", …).load()

Rows are those of the table, in order. The offset is the newest version that was read; rows carry the version of their
commit, so no entry of Delta's log is needed to read them, however far behind the query is.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import SECONDS_BETWEEN_HEARTBEATS, ChangesRestarted, only_sources, rows_between
from streaming.delta.log.table_log import BEFORE_FIRST, has_moved, newest_version
from streaming.errors import ConfigurationError
from streaming.jobs.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming.delta.store.place import Place

FORMAT: Final = "isrwatch_changes"
PATH: Final = "path"
AFTER: Final = "after"
VERSION: Final = "version"
VERSIONS_PER_BATCH: Final = 1000


class Versions(InputPartition):
    """Share of one task: the versions after one, up to another. One task per batch, so that their order stays."""

    def __init__(self, after: int, last: int) -> None:
        super().__init__(None)
        self.after, self.last = after, last


class ChangesDataSource(DataSource):
    """Spark's view of the change log.

    Options: ``path``, the folder of the table, which need not exist yet; ``after``, the version after which a query
    begins (default: before the first).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return table_schema(PARTITION_CHANGES.name)

    def streamReader(self, schema: StructType) -> ChangesStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Return a reader.

        Raises:
            ConfigurationError: the path is missing.
        """
        if PATH not in self.options:
            raise ConfigurationError(f"the changes need the option {PATH!r}: add .option({PATH!r}, ...)")
        return ChangesStreamReader(Path(self.options[PATH]), int(self.options.get(AFTER, BEFORE_FIRST)))


def register(spark: SparkSession) -> None:
    """Register the format with a session."""
    spark.dataSource.register(ChangesDataSource)


class ChangesStreamReader(DataSourceStreamReader):
    """Plans and reads versions. Planning and reading happen in different processes."""

    def __init__(self, path: Place, after: int = BEFORE_FIRST) -> None:
        self._path, self._after = path, after
        self._only_sources_upto = BEFORE_FIRST
        self._planned_at = -math.inf

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Begin after the version that the query has read already."""
        return {VERSION: self._after}

    def latestOffset(self, start: dict[str, int], limit: object = None) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's
        """Return the end of the next batch; idle, it costs two look-ups of a name.

        Of mere heartbeats a query learns once in a while: a batch for each would be most of what it costs.
        """
        version = start[VERSION]
        is_recent = time.monotonic() - self._planned_at < SECONDS_BETWEEN_HEARTBEATS
        looked_upto = max(version, self._only_sources_upto) if is_recent else version
        if not has_moved(self._path, looked_upto):
            return start
        newest = max(version, min(newest_version(self._path), version + VERSIONS_PER_BATCH))
        if is_recent and only_sources(self._path, looked_upto, newest):
            self._only_sources_upto = newest
            return start
        self._planned_at = time.monotonic()
        return {VERSION: newest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the one task of a batch."""
        return [Versions(start[VERSION], end[VERSION])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what the versions added, as Arrow batches, the oldest first.

        Raises:
            ChangesRestarted: the table was recreated or restored from an older copy.
        """
        versions = cast("Versions", partition)
        try:
            yield from rows_between(self._path, versions.after, versions.last).to_batches()
        except ChangesRestarted as error:
            raise ChangesRestarted(
                f"{error}; restart the job: its start makes the incidents agree with the table as it is now"
            ) from error

    def commit(self, end: dict[str, int]) -> None:
        """Delete nothing: the change log belongs to the replication query."""
