"""Consumer groups from the newest samples: their lag in all, and where it is worst. Unknown lag stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from exporters.columns import columns_of
from exporters.history.moments import SECOND
from exporters.history.wanted import is_wanted_topic
from streaming.contracts.sample_tables import GROUP_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Row = dict[str, Any]

_OF_GROUP: Final = ("cluster_id", "cluster", "group", "group_protocol", "group_state", "members")


def group_rows(path: Path, topics: tuple[str, ...], now: int) -> Iterator[Row]:
    """Sum up the samples of each group.

    Args:
        path: the folder of ``group_offsets``; it need not exist.
        topics: globs; of a group only these count.
        now: UTC microseconds, for the age of the samples.
    """
    if not DeltaTable.is_deltatable(str(path)):
        return
    found = QueryBuilder().register("samples", DeltaTable(str(path))).execute("SELECT * FROM samples")
    columns = columns_of(pa.table(found), GROUP_OFFSETS.column_names())
    groups: dict[tuple[str, str], list[Row]] = {}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if is_wanted_topic(row["topic"], topics):
            groups.setdefault((row["cluster"], row["group"]), []).append(row)
    for _, rows in sorted(groups.items()):
        yield _summed(rows, now)


def _summed(rows: list[Row], now: int) -> Row:
    newest = max(rows, key=lambda row: row["collected_at"])
    known = [row for row in rows if row["lag"] is not None]
    worst = max(known, key=lambda row: row["lag"], default=None)
    return {
        **{name: newest[name] for name in _OF_GROUP},
        "partitions": len(rows),
        "lag": sum(row["lag"] for row in known) if len(known) == len(rows) else None,
        "records_lost": sum(row["records_lost"] or 0 for row in rows),
        "worst_partition": None if worst is None else f"{worst['topic']}-{worst['partition']}",
        "worst_lag": None if worst is None else worst["lag"],
        "sample_age_seconds": max(0, now - newest["collected_at"]) / SECOND,
    }
