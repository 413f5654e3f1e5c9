"""One micro-batch of the incidents query: versions of the change log in, one commit to ``incidents`` out.

It skips versions that were applied already, so a batch may be repeated. Depends on Arrow and the table, not on Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streaming.changes.incidents.grouping import IncidentGaps
from streaming.delta.changes.reader import by_version
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.jobs.queries import BatchResult

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.delta.store.place import Place


class IncidentsBatch:
    """Folds changes into incidents. The only writer of ``incidents``."""

    def __init__(
        self, directory: Place, gap_seconds: float, rolling_gap_seconds: float, policy: RetentionPolicy = KEEP_ALL
    ) -> None:
        """Open the table; ``TableRefused`` if it is not ours, or newer than this program."""
        gaps = IncidentGaps.of_seconds(gap_seconds, rolling_gap_seconds)
        self._table = IncidentsTable(directory, gaps, policy)

    @property
    def version(self) -> int:
        """The change log version up to which everything was applied."""
        return self._table.version

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table."""
        self._table.check_ours()

    def apply(self, rows: pa.Table) -> BatchResult:
        """Apply the rows of ``partition_changes`` that one or more versions added, in their order.

        Raises:
            TableRefused: another job writes the table; nothing was written.
        """
        began = time.perf_counter()
        count = self._table.apply(by_version(rows))
        return BatchResult(
            observations=0, changes=count, refused=0, version=self._table.version, seconds=time.perf_counter() - began
        )
