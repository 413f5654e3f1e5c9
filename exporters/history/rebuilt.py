"""The state as of a version, rebuilt from the changes up to it: the newest row of each key, counted once.

Knows the tables and drafts of snapshots. Reads ``partition_changes`` alone, because state tables keep no long past.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from exporters.changes import AsOf, SnapshotDraft, apply_changes
from exporters.history.versions import committed_at
from exporters.snapshot import ReplicationSnapshot
from streaming.contracts.events import Cause
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import EXPIRED, arrow_schema
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA: Final = arrow_schema(PARTITION_CHANGES)
# What a change added to what was before; the newest row alone says what there is.
_STEPS: Final = ("before", "events", "left_isr", "joined_isr")
# A partition counts its changes. Whatever else has one order in time; of a cluster several rows may be of one moment,
# and a row that knows more came later.
_NEWEST: Final = """
SELECT * FROM (
    SELECT *, row_number() OVER (
        PARTITION BY cluster_id, subject, topic_id, "partition", broker, CASE subject WHEN 'source' THEN source END
        ORDER BY coalesce(after['change_number'], 0) DESC, occurred_not_after DESC, collected_at DESC,
                 coalesce(cluster_after['controller_epoch'], -1) DESC,
                 CASE WHEN cluster_after['has_baseline'] THEN 1 ELSE 0 END DESC,
                 sequence DESC, coalesce("offset", -1) DESC
    ) AS age FROM changes
) WHERE age = 1
"""
_DEPARTURES: Final = """
SELECT cluster_id, "cluster", broker, cause, count(*) AS departures
FROM (SELECT cluster_id, "cluster", cause, unnest(left_isr) AS broker FROM changes)
GROUP BY cluster_id, "cluster", broker, cause
"""


def rebuilt(tables: Path, version: int) -> ReplicationSnapshot:
    """Rebuild what the tables said at a version of ``partition_changes``; samples are not in it.

    Raises:
        ConfigurationError: the beginning of the changes has expired.
    """
    path = tables / PARTITION_CHANGES.name
    table = DeltaTable(str(path), version=version)
    if table.transaction_version(EXPIRED) is not None:
        raise ConfigurationError(
            f"the state as of version {version} cannot be rebuilt: the beginning of {path} has expired; "
            "tables.history_days = 0 keeps it, from new tables on"
        )
    engine = QueryBuilder().register("changes", table)
    draft = SnapshotDraft(ReplicationSnapshot())
    apply_changes(draft, version, _newest(engine), AsOf())
    for (cluster_id, cluster, broker), causes in _departures(engine).items():
        draft.cluster(cluster_id, cluster).put_departures(broker, causes)
    return draft.finish(version, committed_at(path, version), 0)


def _newest(engine: QueryBuilder) -> pa.Table:
    rows = pa.table(engine.execute(_NEWEST)).select(_SCHEMA.names)
    for name in _STEPS:
        nothing = pa.nulls(rows.num_rows, _SCHEMA.field(name).type)
        rows = rows.set_column(rows.column_names.index(name), name, nothing)
    return rows.cast(_SCHEMA)


def _departures(engine: QueryBuilder) -> dict[tuple[Any, ...], dict[str, int]]:
    counted: dict[tuple[Any, ...], dict[str, int]] = {}
    for row in pa.table(engine.execute(_DEPARTURES)).to_pylist():
        key = row["cluster_id"], row["cluster"], row["broker"]
        counted.setdefault(key, {})[row["cause"] or Cause.UNKNOWN.value] = row["departures"]
    return counted
