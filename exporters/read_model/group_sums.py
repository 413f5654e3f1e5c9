"""What the partitions of a group add up to; what is unknown of one of them is unknown of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up rows of ``group_offsets`` of one group; in seconds the lag is the largest one."""
    with_lag = [row for row in rows if row["lag"] is not None]
    worst = max(with_lag, key=lambda row: row["lag"], default=None)
    seconds = [row["lag_seconds"] for row in rows]
    return {
        "partitions": len(rows),
        "lag": sum(row["lag"] for row in with_lag) if rows and len(with_lag) == len(rows) else None,
        "lag_seconds": None if not seconds or None in seconds else max(seconds),
        "records_lost": sum(row["records_lost"] or 0 for row in rows) if rows else None,
        "worst_partition": None if worst is None else f"{worst['topic']}-{worst['partition']}",
        "worst_lag": None if worst is None else worst["lag"],
    }
