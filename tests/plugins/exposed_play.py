"""What ``/metrics`` shows of something that is played: its rows, read as the exporter reads them, at each scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.events import put_incidents
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.delta.changes.log import in_commit
from streaming.delta.incidents.rows import SCHEMA
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.contracts.state import ClusterState

STALE_AFTER_SECONDS = 60.0


class ExposedPlay:
    """An exporter's snapshot that takes over commits; ``names`` limits what is rendered."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        """Start with empty tables."""
        self._request = ScrapeRequest(None, names)
        self._exposition = Exposition(STALE_AFTER_SECONDS)
        self._snapshot = ReplicationSnapshot()

    def commit(
        self,
        version: int,
        now: int,
        changes: pa.Table,
        clusters: Iterable[ClusterState],
        incidents: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Take over one commit.

        Args:
            version: of ``partition_changes``.
            now: when it was committed, UTC microseconds.
            changes: its rows, without the columns of the commit.
            clusters: as the job stores with each commit how far its sources came.
            incidents: every row of that table.
        """
        committed = in_commit(changes, version, now)
        draft = SnapshotDraft(self._snapshot)
        apply_changes(draft, committed)
        count_isr_removals(draft, committed, StateVersions())
        for cluster in clusters:
            draft.put_cluster(cluster, ())
        rows = pa.Table.from_pylist(list(incidents), SCHEMA)
        put_incidents(draft, rows.append_column("is_over", pc.is_null(rows["carried"])))
        self._snapshot = draft.finish(version, now, 0)

    def scrape(self, now: int) -> str:
        """Give the text of a scrape."""
        health = ExporterHealth("1", self._snapshot.version, 0.0, 0)
        return plain(self._exposition.render(self._snapshot, health, now, self._request)).decode()
