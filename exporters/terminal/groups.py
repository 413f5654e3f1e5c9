"""Consumer groups from the newest samples: total lag, and the partition with the largest. Unknown lag stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.terminal.event_filter import matches_topic
from exporters.terminal.time_parsing import SECOND
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.delta.arrow_values import columns_of
from streaming.delta.queries import select
from streaming.delta.storage import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Row = dict[str, Any]

_OF_GROUP: Final = ("cluster_id", "cluster", "group", "group_protocol", "group_state", "members")


def group_rows(path: Path, topics: tuple[str, ...], now: int) -> Iterator[Row]:
    """Sum up the samples of each group.

    Args:
        path: the folder of ``group_offsets``; it need not exist.
        topics: patterns; only partitions of these topics are summed up.
        now: UTC microseconds; the age of the samples is measured from it.
    """
    table = open_table(path)
    if table is None:
        return
    samples = select(table, GROUP_OFFSETS)
    columns = columns_of(samples, samples.column_names)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if matches_topic(row["topic"], topics):
            groups.setdefault((row["cluster"], row["group"], row["cluster_id"]), []).append(row)
    for _, rows in sorted(groups.items()):
        yield _summed(rows, now)


def _summed(rows: list[Row], now: int) -> Row:
    newest = max(rows, key=lambda row: row["collected_at"])
    with_lag = [row for row in rows if row["lag"] is not None]
    worst = max(with_lag, key=lambda row: row["lag"], default=None)
    return {
        **{name: newest[name] for name in _OF_GROUP},
        "partitions": len(rows),
        "lag": sum(row["lag"] for row in with_lag) if len(with_lag) == len(rows) else None,
        "records_lost": sum(row["records_lost"] or 0 for row in rows),
        "worst_partition": None if worst is None else f"{worst['topic']}-{worst['partition']}",
        "worst_lag": None if worst is None else worst["lag"],
        "sample_age_seconds": max(0, now - newest["collected_at"]) / SECOND,
    }
