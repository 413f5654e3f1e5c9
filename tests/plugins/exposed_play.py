"""What ``/metrics`` shows of something that is played: its rows, read as the exporter reads them, at each scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.events import put_incidents
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.side_tables import SIDE_CONTENTS
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.read_model.spells import put_conditions, put_sampled_conditions
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sample_tables import TABLE_OF
from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import CONDITIONS
from streaming.delta.changes.log import in_commit
from streaming.delta.incidents.rows import SCHEMA
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.queries import plain as plain_times
from streaming.delta.samples.newest import Newest
from streaming.delta.samples.sampled_spells import SampledSpells
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals
from streaming.jobs.shards.samples import read_samples
from streaming.jobs.streams import bus_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.contracts.conditions import Spell
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import ClusterState

STALE_AFTER_SECONDS = 60.0
_CONTENTS = {content.definition.name: content for content in SIDE_CONTENTS}


class Committed(Protocol):
    """What one commit has: rows of the change log without the columns of the commit, and all rows of two tables."""

    @property
    def version(self) -> int:
        """Its version of ``partition_changes``."""

    @property
    def now(self) -> int:
        """When it was, UTC microseconds."""

    @property
    def changes(self) -> pa.Table:
        """Rows of ``partition_changes``."""

    @property
    def clusters(self) -> Sequence[ClusterState]:
        """How far the sources came, as the job stores it with each commit."""

    @property
    def incidents(self) -> Sequence[dict[str, Any]]:
        """Rows of ``incidents``."""

    @property
    def spells(self) -> Sequence[Spell]:
        """Rows of ``conditions``."""


class ExposedPlay:
    """An exporter's snapshot that takes over commits; ``names`` limits what is rendered."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        """Start with empty tables."""
        self._request = ScrapeRequest(None, names)
        self._exposition = Exposition(STALE_AFTER_SECONDS)
        self._snapshot = ReplicationSnapshot()
        self._newest = {
            kind: Newest(table, plain_times(arrow_schema(table).empty_table())) for kind, table in TABLE_OF.items()
        }
        self._sampled, self._rows_of_sampled = SampledSpells(), dict[ClusterId, pa.Table]()
        self._changed: tuple[pa.Table, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is rendered: it is rendered again from the snapshot."""
        return {name: value for name, value in self.__dict__.items() if name != "_exposition"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on where the object stood that was written."""
        self.__dict__.update(state, _exposition=Exposition(STALE_AFTER_SECONDS))

    def commit(self, batch: Committed) -> None:
        """Take over one commit."""
        committed = in_commit(batch.changes, batch.version, batch.now)
        draft = SnapshotDraft(self._snapshot)
        apply_changes(draft, committed)
        count_isr_removals(draft, committed, StateVersions())
        for cluster in batch.clusters:
            draft.put_cluster(cluster, ())
        rows = pa.Table.from_pylist(list(batch.incidents), SCHEMA)
        put_incidents(draft, rows.append_column("is_over", pc.is_null(rows["carried"])))
        put_conditions(draft, _rows_of_spells(batch.spells))
        self._snapshot = draft.finish(batch.version, batch.now, 0)

    def sample(
        self, now: int, samples: Iterable[Observation], sources: Iterable[SourceState] = (), *, is_query_up: bool = True
    ) -> None:
        """Take over what was sampled, in its order, and how far the job has applied the sources of changes.

        Args:
            now: the job's report is of then, UTC microseconds.
            samples: since the last call.
            sources: of the replication channel; of both the job has applied all that was sent.
            is_query_up: False while the job cannot read the bus.
        """
        samples = list(samples)
        told = [
            {"source": each.source, "position": number, "payload": encode(each), "damage": None}
            for number, each in enumerate(samples)
        ]
        draft, lag = SnapshotDraft(self._snapshot), SourceLag(0, 0, is_query_up, 0, now)  # type: ignore[arg-type]
        for source in sources:
            draft.cluster(source.cluster_id, source.cluster).put_source(source, Channel.REPLICATION, lag)
        for source in _sources_of(samples):
            draft.cluster(source.cluster_id, source.cluster).put_source(source, Channel.SAMPLES, lag)
        for kind, rows in read_samples(pa.Table.from_pylist(told, schema=bus_source.SCHEMA)).columns.items():
            if len(rows):
                self._sampled.take(self._newest[kind], rows)
                _CONTENTS[TABLE_OF[kind].name].read(None, self._newest[kind].rows)(draft)  # type: ignore[arg-type]
        changed = self._sampled.changed()
        self._rows_of_sampled |= changed
        self._changed = tuple(changed.values())
        if self._rows_of_sampled:
            put_sampled_conditions(draft, pa.concat_tables(self._rows_of_sampled.values()))
        self._snapshot = draft.finish(self._snapshot.version, now, 0)

    def sampled_conditions(self) -> tuple[pa.Table, ...]:
        """Give the rows of ``sampled_conditions`` that changed with the last call of :meth:`sample`."""
        return self._changed

    def scrape(self, now: int) -> str:
        """Give the text of a scrape."""
        health = ExporterHealth("1", self._snapshot.version, 0.0, 0)
        return plain(self._exposition.render(self._snapshot, health, now, self._request)).decode()


def _rows_of_spells(spells: Iterable[Spell]) -> pa.Table:
    rows = [{**spell._asdict(), "topics": list(spell.topics), "as_of_version": 0} for spell in spells]
    return plain_times(rows_to_arrow(rows, arrow_schema(CONDITIONS)))


def _sources_of(samples: Sequence[Observation]) -> Iterable[SourceState]:
    """Give the sources of samples, as the job keeps them."""
    newest = {(each.cluster_id, each.cluster, each.source): each.collected_at for each in samples}
    for (cluster_id, cluster, source), moment in newest.items():
        yield SourceState(cluster_id, cluster, source, SourceKind.NONE, observed_until=moment, collected_at=moment)
