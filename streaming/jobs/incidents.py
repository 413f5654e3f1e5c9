"""One micro-batch of the incidents query: versions of the truth in, one commit to ``incidents`` out.

What was applied already is skipped by version, so a batch may come again; what a new checkpoint does not bring is read
from the truth. Knows Arrow and the table, no Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from streaming.changes.incidents import Gaps
from streaming.delta.incidents import IncidentsTable
from streaming.delta.tail import BEFORE_FIRST
from streaming.jobs.batch import MICROS, Applied
from streaming.jobs.changes_source import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.state import SourceState


class IncidentsBatch:
    """Folds changes into incidents. The one writer of ``incidents``."""

    def __init__(self, directory: Path, gap_seconds: float, rolling_gap_seconds: float) -> None:
        """Open the table and take up the incidents that are open.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        gaps = Gaps(usual=round(gap_seconds * MICROS), rolling=round(rolling_gap_seconds * MICROS))
        self._table = IncidentsTable(directory, gaps)

    @property
    def positions(self) -> dict[str, int]:
        """Nothing: it reads no bus."""
        return {}

    def position(self, source: str) -> int:
        """Give -1: it reads no bus."""
        del source
        return -1

    def sources(self) -> tuple[list[SourceState], int | None]:
        """Give none: the truth tells how far it follows from its sources."""
        return [], None

    @property
    def version(self) -> int:
        """The version of the truth up to which everything was applied."""
        return self._table.version

    @property
    def is_empty(self) -> bool:
        """Whether the table has never been written."""
        return self._table.version == BEFORE_FIRST

    def check_ours(self) -> None:
        """Look whether somebody else writes the table since.

        Raises:
            TableRefused: somebody does.
        """
        self._table.check_ours()

    def catch_up(self, version: int) -> None:
        """Apply what the truth has up to a version and no batch brings.

        Raises:
            TailGap: some of it is gone.
        """
        self._table.catch_up(version)

    def apply(self, rows: pa.Table) -> Applied:
        """Apply what some versions added.

        Args:
            rows: as in ``partition_changes``, with their ``version``, in order.

        Raises:
            TableRefused: another job writes the table; nothing was written.
            TailGap: versions between the table's and the first of these are gone.
        """
        began = time.perf_counter()
        versions = pc.unique(rows[VERSION]).to_pylist()
        if versions:
            self.catch_up(versions[0] - 1)
        changes = rows.drop_columns([VERSION])
        count = self._table.apply((it, changes.filter(pc.equal(rows[VERSION], it))) for it in versions)
        return Applied(
            observations=0,
            changes=count,
            refused=0,
            version=self._table.version,
            seconds=time.perf_counter() - began,
        )
